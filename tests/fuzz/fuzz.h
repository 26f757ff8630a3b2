/* What libFuzzer calls; and a check that is on in every build. */
#ifndef GRANARY_TESTS_FUZZ_FUZZ_H
#define GRANARY_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define FUZZ_CHECK(holds)                                                                                              \
    do {                                                                                                               \
        if (!(holds))                                                                                                  \
            abort();                                                                                                   \
    } while (0)

#endif

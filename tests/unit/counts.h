/* How much a test does: all of it with `./test --all`, less in `./test`, which takes minutes. */
#ifndef GRANARY_TESTS_UNIT_COUNTS_H
#define GRANARY_TESTS_UNIT_COUNTS_H

#include <stdlib.h>

/* full where GRANARY_FULL is in the environment, else fewer */
static inline unsigned full_or(unsigned full, unsigned fewer)
{
    return getenv("GRANARY_FULL") ? full : fewer;
}

#endif

/* Bytes that are a function of their offset, eight at a time: datasets are filled and compared by the hundred
 * megabytes, and the sanitizers look at each store.
 */
#ifndef GRANARY_TESTS_FAKE_WORDS_H
#define GRANARY_TESTS_FAKE_WORDS_H

#include "base/le.h"

/* The eight bytes, the first one lowest, that the byte at `offset` is among. */
typedef uint64_t words_at(const void *arg, uint64_t offset);

static inline void words_fill(words_at *at, const void *arg, uint64_t offset, uint8_t *out, uint64_t len)
{
    uint64_t i = 0;
    for (; i < len && (offset + i) & 7; i++)
        out[i] = (uint8_t)(at(arg, offset + i) >> 8 * ((offset + i) & 7));
    for (; i + 8 <= len; i += 8)
        le64_put(out + i, at(arg, offset + i));
    for (; i < len; i++)
        out[i] = (uint8_t)(at(arg, offset + i) >> 8 * ((offset + i) & 7));
}

#endif

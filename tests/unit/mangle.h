/* Every way in which a decoder's input can be damaged a little: what all of test_format_* run. */
#ifndef GRANARY_TESTS_UNIT_MANGLE_H
#define GRANARY_TESTS_UNIT_MANGLE_H

#include <stdlib.h>
#include <string.h>

#include "unit/cmocka_all.h"

/* Decodes a copy of exactly len bytes (so that sanitizers see a read beyond it); returns what the
 * decoder returned. */
typedef int mangle_decode(void *arg, const void *data, size_t len);

static inline int mangle_try(mangle_decode *decode, void *arg, const uint8_t *data, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, data, len);
    int rc = decode(arg, copy, len);
    free(copy);
    return rc;
}

/* Cut at every length: all must give code. */
static inline void mangle_truncate(mangle_decode *decode, void *arg, const uint8_t *data, size_t len, int code)
{
    for (size_t n = 0; n < len; n++)
        assert_int_equal(mangle_try(decode, arg, data, n), code);
}

/* Turn over each bit, `step` bytes apart: 0 (decode itself checks what it got) or code, nothing else.
 * Returns how many were refused. */
static inline size_t mangle_flip(mangle_decode *decode, void *arg, const uint8_t *data, size_t len, size_t step,
                                 int code)
{
    uint8_t *copy = malloc(len);
    size_t refused = 0;
    assert_non_null(copy);
    memcpy(copy, data, len);
    for (size_t i = 0; i < len; i += step)
        for (int bit = 0; bit < 8; bit++) {
            copy[i] ^= (uint8_t)(1u << bit);
            int rc = mangle_try(decode, arg, copy, len);
            assert_true(rc == 0 || rc == code);
            refused += rc != 0;
            copy[i] ^= (uint8_t)(1u << bit);
        }
    free(copy);
    return refused;
}

/* The same bytes for the same seed: noise that does not compress. */
static inline void mangle_noise(uint64_t seed, uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        out[i] = (uint8_t)(seed >> 24);
    }
}

#endif

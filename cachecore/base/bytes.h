/* A growable byte buffer with a stated maximum, so that no input can make it grow without bound. */
#ifndef GRANARY_BASE_BYTES_H
#define GRANARY_BASE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct bytes {
    uint8_t *data;
    size_t len;
    size_t cap;
    size_t max; /* bytes_append fails with -EMSGSIZE beyond it */
};

/* Declare `struct bytes b CLEANUP(bytes_release);` or `CLEANUP_BYTES b = BYTES_INIT(max);` */
#define BYTES_INIT(maximum)                                                                                            \
    {                                                                                                                  \
        .data = NULL, .len = 0, .cap = 0, .max = (maximum)                                                             \
    }
#define CLEANUP_BYTES CLEANUP(bytes_release) struct bytes

void bytes_release(struct bytes *b);

/* Forget the contents, keep the memory. */
static inline void bytes_clear(struct bytes *b)
{
    b->len = 0;
}

/* Append n bytes. -EMSGSIZE: more than max; -ENOMEM. On failure b is unchanged. */
GR_MUST_CHECK int bytes_append(struct bytes *b, const void *p, size_t n);

/* Append n bytes of value 0 and point *out at them (valid until the next append). */
GR_MUST_CHECK int bytes_extend(struct bytes *b, size_t n, uint8_t **out);

/* Room for n bytes behind what is there, for the caller to fill and to count into len (at most n): *out is valid until
 * the next append. Unlike bytes_extend it sets nothing. */
GR_MUST_CHECK int bytes_reserve(struct bytes *b, size_t n, uint8_t **out);

/* Append formatted text, without the final NUL. */
GR_MUST_CHECK int bytes_printf(struct bytes *b, const char *fmt, ...) GR_PRINTF(2, 3);

/* Append a NUL (not counted in len afterwards) and return the contents as a string; NULL when out
 * of space. */
char *bytes_string(struct bytes *b);

#endif

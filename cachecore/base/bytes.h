/* A growable byte buffer with a fixed maximum, so that no input can make it grow without bound. One thread.
 *
 * All functions that return int return 0, -EMSGSIZE (the buffer would exceed max) or -ENOMEM, each with a sentence. On
 * failure the buffer is unchanged.
 */
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
    size_t max; /* bytes; the buffer never holds more */
};

/* Declare `struct bytes b CLEANUP(bytes_release);` or `CLEANUP_BYTES b = BYTES_INIT(max);` */
#define BYTES_INIT(maximum)                                                                                            \
    {                                                                                                                  \
        .data = NULL, .len = 0, .cap = 0, .max = (maximum)                                                             \
    }
#define CLEANUP_BYTES CLEANUP(bytes_release) struct bytes

/* Free the memory. The buffer is empty afterwards and may be used again, with the same max. */
void bytes_release(struct bytes *b);

/* The same for a buffer that held a secret: its memory is zeroed first. */
void bytes_wipe(struct bytes *b);

/* Drop the contents but keep the memory. */
static inline void bytes_clear(struct bytes *b)
{
    b->len = 0;
}

/* Append n bytes. p may be NULL when n is 0. */
GR_MUST_CHECK int bytes_append(struct bytes *b, const void *p, size_t n);

/* Append n zero bytes and point *out at them; valid until the next append. */
GR_MUST_CHECK int bytes_extend(struct bytes *b, size_t n, uint8_t **out);

/* Reserve room for n bytes after the contents and point *out at it; valid until the next append. The caller fills the
 * room and adds what it used, at most n, to len. Unlike bytes_extend, nothing is zeroed. */
GR_MUST_CHECK int bytes_reserve(struct bytes *b, size_t n, uint8_t **out);

/* Append formatted text, without the final NUL. */
GR_MUST_CHECK int bytes_printf(struct bytes *b, const char *fmt, ...) GR_PRINTF(2, 3);

/* Put a NUL after the contents, not counted in len, and return them as a string; valid until the next append. NULL,
 * with a sentence, when the NUL would exceed max or memory is short. */
char *bytes_string(struct bytes *b);

#endif

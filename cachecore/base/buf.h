/* A reference-counted byte buffer (of base/pages.h), page-aligned so that O_DIRECT may read into and write from it.
 * Written by one owner before it is shared, immutable afterwards.
 */
#ifndef GRANARY_BASE_BUF_H
#define GRANARY_BASE_BUF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/pages.h"

enum { BUF_ALIGN = PAGES_ALIGN };

struct buf {
    _Atomic unsigned refs;
    size_t len; /* bytes in use */
    size_t cap; /* len rounded up to BUF_ALIGN; the bytes behind len are zero when the buffer is
                   made */
    uint8_t *data;
};

/* A buffer of len bytes with undefined contents (the padding up to cap is zero) and one reference;
 * NULL when out of memory. */
struct buf *buf_new(size_t len);
struct buf *buf_ref(struct buf *b);
/* NULL is allowed. Any thread; the last one frees. */
void buf_unref(struct buf *b);

DEFINE_CLEANUP(buf, struct buf *, buf_unref)
#define CLEANUP_BUF CLEANUP(cleanup_buf)

#endif

/* A reference-counted byte buffer. Its memory comes from base/pages.h and is page-aligned, so O_DIRECT can read into it
 * and write from it. One owner fills the buffer before sharing it; afterwards it is immutable.
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
    size_t cap; /* len rounded up to BUF_ALIGN, at least BUF_ALIGN; buf_new zeroes the bytes after len */
    uint8_t *data;
};

/* Return a buffer of len bytes with one reference; NULL when out of memory. The contents are undefined, the padding up
 * to cap is zero. */
struct buf *buf_new(size_t len);
/* Take another reference; returns b. Any thread that already holds one. */
struct buf *buf_ref(struct buf *b);
/* Drop a reference; frees on the last. NULL is allowed. Any thread. */
void buf_unref(struct buf *b);

DEFINE_CLEANUP(buf, struct buf *, buf_unref)
#define CLEANUP_BUF CLEANUP(cleanup_buf)

#endif

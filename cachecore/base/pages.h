/* Memory for data, in whole pages: chunks, replies, what is gathered from a network. Each piece is a mapping of its own
 * and goes back to the kernel when it is no longer used, which malloc's arenas, of which every thread has one, do not
 * promise: buffers freed by other threads than took them left hundreds of MiB resident. Pieces used last are kept for
 * the next who asks, up to a bound.
 *
 * There is one pool in a process, as there is one heap. Any thread; no lock is held across a system call. Under
 * AddressSanitizer the pieces are of its heap, which notices what is used beyond its end or its time.
 */
#ifndef GRANARY_BASE_PAGES_H
#define GRANARY_BASE_PAGES_H

#include <stddef.h>

#include "base/cleanup.h"

enum {
    PAGES_ALIGN = 4096,
    PAGES_KEPT_MAX = 8 << 20, /* bytes kept for the next who asks */
};

/* len bytes with undefined contents, aligned to PAGES_ALIGN; NULL when out of memory. Pieces are of powers of two: what
 * is never written of one costs no memory. */
void *pages_get(size_t len);

/* Give a piece back: the len that it was asked for with. NULL is allowed. */
void pages_put(void *p, size_t len);

/* Bytes kept now, at most PAGES_KEPT_MAX. */
size_t pages_kept(void);

/* Give what is kept back to the kernel: when nothing was asked for lately. */
void pages_trim(void);

/* Have malloc, too, use mappings of their own for blocks of 128 KiB and more, at all times: by itself it stops that for
 * every size that it has seen freed once. For programs with many threads that run long; once, at their start. */
void pages_settle_heap(void);

/* A piece that is given back at the end of the scope: `CLEANUP_PAGES p = {.len = n}; p.data = pages_get(n);` */
struct pages {
    void *data; /* NULL: none */
    size_t len;
};

static inline void cleanup_pages(struct pages *p)
{
    pages_put(p->data, p->len);
}
#define CLEANUP_PAGES CLEANUP(cleanup_pages) struct pages

#endif

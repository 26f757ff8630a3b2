/* Page-aligned memory for data: chunks, replies, bytes received from a network. Each piece is a separate mapping and
 * returns to the kernel after use. malloc does not promise that: each thread has its arena, and buffers freed by
 * another thread than the one that allocated them left hundreds of MiB resident. Recently used pieces are kept for
 * reuse, up to PAGES_KEPT_MAX bytes.
 *
 * A process has one pool, as it has one heap. Any thread; no lock is held across a system call. Under AddressSanitizer
 * the pieces come from its heap, so that it detects overflows and use after free.
 */
#ifndef GRANARY_BASE_PAGES_H
#define GRANARY_BASE_PAGES_H

#include <stddef.h>

#include "base/cleanup.h"

enum {
    PAGES_ALIGN = 4096,
    PAGES_KEPT_MAX = 8 << 20, /* bytes kept for reuse */
};

/* Return len bytes with undefined contents, aligned to PAGES_ALIGN; NULL when out of memory. Mappings are rounded up to
 * a power of two; pages that are never written take no memory. */
void *pages_get(size_t len);

/* Release a piece. len: as passed to pages_get. NULL is allowed. */
void pages_put(void *p, size_t len);

/* Return all kept pieces to the kernel. For idle times. */
void pages_trim(void);

/* Make malloc, too, use a separate mapping for every block of 128 KiB and more. By default glibc raises that threshold
 * to the size of each mapped block that is freed. For long-running programs with many threads; call it once, at the
 * start. */
void pages_limit_heap(void);

/* A piece that is released at the end of the scope: `CLEANUP_PAGES p = {.len = n}; p.data = pages_get(n);` */
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

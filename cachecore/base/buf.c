/* The header and the data are separate allocations: the data must be page-aligned and goes back to the pool of
 * base/pages.h.
 */
#include "base/buf.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/pages.h"

struct buf *buf_new(size_t len)
{
    if (len > SIZE_MAX / 2)
        return NULL;
    /* One page even for no bytes, so that `data` is never NULL and an O_DIRECT transfer has a block to use. */
    size_t cap = len ? GR_ALIGN_UP(len, (size_t)BUF_ALIGN) : BUF_ALIGN;
    struct buf *b = malloc(sizeof *b);
    if (!b)
        return NULL;
    b->data = pages_get(cap);
    if (!b->data) {
        free(b);
        return NULL;
    }
    memset(b->data + len, 0, cap - len); /* O_DIRECT writes the padding too: no stale heap bytes may reach the disk */
    b->len = len;
    b->cap = cap;
    atomic_init(&b->refs, 1);
    return b;
}

struct buf *buf_ref(struct buf *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    return b;
}

void buf_unref(struct buf *b)
{
    /* acq_rel: what other threads did with the buffer happens before the free. */
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    pages_put(b->data, b->cap);
    free(b);
}

/* Which parts of a range are cached, and which are holes: walks that read the index and no chunk. */
#include <errno.h>

#include "image/image_internal.h"

/* ---- what is cached ---- */

/* Is the part of [*off, end) in one span cached? Advances *off. */
static bool span_is_cached(const struct image *img, const struct span *span, uint64_t *off, uint64_t end)
{
    uint32_t chunk_size = img->manifest.chunk_size;
    uint64_t stop = GR_MIN(end, span->end * chunk_size);
    for (uint64_t chunk = *off / chunk_size; span->leaf && chunk * chunk_size < stop; chunk++) {
        struct chunk_ref ref;
        if (span_chunk(span, chunk, &ref) && !cache_has(img->config.cache, &ref.digest))
            return false;
    }
    *off = stop;
    return true;
}

/* The first uncached chunk or node ends the walk. */
bool image_is_cached(struct image *img, uint64_t off, uint64_t len)
{
    uint64_t end = off + len;
    bool cached = !image_check_range(img, off, len);
    while (cached && off < end) {
        struct span span;
        if (span_locate(img->nodes, off / img->manifest.chunk_size, SPAN_CACHED, &span))
            return false;
        cached = span_is_cached(img, &span, &off, end);
        node_unref(span.leaf);
    }
    return cached;
}

void image_look(struct image *img, const struct chunk_ref *const *chunks, size_t n, enum cache_where *out)
{
    cache_look(img->config.cache, img->config.store, chunks, n, out);
}

/* ---- extents ---- */

/* The run that is being merged. */
struct extent {
    image_extent_visit *visit;
    void *arg;
    uint64_t off, len;
    bool hole;
};

/* Extend the run, or pass it to the visitor and begin another. Returns the visitor's result. */
static int extent_add(struct extent *e, uint64_t len, bool hole)
{
    if (e->len && e->hole != hole) {
        int stop = e->visit(e->arg, e->off, e->len, e->hole);
        if (stop)
            return stop;
        e->off += e->len;
        e->len = 0;
    }
    e->hole = hole;
    e->len += len;
    return 0;
}

/* Add the part of [*off, end) that lies in one span, chunk by chunk; a subtree of holes at once. */
static int extent_add_span(struct extent *e, const struct span *span, uint32_t chunk_size, uint64_t *off, uint64_t end)
{
    uint64_t stop = GR_MIN(end, span->end * chunk_size);
    while (*off < stop) {
        uint64_t chunk = *off / chunk_size;
        uint64_t next = span->leaf ? GR_MIN(stop, (chunk + 1) * chunk_size) : stop;
        struct chunk_ref ref;
        int rc = extent_add(e, next - *off, !span_chunk(span, chunk, &ref));
        if (rc)
            return rc;
        *off = next;
    }
    return 0;
}

/* Runs are merged across spans; the last one is passed on at the end. */
int image_extents(struct image *img, uint64_t off, uint64_t len, image_extent_visit *visit, void *arg)
{
    int rc = image_check_range(img, off, len);
    if (rc)
        return rc;
    struct extent e = {.visit = visit, .arg = arg, .off = off};
    uint64_t end = off + len;
    while (off < end) {
        struct span span;
        rc = span_locate(img->nodes, off / img->manifest.chunk_size, SPAN_FETCHED, &span);
        if (rc)
            return rc == -ENODATA ? image_refuse(img, off) : rc;
        int stop = extent_add_span(&e, &span, img->manifest.chunk_size, &off, end);
        node_unref(span.leaf);
        if (stop)
            return 0;
    }
    if (e.len)
        visit(arg, e.off, e.len, e.hole);
    return 0;
}

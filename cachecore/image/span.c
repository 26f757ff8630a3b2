/* Every step descends from the root again: the nodes are in memory, and the walk copies what it needs of a leaf
 * before it releases it. */
#include "image/span.h"

/* Get one node, in the way the walk wants it. */
static int span_get_node(struct image *img, const struct index_child *child, struct node_place place,
                         enum span_nodes how, struct node **out)
{
    if (how == SPAN_CACHED)
        return node_cache_peek(img->nodes, child, place, NULL, out);
    int rc = how == SPAN_KEPT ? node_cache_keep(img->nodes, child) : 0;
    return rc ? rc : node_cache_get(img->nodes, child, place, out);
}

/* Stops at the first zero digest: everything below it is holes. */
int span_locate(struct image *img, uint64_t chunk, enum span_nodes how, struct span *span)
{
    struct index_child child = img->manifest.index_root;
    uint64_t total = manifest_chunk_count(&img->manifest);
    for (unsigned level = img->manifest.index_levels; level-- > 0;) {
        uint64_t below = image_chunks_below(level + 1);
        struct node_place place = {.level = level, .number = chunk / below};
        span->first = place.number * below;
        span->end = GR_MIN(span->first + below, total);
        span->leaf = NULL;
        if (digest_is_zero(&child.digest))
            return 0;
        int rc = span_get_node(img, &child, place, how, &span->leaf);
        if (rc)
            return rc;
        if (level) {
            child = node_index(span->leaf)->children[chunk / image_chunks_below(level) % INDEX_FANOUT];
            node_unref(steal_ptr(&span->leaf));
        }
    }
    return 0;
}

const struct chunk_ref *span_chunk(const struct span *span, uint64_t chunk)
{
    if (!span->leaf)
        return NULL;
    const struct chunk_ref *ref = &node_index(span->leaf)->chunks[chunk - span->first];
    return chunk_is_hole(ref) ? NULL : ref;
}

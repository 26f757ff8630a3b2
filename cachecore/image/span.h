/* One step of a walk over an image: the leaf of the index that describes a chunk, or a subtree of holes. */
#ifndef GRANARY_IMAGE_SPAN_H
#define GRANARY_IMAGE_SPAN_H

#include "image/image_internal.h"

/* Chunks [first, end) that one step of a walk covers. */
struct span {
    struct node *leaf; /* NULL: all holes */
    uint64_t first, end;
};

/* The nodes on the way: fetched where they are not cached, likewise and kept in the cache, or not fetched (-ENODATA, no
 * sentence). */
enum span_nodes { SPAN_FETCHED, SPAN_KEPT, SPAN_CACHED };

/* The leaf of a chunk, or the largest subtree of holes around it. span->leaf: node_unref. Blocks while nodes are
 * fetched. */
GR_MUST_CHECK int span_locate(struct image *img, uint64_t chunk, enum span_nodes how, struct span *span);

/* A chunk of the span. NULL: a hole. */
const struct chunk_ref *span_chunk(const struct span *span, uint64_t chunk);

#endif

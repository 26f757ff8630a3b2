/* One step of a walk over an image: the leaf of the index that covers a chunk, or a subtree of holes. */
#ifndef GRANARY_IMAGE_SPAN_H
#define GRANARY_IMAGE_SPAN_H

#include "image/image_internal.h"

/* The chunks [first, end) that one step covers. */
struct span {
    struct node *leaf; /* holds one reference; NULL: all chunks are holes */
    uint64_t first, end;
};

/* What to do about nodes that are not cached: fetch them; fetch them and wait until they are on disk; or fail with
 * -ENODATA (no message). */
enum span_nodes { SPAN_FETCHED, SPAN_KEPT, SPAN_CACHED };

/* Find the leaf of a chunk, or the largest subtree of holes around it. Release span->leaf by node_unref. Blocks while
 * nodes are fetched. -ENODATA: see span_nodes, or cache-only mode; -EBADMSG: a node does not fit its place; else the
 * error of a fetch. */
GR_MUST_CHECK int span_locate(struct image *img, uint64_t chunk, enum span_nodes how, struct span *span);

/* Return the reference of a chunk of the span, valid as long as its leaf; NULL: a hole. */
const struct chunk_ref *span_chunk(const struct span *span, uint64_t chunk);

#endif

/* The chunk index of the parent: single entries and leaves, fetched and verified on demand, or leaves in ascending
 * order, fetched ahead. Keeps the PARENT_INDEX_NODES nodes used last, 170 KB each. One thread.
 *
 * A parent may consist of several images laid end to end. Each begins at a multiple of what a leaf describes, so that
 * their leaves are leaves of the whole:
 *
 *   image 0: | leaf 0 | leaf 1 | leaf 2..|
 *   image 1:                             | leaf 0 | leaf 1..|
 *   parent:  | leaf 0 | leaf 1 | leaf 2  | leaf 3 | leaf 4..|
 *
 * The first need not begin at 0: in a join of ext4 it lies after the new image's front.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_INDEX_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_INDEX_H

#include "base/map.h"
#include "format/image_ref.h"
#include "format/index.h"
#include "format/manifest.h"
#include "store/store.h"

enum { PARENT_INDEX_NODES = 16 };

/* One of the images that a parent consists of. */
struct parent_image {
    uint64_t begin; /* its first byte in the parent's address space: a multiple of what a leaf describes */
    struct manifest manifest;
    struct digest digest;
    struct image_ref found; /* how it was found */
};

/* Return the first address of an image at which file data may lie: it shares no chunk with the front. */
static inline uint64_t parent_data_begin(const struct manifest *m)
{
    return GR_ALIGN_UP(GR_MAX(m->front_len, UINT64_C(1)), (uint64_t)m->chunk_size);
}

/* Write NAME:TAG, or NAME@sha256:DIGEST where the image was given by its digest; returns out. */
enum { PARENT_IMAGE_NAME_MAX = IMAGE_NAME_MAX + IMAGE_TAG_MAX + DIGEST_HEX_SIZE };
const char *parent_image_name(const struct parent_image *image, char out[PARENT_IMAGE_NAME_MAX]);

/* The parent as the sink sees it, and which of its chunks stay. All pointers are the caller's. */
struct sink_parent {
    struct store *store;
    const struct manifest *manifest; /* its chunk size is the new image's */
    /* Several images, in ascending order; of `manifest`, only sizes count then. image_count 0: `manifest` is one
     * image. */
    const struct parent_image *images;
    size_t image_count;
    /* Return whether a kept file lies in this chunk of the parent. Then the chunk stays, unless it is written. The
     * answer for a number never changes. */
    bool (*kept)(void *arg, uint64_t chunk);
    /* Return whether that holds for all `count` chunks from `first` on. May return false if it does. NULL: unknown. */
    bool (*kept_all)(void *arg, uint64_t first, uint64_t count);
    void *arg;
    const struct digest_map *damaged; /* packs that no new index entry may refer to; NULL: none */
};

struct parent_index;

/* -ENOMEM. The manifest is copied; store and images are the caller's and outlive the result. */
GR_MUST_CHECK int parent_index_new(const struct sink_parent *parent, struct parent_index **out);
void parent_index_free(struct parent_index *p); /* NULL is allowed */

/* Return the entry of node `number` of `level` in the node above it; zero where there is no node. Several images have
 * no common nodes above their leaves. PARENT_DAMAGED (parent.h); others come from the store. */
GR_MUST_CHECK int parent_index_child(struct parent_index *p, unsigned level, uint64_t number, struct index_child *out);
/* Return the chunks of a leaf, as many as the parent has there, valid until the next call. *out NULL: only holes, or
 * past the end. Errors as from parent_index_child. */
GR_MUST_CHECK int parent_index_leaf(struct parent_index *p, uint64_t number, const struct chunk_ref **out);

/* Leaves in ascending order; INDEX_AHEAD (repository/read/index_read.h) of them are fetched before they are needed. */
struct parent_leaves;

/* wanted: return whether this leaf will be requested. A wrong guess costs a useless fetch, or a fetch that is not ahead
 * of time. NULL: all will be. p and arg are the caller's and outlive the result. -ENOMEM; -EAGAIN: no threads. */
GR_MUST_CHECK int parent_leaves_new(struct parent_index *p, bool (*wanted)(void *arg, uint64_t leaf), void *arg,
                                    struct parent_leaves **out);
/* Wait for fetches in flight and free. NULL is allowed. */
void parent_leaves_free(struct parent_leaves *l);
DEFINE_CLEANUP(parent_leaves, struct parent_leaves *, parent_leaves_free)

/* As parent_index_leaf; *out is valid until the next call of either function. Numbers ascend; one may be repeated. */
GR_MUST_CHECK int parent_leaves_get(struct parent_leaves *l, uint64_t number, const struct chunk_ref **out);

#endif

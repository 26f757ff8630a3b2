/* A filesystem being written into a sink. One vtable, one implementation a filesystem; a layout decides addresses and
 * emits blocks, and knows nothing of chunks or stores but the chunk size as a border.
 *
 * Order: body for every part that bodies_next hands on, then finish. Chunk 0 holds no bodies; bodies and the metadata
 * region each begin on a chunk boundary, so that no chunk mixes what two builds wrote.
 */
#ifndef GRANARY_IMAGEBUILD_LAYOUT_H
#define GRANARY_IMAGEBUILD_LAYOUT_H

#include "imagebuild/bodies.h"
#include "imagebuild/sink.h"
#include "imagebuild/tree.h"

struct layout;

struct layout_result {
    uint64_t image_size; /* a multiple of 4096 */
    uint64_t metadata_offset, metadata_len;
};

struct layout_ops {
    /* Emit one part. At a file's first part node->address is set (anew when the file begins again). -EFBIG: the
     * filesystem's limit, with a sentence naming it. */
    int (*body)(struct layout *l, const struct body_part *part);
    /* Emit all metadata of the tree, whose files have their addresses, and the front of chunk 0. */
    int (*finish)(struct layout *l, struct layout_result *out);
    void (*free)(struct layout *l);
};

/* First member of every implementation. */
struct layout {
    const struct layout_ops *ops;
};

struct layout_config {
    struct tree *tree; /* sealed; the caller's, like sink */
    struct sink *sink;
    uint32_t chunk_size;
};

GR_MUST_CHECK int layout_erofs_new(const struct layout_config *config, struct layout **out);

static inline void layout_free(struct layout *l)
{
    if (l)
        l->ops->free(l);
}
DEFINE_CLEANUP(layout, struct layout *, layout_free)

#endif

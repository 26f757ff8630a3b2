/* A filesystem's part of a build: where bodies may lie, and the metadata that makes a filesystem of them. One vtable,
 * one implementation a filesystem; it knows nothing of sources, parents or stores but the chunk size as a border.
 *
 * The build gives bodies their addresses (4096-aligned, contiguous, shared by files of equal content) from
 * fs->bodies on and writes them itself; fs_finish writes the rest through SINK_METADATA (from the first chunk
 * boundary behind the bodies on) and SINK_FRONT (from address 0 on).
 */
#ifndef GRANARY_IMAGEBUILD_FS_FS_H
#define GRANARY_IMAGEBUILD_FS_FS_H

#include "format/manifest.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/tree/nodes.h"

struct fs;

struct fs_config {
    uint32_t chunk_size;
    /* As listed: a filesystem whose front depends on them leaves room for files that grow while they are read. */
    uint64_t nodes, bytes;
    /* A parent's image of the same filesystem and chunk size (0: none), as its manifest has them: its size, and
     * metadata_offset, which no body of it ends behind. */
    uint64_t parent_size, parent_bodies_end;
    const char *dir; /* for temporary files; as in struct scratch_config */
    size_t memory;   /* of each sort and scratch, before it becomes a file; 0: their defaults */
    /* Called at least every 65,536 nodes of fs_finish; not 0 ends it with that value. NULL: nobody asks. */
    int (*step)(void *arg);
    void *step_arg;
};

struct fs_result {
    uint64_t image_size;                    /* a multiple of 4096 */
    uint64_t metadata_offset, metadata_len; /* the region behind the bodies */
    uint64_t front_len;                     /* metadata from address 0 on, as far as it is not zeros */
    uint64_t xattrs_skipped;                /* that this filesystem has no room for, beyond what the listing left out */
};

struct fs_ops {
    /* Write all metadata of the nodes, whose files have their addresses, with the sink. bodies_end: nothing at or
     * behind it is used by a body. -EFBIG: the filesystem's limit, with a sentence naming it. */
    int (*finish)(struct fs *f, const struct nodes *nodes, uint64_t bodies_end, struct sink *sink,
                  struct fs_result *out);
    void (*free)(struct fs *f);
};

/* First member of every implementation. */
struct fs {
    const struct fs_ops *ops;
    uint64_t bodies;     /* the first address of a body, a multiple of the chunk size, at least one chunk */
    uint64_t bodies_max; /* no body may end behind it */
    const char *limit;   /* bodies_max in words: "16 TiB, the limit of erofs with 4096-byte blocks" */
    bool keeps;          /* a parent's bodies can stay where they are; else the image is built as if there were none */
};

/* The one that fs names. */
GR_MUST_CHECK int fs_new(enum manifest_fs fs, const struct fs_config *config, struct fs **out);

GR_MUST_CHECK int fs_erofs_new(const struct fs_config *config, struct fs **out);
GR_MUST_CHECK int fs_ext4_new(const struct fs_config *config, struct fs **out);

static inline void fs_free(struct fs *f)
{
    if (f)
        f->ops->free(f);
}
DEFINE_CLEANUP(fs, struct fs *, fs_free)

#endif

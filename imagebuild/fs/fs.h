/* A filesystem's part of a build: where file data may lie, and the metadata that makes a filesystem of it. One
 * vtable, with an implementation for each filesystem. It knows nothing of sources, parents or stores; of chunks only
 * the size, as an alignment.
 *
 *   address 0                data_begin                      data_end, start of the next chunk or of a later one
 *   | front: SINK_FRONT ... | file data, written by the build | metadata: SINK_METADATA ...
 *
 * The build gives file data its addresses, from data_begin on (4096-aligned, contiguous, shared by files of equal
 * content), and writes it. `finish` writes everything else. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_FS_FS_H
#define GRANARY_IMAGEBUILD_FS_FS_H

#include "base/spill/scratch.h"
#include "base/step.h"
#include "format/manifest.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/tree/nodes.h"

struct fs;

/* How to lay out the image. Pointers are the caller's. */
struct fs_config {
    uint32_t chunk_size;
    /* As listed. A filesystem whose front depends on them leaves room for files that grow while they are read. */
    uint64_t nodes, bytes;
    uint64_t gaps; /* bytes left free between files, at most */
    /* From the manifest of a parent with the same filesystem and chunk size: its size, and its metadata_offset,
     * after which no file of it ends. 0: no parent. */
    uint64_t parent_size, parent_data_end;
    /* Called by finish at most once: get the parent's first 4096 bytes and after them the region of its metadata, for
     * the filesystem to own. *out NULL: there is none that can be used. Errors end the build. NULL: no parent. */
    int (*parent_metadata)(void *arg, struct scratch **out);
    void *parent_arg;
    const char *dir;  /* for temporary files; as in struct scratch_config */
    size_t memory;    /* bytes of each sorter and scratch before it spills into a file; 0: their defaults */
    struct step step; /* called by finish at least every 65,536 nodes */
};

/* The finished image, in bytes; goes into the manifest. */
struct fs_result {
    uint64_t image_size;                    /* a multiple of 4096 */
    uint64_t metadata_offset, metadata_len; /* the region after the file data */
    uint64_t front_len;                     /* up to the last byte of the front that is not zero */
    uint64_t xattrs_skipped; /* attributes this filesystem has no room for, beyond those the listing left out */
};

struct fs_ops {
    /* Write all metadata of the final nodes, whose files have their addresses. data_end: no file data lies at or
     * after it. Called once. -EFBIG: over a limit of the filesystem, which the sentence names; -EIO: a bug; -ENOMEM;
     * others come from scratch, sink and step. */
    int (*finish)(struct fs *f, const struct nodes *nodes, uint64_t data_end, struct sink *sink, struct fs_result *out);
    /* Free f, at any time. */
    void (*free)(struct fs *f);
};

/* First member of every implementation. */
struct fs {
    const struct fs_ops *ops;
    uint64_t data_begin; /* address of the first file's data; a multiple of the chunk size, at least one chunk */
    uint64_t data_max;   /* no file data may end after it */
    const char *limit;   /* data_max in words: "1 EiB, the limit of erofs with 4096-byte blocks" */
    bool keeps;          /* the parent's data can stay where it is; else build as if there were no parent */
};

/* One function for each filesystem; build.c chooses. -EFBIG: what was listed is over its limit; -ENOMEM. */
GR_MUST_CHECK int fs_erofs_new(const struct fs_config *config, struct fs **out);
GR_MUST_CHECK int fs_ext4_new(const struct fs_config *config, struct fs **out);

static inline void fs_free(struct fs *f)
{
    if (f)
        f->ops->free(f);
}
DEFINE_CLEANUP(fs, struct fs *, fs_free)

#endif

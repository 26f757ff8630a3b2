/* The sink: an image's address space on its way into the store. Writers put bytes at addresses. The sink cuts them
 * into chunks, packs the chunks, and puts packs and index leaves into the store while more is written.
 *
 * Writers use sections. Each section has one chunk in progress. Within a section addresses ascend; sections interleave
 * freely. No chunk is written by two sections, and SINK_DATA and SINK_METADATA lie after the chunks of all the
 * others. A chunk is closed when it is full, when its section moves on to another one, or at the end. Chunks are
 * packed in the order in which they close, so the result does not depend on the number of workers or uploads.
 *
 * Addresses that are never written are zeros, and a chunk of zeros is a hole that costs nothing. Upon a parent, a
 * chunk that is not written stays if the parent keeps it. A written chunk that equals the parent's chunk of the same
 * number, or of metadata that at the same place in the parent's metadata, takes the parent's reference and is not
 * packed. With `deltas`, a chunk of metadata that differs from the parent's is stored upon that, if this saves enough.
 *
 * Memory: a chunk for each section in use; with `erase`, a byte for each chunk of the parent; those that
 * sink_internal.h states; one pack in progress (pack_size); the upload's budget. Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_SINK_H
#define GRANARY_IMAGEBUILD_SINK_SINK_H

#include "base/spill/sorter.h"
#include "format/index.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/upload.h"

struct sink;

enum sink_section {
    SINK_FRONT,    /* the filesystem's beginning, from address 0 on */
    SINK_HOLES,    /* file data placed in free ranges of the parent */
    SINK_SCRUB,    /* chunks of the parent rewritten with their dead bytes zeroed */
    SINK_DATA,     /* file data after everything kept */
    SINK_METADATA, /* one range after the file data; the first write ends SINK_DATA */
    SINK_SECTIONS,
};

/* Everything that pointers lead to is the caller's and outlives the sink. */
struct sink_config {
    struct upload *upload;
    uint32_t chunk_size;              /* bytes */
    int zstd_level;                   /* 0: do not compress */
    unsigned workers;                 /* threads that hash and compress, at least 1 */
    size_t pack_size;                 /* bytes; a pack closes before it would pass this */
    struct sorter_config sorter;      /* for chunks that come out of order (sink_internal.h) */
    const struct sink_parent *parent; /* NULL: no parent; the struct itself is copied */
    uint64_t repack_budget; /* bytes that repacking may copy (sink_internal.h); not used if SINK_SCRUB was; 0: none */
    /* Upon a parent: leave no pack that holds anything but chunks of this image, at any cost. Excludes snapshots. */
    bool erase;
    /* Upon a parent that is one image: metadata may become deltas. If false, deltas of the parent are written anew. */
    bool deltas;
};

/* What repacking did (sink_internal.h). */
struct repack_counts {
    uint64_t packs, chunks, bytes; /* packs emptied; chunks and stored bytes copied */
};

/* What was written. Counts are of chunks. */
struct sink_result {
    struct index_child index_root;
    unsigned index_levels;
    struct digest content_root;
    uint64_t stored_bytes; /* of all chunks but holes, the parent's included */
    unsigned deltas;       /* manifest.deltas */
    /* New: packed. Kept: the parent's, holes among them; with `erase` those of chunks_reused too. Reused: written,
     * but equal to the parent's. */
    uint64_t chunks_new, chunks_kept, chunks_reused;
    uint64_t chunks_delta;         /* part of chunks_new */
    struct repack_counts repacked; /* part of chunks_kept */
};

/* -EINVAL: the parent has another chunk size. -ENOMEM. */
GR_MUST_CHECK int sink_new(const struct sink_config *config, struct sink **out);
/* Stop the workers and free the sink. NULL is allowed. */
void sink_free(struct sink *s);

/* Write len bytes at `address`, which is not before the end of the section's last write. -EIO with a sentence: the
 * caller broke the rules of the sections. Other errors come from encoding, the upload and the parent's index. */
GR_MUST_CHECK int sink_write(struct sink *s, enum sink_section section, uint64_t address, const void *data, size_t len);

/* Before SINK_METADATA and SINK_FRONT are written: the parent's metadata is damaged, so no chunk of theirs is taken
 * over from it or stored upon one of it, and packs are sent even if the store seems to have them. */
void sink_metadata_anew(struct sink *s);

/* End the chunk and the pack for a checkpoint, and describe the image up to `address`, the start of a chunk at or
 * past the end of SINK_DATA. SINK_DATA continues there, and is packed as in a build that begins there upon what was
 * described. Everything has been handed to the upload. 1: *out describes it; 0: closed but not described, because
 * other sections were used; or -errno as from sink_write. */
GR_MUST_CHECK int sink_snapshot(struct sink *s, uint64_t address, struct sink_result *out);

/* Complete the image of image_size bytes; no more writes follow. When this returns, everything has been handed to the
 * upload but has not necessarily arrived (upload_flush). Errors as from sink_write; -EFBIG: too many chunks. */
GR_MUST_CHECK int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out);

#endif

/* The image's address space on its way into the store: bytes become chunks, chunks become packs and index leaves, all
 * of it put into the store while more is written.
 *
 * Writers have regions, each with a chunk in progress of its own. Addresses ascend within a region, regions interleave
 * as they like; no chunk is written by two regions, and what DATA and METADATA write lies behind all the others'
 * chunks. A chunk is closed when it is full, when its region goes on to another one, or at the end; chunks are packed
 * in the order in which they are closed, so the result does not depend on the number of workers or uploads.
 *
 * Addresses that are never written are zeros, and a chunk of nothing but zeros is a hole that costs nothing. Upon a
 * parent, chunks that nobody writes stay where the parent says so, and a written chunk that is the parent's of the same
 * number, byte for byte, takes the parent's reference instead of a place in a pack.
 *
 * Memory: a chunk for each region in use; for erasure a byte for each chunk of the parent; chunker.h and index_writer.h
 * state theirs; one pack being filled (pack_size), the upload's budget. Used from one thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_SINK_H
#define GRANARY_IMAGEBUILD_SINK_SINK_H

#include "base/spill/sorter.h"
#include "format/index.h"
#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/rebuild/repack.h"
#include "imagebuild/sink/upload.h"

struct sink;

enum sink_region {
    SINK_FRONT,    /* the filesystem's beginning, from address 0 on */
    SINK_HOLES,    /* bodies placed in free ranges of the parent */
    SINK_SCRUB,    /* chunks of the parent written again, dead bytes zeroed */
    SINK_DATA,     /* bodies behind everything kept */
    SINK_METADATA, /* one region behind the bodies: the first write ends SINK_DATA */
    SINK_REGIONS,
};

struct sink_config {
    struct upload *upload; /* the caller's */
    uint32_t chunk_size;
    int zstd_level;                   /* 0: none */
    unsigned workers;                 /* threads that hash and compress, at least 1 */
    size_t pack_size;                 /* a pack is closed before it would pass this */
    struct sorter_config sorter;      /* index_writer.h */
    const struct sink_parent *parent; /* NULL: none; copied, what it points at is the caller's */
    uint64_t repack_budget;           /* upon a parent, not beside SINK_SCRUB: repack.h; 0: none */
    bool erase; /* upon a parent: no pack of the image holds anything else, whatever the budget; no snapshots then */
};

struct sink_result {
    struct index_child index_root;
    unsigned index_levels;
    struct digest content_root;
    uint64_t stored_bytes; /* of all chunks that are not holes, those of the parent included */
    /* Chunks packed; of the parent that stay (holes among them, for erasure also what is counted next); written ones
     * that turned out to be the parent's. */
    uint64_t chunks_new, chunks_kept, chunks_reused;
    struct repack_counts repacked; /* of those that stay */
};

GR_MUST_CHECK int sink_new(const struct sink_config *config, struct sink **out);
/* Stops the workers. NULL is allowed. */
void sink_free(struct sink *s);

/* len bytes at address, not before the end of the region's last write. -EIO with a sentence: the regions' rules are
 * broken, which is the caller's mistake. */
GR_MUST_CHECK int sink_write(struct sink *s, enum sink_region region, uint64_t address, const void *data, size_t len);

/* For a checkpoint: what was written through SINK_DATA ends at or before `address`, a chunk's begin, from which on it
 * goes on. Closes chunk and pack, so that what follows is packed as in a build that begins there upon what has been
 * described, and describes the image up to address. Everything has been handed to the upload. 1: done; 0: closed, but
 * not described, since other regions were used; or -errno. */
GR_MUST_CHECK int sink_snapshot(struct sink *s, uint64_t address, struct sink_result *out);

/* Nothing more comes: the image is image_size bytes. Everything has been handed to the upload when this returns, not
 * all of it has arrived (upload_flush). */
GR_MUST_CHECK int sink_finish(struct sink *s, uint64_t image_size, struct sink_result *out);

#endif

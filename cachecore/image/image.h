/* An image open for reading: offsets become chunks through the index tree, and chunks become bytes through the cache.
 * Every function may be called from any thread; those that fetch block. */
#ifndef GRANARY_IMAGE_IMAGE_H
#define GRANARY_IMAGE_IMAGE_H

#include "cache/cache.h"
#include "format/manifest.h"
#include "image/recorder.h"
#include "image/slow_read.h"
#include "store/store.h"

struct image;

/* What an image works with. The manifest is copied; everything else is borrowed. */
struct image_config {
    struct cache *cache;             /* not owned; must outlive the image */
    struct store *store;             /* not owned; likewise */
    const struct manifest *manifest; /* verified by the caller; copied */
    size_t index_memory;             /* bytes of decoded index nodes kept in memory; 0: 64 MiB */
    unsigned quota;                  /* cache_quota that its chunks are charged to */
    struct histogram *latency;       /* of image_read, in µs; shared by images; not owned; NULL: not measured */
    struct slow_reads *slow;         /* likewise: the log of slow reads */
    uint32_t readahead;              /* the most bytes fetched ahead of a sequential reader; 0: no readahead */
};

/* Open the image `digest`, whose manifest is in the config. *out has one reference. No I/O. -ENOMEM. */
GR_MUST_CHECK int image_open(const struct image_config *config, const struct digest *digest, struct image **out);
/* Take a reference; returns img. */
struct image *image_ref(struct image *img);
/* Drop a reference; frees on the last. NULL is allowed. */
void image_close(struct image *img);
/* Change the limit of decoded index nodes in memory; nodes over it are dropped at once. */
void image_set_index_memory(struct image *img, size_t bytes);
/* Return the image's manifest and digest; valid as long as the image. */
const struct manifest *image_manifest(const struct image *img);
const struct digest *image_digest(const struct image *img);

/* Read bytes [off, off+len) to dst. Blocks. -EINVAL: the range reaches beyond the image; -EIO: cache-only mode, and a
 * part is not cached (the message says how to find the file); else the first error of a fetch (-EBADMSG, -ETIMEDOUT,
 * ...). */
GR_MUST_CHECK int image_read(struct image *img, void *dst, uint64_t off, size_t len);

/* Could [off, off+len) be read now without the store? Chunks may still be evicted meanwhile. Reads index nodes from
 * the cache's disk if they are not in memory. */
bool image_is_cached(struct image *img, uint64_t off, uint64_t len);

/* Bring [off, off+len) into the cache at warm priority, and wait for it (NBD_CMD_CACHE). Errors as for image_read and
 * cache_ensure. */
GR_MUST_CHECK int image_prefetch(struct image *img, uint64_t off, uint64_t len);

/* The same for n chunks by number, in any order, 64 at a time, with the index nodes that lead to them. After an error
 * some of the other chunks may not be cached either. */
GR_MUST_CHECK int image_prefetch_chunks(struct image *img, const uint64_t *chunks, size_t n);

/* Visit the runs of data and holes that cover [off, off+len): ascending, adjacent runs of one kind merged, in whole
 * chunks. A non-zero result of `visit` ends the walk, which then returns 0. Errors as for image_read. */
typedef int image_extent_visit(void *arg, uint64_t off, uint64_t len, bool hole);
GR_MUST_CHECK int image_extents(struct image *img, uint64_t off, uint64_t len, image_extent_visit *visit, void *arg);

/* The place where the chunks of image_read are recorded, holes left out. Belongs to the image. */
struct recorder_place *image_recorder(struct image *img);

/* What was read from the image, and where the bytes came from. A few loads, no lock. */
struct image_traffic {
    uint64_t reads, read_bytes, hole_bytes, prefetches, prefetch_bytes;
    uint64_t fence_refusals;    /* reads and extent queries that cache-only mode refused */
    struct cache_served served; /* of reads only */
};
void image_traffic(struct image *img, struct image_traffic *out);

/* Visit the image's counters. */
void image_counters(struct image *img, counter_visit *visit, void *arg);

#endif

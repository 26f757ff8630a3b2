/* An image open for reading: offsets to chunks through the index tree, chunks through the cache. */
#ifndef GRANARY_IMAGE_IMAGE_H
#define GRANARY_IMAGE_IMAGE_H

#include "cache/cache.h"
#include "format/manifest.h"
#include "image/recorder.h"
#include "image/slow_read.h"
#include "store/store.h"

struct image;

struct image_config {
    struct cache *cache;             /* not owned; outlives the image */
    struct store *store;             /* not owned */
    const struct manifest *manifest; /* verified; copied */
    size_t index_memory;             /* bytes of decoded index nodes held; 0: 64 MiB */
    unsigned quota;                  /* cache_quota of what is fetched for it */
    struct histogram *latency;       /* of reads, shared by images; not owned; NULL: nobody asks */
    struct slow_reads *slow;         /* likewise */
    uint32_t readahead;              /* bytes fetched ahead of a sequential reader at most; 0: nothing is */
};

/* The image of `digest`, whose manifest the config has, with one reference. No I/O. */
GR_MUST_CHECK int image_open(const struct image_config *config, const struct digest *digest, struct image **out);
/* One reference more; img. */
struct image *image_ref(struct image *img);
/* One less: it goes with the last. NULL is allowed. */
void image_close(struct image *img);
/* Hold so many bytes of decoded index nodes from now on. */
void image_set_index_memory(struct image *img, size_t bytes);
const struct manifest *image_manifest(const struct image *img);
const struct digest *image_digest(const struct image *img);

/* Read [off, off+len) (within the image: -EINVAL otherwise). Any thread, blocking. */
GR_MUST_CHECK int image_read(struct image *img, void *dst, uint64_t off, size_t len);

/* Could [off, off+len) be read now without asking the store? A chunk may leave the cache meanwhile. Reads index nodes
 * from the cache's disk where they are not in memory. Any thread. */
bool image_is_cached(struct image *img, uint64_t off, uint64_t len);

/* Have [off, off+len) in the cache before returning (NBD_CMD_CACHE): warm lane. */
GR_MUST_CHECK int image_prefetch(struct image *img, uint64_t off, uint64_t len);

/* The same for n chunks by number, in any order: with the index nodes on the way to them, 64 at a time. On an error
 * some of the others may not be cached either. */
GR_MUST_CHECK int image_prefetch_chunks(struct image *img, const uint64_t *chunks, size_t n);

/* Visit runs of data and holes that cover [off, off+len), ascending, neighbours of one kind merged;
 * chunk-granular. visit's non-zero result ends the walk with 0. */
typedef int image_extent_visit(void *arg, uint64_t off, uint64_t len, bool hole);
GR_MUST_CHECK int image_extents(struct image *img, uint64_t off, uint64_t len, image_extent_visit *visit, void *arg);

/* Where reads are recorded: the chunks of image_read, holes left out. The image's. */
struct recorder_place *image_recorder(struct image *img);

/* What was asked of the image, and where the answers came from. A few loads, no lock. */
struct image_traffic {
    uint64_t reads, read_bytes, hole_bytes, prefetches, prefetch_bytes;
    uint64_t fence_refusals;    /* reads and looks at extents that ended at what is not cached */
    struct cache_served served; /* reads alone */
};
void image_traffic(struct image *img, struct image_traffic *out);

void image_counters(struct image *img, counter_visit *visit, void *arg);

#endif

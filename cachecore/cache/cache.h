/* The SSD cache: chunks by digest, in reserved slots of local directories, every read checked by
 * CRC-32C.
 *
 * A fault of the cache is a miss, never an error: what is torn, flipped, lost or refused is
 * dropped, counted and fetched again. No lock is held across I/O. docs/cache.md and
 * docs/format-cache.md.
 */
#ifndef GRANARY_CACHE_CACHE_H
#define GRANARY_CACHE_CACHE_H

#include "base/counter.h"
#include "fetch/fetch.h"

struct cache;

enum { CACHE_DIRS_MAX = 16 };

struct cache_config {
    struct {
        const char *path;
        uint64_t size; /* bytes this directory may hold, everything counted */
    } dirs[CACHE_DIRS_MAX];
    size_t dir_count;          /* 0: nothing is kept, every read is fetched */
    size_t fill_memory;        /* bytes of chunks waiting to be written; beyond it fills are dropped; 0: 64
                                  MiB */
    struct fetch_config fetch; /* on_landed and arg are the cache's own */
};

/* cache_open locks each directory (-EBUSY: the sentence names the pid that holds it), reserves its
 * space and loads its index. -EINVAL: too small; -ENOSPC: the budget does not fit the disk. Makes
 * no thread. */
GR_MUST_CHECK int cache_open(const struct cache_config *config, struct cache **out);
/* Threads and rings, after a fork. */
GR_MUST_CHECK int cache_start_threads(struct cache *c);
/* Waits for fills in progress, writes what makes the next start quick, unlocks. */
void cache_close(struct cache *c);

/* A part of one chunk wanted at dst. */
struct cache_piece {
    struct chunk_ref ref; /* not a hole */
    struct store *store;  /* where it is fetched from on a miss */
    uint32_t offset, len; /* within the plain chunk */
    uint8_t *dst;
};

/* Read n pieces: hits by one submission, misses together through fetch on `lane`.
 * ahead[0..ahead_count): neighbours worth having when there is a miss anyway; fetched in the same
 * runs or on the readahead lane, nobody waits for them. Any thread, blocking. Returns 0 with every dst filled, or the
 * first error of a fetch (-EBADMSG, -ETIMEDOUT, -ENOENT, ...). */
GR_MUST_CHECK int cache_read(struct cache *c, const struct cache_piece *pieces, size_t n,
                             const struct cache_piece *ahead, size_t ahead_count, enum fetch_lane lane);

/* Have n chunks in the cache (offset, len, dst unused): those missing are fetched on `lane` and
 * their fills are waited for, never dropped. 0 when all are cached. -EIO when the cache cannot hold
 * them (no directory, all down). */
GR_MUST_CHECK int cache_ensure(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_lane lane);

/* Is the chunk cached now? No I/O. */
bool cache_has(struct cache *c, const struct digest *chunk);

/* Every counter of the cache and its fetch. */
void cache_counters(struct cache *c, counter_visit *visit, void *arg);

#endif

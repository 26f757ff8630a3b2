/* What the files of the cache share. Only they include it, and their tests.
 *
 * Lock order: cache.lock, then the fetch's own lock (a lookup that misses starts the fetch before it
 * unlocks: see cache_read.c). fill.lock and the rings' lock are innermost and never held with it.
 */
#ifndef GRANARY_CACHE_CACHE_INTERNAL_H
#define GRANARY_CACHE_CACHE_INTERNAL_H

#include <pthread.h>

#include "base/queue.h"
#include "cache/cache.h"
#include "cache/cache_dir.h"
#include "cache/ring.h"

enum { FILL_THREADS = 4 };

struct cache_stats {
    counter hits, misses, hit_bytes, miss_bytes;
    counter fills, fill_bytes, fills_dropped, fill_errors;
    counter read_errors, crc_errors;
};

struct fill {
    struct queue *queue; /* of landed flights, each with a reference */
    pthread_t threads[FILL_THREADS];
    unsigned thread_count;
    size_t memory; /* limit of queued_bytes; warm_bytes may take half as much again */
    pthread_mutex_t lock;
    pthread_cond_t room;
    size_t queued_bytes, warm_bytes;
    bool stopping;
};

struct cache {
    struct cache_dir *dirs[CACHE_DIRS_MAX];
    size_t dir_count;
    struct rings *rings;
    struct fetch *fetch;
    struct fill fill;
    struct cache_stats stats;
    struct rings_stats ring_stats;

    pthread_mutex_t lock; /* space; never held across I/O */
    struct space space;
    pthread_cond_t changed;   /* a fill ended, or a pin went while somebody waited */
    _Atomic unsigned waiters; /* for changed */
};

/* cache_open with io_uring left aside when no_uring. */
GR_MUST_CHECK int cache_open_with(const struct cache_config *config, bool no_uring, struct cache **out);

/* ---- fill.c ---- */

GR_MUST_CHECK int fill_init(struct fill *f, size_t memory);
GR_MUST_CHECK int fill_start_threads(struct cache *c);
/* Finishes what is queued, joins the threads; flights that land later are not kept. */
void fill_stop(struct fill *f);
void fill_release(struct fill *f);

/* The fetch's on_landed. */
void fill_landed(void *arg, struct flight *flight, enum fetch_lane lane);

/* Write one chunk; 0 when it is in the cache afterwards (also by another's fill, which is waited for).
 * wait: until a slot is to be had, else -EAGAIN when all are busy. -errno of the disk. */
GR_MUST_CHECK int fill_chunk(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait);

/* Memory of the warm lane: waits until bytes more may be in the air. */
void fill_warm_acquire(struct fill *f, size_t bytes);
void fill_warm_release(struct fill *f, size_t bytes);

/* ---- cache.c ---- */

/* Give a pin back. */
void cache_unpin(struct cache *c, const struct space_slot *slot);

#endif

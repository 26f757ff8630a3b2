/* What the files of the cache share. Only they and their tests include it.
 *
 *    reader --> cache_read.c --> cache_memory.c --> memory_tier.c
 *                   |--> hit.c --> rings --> disks
 *                   `--> miss.c --> fetch --> fill.c (on_landed) --> rings --> disks
 *    warming -> cache_fetch.c --> miss.c, fill.c
 *    one disk monitor: disk_monitor.c, watermark.c       one mover: mover.c
 *
 * Lock order: cache.lock, then the fetch's own lock (a lookup that misses starts the fetch before it unlocks; see
 * cache_read.c) or the lock of a memory tier shard, which is innermost. fill.lock and the rings' lock are innermost
 * too and are never held together with cache.lock.
 */
#ifndef GRANARY_CACHE_CACHE_INTERNAL_H
#define GRANARY_CACHE_CACHE_INTERNAL_H

#include <pthread.h>

#include "base/queue.h"
#include "cache/cache.h"
#include "cache/disk/cache_dir.h"
#include "cache/disk/ring.h"
#include "cache/index/space.h"
#include "cache/memory_tier.h"
#include "cache/mover.h"

enum {
    FILL_THREADS = 4,
    READERS_MAX = 32,               /* rings that may read at the same time */
    WRITERS_MAX = 16,               /* rings that may write: for the fill threads and for callers of cache_ensure */
    DISK_TIMEOUT_DEFAULT_MS = 2000, /* how long a read waits for a disk */
    OPEN_TIMEOUT_MS = 60000,        /* for opening a directory, and for each read while it is loaded */
    WRITE_TIMEOUT_FACTOR = 4,       /* a write may take this many times as long: no reader waits for it */
};

/* What readers and fills came to. Pieces and bytes of the memory tier's hits are counted by the memory tier. */
struct cache_stats {
    counter hits, misses, hit_bytes, miss_bytes;
    counter fills, fill_bytes, fills_dropped, fill_errors, not_admitted;
    counter read_errors, read_timeouts, crc_errors, bypassed;
};

/* The queue of landed chunks, and the memory that they and warming hold. `lock` guards what stands below it. */
struct fill {
    struct queue *queue; /* landed fetches, one reference each; bounded by items */
    pthread_t threads[FILL_THREADS];
    unsigned thread_count;
    size_t memory; /* limit of queued_bytes in bytes; warming may take 2 to 8 times as much (fill_warm_acquire) */
    pthread_mutex_t lock;
    pthread_cond_t memory_freed;
    size_t queued_bytes, warm_bytes;
    uint64_t warm_turns, warm_turn; /* tickets for warm_bytes: the next to hand out, and the one that may proceed */
    bool stopping;
    uint64_t stop_ms; /* once stopping: chunks still queued at this time (clock_now_ms) are not written */
};

/* The housekeeping thread (disk_monitor.c). */
struct disk_monitor {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards stopping */
    pthread_cond_t wake;
    bool stopping;
    struct {              /* used by its thread alone */
        bool lost;        /* at the last look the kernel still owed answers to reads or writes */
        unsigned unheard; /* probes without an answer since the disk last owed none */
    } dirs[CACHE_DIRS_MAX];
};

/* The quota of one image. */
struct cache_quota {
    char *name;
    uint64_t size;
    uint64_t owner; /* how records name the image: a hash of its name, never 0 */
};

/* When a shared filesystem is given room, and when it is taken again (watermark.c). */
struct watermark {
    unsigned high, low; /* percent; 0: none */
};

/* The cache. Members above `lock` are constant once threads run, or have locks or atomics of their own. */
struct cache {
    struct cache_dir *dirs[CACHE_DIRS_MAX];
    size_t dir_count;
    struct cache_quota quotas[CACHE_QUOTAS_MAX];
    size_t quota_count;
    struct memory_tier *memory_tier; /* NULL: there is none */
    struct hot *hot;                 /* NULL: no faster tier to move chunks to; the same holds for mover */
    struct mover *mover;
    bool tiered; /* there are both fast and slow directories */
    struct {     /* configured directories whose disk failed at the start */
        char *path;
        uint64_t size;
    } absent[CACHE_DIRS_MAX];
    size_t absent_count;
    struct rings *readers, *writers;
    _Atomic uint32_t disk_timeout_ms; /* constant, except that tests shorten it while a disk hangs */
    bool compressed, fenced;
    struct watermark watermark;
    struct fetch *fetch;
    struct fill fill;
    struct disk_monitor disk_monitor;
    struct cache_stats stats;
    struct histogram disk_reads, fetch_waits;
    struct rings_stats reader_stats, writer_stats;

    pthread_mutex_t lock; /* guards space; taken by SCOPED_SPACE_LOCK; never held across I/O */
    struct space space;
    pthread_cond_t changed;   /* a fill ended, or a pin was released while a thread waited */
    _Atomic unsigned waiters; /* threads that wait for `changed` because of a pin; cache_unpin broadcasts only then */
};

/* What tests replace. All zero: the product's behaviour. */
struct cache_test_hooks {
    bool no_uring;         /* do not use io_uring */
    struct io_calls calls; /* calls that read without io_uring, and that write */
    uint32_t apart_ms;     /* hot_config.apart_ms */
    uint32_t open_timeout_ms, load_timeout_ms;
    void (*opening)(void); /* cache_dir_order.begin */
};
GR_MUST_CHECK int cache_open_with(const struct cache_config *config, const struct cache_test_hooks *hooks,
                                  struct cache **out);

/* ---- fill.c ---- */

GR_MUST_CHECK int fill_init(struct fill *f, size_t memory);
GR_MUST_CHECK int fill_start_threads(struct cache *c);
/* Write queued chunks for at most timeout_ms, then join the threads. Fetches that land later are not kept. */
void fill_stop(struct fill *f, uint32_t timeout_ms);
/* Write everything that is queued, for as long as the process lives. Fetches that land later are not kept. */
void fill_take_no_more(struct fill *f);
void fill_release(struct fill *f);

/* Return the bytes that wait to be written. */
size_t fill_queued_bytes(struct fill *f);
/* Would a chunk fetched ahead be kept? Not while writing is behind: it would be dropped and fetched again. */
bool fill_has_memory(struct fill *f);
/* Wait until fill_has_memory, or until filling ends. */
void fill_wait_for_memory(struct fill *f);

/* The fetch's on_landed callback: queue the chunk for writing, or drop it. Never blocks for a disk. */
void fill_landed(void *arg, struct inflight *inflight, bool warm);

/* Return the slot request for a chunk, uncompressed and on any medium. */
struct space_request fill_request(const struct chunk_ref *ref);

/* Write one chunk. 0: it is in the cache now, perhaps by another thread's fill, for which the call waited. `wait`:
 * wait for a slot when all are busy (else -EAGAIN), and try another directory if the chosen one goes down. -EDQUOT,
 * -ENODEV: as for space_alloc; else -errno of the disk. */
GR_MUST_CHECK int fill_chunk(struct cache *c, const struct space_request *request, struct buf *stored, bool wait);

/* fill_chunk for the bytes of a landed fetch, plain or as they were stored. `named`: somebody waits for this very
 * chunk to be cached, so the eviction policy may not refuse it. */
GR_MUST_CHECK int fill_inflight(struct cache *c, struct inflight *inflight, struct buf *plain, bool named);
/* Write a chunk into a slot that the caller holds (filling or moving) and note the result for the directory's health.
 * -EAGAIN: no writer ring came free, or the directory went down meanwhile; else -errno of the disk. */
GR_MUST_CHECK int fill_write(struct cache *c, const struct space_slot *slot, const struct digest *digest,
                             struct buf *stored);

/* Reserve memory for warming: wait until `bytes` more may be in flight, in the order of the calls. window: bytes that
 * keep the link busy (fetch_warm_window). */
void fill_warm_acquire(struct fill *f, size_t bytes, uint64_t window);
void fill_warm_release(struct fill *f, size_t bytes);

/* ---- cache_memory.c: between the memory tier and the rest. Without a memory tier these do nothing. ---- */

/* Read a piece from memory. false: it is not there, or was bad. */
GR_MUST_CHECK bool cache_memory_read(struct cache *c, const struct cache_piece *piece);
bool cache_memory_has(const struct cache *c, const struct digest *digest);
/* Drop a chunk from memory; true: it was there. Current readers still get its bytes. */
bool cache_memory_drop(struct cache *c, const struct digest *digest);
/* Drop every chunk from memory. */
void cache_memory_clear(struct cache *c);
/* Offer a piece that was read from disk into its dst and verified; its slot is still pinned. Only whole chunks are
 * taken. */
void cache_memory_disk_hit(struct cache *c, const struct cache_piece *piece);
/* Put a chunk that landed into memory. `wait`: retry while its slots are busy, and overrule the policy. 0: it is
 * there, or there is no memory tier; else as memory_tier_put. */
int cache_memory_landed(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait);
/* ---- watermark.c ---- */

/* Give slabs of a directory back to its filesystem, or reserve them again, as the watermarks ask. Blocks for I/O;
 * never called by readers. */
void watermark_keep(struct cache *c, unsigned dir);
/* The same for a filesystem with `used` of `total` bytes in use. One thread at a time. */
void watermark_apply(struct cache *c, unsigned dir, const struct watermark *marks, uint64_t used, uint64_t total);

/* ---- disk_monitor.c ---- */

void disk_monitor_init(struct disk_monitor *j);
void disk_monitor_release(struct disk_monitor *j);
GR_MUST_CHECK int disk_monitor_start(struct cache *c);
/* Ask the thread to end, without waiting. disk_monitor_stop then waits for it. */
void disk_monitor_tell_to_stop(struct disk_monitor *j);
void disk_monitor_stop(struct disk_monitor *j);

/* ---- cache_read.c ---- */

/* Read a piece if it is on disk, without counting a hit and without fetching. false: it is not on disk, or proved
 * bad. */
GR_MUST_CHECK bool cache_read_kept(struct cache *c, const struct cache_piece *piece);

/* ---- cache_admin.c ---- */

/* Wait for the readers of a slot that the caller holds, then take its record off the disk. If the disk refuses, a
 * restart may bring the chunk back, whole. */
void cache_blank_slot(struct cache *c, const struct space_slot *slot);

/* ---- cache_state.c ---- */

/* Is the slot ready, and can its directory be read? */
bool cache_readable_locked(const struct cache *c, uint32_t id);

/* Release a pin, and wake the threads that wait for it. */
void cache_unpin(struct cache *c, const struct space_slot *slot);

/* Note the result of a read or write of a directory (cache_dir_note) and act on a change of its health. Call it
 * without cache.lock. */
void cache_note(struct cache *c, unsigned dir, enum cache_direction direction, int rc);
/* Tell the space, and the threads that wait for a slot, whether a directory may be filled now. Call it without
 * cache.lock. */
void cache_dir_changed(struct cache *c, unsigned dir);

#endif

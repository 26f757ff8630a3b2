/* What the files of the cache share. Only they include it, and their tests.
 *
 * Lock order: cache.lock, then the fetch's own lock (a lookup that misses starts the fetch before it
 * unlocks: see cache_read.c), or a lock of the memory tier, which is innermost. fill.lock and the rings'
 * lock are innermost too and never held with it.
 */
#ifndef GRANARY_CACHE_CACHE_INTERNAL_H
#define GRANARY_CACHE_CACHE_INTERNAL_H

#include <pthread.h>

#include "base/queue.h"
#include "cache/cache.h"
#include "cache/disk/cache_dir.h"
#include "cache/disk/ring.h"
#include "cache/index/space_lock.h"
#include "cache/memory_tier.h"
#include "cache/mover.h"

enum {
    FILL_THREADS = 4,
    READERS_MAX = 64,               /* rings that read at once */
    WRITERS_MAX = 16,               /* rings that write: the fill threads and callers of cache_ensure */
    DISK_TIMEOUT_DEFAULT_MS = 2000, /* a read waits so long for a disk */
    OPEN_TIMEOUT_MS = 60000,        /* the opening of a directory, and each read of it while it is loaded */
    WRITE_TIMEOUT_FACTOR = 4,       /* a write so many times as long: no reader waits for it */
};

struct cache_stats {
    counter hits, misses, hit_bytes, miss_bytes;
    counter fills, fill_bytes, fills_dropped, fill_errors, not_admitted;
    counter read_errors, read_timeouts, crc_errors, bypassed;
};

struct fill {
    struct queue *queue; /* of landed in-flight fetches, each with a reference */
    pthread_t threads[FILL_THREADS];
    unsigned thread_count;
    size_t memory; /* limit of queued_bytes; warm_bytes may take half as much again, twice where the link is long */
    pthread_mutex_t lock;
    pthread_cond_t memory_freed;
    size_t queued_bytes, warm_bytes;
    uint64_t warm_turns, warm_turn; /* of those who waited for warm_bytes, in order: given out; whose it is */
    bool stopping;
    uint64_t stop_ms; /* when stopping: what is queued is not written after that */
};

struct disk_monitor {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* of stopping */
    pthread_cond_t wake;
    bool stopping;
    struct {              /* the disk monitor thread's own */
        bool lost;        /* reads or writes of it were with the kernel at the last look */
        unsigned unheard; /* probes without an answer since it last answered everything */
    } dirs[CACHE_DIRS_MAX];
};

struct cache_quota {
    char *name;
    uint64_t size;
    uint64_t owner; /* what records say of whom they are charged to */
};

struct watermark {
    unsigned high, low; /* percent; 0: none */
};

struct cache {
    struct cache_dir *dirs[CACHE_DIRS_MAX];
    size_t dir_count;
    struct cache_quota quotas[CACHE_QUOTAS_MAX];
    size_t quota_count;
    struct memory_tier *memory_tier; /* the memory tier; NULL: none */
    struct hot *hot;                 /* NULL: nothing can be moved up; so mover */
    struct mover *mover;
    bool tiered; /* there are fast and slow directories */
    struct {     /* asked for, but the disk failed at the start */
        char *path;
        uint64_t size;
    } absent[CACHE_DIRS_MAX];
    size_t absent_count;
    struct rings *readers, *writers;
    _Atomic uint32_t disk_timeout_ms; /* constant; tests have it short only while a disk hangs */
    bool compressed, fenced;
    struct watermark watermark;
    struct fetch *fetch;
    struct fill fill;
    struct disk_monitor disk_monitor;
    struct cache_stats stats;
    struct histogram disk_reads, fetch_waits;
    struct rings_stats reader_stats, writer_stats;

    pthread_mutex_t lock; /* space; by SCOPED_SPACE_LOCK; never held across I/O */
    struct space space;
    pthread_cond_t changed;   /* a fill ended, or a pin went while somebody waited */
    _Atomic unsigned waiters; /* for changed */
};

/* What tests want otherwise. */
struct cache_test_hooks {
    bool no_uring;         /* io_uring left aside */
    struct io_calls calls; /* how files are read without io_uring, and written */
    uint32_t apart_ms;     /* hot_config's */
    uint32_t open_timeout_ms, load_timeout_ms;
    void (*opening)(void); /* cache_dir_order's begin */
};
GR_MUST_CHECK int cache_open_with(const struct cache_config *config, const struct cache_test_hooks *hooks,
                                  struct cache **out);

/* ---- fill.c ---- */

GR_MUST_CHECK int fill_init(struct fill *f, size_t memory);
GR_MUST_CHECK int fill_start_threads(struct cache *c);
/* Writes what is queued as far as it comes in timeout_ms, joins the threads; in-flight fetches that land later are
 * not kept. */
void fill_stop(struct fill *f, uint32_t timeout_ms);
/* Writes all that is queued, as far as the process lives; in-flight fetches that land later are not kept. */
void fill_take_no_more(struct fill *f);
void fill_release(struct fill *f);

/* What waits to be written. */
size_t fill_queued_bytes(struct fill *f);
/* Would what is fetched ahead be kept? Not while writing is behind: it would be dropped, and fetched again. */
bool fill_has_memory(struct fill *f);
/* Until it would, or filling ends. */
void fill_wait_for_memory(struct fill *f);

/* The fetch's on_landed. */
void fill_landed(void *arg, struct inflight *inflight, enum fetch_priority priority);

/* What a chunk asks of the space. */
struct space_request fill_request(const struct chunk_ref *ref);

/* Write one chunk; 0 when it is in the cache afterwards (also by another's fill, which is waited for).
 * wait: until a slot is to be had, else -EAGAIN when all are busy; and in another directory where the one
 * chosen goes down. -EDQUOT and -ENODEV as space_alloc
 * says; -errno of the disk. */
GR_MUST_CHECK int fill_chunk(struct cache *c, const struct space_request *request, struct buf *stored, bool wait);

/* fill_chunk with what a landed fetch brought, plain or as it was stored. named: somebody waits for
 * this very chunk to be kept. */
GR_MUST_CHECK int fill_inflight(struct cache *c, struct inflight *inflight, struct buf *plain, bool named);
/* Write a chunk into a slot that is the caller's, and note how its directory does. -EAGAIN: no writer
 * came free, or the directory went down meanwhile. */
GR_MUST_CHECK int fill_write(struct cache *c, const struct space_slot *slot, const struct digest *digest,
                             struct buf *stored);

/* Memory of warming: waits until bytes more may be on their way, in the order of the calls. window: what the
 * fetch says the link takes (fetch_warm_window). */
void fill_warm_acquire(struct fill *f, size_t bytes, uint64_t window);
void fill_warm_release(struct fill *f, size_t bytes);

/* ---- cache_memory.c: what goes between the memory tier and the rest; all of it does nothing where there is
 * no memory tier ---- */

/* Read a piece from memory. false: it is not there. */
GR_MUST_CHECK bool cache_memory_read(struct cache *c, const struct cache_piece *piece);
bool cache_memory_has(const struct cache *c, const struct digest *digest);
/* Was it there? Who reads it at this moment still gets its bytes. */
bool cache_memory_drop(struct cache *c, const struct digest *digest);
/* Forget everything. */
void cache_memory_clear(struct cache *c);
/* A piece was read from disk into its dst, and verified; its slot is still pinned. */
void cache_memory_disk_hit(struct cache *c, const struct cache_piece *piece);
/* A chunk landed. wait: until it is in memory, for as long as that has sense; 0: it is there. */
int cache_memory_landed(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait);
/* ---- watermark.c ---- */

/* Give slabs of a directory back to its filesystem, or take them again. Blocks; not for readers. */
void watermark_keep(struct cache *c, unsigned dir);
/* The same on a filesystem of which so many bytes are used. One thread at a time. */
void watermark_apply(struct cache *c, unsigned dir, const struct watermark *marks, uint64_t used, uint64_t total);

/* ---- disk_monitor.c ---- */

void disk_monitor_init(struct disk_monitor *j);
void disk_monitor_release(struct disk_monitor *j);
GR_MUST_CHECK int disk_monitor_start(struct cache *c);
/* Ask it to end, without waiting; then wait. */
void disk_monitor_tell_to_stop(struct disk_monitor *j);
void disk_monitor_stop(struct disk_monitor *j);

/* ---- cache_read.c ---- */

/* Read a piece if it is on disk; no hit is counted, nothing is fetched. false: it is not, or proved bad. */
GR_MUST_CHECK bool cache_read_kept(struct cache *c, const struct cache_piece *piece);

/* ---- cache_admin.c ---- */

/* Wait for the readers of a slot that is the caller's, and take its record off the disk. Where the disk
 * refuses, a restart may bring the chunk back, whole. */
void cache_blank_slot(struct cache *c, const struct space_slot *slot);

/* ---- cache_state.c ---- */

/* The slot is ready and its directory can be read. */
bool cache_readable_locked(const struct cache *c, uint32_t id);

/* Give a pin back. */
void cache_unpin(struct cache *c, const struct space_slot *slot);

/* What a read or write of a directory came to (cache_dir_note), and what follows from it. cache.lock is
 * not held. */
void cache_note(struct cache *c, unsigned dir, enum cache_direction direction, int rc);
/* A directory may be filled, or may no longer be: tell the space, and who waits for a slot. cache.lock is not held. */
void cache_dir_changed(struct cache *c, unsigned dir);

#endif

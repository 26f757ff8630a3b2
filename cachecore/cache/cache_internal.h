/* What the files of the cache share. Only they and their tests include it.
 *
 *    reader --> cache_read.c --> memory_tier.c
 *                   |--> rings --> disks
 *                   `--> cache_fetch.c --> fetch --> fill.c (on_landed) --> rings --> disks
 *    warming -> cache_fetch.c, fill.c
 *    one disk monitor: disk_monitor.c                    one mover: mover.c, with the hot chunks of hot.c
 *
 * Lock order: cache.lock, then the fetch's own lock (a lookup that misses starts the fetch before it unlocks; see
 * cache_read.c) or the lock of a memory tier shard, which is innermost. fill.lock and the rings' lock are innermost
 * too and are never held together with cache.lock.
 */
#ifndef GRANARY_CACHE_CACHE_INTERNAL_H
#define GRANARY_CACHE_CACHE_INTERNAL_H

#include <pthread.h>

#include "cache/cache.h"
#include "cache/disk/cache_dir.h"
#include "cache/disk/ring.h"
#include "cache/index/space.h"
#include "cache/memory_tier.h"
#include "cache/record_memory.h"
#include "repository/read/chunk_read.h"

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
    counter others; /* that came and are another node's to keep */
    counter read_errors, read_timeouts, crc_errors, bypassed;
    counter record_hits; /* records in memory that were right */
};

/* The queue of landed chunks, and the memory that they and warming hold. `lock` guards what stands below it. */
struct fill {
    pthread_t threads[FILL_THREADS];
    unsigned thread_count;
    size_t memory; /* limit of queued_bytes in bytes; warming may take 2 to 8 times as much (fill_warm_acquire) */
    size_t limit;  /* of len */
    pthread_mutex_t lock;
    struct inflight **queue; /* landed fetches, one reference each, in a circle */
    size_t head, len;        /* the oldest one's place; how many */
    size_t ready_bytes;      /* of those in the queue */
    size_t queued_bytes;     /* with those that are being written */
    uint64_t taken_ms;       /* when a writer last took some (clock_now_ms) */
    bool singly;             /* writers take one at a time */
    unsigned writers;        /* threads that have started */
    unsigned idle, woken;    /* those that wait; those that were woken and have not looked yet */
    bool closed;
    pthread_cond_t work;         /* for idle writers */
    pthread_cond_t memory_freed; /* for fill_wait_for_memory */
    size_t warm_bytes;
    struct warm_wait *first_warm, *last_warm; /* callers that wait for warm_bytes, in their order */
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
    struct {               /* used by its thread alone */
        bool lost;         /* at the last look the kernel still owed answers to reads or writes */
        bool gave;         /* slabs may be given back for whole images, not for a full filesystem alone */
        unsigned unheard;  /* probes without an answer since the disk last owed none */
        uint64_t resident; /* bytes of whole images when they were counted */
    } dirs[CACHE_DIRS_MAX];
};

/* When a shared filesystem is given room, and when it is taken again (disk_monitor.c). */
struct watermark {
    unsigned high, low; /* percent; 0: none */
};

/* The cache. Members above `lock` are constant once threads run, or have locks or atomics of their own. */
struct cache {
    struct cache_dir *dirs[CACHE_DIRS_MAX];
    size_t dir_count;
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
    struct record_memory *records;    /* NULL: no directories */
    _Atomic uint32_t disk_timeout_ms; /* constant, except that tests shorten it while a disk hangs */
    bool compressed, as_stored, fenced;
    enum cache_others others;
    struct seen *seen; /* chunks of others that came once; NULL: none are noted */
    struct watermark watermark;
    struct fetch *fetch;
    struct fetch *for_others; /* cache_get_stored; NULL: other nodes are not answered */
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

/* ---- cache_read.c ---- */

/* The fetch's find_base callback: read the base from memory or disk. */
struct buf *cache_find_base(void *arg, struct store *store, const struct chunk_ref *base);

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
/* The same for cache.for_others. What the queue has no room for, this worker writes: it is kept for all nodes. */
void fill_landed_for_others(void *arg, struct inflight *inflight, bool warm);
/* inflight_tag is the quota of a chunk for a reader; this is that of one for another node. */
enum { TAG_FOR_OTHERS = SPACE_GROUPS_MAX + 1 };

/* The table of chunks of others that came once. -ENOMEM. free() it. */
GR_MUST_CHECK int fill_seen_new(struct seen **out);

/* Would the chunk be kept, if it were fetched now, as far as other nodes have a say? *stripe: to ask once for many
 * chunks; all zero at first. */
bool fill_is_ours(const struct cache *c, struct store *store, const struct chunk_ref *ref, struct chunk_stripe *stripe);

/* Is the chunk on disk in the very form of the reference, and readable? */
bool fill_has_stored_locked(const struct cache *c, const struct chunk_ref *ref);

/* Put a chunk that landed into memory. `wait`: retry while its slots are busy, and overrule the policy. 0: it is
 * there, or there is no memory tier; else as memory_tier_put. */
int fill_memory(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait);

/* Reserve memory for warming: wait until `bytes` more may be in flight, in the order of the calls. window: bytes that
 * keep the link busy (fetch_warm_window). */
void fill_warm_acquire(struct fill *f, size_t bytes, uint64_t window);
void fill_warm_release(struct fill *f, size_t bytes);

/* ---- write_slots.c ---- */

/* Return the slot request for a chunk, uncompressed and on any medium. */
struct space_request fill_request(const struct chunk_ref *ref);

/* A chunk to be kept. */
struct fill_item {
    struct space_request request;
    struct buf *stored;
    bool wait; /* wait for a slot when all are busy, and try another directory if the chosen one goes down */
    int rc;    /* out: 0: it is in the cache now, perhaps by another thread's fill, for which the call waited; -EAGAIN:
                  all slots are busy; -EDQUOT, -ENODEV: as for space_alloc; else -errno of the disk */
    bool claimed; /* write_slots.c's alone, as is slot */
    struct space_slot slot;
};

/* Write n <= CACHE_FILLS_MAX chunks. */
void fill_items(struct cache *c, struct fill_item *items, size_t n);
/* Write one chunk that a caller waits for. Results as in fill_item. */
GR_MUST_CHECK int fill_chunk(struct cache *c, const struct space_request *request, struct buf *stored);

/* Set up an item for the bytes of a landed fetch, plain or as they were stored, of which it holds a reference in
 * item->stored. `named`: a caller waits for this very chunk to be cached, so the eviction policy may not refuse it. */
void fill_item_init(const struct cache *c, struct fill_item *item, struct inflight *inflight, struct buf *plain,
                    bool named);
/* Write such an item alone. Results as in fill_item. */
GR_MUST_CHECK int fill_inflight(struct cache *c, struct inflight *inflight, struct buf *plain, bool named);

/* Write n <= CACHE_FILLS_MAX chunks into slots of a directory that the caller holds (filling or moving) and note the
 * result for its health. Each has its rc; -EAGAIN: no writer ring came free, or the directory went down meanwhile. */
void fill_write(struct cache *c, unsigned dir, struct cache_fill *fills, size_t n);

/* ---- disk_monitor.c ---- */

void disk_monitor_init(struct disk_monitor *j);
void disk_monitor_release(struct disk_monitor *j);
GR_MUST_CHECK int disk_monitor_start(struct cache *c);
/* Ask the thread to end, without waiting. disk_monitor_stop then waits for it. */
void disk_monitor_tell_to_stop(struct disk_monitor *j);
void disk_monitor_stop(struct disk_monitor *j);
/* Give slabs of a directory back to its filesystem, of which `used` of `total` bytes are in use, or reserve them again,
 * as the watermarks ask. Blocks for I/O. One thread at a time. */
void watermark_apply(struct cache *c, unsigned dir, const struct watermark *marks, uint64_t used, uint64_t total);
/* Give back as many slabs as the whole images beside them take, or claim; without watermarks, reserve the others again.
 * As for watermark_apply. */
void residents_apply(struct cache *c, unsigned dir);
/* Whether they are given back. *out_yielded: how many are. Any thread. */
bool residents_given(struct cache *c, unsigned dir, uint32_t *out_yielded);

/* ---- hot.c ----
 *
 * Which chunks are hot, and what to do with them. A chunk is hot when it was hit twice on disk. A table of one word a
 * chunk remembers first hits; hot chunks wait in a bounded queue for the mover, and are dropped when it is full. */

struct hot;

struct hot_config {
    uint64_t capacity; /* bytes of the tiers above the slowest; the size of the table follows from it */
    bool to_memory;    /* there is a memory tier to read chunks into */
    uint32_t apart_ms; /* hits of one chunk on a slow directory that are closer together count as one; 0: 1000 */
};

/* What is to be done with a hot chunk; bits. */
enum { HOT_LIFT = 1, HOT_MOVE = 2, HOT_WORK = 3 };

struct hot_chunk {
    struct cache_piece piece; /* the whole chunk; no dst, no store */
    unsigned work;            /* HOT_LIFT: read it whole into the memory tier; HOT_MOVE: move it to a fast directory */
};

/* -ENOMEM. */
GR_MUST_CHECK int hot_new(const struct hot_config *config, struct hot **out);
void hot_free(struct hot *h); /* NULL is allowed; no thread may be in hot_take */

/* Note that a piece was hit on disk. slow: in a directory that has a faster one beside it. Any thread; allocates only
 * when it queues a chunk. */
void hot_hit(struct hot *h, const struct cache_piece *piece, bool slow);

/* Wait for a hot chunk; give it to hot_done afterwards. NULL: closed, and the queue is empty. */
struct hot_chunk *hot_take(struct hot *h);
/* Free it and forget its hits: the chunk may become hot again. */
void hot_done(struct hot *h, struct hot_chunk *chunk);
/* Queue nothing from now on, and let hot_take return NULL once the queue is empty. */
void hot_close(struct hot *h);

/* Return how many chunks were not queued because the queue was full. */
uint64_t hot_dropped(struct hot *h);

/* ---- mover.c ----
 *
 * One thread that brings hot chunks to a faster tier: a chunk that was hit twice on disk in parts is read whole into
 * the memory tier; a chunk that was hit twice on a slow directory is moved to a fast one.
 *
 * It keeps out of the way of readers: one chunk at a time, and after each a pause three times as long as the work
 * took.
 */

struct mover;

struct mover_stats {
    counter lifts; /* chunks read whole for the memory tier */
    counter moves; /* chunks moved from a slow directory to a fast one */
};

/* Make a mover for c and the hot chunks of c->hot; no thread yet. -ENOMEM. */
GR_MUST_CHECK int mover_new(struct cache *c, struct mover **out);
GR_MUST_CHECK int mover_start_thread(struct mover *m);
/* Close hot and end the thread; queued chunks are dropped. NULL is allowed. */
void mover_stop(struct mover *m);
void mover_free(struct mover *m);

struct mover_stats *mover_stats(struct mover *m);

/* ---- cache_fetch.c ----
 *
 * The misses of one window of pieces: their fetches and those of neighbours are started together, then waited for. */

enum { MISSES_MAX = 64 };

/* A piece that is not cached, and the fetch that brings its chunk. */
struct miss {
    const struct cache_piece *piece;
    struct inflight *inflight; /* NULL: not started */
    bool joined;               /* it is one for another node (cache_get_stored) */
    enum fetch_priority priority;
    uint64_t until_ms; /* on clock_now_ms; for chunks of other nodes alone, which are waited for until then */
};

struct misses {
    size_t count;
    struct miss items[MISSES_MAX];
};

static inline void misses_add(struct misses *m, const struct cache_piece *piece)
{
    m->items[m->count++] = (struct miss){.piece = piece};
}

/* What to do with a miss whose fetch was started: wait for it, and deliver or keep it. Returns 0 or -errno with a
 * message. */
typedef int miss_use(struct cache *c, struct miss *miss);

/* Start the fetches of the misses from `from` on, one fetch for each run of one store and quota. In cache-only mode
 * only warming fetches: others get -ENODATA. Neighbours go along with the last group if they belong to it, else they
 * are fetched by themselves. On an error some fetches may have been started: call misses_finish in any case. */
GR_MUST_CHECK int misses_start_locked(struct cache *c, struct misses *m, size_t from, struct cache_piece *ahead,
                                      size_t ahead_count, enum fetch_priority priority);
/* Wait for a started miss, and return a reference to its bytes. One that was joined to a fetch for another node and
 * failed with it, which has less time than a reader, is fetched for itself. Errors of inflight_wait; -ENOMEM. */
GR_MUST_CHECK int misses_wait(struct cache *c, struct miss *miss, struct buf **out);
/* Use each started miss in order and drop its reference. After the first error (start_rc counts) the rest are only
 * released, unless `on`: then those after a chunk that is missing or bad are used too. Any other error is the
 * store's, and the rest would wait for it just as long. Returns the first error; an error of the store replaces one
 * of a chunk.
 */
GR_MUST_CHECK int misses_finish(struct cache *c, struct misses *m, int start_rc, miss_use *use, bool on);

/* ---- cache_admin.c ---- */

/* Wait for the readers of a slot that the caller holds, then take its record off the disk. If the disk refuses, a
 * restart may bring the chunk back, whole. */
void cache_blank_slot(struct cache *c, const struct space_slot *slot);

/* ---- slots and directories ---- */

/* Is the slot ready, and can its directory be read? */
static inline bool cache_readable_locked(const struct cache *c, uint32_t id)
{
    return space_slot_at(&c->space, id)->state == SLOT_READY && cache_dir_reads(c->dirs[space_dir_of(&c->space, id)]);
}

/* Release a pin, without cache.lock, and wake the threads that wait for it. Such a thread raises c->waiters before it
 * looks at the pin, and c->waiters is looked at here after the pin is released, so one of the two sees the other. */
static inline void cache_unpin(struct cache *c, const struct space_slot *slot)
{
    space_unpin(slot->pins);
    if (atomic_load(&c->waiters) == 0)
        return;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    pthread_cond_broadcast(&c->changed);
}

/* Tell the space, and the threads that wait for a slot, whether a directory may be filled now. Call it without
 * cache.lock. */
static inline void cache_dir_changed(struct cache *c, unsigned dir)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    /* read again under the lock: another change may be under way */
    space_dir_writable(&c->space, dir, cache_dir_fills(c->dirs[dir]));
    pthread_cond_broadcast(&c->changed); /* threads that wait for a slot there must look again */
}

/* Note the result of a read or write of a directory (cache_dir_note) and act on a change of its health. Call it
 * without cache.lock. */
static inline void cache_note(struct cache *c, unsigned dir, enum cache_direction direction, int rc)
{
    if (cache_dir_note(c->dirs[dir], direction, rc))
        cache_dir_changed(c, dir);
}

/* ---- reading slots: read_slots.c ---- */

/* One piece found on disk. */
struct hit {
    const struct cache_piece *piece;
    struct space_slot slot; /* pinned while it is read */
    int rc;                 /* 0: piece->dst has the bytes */
    uint8_t *record;        /* the slot's record, in the ring's buffer */
    uint8_t *packed;        /* the compressed chunk; NULL: not compressed */
    bool as_stored;         /* for another node: piece->dst gets what is in the slot */
};

/* Copy a piece from the memory tier, and count it. false: it is not there, or was bad. */
bool cache_serve_from_memory(struct cache *c, const struct cache_piece *p);
/* May the piece be read from the slot of its chunk? A chunk whose directory is down counts as bypassed. */
bool cache_is_hit_locked(struct cache *c, const struct cache_piece *p, uint32_t id);
/* Is the directory on a slow disk, with a faster one beside it? */
bool cache_is_slow(const struct cache *c, unsigned dir);
/* Set up a hit, and pin its slot. */
void cache_pin_hit_locked(struct cache *c, struct hit *hit, const struct cache_piece *p, uint32_t id);
/* The hit has its rc: note the result, and release the pin. */
void cache_hit_ended(struct cache *c, struct hit *hit);
/* Count a hit that was read for a reader, and tell the table of hot chunks. */
void cache_count_hit(struct cache *c, const struct hit *hit);

/* One disk read for a hit: bytes [off, off+len) of its slot in whole blocks, or with len 0 its record, which is taken
 * before its blocks. */
struct hit_part {
    struct hit *hit;
    uint32_t off, len;
};
/* Return the read of a part to buf; for a record that is hit->record. */
struct ring_read hit_part_read(const struct cache *c, const struct hit_part *part, uint8_t *buf);
/* Check what was read, and copy the requested bytes out. Sets hit->rc, and does nothing if that is set. */
void hit_part_take(const struct cache *c, const struct hit_part *part, const struct ring_read *read);
/* Copy the record to hit->record, if memory has it. */
bool hit_remembers_record(struct cache *c, struct hit *hit);

/* Read all n hits in at most *left_ms, and subtract the time taken from it. Each hit gets its own rc: 0; -ETIMEDOUT:
 * late, and the directory's health has been told; -ECANCELED: not read, which says nothing about disk or chunk (no
 * memory, no time left, or the directory is down by now); -EBADMSG: the bytes differ from their record; else -errno
 * of the disk. No message. Notes no other result, and releases no pin. */
void read_slots(struct cache *c, struct hit *hits, size_t n, uint64_t *left_ms);

#endif

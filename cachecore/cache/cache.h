/* The SSD cache: chunks by digest, in reserved slots of local directories, every read checked by
 * CRC-32C.
 *
 * A fault of the cache is a miss, never an error: what is torn, flipped, lost or refused is
 * dropped, counted and fetched again. No lock is held across I/O. docs/internals/cache.md and
 * docs/reference/format-cache.md.
 */
#ifndef GRANARY_CACHE_CACHE_H
#define GRANARY_CACHE_CACHE_H

#include "base/counter.h"
#include "base/histogram.h"
#include "cache/policy/evict.h"
#include "fetch/fetch.h"

struct cache;

enum { CACHE_DIRS_MAX = 16, CACHE_QUOTAS_MAX = 16 };

struct cache_config {
    struct {
        const char *path;
        uint64_t size;    /* bytes this directory may hold, everything counted; 0: percent counts */
        unsigned percent; /* of its filesystem's size, looked up when it is opened */
        bool hdd;         /* slow: used when the others are full, and what is hot on it moves up to them */
    } dirs[CACHE_DIRS_MAX];
    size_t dir_count; /* 0: nothing is kept on disk */
    struct {
        const char *name; /* of an image */
        uint64_t size;    /* bytes of slots that chunks first kept for it may take */
    } quotas[CACHE_QUOTAS_MAX];
    size_t quota_count;
    bool fenced;                /* cache_read fetches nothing */
    bool compressed;            /* chunks stay compressed on disk where that saves a size class */
    uint64_t memory;            /* bytes of the memory tier in front of them; 0: none */
    enum evict_policy eviction; /* of the directories and the memory tier */
    size_t fill_memory;         /* bytes of chunks waiting to be written; beyond it fills are dropped; 0: 16
                                   MiB */
    struct {
        unsigned high, low; /* percent of a directory's filesystem in use: above high the cache gives room
                               back until low, below low it takes it again; 0: never */
    } watermark;
    uint32_t disk_timeout_ms;  /* a read waits so long for the disks of the cache, then it is a miss; 0: 2000 */
    struct fetch_config fetch; /* keep_stored, on_landed and arg are the cache's own */
};

/* Of what lies in a directory; a server starts empty where it finds another one. */
unsigned cache_format_version(void);

/* cache_open locks each directory (-EBUSY: the sentence names the pid that holds it), reserves its
 * space and loads its index. -EINVAL: too small; -ENOSPC: the budget does not fit the disk. A directory
 * whose disk fails (-EIO, -EROFS) or has not answered for a minute is left out and said; such a disk keeps the thread
 * that asked it, no other thread is left. */
GR_MUST_CHECK int cache_open(const struct cache_config *config, struct cache **out);
/* Threads and rings, after a fork. */
GR_MUST_CHECK int cache_start_threads(struct cache *c);
/* From now on nothing that arrives is kept, except what is warmed. cache_unwritten: the bytes of what came before that
 * are not in the cache yet; with none left a SIGKILL loses nothing but that. Reads go on. Any thread; neither waits. */
void cache_keep_no_more(struct cache *c);
size_t cache_unwritten(struct cache *c);
/* Waits for fills in progress, for disk_timeout_ms begins those that are queued, unlocks. */
void cache_close(struct cache *c);

/* What a piece for the image of that name is charged to; 0: nothing, there is no quota of that name. */
unsigned cache_quota(const struct cache *c, const char *image);

/* Where the pieces that one thread read came from; a plain sum that the thread's owner adds up further. */
enum cache_source { CACHE_FROM_MEMORY, CACHE_FROM_DISK, CACHE_FROM_TIER, CACHE_FROM_STORE, CACHE_SOURCES };
struct cache_served {
    uint64_t pieces[CACHE_SOURCES], bytes[CACHE_SOURCES];
    uint64_t disk_us;          /* took reading from disk */
    struct flight_times store; /* waited for fetches, together; tries and from are those of: */
    struct chunk_ref slowest;  /* the chunk that was waited for the longest */
    uint64_t slowest_us;       /* 0: none */
};
/* Pieces that had to be fetched. */
static inline uint64_t cache_served_fetched(const struct cache_served *s)
{
    return s->pieces[CACHE_FROM_TIER] + s->pieces[CACHE_FROM_STORE];
}

/* A part of one chunk wanted at dst. */
struct cache_piece {
    struct chunk_ref ref; /* not a hole */
    struct store *store;  /* where it is fetched from on a miss */
    uint32_t offset, len; /* within the plain chunk */
    unsigned quota;       /* cache_quota of whom a miss is kept for */
    uint8_t *dst;
    struct cache_served *served; /* cache_read, in the calling thread, counts the piece here; NULL: nobody asks */
    bool started;                /* set for a neighbour whose fetch begins */
};

/* Read n pieces: hits by one submission, misses together through fetch on `lane`.
 * ahead[0..ahead_count): neighbours worth having soon; those that are missing and would be kept are fetched in the same
 * runs or on the readahead lane, nobody waits for them. Any thread, blocking. Returns 0 with every dst filled, or the
 * first error of a fetch (-EBADMSG, -ETIMEDOUT, -ENOENT, ...). -ENODATA: fenced, and a piece is not cached. */
GR_MUST_CHECK int cache_read(struct cache *c, const struct cache_piece *pieces, size_t n, struct cache_piece *ahead,
                             size_t ahead_count, enum fetch_lane lane);

/* Have n chunks in the cache (offset, len, dst unused): those missing are fetched on `lane` and
 * their fills are waited for, never dropped. 0 when all are cached: on disk, or in memory where there
 * is no directory. -EIO when the cache cannot hold them (neither directory nor memory, all down). */
GR_MUST_CHECK int cache_ensure(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_lane lane);

/* Have a chunk in the cache of which the caller has asked the store for the bytes (ref->plain_len of them), and has
 * checked them against their digest. It counts as fetched. -errno, no sentence, where the cache cannot take it. */
GR_MUST_CHECK int cache_put(struct cache *c, const struct chunk_ref *ref, const void *data);

/* Have n chunks in the cache, of one store, as far as there is room or the eviction policy makes some: fetched on the
 * readahead lane, and waited for. -EDQUOT, -ENODEV (no sentence): the cache takes no more of them; errors of a fetch.
 */
GR_MUST_CHECK int cache_ahead(struct cache *c, const struct cache_piece *pieces, size_t n);

/* How much of one image the cache could hold, and what of that needs nobody else's room now. Bytes. */
struct cache_room {
    uint64_t most, free;
};
struct cache_room cache_room(struct cache *c, unsigned quota);

bool cache_is_fenced(const struct cache *c);

/* Is the chunk cached now, in memory or on disk? No I/O. */
bool cache_has(struct cache *c, const struct digest *chunk);

/* ---- for tools: of chunks by digest ---- */

struct cache_chunk {
    bool cached, pinned;   /* on disk; in memory where there is no directory */
    bool held;             /* cache_hold */
    uint32_t stored_bytes; /* on the disk, without what it leaves of its slot; 0: not there */
};

/* What the cache holds of n chunks now. No I/O. */
void cache_query(struct cache *c, const struct digest *chunks, size_t n, struct cache_chunk *out);

/* Drop a chunk for good: a restart does not bring it back. Blocks for one small write, and for
 * readers of that chunk; no reader waits. -ENOENT: not cached; -EPERM: pinned or held, and not `pinned`. No
 * sentence. */
GR_MUST_CHECK int cache_evict(struct cache *c, const struct digest *chunk, bool pinned);

/* Have a cached chunk stay until it is unpinned, also over restarts; or unpin it. A chunk that
 * proves bad is fetched again by whoever reads it next, and is pinned then. -ENOENT: not cached; -EDQUOT: pins take
 * three quarters of the cache already; -errno of the disk: it holds until the next restart. No sentence. */
GR_MUST_CHECK int cache_pin(struct cache *c, const struct digest *chunk, bool on);

/* Have a cached chunk stay while this process has the cache, unless it proves bad: nothing of it is on disk, so that it
 * ends with what it was wanted for. Unpinning it ends it too; pinning it makes it a pin. -ENOENT, -EDQUOT: as of
 * cache_pin, whose limit it shares. No sentence. */
GR_MUST_CHECK int cache_hold(struct cache *c, const struct digest *chunk);

/* Evicting, pinning or unpinning of whatever the cache holds but index nodes and manifests, by which images are served:
 * each call goes on where the one before it stopped (begin with zeros). false: there is no more. */
enum cache_deed { CACHE_EVICT, CACHE_EVICT_PINNED_TOO, CACHE_PIN, CACHE_UNPIN };
struct cache_sweep {
    uint32_t slab, slot;                      /* where to go on */
    uint64_t changed, changed_bytes, refused; /* so far; refused: pinned ones (evict), no more pins (pin) */
    uint64_t bytes_done, bytes_total;         /* of the space looked at */
};
GR_MUST_CHECK bool cache_sweep_next(struct cache *c, enum cache_deed deed, struct cache_sweep *sweep);

/* The directories asked for. Strings are constant or the cache's. */
struct cache_dir_report {
    const char *path;
    uint64_t size;
    const char *reading, *writing; /* "normal", "suspect", "down"; "absent": its disk failed at the start */
    bool deleted;                  /* the files have no name any more; they are used as long as they are open */
};
size_t cache_dir_reports(struct cache *c, struct cache_dir_report out[CACHE_DIRS_MAX]);

/* fetch_longest_wait_us of the cache's fetch. */
uint64_t cache_longest_wait_us(struct cache *c, const struct store *store);

/* Every counter of the cache and its fetch. */
void cache_counters(struct cache *c, counter_visit *visit, void *arg);
/* Every histogram of the cache and its fetch. */
void cache_histograms(struct cache *c, histogram_visit *visit, void *arg);

#endif

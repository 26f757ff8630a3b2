/* The SSD cache: chunks, named by digest, in slots reserved in local directories. Every read is checked against
 * CRC-32C.
 *
 *    cache_read --> memory tier --> slots on disk --> fetch (store or shared cache proxy)
 *                      (hit)          (hit)              (miss; the chunk is written to a slot afterwards: a fill)
 *
 * A fault of the cache is a miss, never an error: a chunk that is torn, flipped, lost or refused by its disk is
 * dropped, counted and fetched again. No lock is held across I/O. See docs/internals/cache.md and
 * docs/reference/format-cache.md.
 *
 * Every function may be called from any thread unless it says otherwise. Paths and names in a config are copied.
 */
#ifndef GRANARY_CACHE_CACHE_H
#define GRANARY_CACHE_CACHE_H

#include "base/counter.h"
#include "cache/policy/evict.h"
#include "fetch/fetch.h"

struct cache;

/* Which chunks are kept of those that another node keeps for all (store_is_own), when readers or readahead bring them.
 * Warming keeps what it is told to, and index nodes are always kept. */
enum cache_others { CACHE_OTHERS_ALL, CACHE_OTHERS_HOT /* that are fetched again soon */, CACHE_OTHERS_NONE };

enum { CACHE_DIRS_MAX = 16, CACHE_QUOTAS_MAX = 16 };

struct cache_config {
    struct {
        const char *path;
        uint64_t size;    /* bytes this directory may take, records and reserve included; 0: use percent */
        unsigned percent; /* of the room the cache may take on its filesystem, computed when the directory is opened */
        bool hdd;         /* slow disk: used when the others are full; its hot chunks are moved to a fast directory */
    } dirs[CACHE_DIRS_MAX];
    size_t dir_count; /* 0: nothing is kept on disk */
    struct {
        const char *name; /* the image's name */
        uint64_t size;    /* bytes of slots that chunks first cached for this image may take */
    } quotas[CACHE_QUOTAS_MAX];
    size_t quota_count;
    bool fenced;     /* cache-only mode: readers get what is cached, else -ENODATA; only warming fetches */
    bool compressed; /* keep chunks compressed on disk where that saves a size class */
    bool as_stored;  /* keep them compressed in any case, for cache_read_stored */
    enum cache_others others;
    uint64_t memory;            /* bytes of the memory tier in front of the directories; 0: no memory tier */
    enum evict_policy eviction; /* used by the directories and by the memory tier */
    size_t fill_memory;         /* bytes of chunks that may wait to be written; further fills are dropped; 0: 16 MiB */
    struct {
        unsigned high, low; /* percent of a directory's filesystem in use: above high the cache gives room back until
                               low is reached, below low it reserves it again; 0: never */
    } watermark;
    uint32_t disk_timeout_ms;  /* how long a read waits for the cache's disks before it counts as a miss; 0: 2000 */
    struct fetch_config fetch; /* the cache sets keep_stored, on_landed and arg itself */
};

/* The version of the directory format. A server that finds another version starts that directory empty. */
unsigned cache_format_version(void);

/* Open the cache: lock each directory, reserve its space and load its index. No thread is started, so the caller may
 * still fork. *out: cache_close.
 *
 * -EINVAL: a size is too small or too large, or the config contradicts itself; -EBUSY: another process has a
 * directory locked (the message names its pid); -ENOSPC: the budget does not fit the disk; -EPERM: another user could
 * change the directory; -ENOMEM. A directory whose disk fails (-EIO, -EROFS) or gives no answer for a minute is
 * logged and left out; in the second case the thread that opened it stays behind until the disk answers.
 */
GR_MUST_CHECK int cache_open(const struct cache_config *config, struct cache **out);
/* Start the threads; call it after a fork. Signs the locks with this process's pid. -EAGAIN or -ENOMEM: a thread
 * could not be started. */
GR_MUST_CHECK int cache_start_threads(struct cache *c);
/* Stop caching what readers fetch; warming still writes its chunks. cache_unwritten returns the bytes that arrived
 * before and are not written yet: once it is 0, a SIGKILL loses nothing that had been accepted. Reads go on. Neither
 * call waits. */
void cache_keep_no_more(struct cache *c);
size_t cache_unwritten(struct cache *c);
/* Finish the fills in progress, start queued ones for at most disk_timeout_ms, then unlock the directories and free
 * the cache. No other call may be running. NULL is allowed. */
void cache_close(struct cache *c);

/* Set the quota of an image to `size` bytes; 0: it has none any more. `image` is what it is called here: its name, as
 * in cache_config, or any other text. What was charged to it stays charged, also over restarts, and counts for its next
 * quota; a quota below that evicts the rest as chunks come. Any thread; never blocks for a disk. -EDQUOT: too many
 * images have a quota, or had one and still have chunks. */
GR_MUST_CHECK int cache_set_quota(struct cache *c, const char *image, uint64_t size);
/* Return the number of the image's quota, for cache_piece.quota; 0: the image has none. */
unsigned cache_quota(struct cache *c, const char *image);
/* Return the quota of an image and what is charged to it now. */
struct cache_quota_use {
    uint64_t size, used; /* bytes; both 0: it has none */
};
struct cache_quota_use cache_quota_use(struct cache *c, const char *image);

/* Where the pieces that one thread read came from. Plain sums without atomics: only that thread adds to them. */
enum cache_source {
    CACHE_FROM_MEMORY,
    CACHE_FROM_DISK,
    CACHE_FROM_PEER, /* another node */
    CACHE_FROM_L2,   /* a shared cache proxy that is not a node, or not known to be one yet */
    CACHE_FROM_STORE,
    CACHE_SOURCES
};
struct cache_served {
    uint64_t pieces[CACHE_SOURCES], bytes[CACHE_SOURCES];
    uint64_t disk_us;            /* spent reading from disk */
    struct inflight_times store; /* time spent waiting for fetches, summed; tries and from belong to `slowest` */
    struct chunk_ref slowest;    /* the chunk with the longest wait */
    uint64_t slowest_us;         /* its wait; 0: no chunk was waited for */
};
/* Pieces that had to be fetched, from another node, a shared cache proxy or the store. */
static inline uint64_t cache_served_fetched(const struct cache_served *s)
{
    return s->pieces[CACHE_FROM_PEER] + s->pieces[CACHE_FROM_L2] + s->pieces[CACHE_FROM_STORE];
}

/* A part of one chunk that a reader wants at dst. */
struct cache_piece {
    struct chunk_ref ref; /* the chunk; never a hole */
    struct store *store;  /* the store to fetch it from on a miss */
    uint32_t offset, len; /* in bytes of the uncompressed chunk */
    unsigned quota;       /* cache_quota of the image that a fetched chunk is charged to */
    bool fenced;          /* cache-only mode, as of the whole cache: it is not fetched for a reader */
    uint8_t *dst;
    struct cache_served *served; /* cache_read counts the piece here, in the calling thread; NULL: not counted */
    bool started;                /* out: set for a neighbour whose fetch was started */
    bool others;                 /* the cache's own: a neighbour that another node keeps */
};

/* Read n pieces: hits in one disk submission, misses together through the fetch at `priority`.
 *
 * ahead[0..ahead_count) are neighbours worth having soon. Those that are missing and would be kept are fetched in the
 * same gets or at readahead priority; nobody waits for them. Blocks.
 *
 * Returns 0 with every dst filled, or the first error of a fetch (-EBADMSG, -ETIMEDOUT, -ENOENT, ...). -ENODATA: the
 * cache or the first missing piece is in cache-only mode, and that is not cached. On an error the contents of dst are
 * undefined.
 */
GR_MUST_CHECK int cache_read(struct cache *c, const struct cache_piece *pieces, size_t n, struct cache_piece *ahead,
                             size_t ahead_count, enum fetch_priority priority);

/* ---- reads in flight: cache_reader.c ---- */

/* Reads of what is cached, for a thread that does other things while the disk reads: it starts reads, waits for
 * cache_reader_fd together with what else it waits for, and takes those that have ended. Used by one thread. */
struct cache_reader;

/* A read of a few pieces, all or none. It belongs to the reader from its start until it is taken. */
enum { CACHE_GROUP_MAX = 3 };
struct cache_group {
    size_t count;
    struct cache_piece pieces[CACHE_GROUP_MAX];
    bool got; /* out: all of it is at its dst */
    /* the reader's */
    struct cache_group *next;
    size_t pending;
    uint64_t began_us;
};

/* -ENOMEM. */
GR_MUST_CHECK int cache_reader_new(struct cache *c, struct cache_reader **out);
/* Nothing may be in flight. NULL is allowed. */
void cache_reader_free(struct cache_reader *r);

/* Is there room for n more reads, which have `bytes` together? (If not, some may end at once, not got.) There is none
 * while another thread waits for a ring: what is in flight must end first. */
bool cache_reader_has_room(const struct cache_reader *r, size_t n, size_t bytes);
/* Start n reads, with one look at the index and one submission. A group is read if all of it is cached in memory, or
 * uncompressed in a healthy directory that is not slow. Never fetches, nor waits for a disk; only if all rings are
 * lent does it wait a moment for one. */
void cache_reader_start(struct cache_reader *r, struct cache_group *const *groups, size_t n);
/* Take a read that has ended, without waiting. NULL: there is none. !got: it is not cached that way, and then nothing
 * of it was read or counted; or bytes were bad, the disk was too slow, memory has just lost them, or a slot had no pins
 * left. */
struct cache_group *cache_reader_take(struct cache_reader *r);
/* Return the descriptor that can be read when the disk has answered, after cache_reader_take has returned NULL; -1:
 * nothing is in flight. *out_wait_ms: after this time a disk may be late, and cache_reader_take must be called. */
int cache_reader_fd(const struct cache_reader *r, int *out_wait_ms);

/* Read the stored bytes of those of n whole chunks (offset 0, len plain_len) that are cached, each to its dst, which
 * has room for them. Never fetches. out_got[i]: chunk i was read; false: it is not cached in that form, or proved bad.
 * Blocks, but all of it no longer than one read that waits for a disk. */
void cache_read_stored(struct cache *c, const struct cache_piece *pieces, size_t n, bool *out_got);

/* Fetch n chunks of one stripe for another node, and put their stored bytes at dst (offset and len are unused). They
 * are written afterwards, as the eviction policy likes, whoever owns them: the other node asks here because it knows of
 * no owner that is up, and would ask again. These fetches have workers, a table and limits of their own. They go to
 * store_origin(store), never to another node, and join a reader's fetch of the same chunk only if that goes there, too;
 * a reader joins them, for as long as they do not fail. Both only in the very same place, since the reference is only
 * what the other node says; one that proves wrong is not requested a second time. With cache_config.as_stored alone.
 * -EAGAIN (no message): one of them has been cached meanwhile, and the others may not be fetched; -ENODATA (no
 * message): cache-only mode, or a chunk came without its stored bytes; else the error of a fetch. Nothing is waited for
 * after until_ms, on clock_now_ms: -ETIMEDOUT. A single fetch has CACHE_OTHERS_MS, may outlast the call, and is kept
 * then, too. */
enum { CACHE_OTHERS_MS = 4000, CACHE_OTHERS_GETS = 16 /* GETs to stores at a time for other nodes */ };
GR_MUST_CHECK int cache_get_stored(struct cache *c, const struct cache_piece *pieces, size_t n, uint64_t until_ms);

/* Fetch n chunks of one stripe that belong to this node since another one leaves (offset, len and dst are unused), and
 * keep them as the eviction policy likes: by the workers of cache_get_stored, at the priority of warming. store: what
 * leaving nodes have; it outlives the cache. After a chunk that is missing or bad the others are taken all the same.
 * Errors as for cache_get_stored. */
GR_MUST_CHECK int cache_take(struct cache *c, const struct cache_piece *pieces, size_t n);

/* Bring n chunks into the cache (offset, len and dst are unused). Missing chunks are fetched at `priority`, and the
 * call waits until they are written; their fills are never dropped. Returns 0 when all are cached: on disk, or in
 * memory where there is no directory. -EIO: the cache cannot hold them (no directory and no memory tier, or all
 * directories are down); else the error of a fetch.
 */
GR_MUST_CHECK int cache_ensure(struct cache *c, const struct cache_piece *pieces, size_t n,
                               enum fetch_priority priority);

/* Put a chunk into the cache that the caller fetched itself (ref->plain_len bytes) and checked against its digest. It
 * counts as fetched. Without a message: -ENODEV, -EDQUOT, -ENOMEM or the disk's -errno where the cache cannot take
 * it. */
GR_MUST_CHECK int cache_put(struct cache *c, const struct chunk_ref *ref, const void *data);

/* Bring n chunks of one store into the cache, as far as there is room or the eviction policy makes some. They are
 * fetched at readahead priority, and the call waits for them. -EDQUOT, -ENODEV (no message): the cache takes no more
 * of them; else the error of a fetch. */
GR_MUST_CHECK int cache_ahead(struct cache *c, const struct cache_piece *pieces, size_t n);

/* How many bytes of one image the cache could hold at most, and how many without evicting anything. quota: the
 * image's cache_quota. Pinned slots and metadata count in neither. */
struct cache_capacity {
    uint64_t most, free;
};
struct cache_capacity cache_capacity(struct cache *c, unsigned quota);

bool cache_is_fenced(const struct cache *c);

/* Read a piece if it is on disk, without fetching; neither a hit nor a miss is counted. false: it is not on disk, or
 * proved bad. Blocks for the disk. */
GR_MUST_CHECK bool cache_read_kept(struct cache *c, const struct cache_piece *piece);

/* Is the chunk cached and readable now, in memory or on disk? No I/O. */
bool cache_has(struct cache *c, const struct digest *chunk);

/* ---- for tools: chunks by digest ---- */

struct cache_chunk {
    bool cached, pinned;   /* on disk; in memory where there is no directory */
    bool held;             /* pinned for this session only: cache_session_pin */
    uint32_t stored_bytes; /* bytes of its slot that it uses; 0: not on disk */
};

/* Say what the cache holds of n chunks now. No I/O. */
void cache_query(struct cache *c, const struct digest *chunks, size_t n, struct cache_chunk *out);

/* Where a chunk is, the fastest place first; CACHE_COMING: it is being fetched. */
enum cache_where { CACHE_IN_MEMORY, CACHE_ON_DISK, CACHE_COMING, CACHE_NOWHERE };

/* Say where n chunks of a store are now. No I/O. */
void cache_look(struct cache *c, const struct store *store, const struct chunk_ref *const *chunks, size_t n,
                enum cache_where *out);

/* Drop a chunk, on disk too, so that a restart does not bring it back. Blocks for one small write and for the readers
 * of that chunk; no reader waits. `pinned`: drop it even if it is pinned. -ENOENT: not cached; -EPERM: pinned, in the
 * record or for this session, and `pinned` is false. No message. */
GR_MUST_CHECK int cache_evict(struct cache *c, const struct digest *chunk, bool pinned);

/* Pin a cached chunk, so that it stays until it is unpinned, across restarts too; or unpin it. A pinned chunk that
 * proves bad is fetched again by its next reader and is pinned then. -ENOENT: not cached; -EDQUOT: pins already take
 * three quarters of the cache; -errno of the disk: the pin holds until the next restart. No message. */
GR_MUST_CHECK int cache_pin(struct cache *c, const struct digest *chunk, bool on);

/* Pin a cached chunk for the life of this process, unless it proves bad. Nothing is written to disk. Unpinning the
 * chunk ends the pin; cache_pin turns it into a lasting one. -ENOENT, -EDQUOT: as for cache_pin, whose limit it
 * shares. No message. */
GR_MUST_CHECK int cache_session_pin(struct cache *c, const struct digest *chunk);
/* End such a pin, if the chunk has one; a pin of the user's stays. */
void cache_session_unpin(struct cache *c, const struct digest *chunk);

/* Evict, pin or unpin everything the cache holds except index nodes and manifests, by which images are served. Each
 * call does a part and goes on where the one before it stopped; start with a zeroed sweep. Returns false when it is
 * finished. */
enum cache_bulk_operation { CACHE_EVICT, CACHE_EVICT_PINNED_TOO, CACHE_PIN, CACHE_UNPIN };
struct cache_sweep {
    uint32_t slab, slot; /* where the next call goes on */
    uint64_t changed, changed_bytes,
        refused;                      /* so far; refused: pinned chunks (evict), or chunks over the pin limit (pin) */
    uint64_t bytes_done, bytes_total; /* of the space visited */
};
GR_MUST_CHECK bool cache_sweep_next(struct cache *c, enum cache_bulk_operation operation, struct cache_sweep *sweep);

/* ---- whole images beside the slots: resident.h ---- */

/* Have the first fast directory give room for a whole image: others that nobody uses are removed, and slots are given
 * back until the whole images are within the budget. Waits for that. *out_dir: the directory, which belongs to the
 * cache; cache_resident_end ends the claim, after the image is complete or given up. -ENODEV: no directory; -ENOTSUP:
 * none whose files can be mounted; -ENOSPC: none is large enough, or what is in use, or pinned, leaves too little;
 * -EBUSY: another image is being written there; -ECANCELED; -EPERM: it is there, and another user could have written
 * it, or one that must make room cannot be removed; errors of resident_open, resident_each and resident_make_room.
 * -EEXIST, without a sentence: it is complete there, and nothing is claimed. */
struct resident_id;
GR_MUST_CHECK int cache_resident_begin(struct cache *c, const struct resident_id *id, const volatile int *cancel,
                                       const char **out_dir);
/* Note how many of the image's bytes are done, holes included, for the counters. */
void cache_resident_done(struct cache *c, const char *dir, uint64_t done);
void cache_resident_end(struct cache *c, const char *dir);

/* One configured directory. Strings are constant or belong to the cache. */
struct cache_dir_report {
    const char *path;
    uint64_t size;
    const char *reading,
        *writing; /* "normal", "suspect", "down" (cache_dir.h); "absent": its disk failed when the cache was opened */
    bool deleted; /* its files were unlinked; the cache uses them as long as it has them open */
};
size_t cache_dir_reports(struct cache *c, struct cache_dir_report out[CACHE_DIRS_MAX]);

/* Return fetch_longest_wait_us of the cache's fetch. */
uint64_t cache_longest_wait_us(struct cache *c, const struct store *store);

/* Visit every counter of the cache and its fetch. */
void cache_counters(struct cache *c, counter_visit *visit, void *arg);
/* Visit every histogram of the cache and its fetch. */
void cache_histograms(struct cache *c, histogram_visit *visit, void *arg);

#endif

/* An image open for reading: offsets become chunks through the index tree, and chunks become bytes through the cache.
 * Then what goes with its reads: a record of the chunks read, a log of slow reads, and fetching ahead in the
 * background. (Warming: warm/warm_run.h.) Every function may be called from any thread; those that fetch block. */
#ifndef GRANARY_IMAGE_IMAGE_H
#define GRANARY_IMAGE_IMAGE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "cache/cache.h"
#include "format/manifest.h"
#include "format/trace.h"
#include "store/store.h"

struct image;

enum { SLOW_READS_KEPT = 16 /* for those who look; the log has more */ };

/* A slow read. Times in microseconds, as its line in the log has them. */
struct slow_read {
    struct digest image;
    uint64_t offset, len;
    uint64_t ended_ms; /* clock_now_ms */
    uint64_t took_us, index_us, disk_us, queued_us, store_us;
    bool failed;
    char from[STORE_FROM_MAX]; /* URL of the server that was waited for longest, perhaps cut; empty: for none */
    char what[256];            /* path of the file, perhaps cut, or what else it was of; empty: not known, or not yet */
};

/* The log of slow reads: one line each says in which layer the time went. Its settings and counters; shared by the
 * images of a server; any thread may use them. */
struct slow_reads {
    uint64_t least_us; /* a read that takes this long is slow; 0: none is */
    counter total;
    struct log_limit limit;
    /* Called for each slow read, to name its file (slow_names below); NULL: not called. */
    void (*ask)(void *arg, struct image *img, uint64_t offset);
    void *ask_arg;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t kept_count;  /* so far */
    struct slow_read kept[SLOW_READS_KEPT];
};
/* Copy the last slow reads, the latest first; returns how many. Any thread. */
size_t slow_reads_last(struct slow_reads *s, struct slow_read out[SLOW_READS_KEPT]);
void slow_reads_init(struct slow_reads *s, uint64_t least_us);

/* What an image works with. The manifest is copied; everything else is borrowed. */
struct image_config {
    struct cache *cache;             /* not owned; must outlive the image */
    struct store *store;             /* not owned; likewise */
    const struct manifest *manifest; /* verified by the caller; copied */
    size_t index_memory;             /* bytes of decoded index nodes kept in memory; 0: 64 MiB */
    unsigned quota;                  /* cache_quota that its chunks are charged to; image_set_quota changes it */
    bool fenced;                     /* cache-only mode; without readahead */
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
/* Charge the chunks of fetches that start from now on to another quota of the cache; 0: to none. Any thread. */
void image_set_quota(struct image *img, unsigned quota);
/* Return the image's manifest and digest; valid as long as the image. */
const struct manifest *image_manifest(const struct image *img);
const struct digest *image_digest(const struct image *img);

/* Read bytes [off, off+len) to dst. Blocks. -EINVAL: the range reaches beyond the image; -EIO: cache-only mode, and a
 * part is not cached (the message says how to find the file); else the first error of a fetch (-EBADMSG, -ETIMEDOUT,
 * ...). */
GR_MUST_CHECK int image_read(struct image *img, void *dst, uint64_t off, size_t len);

/* A read that needs nothing but the cache, by a thread that does other things meanwhile (cache_reader). It stays in
 * place from its start until it is taken. */
enum { IMAGE_READS_MAX = 32 };
struct image_cached_read {
    struct cache_group group; /* the image's, as are image, chunks and served */
    struct image *image;
    uint64_t chunks[CACHE_GROUP_MAX];
    struct cache_served served;
    void *dst;
    uint64_t off;
    size_t len;
    bool got; /* out */
};
/* Start n <= IMAGE_READS_MAX reads: one look at the index of the cache, one submission to its disk. Does not block. */
void image_start_cached(struct image *img, struct cache_reader *reader, struct image_cached_read *const *reads,
                        size_t n);
/* Take a read that has ended, of any image, without waiting. NULL: none has. got: its bytes are at dst; else the caller
 * must use image_read: nothing was done or counted for it, except look-ups of index nodes, disk errors, and a part of
 * it that was read when another part proved bad. A read that touches a hole, more chunks than CACHE_GROUP_MAX, or a
 * part of the image that is being fetched ahead or whose index node is not in memory, is never done here. */
struct image_cached_read *image_take_cached(struct cache_reader *reader);

/* Could [off, off+len) be read now without the store? Chunks may still be evicted meanwhile. Reads index nodes from
 * the cache's disk if they are not in memory. */
bool image_is_cached(struct image *img, uint64_t off, uint64_t len);

/* Say where n of its chunks are now (cache_look). No I/O. */
void image_look(struct image *img, const struct chunk_ref *const *chunks, size_t n, enum cache_where *out);

/* Bring [off, off+len) into the cache at warm priority, and wait for it (NBD_CMD_CACHE). Errors as for image_read and
 * cache_ensure. */
GR_MUST_CHECK int image_prefetch(struct image *img, uint64_t off, uint64_t len);

/* The same for n chunks by number, in any order, 64 at a time, with the index nodes that lead to them. After an error
 * some of the other chunks may not be cached either. */
GR_MUST_CHECK int image_prefetch_chunks(struct image *img, const uint64_t *chunks, size_t n);

typedef bool image_peek(void *arg, uint64_t off, void *dst, size_t len);

/* How a whole image is copied. */
struct image_copy {
    /* Takes [off, off + len) of the bytes. */
    int (*visit)(void *arg, uint64_t off, const void *data, size_t len);
    /* Called on the calling thread several times a second with the bytes done so far, holes included. */
    int (*step)(void *arg, uint64_t done);
    /* Both NULL, or: reads what another version has there (false: nothing), and takes that range from it instead of
     * visiting its bytes; on an error they are visited. The bytes have been compared by then. */
    image_peek *peek;
    int (*share)(void *arg, uint64_t off, size_t len);
    void *arg;
    const volatile int *cancel; /* may be NULL */
};
/* Hand out every chunk of the image to `visit`, by several threads at once and in no order, compared with their SHA-256
 * just before. Holes are left out. What is not cached is fetched at warm priority. Returns 0 only if what was handed
 * out has the image's content root; -EBADMSG: it has not, so it may be another's. A non-zero result of visit or step,
 * or *cancel (-ECANCELED), ends it and is returned; else the errors of image_read. */
GR_MUST_CHECK int image_copy_out(struct image *img, const struct image_copy *how);

/* The percentage of some dozen chunks, taken evenly from the image, that are what peek reads at their offsets. Holes do
 * not count, nor what lies below index nodes that are not cached. */
unsigned image_likeness(struct image *img, image_peek *peek, void *arg);

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

/* ---- recorder.c ---- */

/* Record which chunks of an image are read: each once, in the order of first touch. Readers push, one thread takes.
 *
 * Readers never wait for it. When the ring is full because the taking thread is behind, the entry is dropped and
 * counted, and the next read of that chunk is a first touch again.
 */

/* An image's place for its recorder. All zero: none. */
struct recorder_place {
    _Atomic(struct recorder *) current;
    _Atomic unsigned users;         /* readers that may be using `current` */
    _Atomic unsigned started, ends; /* number of recorders so far; the number of the last one asked to end */
};

enum { RECORDER_RING = 1 << 16 /* entries; 1.5 MiB */ };

struct recorder;

/* Start recording; one recorder at a time. *out: recorder_stop, then recorder_free. -EBUSY: one is running; -ENOMEM. */
GR_MUST_CHECK int recorder_start(struct recorder_place *place, uint64_t chunk_count, struct recorder **out);
/* Stop recording; when it returns no reader pushes any more, and the ring can still be emptied. */
void recorder_stop(struct recorder_place *place, struct recorder *r);
void recorder_free(struct recorder *r); /* after recorder_stop */

/* Take the oldest entries, at most max; returns how many. One thread at a time. */
size_t recorder_take(struct recorder *r, struct trace_entry *out, size_t max);
/* Return how many entries were dropped. */
uint64_t recorder_dropped(struct recorder *r);

/* Ask the recording thread to end. false: nothing is being recorded. Any thread. */
bool recorder_end(struct recorder_place *place);
/* Has recorder_end been called since recorder_start? Call it before recorder_stop. */
bool recorder_ending(struct recorder_place *place);

/* ---- slow_names.c ---- */

/* Name the file of a slow read, in a log line shortly after the read's own. The catalog is in the order of paths, so
 * finding a file by offset takes a pass over all of it. Therefore a thread looks for one read at a time, and for at
 * most one a minute. The log lines of the other reads have an offset, for `granary ls --at`. */

enum { SLOW_NAMES_ENTRIES_MAX = 1 << 20 }; /* more files are not searched: some 80 MB of catalog at the most */

struct slow_names;

/* Attach to the slow reads of s, which must outlive it. Starts no thread. -ENOMEM. */
GR_MUST_CHECK int slow_names_new(struct slow_reads *s, struct slow_names **out);
GR_MUST_CHECK int slow_names_start_thread(struct slow_names *n);
/* Detach and free; call it after the last read of the images. Waits for a get in flight. NULL is allowed. */
void slow_names_free(struct slow_names *n);

/* ---- ahead.c ---- */

/* Completion in the background: while clients miss chunks of an image here and there, threads fetch the missing chunks
 * around them, within the credit of demand.c. The first epoch over a shuffled dataset then runs at the speed of the
 * link instead of one round trip per file. Nothing is fetched for an image that the cache cannot hold, or that nobody
 * reads. */

struct ahead;

/* Create without threads; `threads` is how many ahead_start_threads will start. -ENOMEM. */
GR_MUST_CHECK int ahead_new(unsigned threads, struct ahead **out);
/* Watch an image and take a reference to it. Call it before the image's first read. -ENOMEM. */
GR_MUST_CHECK int ahead_add(struct ahead *a, struct image *img);
/* Stop watching an image; no further unit of it is begun. Units in flight are not waited for: the last of them drops
 * the reference. Does nothing if the image is not watched. */
void ahead_remove(struct ahead *a, struct image *img);
/* Start the threads. On failure those that were started run until ahead_free. -ENOMEM, or the negative errno of
 * pthread_create. */
GR_MUST_CHECK int ahead_start_threads(struct ahead *a);
/* Stop, wait for the units in flight, and free. NULL is allowed. */
void ahead_free(struct ahead *a);

#endif

/* What the files of an image share. Only they and their tests include it.
 *
 *   image.c        from offsets to bytes: the walk over a range
 *   extents.c      which parts of a range are cached, and which are holes
 *   node_cache.c   the chunk index: its nodes in memory, and the way down to a leaf
 *   readahead.c    fetches ahead of sequential readers and page faults, with the read itself
 *   demand.c       what was read of each leaf, and how much more may be fetched ahead of it
 *   copy_out.c     hands out the whole image, for a file beside the cache
 *   ahead.c        completes leaves in the background
 *   recorder.c     records the chunks that are read
 *   slow_names.c   names the files of slow reads
 *   warm/          brings parts of an image into the cache
 */
#ifndef GRANARY_IMAGE_IMAGE_INTERNAL_H
#define GRANARY_IMAGE_IMAGE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/counter.h"
#include "base/step.h"
#include "format/index.h"
#include "image/image.h"

/* ---- node_cache.c ---- */

/* Decoded nodes of one image's chunk index, kept in memory up to a limit and fetched through the chunk cache when
 * missing. Any thread, unless it says otherwise. */

struct node_cache;
struct node;

/* A node's place in the tree, which says what it must contain. */
struct node_place {
    unsigned level;
    uint64_t number; /* of the node within its level, from 0 */
};

/* Borrowed pointers, which must outlive the node cache. */
struct node_cache_config {
    struct cache *cache; /* not owned, like the next two */
    struct store *store;
    const struct manifest *manifest;
    size_t memory; /* bytes of decoded nodes kept; nodes in use may exceed it */
    bool fenced;   /* as in image_config */
};

/* -ENOMEM. */
GR_MUST_CHECK int node_cache_new(const struct node_cache_config *config, struct node_cache **out);
void node_cache_free(struct node_cache *nc); /* all nodes must have been released; NULL is allowed */

/* Get the node that `child` (not a hole) describes, at `place`. Release *out by node_unref. Blocks while it is
 * fetched. -EBADMSG: the node does not fit its place; else the error of cache_read. */
GR_MUST_CHECK int node_cache_get(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                 struct node **out);
/* The same without keeping the node in memory, for walks over a whole image that must not evict the readers' nodes.
 * It comes from memory, from the cache, or else from `store` (NULL: -ENODATA, no message). */
GR_MUST_CHECK int node_cache_peek(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                  struct store *store, struct node **out);
/* The same for warming: a node fetched from `store` is put into the cache, and *fetched grows by its bytes. Inner
 * nodes are kept in memory too. */
GR_MUST_CHECK int node_cache_bring(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                   struct store *store, struct node **out, counter *fetched);
/* Make sure the node is in the cache too, even if it is in memory: without it, nothing that it describes can be read
 * while the store is away. Errors as for cache_ensure; -EBADMSG. */
GR_MUST_CHECK int node_cache_keep(struct node_cache *nc, const struct index_child *child);
/* Release a reference. NULL is allowed. */
void node_unref(struct node *node);
size_t node_cache_memory(struct node_cache *nc); /* the limit, as configured or set last */
/* Change the limit; nodes over it are dropped now. */
void node_cache_set_memory(struct node_cache *nc, size_t bytes);
/* Return an inner node. */
const struct index_node *node_index(const struct node *node);
/* Copy the reference of chunk i of a leaf. False: it is a hole, or the leaf has no such chunk. */
bool node_chunk(const struct node *node, uint32_t i, struct chunk_ref *out);
/* Return where the leaf holds the fields of reference i that come before `base`. Outside node_cache.c for tests only,
 * which change bits there. */
uint8_t *node_chunk_head(const struct node *node, uint32_t i);

/* Counts and sizes; see image_counters. */
struct node_cache_stats {
    uint64_t hits, misses, evictions, bytes, nodes;
};
void node_cache_stats(struct node_cache *nc, struct node_cache_stats *out);

DEFINE_CLEANUP(node, struct node *, node_unref)

/* One step of a walk over an image: the leaf of the index that covers a chunk, or a subtree of holes. */

/* The chunks [first, end) that one step covers. */
struct span {
    struct node *leaf; /* holds one reference; NULL: all chunks are holes */
    uint64_t first, end;
};

/* What to do about nodes that are not cached: fetch them; fetch them and wait until they are on disk; or fail with
 * -ENODATA (no message). SPAN_HELD: the same for all that are not in memory, without I/O. */
enum span_nodes { SPAN_FETCHED, SPAN_KEPT, SPAN_CACHED, SPAN_HELD };

/* Find the leaf of a chunk, or the largest subtree of holes around it. Release span->leaf by node_unref. Blocks while
 * nodes are fetched. -ENODATA: see span_nodes, or cache-only mode; -EBADMSG: a node does not fit its place; else the
 * error of a fetch. */
GR_MUST_CHECK int span_locate(struct node_cache *nc, uint64_t chunk, enum span_nodes how, struct span *span);

/* Copy the reference of a chunk of the span. False: it is a hole. */
bool span_chunk(const struct span *span, uint64_t chunk, struct chunk_ref *out);

/* ---- demand.c ---- */

/* What clients recently read of an image, per leaf of its index: which chunks, which were fetched ahead and not read
 * yet, and how many more may be fetched ahead.
 *
 * The rule (demand_credit) holds for each leaf separately. Let c be the share of the leaf that was read, and b be 1/16
 * if as much was read of all tracked leaves together, else 1/8:
 *
 *   c                0 ------- b ----------- b + 1/8 ------------ 1
 *   may be unread     nothing      8 (c - b)    the whole leaf
 *
 * A client that reads a directory soon gets the whole leaf; one that samples a file here and there gets nothing. Of a
 * sample that is spread over many leaves, some leaves get much more than their share by chance: hence the larger b.
 *
 * Threads: any thread may call every function; there is no lock. A leaf is tracked from its first miss on, so readers
 * of a cached image pay for one load. Memory: 8 bytes per leaf of the image, and 280 bytes per tracked leaf, about a
 * quarter of a byte per chunk.
 */

enum { DEMAND_WORDS = INDEX_FANOUT / 64, DEMAND_PAGE = 4096 }; /* bits are kept in words; reads are counted in pages */

/* One tracked leaf. All members are relaxed; see demand.c. */
struct demand_leaf {
    _Atomic uint64_t asked[DEMAND_WORDS];  /* one bit per chunk: it was read */
    _Atomic uint64_t unread[DEMAND_WORDS]; /* one bit per chunk: fetched ahead and not read since */
    _Atomic uint32_t pages;                /* pages of the first read of each chunk, summed */
    _Atomic uint32_t unread_count;         /* bits in unread */
    _Atomic uint32_t last;                 /* the chunk that was missed last */
    _Atomic uint32_t fruitless;            /* `pages` when a search last found nothing to fetch; 0: none did */
    _Atomic bool complete;                 /* every chunk is cached, as far as is known */
};

/* One per image. */
struct demand {
    /* leaf_count entries; NULL: nothing of the leaf was missed. Freed with the image only. */
    _Atomic(struct demand_leaf *) *leaves;
    uint64_t chunks, leaf_count;
    uint32_t chunk_size;
    _Atomic uint64_t pages, tracked; /* relaxed: `pages` of all tracked leaves, and how many pages these leaves have */
};

/* All leaves untracked. -ENOMEM. */
GR_MUST_CHECK int demand_init(struct demand *d, uint64_t chunks, uint32_t chunk_size);
void demand_release(struct demand *d);

/* Return a leaf's state; NULL: nothing of it was missed. */
static inline struct demand_leaf *demand_leaf(const struct demand *d, uint64_t leaf)
{
    return atomic_load_explicit(&d->leaves[leaf], memory_order_acquire);
}

static inline bool demand_is_complete(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->complete, memory_order_relaxed);
}

/* A client missed chunk number `chunk` of the leaf. Begins to track the leaf if it is new. If it was complete, forgets
 * what was read of it: chunks have been evicted since. NULL: out of memory. */
struct demand_leaf *demand_missed(struct demand *d, uint64_t leaf, uint32_t chunk);
/* A client read len bytes of the chunk. True: the chunk had been fetched ahead and is read for the first time. */
bool demand_read(struct demand *d, struct demand_leaf *leaf, uint32_t chunk, uint32_t len);

/* Was anything of the chunk read? */
bool demand_was_asked(const struct demand_leaf *leaf, uint32_t chunk);
/* Was the chunk read, or fetched ahead, or is it being fetched ahead? */
bool demand_is_known(const struct demand_leaf *leaf, uint32_t chunk);

/* Return how many pages of the leaf's chunks were read. */
static inline uint32_t demand_pages(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->pages, memory_order_relaxed);
}

/* Return how many chunks of leaf `number` may be fetched ahead now. */
uint32_t demand_credit(const struct demand *d, uint64_t number);

/* Claim the chunk for fetching ahead. False: it is being fetched ahead, or was and has not been read. */
bool demand_claim(struct demand_leaf *leaf, uint32_t chunk);
/* Take a claim back: the chunk was not fetched. */
void demand_unclaim(struct demand_leaf *leaf, uint32_t chunk);
/* A search of the whole leaf found nothing to claim. complete: all chunks are cached. Else the leaf has no credit until
 * clients have read more of it. */
void demand_exhausted(struct demand_leaf *leaf, bool complete);

/* ---- readahead.c: runs ---- */

/* Detects sequential runs among the reads of an image, and decides how much to fetch ahead of them.
 *
 * A run is a sequence of reads, each of which begins near the end of the run. Not exactly at the end: kernels send the
 * requests of one reader out of order, and reading the files of a directory in order leaves small gaps.
 *
 *       begin                        end
 *         |######  ########  ########|          read; gaps between them
 *                             |<- STREAM_BACK ->|<- STREAM_FORWARD ->|
 *                                               a read that begins here continues the run
 *
 * The window ahead of a run grows with the bytes the run has read, so a run that ends has cost no more than it read. An
 * isolated read gets no window.
 *
 * No lock, no I/O: the caller serializes the calls.
 */

enum {
    STREAMS_MAX = 64,           /* runs tracked at a time; the least recently used is replaced */
    STREAM_BACK = 512 << 10,    /* a read may begin up to this many bytes before the run's end, */
    STREAM_FORWARD = 256 << 10, /* or up to this many after it */
    STREAM_FREE = 256 << 10,    /* bytes that a run reads before anything is fetched ahead of it */
};

/* One run. Offsets and lengths in bytes. */
struct stream {
    uint64_t begin, end; /* the range it has covered, gaps included */
    uint64_t bytes;      /* read, without gaps */
    uint64_t ahead;      /* the end of what was fetched ahead of it */
    uint64_t used;       /* streams.clock of its last read; 0: unused entry */
};

/* All zero: no runs. */
struct streams {
    uint64_t clock; /* counts the reads */
    struct stream runs[STREAMS_MAX];
};

/* The bounds of what streams_read may return. */
struct stream_limits {
    uint64_t most;  /* maximum bytes ahead of a run */
    uint64_t stop;  /* nothing at or beyond this offset is returned */
    uint64_t align; /* a power of two: the window begins and ends at its multiples, or ends at stop */
};

/* Fetch [from, to) ahead now; from == to: nothing. */
struct stream_window {
    uint64_t from, to;
};

/* Account for a read of [off, off + len), and return what to fetch ahead of its run. The same bytes are never returned
 * twice for one run. */
struct stream_window streams_read(struct streams *s, uint64_t off, uint64_t len, const struct stream_limits *limits);

/* ---- warm/warm_turn.c ---- */

/* Whose turn it is. Runs that warm the same image take turns at its index nodes, and at its metadata if nothing else is
 * warmed. A server warms what it is started with, and a mount asks for the same a moment later: the second run waits
 * for the first, and finds everything cached, or gets its failure. */
struct warm_turns {
    pthread_mutex_t lock; /* held for a few instructions */
    pthread_cond_t given; /* broadcast when the turn is released */
    bool taken;           /* some run has the turn */
    struct error failed;  /* the last turn's error; code 0: it went well, or was cancelled */
};

void warm_turns_init(struct warm_turns *t);
void warm_turns_release(struct warm_turns *t); /* no thread may be waiting */

/* Wait for the turn. If not 0, this run does not have it: the result of step, or the error of the run that was waited
 * for. */
GR_MUST_CHECK int warm_turn_take(struct warm_turns *t, const struct step *step);
/* Release the turn. rc: the run's result. Leaves the thread's error message as it is. */
void warm_turn_give(struct warm_turns *t, int rc);

/* ---- warm/warm_note.c ---- */

/* How far a run is that warms the image: the one that began last. */
struct warm_note {
    pthread_mutex_t lock;                /* guards the rest; held for a few instructions */
    unsigned begun;                      /* runs so far */
    unsigned current;                    /* number of the run that is noted; 0: none is running */
    uint64_t began_ms, had, done, total; /* had: bytes of total that were cached at the beginning; done includes them */
};

void warm_note_init(struct warm_note *n);
void warm_note_release(struct warm_note *n);
/* A run begins; returns its number, for the functions below. */
unsigned warm_note_begin(struct warm_note *n, uint64_t had, uint64_t total);
void warm_note_done(struct warm_note *n, unsigned run, uint64_t done);
void warm_note_end(struct warm_note *n, unsigned run);

/* ---- the image ---- */

/* An open image. Constant after image_open, except for counters, atomics and members that have a lock of their own. */
struct image {
    _Atomic unsigned refs;
    struct image_config config; /* but for its quota */
    _Atomic unsigned quota;     /* as image_set_quota has set it */
    struct digest digest;
    struct manifest manifest;
    struct node_cache *nodes;
    struct recorder_place recorder;
    struct demand demand;
    pthread_mutex_t streams_lock; /* guards streams; innermost; only ever tried */
    struct streams streams;
    counter reads, read_bytes, hole_bytes, prefetches, prefetch_bytes;
    counter served[CACHE_SOURCES], served_bytes[CACHE_SOURCES];
    _Atomic int next_credit; /* how many chunks after a short read may still be fetched with it (readahead.c) */
    counter readahead_bytes, completion_bytes, ahead_used_bytes;
    /* Called when a chunk of a leaf was missed, or when a chunk fetched ahead was read (ahead.c); NULL: not called. */
    void (*noted)(void *arg, struct image *img, uint64_t leaf);
    void *noted_arg;
    _Atomic uint64_t active_ms; /* clock_now_ms of the last miss, or of the last read of a chunk fetched ahead */
    counter fence_refusals;
    struct warm_turns warm_turns;
    struct warm_note warm_note;
};

/* The quota for a cache_piece. */
static inline unsigned image_quota(const struct image *img)
{
    return atomic_load_explicit(&img->quota, memory_order_relaxed);
}

/* How many chunks one entry of a node at `level` covers. */
static inline uint64_t image_chunks_below(unsigned level)
{
    uint64_t n = 1;
    while (level--)
        n *= INDEX_FANOUT;
    return n;
}

/* Bytes of a chunk; the image's last chunk may be shorter. */
static inline uint64_t image_chunk_len(const struct image *img, uint64_t chunk)
{
    const struct manifest *m = &img->manifest;
    return GR_MIN(m->size - chunk * m->chunk_size, (uint64_t)m->chunk_size);
}

/* -EINVAL unless [off, off+len) lies within the image. */
GR_MUST_CHECK int image_check_range(const struct image *img, uint64_t off, uint64_t len);
/* Count and return (-EIO) the refusal of a read in cache-only mode: its index node or its bytes are not cached. */
int image_refuse(struct image *img, uint64_t off);

/* ---- recorder.c ---- */

/* Record a chunk if it is a first touch; call recorder_note instead. */
void recorder_push(struct recorder_place *place, uint64_t chunk, const struct digest *digest);

/* Note that a chunk is read. Costs one relaxed load while nothing is recorded. */
static inline void recorder_note(struct recorder_place *place, uint64_t chunk, const struct digest *digest)
{
    if (__builtin_expect(atomic_load_explicit(&place->current, memory_order_relaxed) != NULL, 0))
        recorder_push(place, chunk, digest);
}

/* ---- slow_kept.c ---- */

/* Keep a slow read, in place of the oldest one. */
void slow_reads_keep(struct slow_reads *s, const struct slow_read *read);
/* Say what a read at that offset was of: a path, of len bytes. */
void slow_reads_name(struct slow_reads *s, const struct digest *image, uint64_t offset, const char *what, size_t len);

/* ---- readahead.c: one read ---- */

/* Readahead for one read of an image. Before the read goes to the cache, it chooses chunks ahead of the sequential run,
 * or the chunk after a page fault's, so that they come with the same GET. Afterwards the result is recorded in the
 * image's demand.
 *
 *   readahead_init -> readahead_choose -> cache_read with the pieces -> readahead_started -> readahead_note, per chunk
 *
 * One struct per read, on the reader's stack. The shared state is in struct image.
 */

enum { READAHEAD_CHUNKS = 64 }; /* fetched ahead by one read at most */

/* What one read may fetch ahead, and what is known of the read so far. */
struct readahead {
    struct image *img;
    uint64_t off, len; /* the read, in bytes */
    bool in_streams;   /* the read has been counted as part of a run */
    bool next;         /* the pieces are the single chunk after the read's */
    size_t count;
    struct cache_piece pieces[READAHEAD_CHUNKS];
    struct demand_leaf *leaf;          /* of the pieces */
    uint32_t chunks[READAHEAD_CHUNKS]; /* the pieces' numbers in the leaf */
};

/* May something be fetched ahead of a hit at `off`, in this leaf? */
bool readahead_looks_at(struct image *img, const struct demand_leaf *leaf, uint64_t off);
/* A hit that was not looked at has been read. */
void readahead_passed(struct image *img, const struct demand_leaf *leaf, uint64_t off, uint64_t len);

/* Prepare for a read of [off, off + len). */
void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len);

/* Fill in the pieces. span is the leaf at the end of the read; no piece lies beyond it, because the next leaf might
 * have to be fetched. Nothing is chosen in a leaf without recent misses. */
void readahead_choose(struct readahead *r, const struct span *span);
/* cache_read has returned: count the pieces that it started to fetch, and release the others. Clears the pieces. */
void readahead_started(struct readahead *r);
/* len bytes of a chunk were read. missed: some bytes of the read were not cached. */
void readahead_note(struct readahead *r, uint64_t chunk, uint32_t len, bool missed);

#endif

/* What the files of content/ share: how many reads, the reader's state, and where file data goes. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_CONTENT_INTERNAL_H
#define GRANARY_IMAGEBUILD_CONTENT_CONTENT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/counter.h"
#include "base/digest.h"
#include "base/error.h"
#include "imagebuild/content/content.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/sink/sink.h"
#include "imagebuild/source/source.h"

/* ---- how many reads (read_concurrency.c) ---- */

/* Find by trial how many concurrent reads fill the link. The number grows as long as more reads deliver more bytes, and
 * shrinks as long as fewer deliver as much. A near source starts low, because each thread that a local build does not
 * need costs CPU. Arithmetic only: the caller measures, and decides when an interval ends. No locks; one thread at a
 * time.
 */

enum {
    READ_CONCURRENCY_FIRST = 32,       /* initial number over a network; a short build never finds a better one */
    READ_CONCURRENCY_LEAST = 8,        /* lowest number over a network */
    READ_CONCURRENCY_NEAR_PER_CPU = 2, /* initial number for a near source (source.h), per CPU */
    READ_CONCURRENCY_NEAR_LEAST = 2,   /* lowest number for a near source, in all */
    READ_CONCURRENCY_MOST = SOURCE_JOBS_MAX,
    READ_CONCURRENCY_REQUEST_UNITS = 64 << 10, /* a request counts as these bytes, for its fixed cost */
    READ_CONCURRENCY_INTERVAL_MS = 250,        /* least length of an interval; it ends then if each of the concurrent */
    READ_CONCURRENCY_INTERVAL_MAX_MS = 3000,   /* reads has had two requests answered, otherwise at this length */
};

/* What the current interval tries (read_concurrency.c). */
enum read_concurrency_phase {
    READ_CONCURRENCY_RISE,
    READ_CONCURRENCY_REST,
    READ_CONCURRENCY_UP,
    READ_CONCURRENCY_DOWN
};

/* Lives in the caller's memory; there is nothing to release. */
struct read_concurrency {
    unsigned limit; /* concurrent reads now */
    unsigned least; /* lowest limit */
    enum read_concurrency_phase phase;
    bool skip;       /* ignore the next interval: reads begun under the old limit end in it */
    unsigned former; /* the limit before the attempt */
    double rate;     /* delivered under `former`, in units per millisecond */
    double sum;      /* of the rates of this phase's `n` intervals */
    unsigned n;
    bool down_next; /* the next attempt is DOWN */
};

/* For a source over a network. */
void read_concurrency_init(struct read_concurrency *j);
/* For a near source; cpus: of this machine. */
void read_concurrency_init_near(struct read_concurrency *j, unsigned cpus);
/* Return whether an interval of `ms` milliseconds with `requests` answered requests is long enough to judge. */
bool read_concurrency_interval_over(const struct read_concurrency *j, uint64_t ms, uint64_t requests);
/* An interval is over: bytes and requests were delivered in ms milliseconds. held_up: the readers waited for
 * something other than the source (the writer was behind), so the interval says nothing about it. Sets j->limit. */
void read_concurrency_interval(struct read_concurrency *j, uint64_t bytes, uint64_t requests, uint64_t ms,
                               bool held_up);

/* ---- the reader, shared by content_reader.c (the consumer) and content_reader_threads.c (the readers) ---- */

enum {
    CONTENT_JOBS_MAX = 1024,
    /* how many files one reader claims at once from a near source */
    CONTENT_RUN = 32,
    CONTENT_RUN_BYTES = 256 << 10, /* their bytes, at most */
    /* of a near source: data that is used soon after it was read is still in the CPU's caches, and takes less memory */
    CONTENT_NEAR_BUDGET = 8 << 20, /* bytes read ahead for each of the concurrent reads */
    CONTENT_NEAR_PART = 1 << 20,   /* bytes of a part of a file that has several */
};

/* One part on its way from a reader to the consumer, with a copy of what the reader needs to know of the file. It
 * belongs to its reader until `ready` is set; then to the consumer, or to its reader if `abandoned`. */
struct content_claim {
    struct content_claim *next;
    uint32_t rank;
    bool move;             /* read from the parent */
    uint64_t address;      /* of the file's data in the parent */
    uint64_t offset, size; /* in the file; of the file */
    size_t len;
    bool ready, abandoned; /* abandoned: the consumer unlinked it; its reader frees it */
    int rc;
    struct error *error;  /* the sentence of rc; NULL: no memory for it */
    struct digest digest; /* of the file, if the part is all of it */
    uint8_t *data;
    size_t path_len, validator_len;
    char text[]; /* path, validator */
};

/* A file that changed and that the consumer reads by itself. */
struct content_redo {
    bool active, counted; /* counted: in `changed` */
    uint32_t rank;
    struct bytes path, validator; /* the node's */
    uint64_t size;
    unsigned tries; /* versions tried, the node's included */
    uint64_t offset;
    struct source_version version; /* being read */
    uint8_t *data;
};

/* lock guards what the comments say; sources, sizes and `strict` never change. */
struct content_reader {
    struct source *source, *parent;
    size_t memory, part;
    bool strict;
    pthread_mutex_t lock;
    pthread_cond_t budget_freed, ready;
    /* guarded by lock: */
    bool stop, exhausted;
    struct error feed;    /* why the readers stopped: the nodes cannot be read, or no memory */
    bool advancing;       /* one reader looks for the next file without the lock; cursor and node are its own */
    bool have_node;       /* node is a file that is being cut into parts */
    struct node node;     /* its strings are the cursor's */
    uint64_t node_offset; /* of the next part */
    struct content_claim *first, **last_next;
    size_t used;                         /* bytes of all claims that are not freed yet */
    bool full;                           /* the budget ran out; no claims until an eighth of it is free */
    unsigned reading;                    /* readers that hold claims */
    unsigned limit;                      /* of `reading` */
    bool find_limit;                     /* `limit` is found by trying */
    struct read_concurrency concurrency; /* used if find_limit */
    struct {
        uint64_t start_ms, bytes, requests;
        bool held_up; /* the writer was behind at some time */
    } interval;
    unsigned thread_count;
    /* used by the consumer alone: */
    struct content_claim *current;
    struct content_redo redo;
    struct hasher *hasher; /* of a file with several parts */
    bool hashing;
    struct error failed;
    /* relaxed counters, read by any thread */
    counter changed, vanished, read_bytes, moved_bytes, unmovable;
    /* used by the reader that is advancing */
    struct nodes_cursor *cursor;
    pthread_t threads[CONTENT_JOBS_MAX];
};

/* Let up to `limit` readers read, and start threads if there are fewer. -errno: no thread could be started. */
int content_reader_set_limit_locked(struct content_reader *b, unsigned limit);
void content_claim_free(struct content_claim *c);
/* Return the budget of c, which the caller frees, and wake a reader if enough is free. */
void content_reader_give_back_locked(struct content_reader *b, const struct content_claim *c);
/* Unlink the first claim of the list, which is not empty. */
struct content_claim *content_reader_unlink_first_locked(struct content_reader *b);

/* ---- addresses (placement.c) ---- */

/* Allocate addresses for the file data that a build writes: in the parent's free chunks while it fits, otherwise
 * after everything kept. The same files in the same order get the same addresses. One thread. */

struct alloc_config {
    const struct live_map *live; /* blocks kept of a parent; NULL: none. The caller's; not changed */
    uint32_t chunk_size;
    uint64_t data_begin, data_max; /* as in struct fs: the first address, and the one that no file may pass */
    /* Data was written up to here with the listing (content_stream.c), perhaps also into free chunks before it. None of
     * this space is used again; it lies after everything kept. 0: nothing was written. */
    uint64_t written_end;
    bool gaps;         /* leave gaps so that files touch fewer chunks; zeros in a chunk cost nothing in the store */
    const char *limit; /* data_max in words, for the error */
};

/* Lives in the caller's memory; there is nothing to release. */
struct alloc {
    struct alloc_config config;
    uint64_t end;              /* of the data after everything kept */
    uint64_t hole, hole_end;   /* the current free range */
    bool no_hole;              /* there are no more free ranges */
    uint64_t placed, given_up; /* bytes: of all files placed; of free ranges skipped because a file did not fit */
    uint64_t spare;            /* bytes that gaps may still take */
};

void alloc_init(struct alloc *a, const struct alloc_config *config);

/* Place the next file of `size` bytes (not 0). *out_section is SINK_HOLES or SINK_DATA; addresses ascend in each.
 * -EFBIG: beyond data_max. */
GR_MUST_CHECK int alloc_data(struct alloc *a, uint64_t size, enum sink_section *out_section, uint64_t *out_address);

/* Continue at `end` with data after everything kept: the start of a chunk, not before alloc_end. What follows is placed
 * as in a build that begins there. */
void alloc_go_on(struct alloc *a, uint64_t end);

/* Return the address after all data, kept and new. It is the start of a chunk until new data is placed there. */
uint64_t alloc_end(const struct alloc *a);

/* ---- equal files (placement.c) ---- */

/* Find files with equal bytes in the image: a table of fixed size, so that memory does not grow with the dataset. One
 * thread. */

/* Larger files are not looked up: they come in several parts, and the digest is known only after the last. */
#define DEDUPE_SIZE_MAX (UINT64_C(16) << 20)

enum { DEDUPE_SLOTS = 1 << 18 }; /* of 48 bytes each: 12 MiB */

struct dedupe;

struct dedupe *dedupe_new(void); /* NULL: out of memory */
void dedupe_free(struct dedupe *d);
DEFINE_CLEANUP(dedupe, struct dedupe *, dedupe_free)

/* Return the address of a file with this content and size; 0: none is known. */
uint64_t dedupe_find(const struct dedupe *d, const struct digest *content, uint64_t size);

/* Remember a file. It may replace another one. */
void dedupe_add(struct dedupe *d, const struct digest *content, uint64_t size, uint64_t address);

#endif

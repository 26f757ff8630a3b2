/* What the parts of the scheduler share: fetch.c (life, figures), fetch_queue.c (table and queues), fetch_share.c
 * (how stores share the gets in flight), fetch_take.c (what is taken next, and by one get) and fetch_run.c (the
 * workers). Nobody else includes this.
 *
 * One mutex for table and queues, never held across I/O, waiting, or the callback. Lock order: it comes before an
 * in-flight fetch's own lock.
 */
#ifndef GRANARY_FETCH_FETCH_INTERNAL_H
#define GRANARY_FETCH_FETCH_INTERNAL_H

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "fetch/concurrency.h"
#include "fetch/fetch.h"
#include "fetch/hedge.h"
#include "fetch/inflight_internal.h"
#include "fetch/window.h"

enum {
    FETCH_RUN_CHUNKS_MAX = 128, /* bounds a run of tiny chunks */
};

struct fetch_counts {
    counter chunks[PRIORITIES], joins, raised, merged, dropped;
    counter requests, chunk_bytes, bytes, warm_bytes, refetches, origin_refetches, healed, verify_failures, errors;
    counter hedges, hedge_wins;
};

/* A store and its gets in flight, second ones included. Never freed before the fetch is. */
struct fetch_store {
    const struct store *store;
    struct fetch_store *busy_prev, *busy_next; /* the stores with gets in flight */
    unsigned busy, busy_background;
    uint64_t in_flight[PRIORITIES]; /* bytes still to come, of background priorities */
    uint64_t heard_us;              /* when a chunk of it last arrived, or when it last got its first get in flight */
    bool answers;                   /* its last get brought something */
};

/* The places among the gets in flight as they are now. What silent stores hold is not on the link. */
struct fetch_shares {
    uint64_t now_us;
    unsigned limit, free; /* what silent stores hold included */
    unsigned silent_busy, silent_background;
    uint64_t silent_in_flight[PRIORITIES];
};

struct fetch_queue {
    struct inflight *first, *last;
    size_t len;
};

struct fetch {
    struct fetch_config config; /* defaults filled in */
    struct fetch_counts counters;
    struct histogram gets, tier_gets, queue;
    struct log_limit healed;
    pthread_t *threads;
    unsigned thread_count;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;
    bool stopping;
    struct fetch_queue queues[PRIORITIES];
    struct map inflights; /* all there are, also those that no lane has any more */
    size_t queued, queued_waiterless;
    unsigned busy, busy_background; /* gets in flight; those for warming are background too */
    uint64_t in_flight[PRIORITIES]; /* bytes that those of background priorities are still to bring */
    uint64_t demand_us;             /* when a demand get was last sent, or ended */
    struct map stores;
    struct fetch_store *busy_stores;
    struct concurrency concurrency;
    struct window window;
    uint64_t watched_us; /* an idle worker waits until then at most; UINT64_MAX: none does */
    struct hedge hedge;
};

/* What a worker carries out by one ranged get. */
struct fetch_run {
    struct hedge_get get; /* at demand priority; must be first; under the fetch's lock */
    struct fetch *f;
    enum fetch_priority priority;
    size_t n;
    struct store *store;
    struct fetch_store *of;                           /* also of a second get, which may ask the store behind it */
    struct inflight *inflights[FETCH_RUN_CHUNKS_MAX]; /* a reference to each */
    struct chunk_ref chunks[FETCH_RUN_CHUNKS_MAX];    /* copies: theirs go with them */
    const struct chunk_ref *refs[FETCH_RUN_CHUNKS_MAX];
    int again[FETCH_RUN_CHUNKS_MAX]; /* not 0: failed so, in a way that one get of its own may heal */

    uint64_t sent_us;
    uint64_t in_flight; /* bytes still to come, of a background priority; under the fetch's lock */
    struct request_context context;
    bool answered; /* it has brought a chunk; under the fetch's lock */
    bool second;   /* the second get of its chunks */
    bool won;      /* it has brought a chunk before the first; under the fetch's lock */
};

/* Behind the last of its stored bytes, in its object. */
static inline uint64_t fetch_end_of(const struct inflight *inflight)
{
    return (uint64_t)inflight->chunk.offset + inflight->chunk.stored_len;
}
/* May next be read by the same get as the run that begins with head and ends at `end`? */
bool fetch_follows(const struct fetch *f, const struct inflight *head, const struct inflight *next, uint64_t end);
/* The last of those that come by one get with a queued fetch and stand behind it. */
const struct inflight *fetch_last_of_run(const struct fetch *f, const struct inflight *inflight);
/* Take an in-flight fetch off its priority's queue. */
void fetch_dequeue_locked(struct fetch *f, struct inflight *inflight);
/* ---- fetch_share.c ---- */

/* The store's entry, made when there is none: -ENOMEM. */
GR_MUST_CHECK int fetch_find_store_locked(struct fetch *f, const struct store *store, struct fetch_store **out);
void fetch_free_stores(struct fetch *f);
struct fetch_shares fetch_shares_locked(const struct fetch *f);
/* May a get of the in-flight fetch's store be sent now? */
bool fetch_has_place(const struct fetch *f, const struct fetch_shares *shares, const struct inflight *inflight);
/* It has answered its last get, and is not silent. */
bool fetch_is_answering(const struct fetch *f, const struct fetch_shares *shares, const struct fetch_store *s);
void fetch_begin_get_locked(struct fetch *f, struct fetch_store *s, bool background);
/* answered: it has brought a chunk. */
void fetch_end_get_locked(struct fetch *f, struct fetch_store *s, bool background, bool answered);
/* A chunk of the store has arrived. */
void fetch_heard_locked(struct fetch *f, struct fetch_store *s);
static inline unsigned fetch_three_quarters(unsigned n)
{
    return n > 1 ? n - (n + 3) / 4 : 1;
}

/* ---- fetch_take.c ---- */

/* The first fetch of the next run that may be worked on now, NULL: none; then, if one will be by itself, in *due_us
 * when, else UINT64_MAX. */
struct inflight *fetch_next_locked(struct fetch *f, uint64_t *due_us);
/* Does work wait because as many gets are in flight as may be? */
bool fetch_is_full_locked(struct fetch *f);
/* The next run of the best priority that may be worked on now: taken off its queue, its get counted. False: none. */
bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run);
/* A chunk of the run has come, or failed. */
void fetch_landed_locked(struct fetch_run *run, const struct inflight *inflight);
/* Its get, or the second one that it is, begins; has ended. */
void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run);
void fetch_end_run_locked(struct fetch *f, struct fetch_run *run);
/* One more chunk for the run's get. */
void fetch_add_to_run_locked(struct fetch_run *run, struct inflight *inflight);
/* Fail an in-flight fetch that no queue has, with the thread's sentence. */
void fetch_fail(struct fetch *f, struct inflight *inflight, int rc);
/* Flights that no worker has taken fail; those of running gets land by themselves. */
void fetch_cancel_queued(struct fetch *f);

/* A worker's thread; arg: the fetch. Ends when f->stopping. */
void *fetch_worker(void *arg);

#endif

/* What the scheduler's files share:
 *
 *   fetch.c        creation, shutdown, counters
 *   fetch_queue.c  the table of in-flight fetches and the queues
 *   fetch_share.c  how several stores share the GETs in flight
 *   fetch_take.c   which run is next, and whether it may be sent now
 *   fetch_run.c    the workers
 *
 * One mutex guards the table and the queues. It is never held across I/O, a wait or on_landed. It is taken before the
 * lock of an in-flight fetch, never after it. Functions named *_locked need it held.
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
    FETCH_RUN_CHUNKS_MAX = 128, /* chunks of a run: bounds struct fetch_run where chunks are tiny */
};

/* The counters behind fetch_counters, which has the meaning of each. */
struct fetch_counts {
    counter chunks[PRIORITIES], joins, raised, merged, dropped;
    counter requests, chunk_bytes, bytes, warm_bytes, refetches, origin_refetches, healed, verify_failures, errors;
    counter hedges, hedge_wins;
};

/* A store and its GETs in flight, hedged requests included. Freed with the fetch only, so pointers to it stay valid. */
struct fetch_store {
    const struct store *store;
    struct fetch_store *busy_prev, *busy_next; /* list of the stores with GETs in flight */
    unsigned busy, busy_background;            /* GETs in flight; those of readahead and warming among them */
    uint64_t in_flight[PRIORITIES];            /* bytes still to arrive, per background priority */
    uint64_t heard_us; /* when its last chunk arrived, or when its GETs in flight last rose from 0 */
    bool answers;      /* it delivered something since a GET last failed */
};

/* A snapshot of the GET slots. GETs and bytes of silent stores are listed apart: they put no load on the link, so they
 * do not count against its limits. */
struct fetch_shares {
    uint64_t now_us;
    unsigned limit, free; /* GETs allowed, the silent stores' included; slots free now */
    unsigned silent_busy, silent_background;
    uint64_t silent_in_flight[PRIORITIES];
};

/* The queued fetches of one priority: FIFO, except that neighbours in an object stand side by side. */
struct fetch_queue {
    struct inflight *first, *last;
    size_t len;
};

/* The scheduler. config and threads are constant while threads run; counters and histograms are atomic; `lock` guards
 * the rest. */
struct fetch {
    struct fetch_config config; /* defaults filled in */
    struct fetch_counts counters;
    struct histogram gets, tier_gets, queue; /* GETs answered by stores and by proxies; time in the queue */
    struct log_limit healed;                 /* of the lines about recovered chunks */
    pthread_t *threads;
    unsigned thread_count;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;  /* idle workers wait on it */
    bool stopping;
    struct fetch_queue queues[PRIORITIES];
    struct map inflights;             /* every fetch that is not retired; holds a reference to each */
    size_t queued, queued_waiterless; /* in all queues; those without a waiter (queue_max) */
    unsigned busy, busy_background;   /* GETs in flight; those of readahead and warming */
    uint64_t in_flight[PRIORITIES];   /* bytes still to arrive, per background priority */
    uint64_t demand_us;               /* when a demand GET was last sent or ended */
    struct map stores;                /* struct fetch_store by store */
    struct fetch_store *busy_stores;  /* list of the stores with GETs in flight */
    struct concurrency concurrency;
    struct window window;
    uint64_t watched_us; /* an idle worker waits with this timeout; UINT64_MAX: none does */
    struct hedge hedge;
};

/* A run: the chunks that one worker fetches by one ranged GET. Owned by that worker; fields marked (lock) are guarded
 * by the fetch's lock. */
struct fetch_run {
    struct hedge_get get; /* (lock) for hedging, at demand priority; must be first */
    struct fetch *f;
    enum fetch_priority priority;
    size_t n;
    struct store *store;
    struct fetch_store *of; /* the store charged for the GET; a hedged request may go to the store behind it */
    struct inflight *inflights[FETCH_RUN_CHUNKS_MAX];   /* one reference each */
    struct chunk_ref chunks[FETCH_RUN_CHUNKS_MAX];      /* copies of their chunk_refs */
    const struct chunk_ref *refs[FETCH_RUN_CHUNKS_MAX]; /* pointers into chunks, as chunk_read_run wants them */
    int again[FETCH_RUN_CHUNKS_MAX]; /* the error that a GET for this chunk alone may cure; 0: none */

    uint64_t sent_us;
    uint64_t in_flight; /* (lock) bytes still to arrive; 0 at demand priority */
    struct request_context context;
    bool answered; /* (lock) it has delivered a chunk */
    bool second;   /* it is the hedged request, not the first */
    bool won;      /* (lock) the hedged request delivered a chunk before the first */
};

/* Offset of the first byte after the chunk in its object. */
static inline uint64_t fetch_end_of(const struct inflight *inflight)
{
    return (uint64_t)inflight->chunk.offset + inflight->chunk.stored_len;
}
/* May `next` be read by the same GET as the run that begins with `head` and so far ends at `end`? */
bool fetch_follows(const struct fetch *f, const struct inflight *head, const struct inflight *next, uint64_t end);
/* Return the last queued fetch of the run that `inflight` belongs to. */
const struct inflight *fetch_last_of_run(const struct fetch *f, const struct inflight *inflight);
/* Remove a fetch from the queue of its priority. */
void fetch_dequeue_locked(struct fetch *f, struct inflight *inflight);
/* ---- fetch_share.c ---- */

/* Find or create the entry of `store`. -ENOMEM. */
GR_MUST_CHECK int fetch_find_store_locked(struct fetch *f, const struct store *store, struct fetch_store **out);
void fetch_free_stores(struct fetch *f);
/* Count the free GET slots, and what silent stores occupy. */
struct fetch_shares fetch_shares_locked(const struct fetch *f);
/* May a GET of the fetch's store be sent now, by that store's share? */
bool fetch_has_place(const struct fetch *f, const struct fetch_shares *shares, const struct inflight *inflight);
/* Has the store answered its last GET, and is it not silent? */
bool fetch_is_answering(const struct fetch *f, const struct fetch_shares *shares, const struct fetch_store *s);
/* Account for a GET that is about to be sent. background: readahead or warming. */
void fetch_begin_get_locked(struct fetch *f, struct fetch_store *s, bool background);
/* Account for the end of a GET. answered: it delivered a chunk. */
void fetch_end_get_locked(struct fetch *f, struct fetch_store *s, bool background, bool answered);
/* Note that a chunk of the store has arrived. */
void fetch_heard_locked(struct fetch *f, struct fetch_store *s);
/* Three quarters of n, rounded down, but at least 1. */
static inline unsigned fetch_three_quarters(unsigned n)
{
    return n > 1 ? n - (n + 3) / 4 : 1;
}

/* ---- fetch_take.c ---- */

/* Return the head of the next run that may be sent now, or NULL. With NULL, *due_us is the time from which a run may be
 * sent without any other event, UINT64_MAX if there is none. */
struct inflight *fetch_next_locked(struct fetch *f, uint64_t *due_us);
/* Does queued work wait only because no further GET may be in flight? */
bool fetch_is_full_locked(struct fetch *f);
/* Take the next run of the best priority that may be sent now off its queue, and account for its GET. False: there is
 * none. */
bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run);
/* Account for a chunk of the run that arrived or failed. */
void fetch_landed_locked(struct fetch_run *run, const struct inflight *inflight);
/* Account for the beginning and the end of a run's GET, hedged or not. */
void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run);
void fetch_end_run_locked(struct fetch *f, struct fetch_run *run);
/* Append a chunk to the run; takes a reference. */
void fetch_add_to_run_locked(struct fetch_run *run, struct inflight *inflight);
/* Fail a fetch that is in no queue, with rc and the thread's error sentence. */
void fetch_fail(struct fetch *f, struct inflight *inflight, int rc);
/* Fail all queued fetches with -ECANCELED. Running GETs land theirs themselves. */
void fetch_cancel_queued(struct fetch *f);

/* A worker's thread function; arg is the struct fetch. Returns when f->stopping is set. */
void *fetch_worker(void *arg);

#endif

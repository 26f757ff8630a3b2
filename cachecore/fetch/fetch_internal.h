/* What the scheduler's files share:
 *
 *   fetch.c         creation, shutdown, counters
 *   inflight.c      one in-flight fetch: its references, its result, waiting for it
 *   fetch_queue.c   the table of the in-flight fetches, and the queues
 *   fetch_take.c    which run is next, and whether it may be sent now
 *   fetch_run.c     the workers
 *   concurrency.c   how many GETs may be in flight
 *   window.c        how many bytes warming and readahead may have in flight
 *   hedge.c         which demand GETs deserve a second request
 *
 * The last three are pure logic: no lock, no clock, no thread. Their state is embedded in struct fetch.
 *
 * One mutex guards the table and the queues. It is never held across I/O, a wait or on_landed. It is taken before the
 * lock of an in-flight fetch, never after it. Functions named *_locked need it held.
 */
#ifndef GRANARY_FETCH_FETCH_INTERNAL_H
#define GRANARY_FETCH_FETCH_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/log.h"
#include "base/map.h"
#include "fetch/fetch.h"
#include "format/chunk_list.h"

/* ---- concurrency.c ---- */

/* How many GETs may be in flight: as many as fill the link, and few more. The limit grows while more GETs deliver more,
 * and shrinks when GETs answer late and fewer of them deliver as much. */

enum {
    CONCURRENCY_FIRST = 16,     /* initial limit */
    CONCURRENCY_LEAST = 4,      /* minimum, unless the maximum is lower */
    CONCURRENCY_FAR_US = 50000, /* base latency from which on a store is far away: GETs rise and are spaced otherwise */
};

/* See concurrency.c. */
enum concurrency_phase { CONCURRENCY_RISE, CONCURRENCY_REST, CONCURRENCY_UP, CONCURRENCY_DOWN };

/* Embedded by the owner; nothing to release. */
struct concurrency {
    unsigned limit; /* GETs that may be in flight now */
    unsigned most;  /* maximum of limit */
    enum concurrency_phase phase;
    unsigned former;    /* the limit under which former_rate was measured */
    double former_rate; /* bytes per ms; 0: unknown */

    /* Base latency: that of an undisturbed GET, the minimum of the last two time windows. */
    uint64_t base_us, window_least_us, window_began_us;

    /* What arrived since work began after the last pause, without first chunks. heard_us: the last arrival. */
    uint64_t busy_since_us, busy_bytes, heard_us;

    /* The current round. It begins with the first answer of a GET that was sent under the current limit. */
    uint64_t changed_us, round_began_us; /* round_began_us 0: not begun */
    unsigned round_limit;                /* the limit when it began */
    unsigned due;                        /* answers that end it */
    unsigned arrivals, answers;          /* chunks; GETs that delivered their first chunk */
    uint64_t bytes, latency_sum_us;
    bool starved, waited; /* at some time in the round: slots were free without work; work waited for a slot */

    /* The rounds of the current phase. */
    double rate_sum;
    unsigned rounds, crowded_rounds;
    bool down_next;
};

/* A chunk that arrived. */
struct concurrency_arrival {
    uint64_t sent_us, now_us; /* when its GET was sent; when the chunk arrived */
    uint32_t bytes;
    bool first;   /* it is the first chunk of its GET */
    bool waiting; /* work is waiting for a GET slot */
};

/* Start with CONCURRENCY_FIRST, or `most` if that is lower. */
void concurrency_init(struct concurrency *c, unsigned most, uint64_t now_us);
/* Account for an arrival. True: the limit changed. */
bool concurrency_arrived(struct concurrency *c, const struct concurrency_arrival *arrival);
/* Note that a slot is free and no work waits for it. */
void concurrency_starved(struct concurrency *c);

/* ---- window.c ---- */

/* How many bytes warming and readahead may have in flight. Whatever exceeds what the link carries in a round trip waits
 * in the link's queue, ahead of every demand read.
 *
 *   warming, no client reads     several times what a full link carries, so that it stays full
 *   warming, clients read        as much as delays the clients' GETs only slightly
 *   readahead                    what fills the link, and little more */

/* One limit that follows the delay of GETs. */
struct window_limit {
    uint64_t bytes;
    bool used; /* at least half of it was in flight at some time in this round */
};

/* Embedded by the owner; nothing to release. */
struct window {
    /* The link's rate, measured over rounds of time. */
    double rate; /* bytes per millisecond */
    uint64_t round_began_us, round_bytes;
    uint64_t due_us; /* warming's next GET may be sent from then on */

    uint64_t queued_us; /* the link's queue: what the fastest of the last few answers took beyond the base latency */
    uint64_t recent_least_us; /* of the answers since it was last set */
    unsigned recent;          /* their number */

    /* Adjusted after each round of answers, by the round's fastest answer. */
    struct window_limit beside, ahead; /* for warming while clients read; for readahead */
    uint64_t answers_began_us, least_us;
    unsigned answers;
};

void window_init(struct window *w);

/* Account for a chunk of any priority that arrived. base_us: latency of an undisturbed GET, 0 if unknown. warm_bytes,
 * ahead_bytes: bytes in flight for warming and for readahead at that moment. */
void window_arrived(struct window *w, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes,
                    uint64_t ahead_bytes);

/* Return the bytes that may be in flight for warming while no client reads. */
uint64_t window_alone(const struct window *w, uint64_t base_us);

/* Account for a warming GET of `bytes` bytes. The next one may be sent from w->due_us on. */
void window_sent(struct window *w, uint64_t bytes, uint64_t base_us, uint64_t now_us);

/* The maximum length in bytes of one warming GET while no client reads. Warming has some 64 MiB in flight (64 callers
 * with 16 chunks of 64 KiB each), and longer GETs would not use all connections: far away these fill the link only
 * together. */
enum { WINDOW_GET_ALONE = 1 << 20 };
/* The same while clients read, under such a window. */
uint64_t window_get_beside(uint64_t window);

/* ---- hedge.c ---- */

/* Which demand GETs deserve a hedged request. Keeps the GETs that have delivered nothing yet, the distribution of each
 * store's time to the first chunk, and a budget of hedged requests. */

enum {
    HEDGE_STORES_MAX = 16,   /* GETs of further stores are not hedged */
    HEDGE_LENGTHS = 5,       /* GETs are compared with others of their length; see hedge.c */
    HEDGE_BUCKETS = 72,      /* of a histogram; see hedge.c */
    HEDGE_SAMPLES_MIN = 200, /* a store's GETs of a length that must be known before one is hedged */
    HEDGE_DELAY_MIN_MS = 10, /* no GET is hedged earlier */
};

/* The histogram of GETs of one length: time to the first chunk. */
struct hedge_length {
    unsigned count;
    uint16_t buckets[HEDGE_BUCKETS];
};

/* The times of one store. */
struct hedge_times {
    const struct store *store;
    struct hedge_length lengths[HEDGE_LENGTHS];
};

/* A demand GET, embedded in its owner. All zero at first. */
struct hedge_get {
    const struct store *store, *second; /* where it went, and where a hedged request would go */
    unsigned length;                    /* which of the store's histograms counts it */
    uint64_t begun_ms;
    bool silent; /* it has delivered nothing yet and is in hedge.silent */
    bool hedged; /* a hedged request was sent for it */
    struct hedge_get *prev, *next;
};

/* All zero at first, except percent. */
struct hedge {
    unsigned percent; /* hedged requests per hundred demand GETs; 0: none */
    unsigned credit;  /* budget, in hundredths of a GET */
    unsigned stores;
    struct hedge_times times[HEDGE_STORES_MAX];
    struct hedge_get *silent; /* list of the GETs that have delivered nothing yet */
};

/* A demand GET of `chunks` chunks begins, of `store`; a hedged request for it would go to `second`. Earns percent/100
 * of a hedged request; the budget is capped at 10 requests. */
void hedge_begin(struct hedge *h, struct hedge_get *get, const struct store *store, const struct store *second,
                 size_t chunks, uint64_t now_ms);
/* The GET has delivered its first chunk (good) or failed. Further calls do nothing. */
void hedge_end(struct hedge *h, struct hedge_get *get, bool good, uint64_t now_ms);
/* Return the silent GET that becomes late first, and in *due_ms when. A GET is late when it has delivered nothing for
 * longer than the 95th percentile of its store's recent GETs of its length and twice their median, and for at least
 * HEDGE_DELAY_MIN_MS. Before enough of its length are known, the nearest known lengths count: a shorter one's time is
 * doubled for each step, twice at most, and a longer one's is the most. If the hedged request would go to another
 * store, the GET has to be late by that one's times, too, as far as they are known. NULL: the budget is empty, or there
 * are too few samples. */
struct hedge_get *hedge_next(struct hedge *h, uint64_t *due_ms);
/* A hedged request is sent for this GET, which hedge_next returned under the same lock. */
void hedge_send(struct hedge *h, struct hedge_get *get);

/* ---- the scheduler ---- */

/* The fetch's lock (struct fetch) guards the queueing state, inflight.lock the result. So waiters never contend for the
 * scheduler's lock. */
struct inflight {
    _Atomic unsigned refs;
    struct chunk_ref chunk; /* constant */
    struct store *store;    /* constant, not owned */
    uint32_t tag;           /* constant */

    /* Guarded by the fetch's lock. */
    struct fetch_store *of;       /* the store's accounting of GETs in flight */
    struct inflight *prev, *next; /* in the queue of its priority; valid while queued */
    enum fetch_priority priority;
    uint64_t wanted_us; /* when the first reader began to wait for it; 0: no reader waits */
    bool queued;
    bool warm;         /* a caller at PRIORITY_WARM waits for it, whatever its priority is now */
    unsigned attempts; /* running GETs that cover it: 1, or 2 when hedged */
    bool completed;    /* its result is decided; a second GET's bytes are dropped */

    pthread_mutex_t lock;
    pthread_cond_t retirement; /* broadcast when it is retired */
    bool retired;              /* guarded by lock */

    /* Guarded by lock; written once, by inflight_land. */
    pthread_cond_t landing; /* broadcast when it lands */
    bool landed;
    struct buf *plain;  /* the chunk's uncompressed bytes; NULL: the fetch failed with `error` */
    struct buf *stored; /* see inflight_stored; may be NULL */
    struct error error;
    uint64_t sent_us, landed_us; /* sent_us 0: no GET was sent */
    unsigned tries;              /* see inflight_times */
    bool from_l2, from_node;
    bool others; /* see inflight_is_own */
    char from[STORE_FROM_MAX];
};

enum {
    FETCH_RUN_CHUNKS_MAX = CHUNK_LIST_MAX, /* chunks of a run: they are listed in a header for proxies */
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
    struct histogram gets, l2_gets, queue; /* GETs answered by stores and by proxies; time in the queue */
    struct log_limit healed;               /* of the lines about recovered chunks */
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
    struct store *store; /* where its chunks come from: for deltas the store itself, since nodes do not serve deltas */
    struct store *bases_store; /* where the bases of its deltas come from */
    struct fetch_store *of;    /* the store charged for the GET; a hedged request may go to the store behind it */
    struct inflight *inflights[FETCH_RUN_CHUNKS_MAX];   /* one reference each */
    struct chunk_ref chunks[FETCH_RUN_CHUNKS_MAX];      /* copies of their chunk_refs */
    const struct chunk_ref *refs[FETCH_RUN_CHUNKS_MAX]; /* pointers into chunks, as chunk_read_run wants them */
    int again[FETCH_RUN_CHUNKS_MAX]; /* the error that a GET for this chunk alone may cure; 0: none */

    /* Numbers of shared cache proxies, as request_context.from_l2 has them; 0: none. */
    unsigned senders[FETCH_RUN_CHUNKS_MAX]; /* who sent the chunk's wrong bytes, or those of its base */
    unsigned base_sender;                   /* who sent the last base, if it was wrong */
    unsigned reported;                      /* the last one reported for the run's GETs */
    unsigned wrong_twice;                   /* the last one that sent wrong bytes of a chunk twice */

    uint64_t most;      /* bytes of a GET for bases */
    uint64_t sent_us;   /* when its GET was sent */
    uint64_t asked_us;  /* the same, or when the last GET for bases was sent */
    uint64_t in_flight; /* (lock) bytes still to arrive; 0 at demand priority */
    struct request_context context;
    char header[CHUNK_LIST_HEADER_MAX]; /* for context.header */
    bool others;                        /* another node keeps its chunks for all (store_is_own) */
    bool answered;                      /* (lock) it has delivered a chunk */
    bool bases_silent;                  /* (lock) a GET for bases was sent and has delivered nothing yet */
    bool second;                        /* it is the hedged request, not the first */
    bool won;                           /* (lock) the hedged request delivered a chunk before the first */
};

/* ---- inflight.c ---- */

/* Return a new fetch with one reference, or NULL when out of memory. */
struct inflight *inflight_new(struct store *store, const struct chunk_ref *chunk);

/* Drop a reference to each of n fetches; NULL entries are allowed. */
void inflight_unref_all(struct inflight *const *inflights, size_t n);

/* Record the GET that decides the fetch, for inflight_times and inflight_is_own; before inflight_land. */
void inflight_note(struct inflight *inflight, const struct fetch_run *run);

/* Store the result and wake all waiters; called once. Takes over the references to plain and stored (stored may be
 * NULL). With plain NULL the fetch failed: rc and the calling thread's error sentence go to every waiter. */
void inflight_land(struct inflight *inflight, int rc, struct buf *plain, struct buf *stored);

/* ---- fetch_queue.c ---- */

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
/* Fail a fetch that is in no queue, with rc and the thread's error sentence. */
void fetch_fail(struct fetch *f, struct inflight *inflight, int rc);
/* Fail all queued fetches with -ECANCELED. Running GETs land theirs themselves. */
void fetch_cancel_queued(struct fetch *f);
void fetch_free_stores(struct fetch *f);

/* ---- fetch_take.c ---- */

/* Return the head of the next run that may be sent now, or NULL. With NULL, *due_us is the time from which a run may be
 * sent without any other event, UINT64_MAX if there is none. */
struct inflight *fetch_next_locked(struct fetch *f, uint64_t *due_us);
/* Does queued work wait only because no further GET may be in flight? */
bool fetch_is_full_locked(struct fetch *f);
/* Count the free GET slots, and what silent stores occupy. */
struct fetch_shares fetch_shares_locked(const struct fetch *f);
/* Note that a chunk of the store has arrived. */
void fetch_heard_locked(struct fetch *f, struct fetch_store *s);
/* Take the next run of the best priority that may be sent now off its queue, and account for its GET. False: there is
 * none. */
bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run);
/* Account for a chunk that arrived or failed: one of the run, or a base. */
void fetch_arrived_locked(struct fetch_run *run, const struct chunk_ref *chunk);
/* Account for a further GET of the run, for `bytes` of bases. */
void fetch_begin_bases_locked(struct fetch_run *run, uint64_t bytes);
/* Account for the beginning and the end of a run's GET, hedged or not. */
void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run);
void fetch_end_run_locked(struct fetch *f, struct fetch_run *run);
/* Append a chunk to the run; takes a reference. */
void fetch_add_to_run_locked(struct fetch_run *run, struct inflight *inflight);

/* ---- fetch_run.c ---- */

/* A worker's thread function; arg is the struct fetch. Returns when f->stopping is set. */
void *fetch_worker(void *arg);

#endif

/* The scheduler: a table of the flights in the air, a queue a lane, and workers.
 *
 * Table: a fixed number of chains, keyed by chunk digest and store (the same chunk asked of two
 * stores is two flights, so that a dead store delays nobody who reads from a living one; the plain
 * length is compared too, since a hostile index may lie about it). The table holds one reference to each flight from
 * its start until it is retired; queues and workers borrow that one.
 *
 * Runs are formed when a worker takes work, not when flights are queued: it takes the first flight
 * of the best lane and goes on with its successors while they lie behind it in the same object.
 * Flights that start together are queued sorted by object and offset, so they come out together:
 * neighbours of a demand read that its own get passes over or goes on to ride on the demand lane, all
 * others on the readahead lane. One that is raised to a better lane leaves a gap in its queue and nothing else to mend.
 *
 * Readahead and warm together never occupy more than three quarters of the workers: a demand read
 * finds one that is free, or waits for another demand read.
 *
 * A demand get that is silent for longer than 95 in 100 gets of its store is *hedged*: a worker that has nothing else
 * to do asks for the same chunks once more, of the store itself where shared tiers stand in between. Each chunk is
 * landed by the get that brings it first, and fails with the last one that could have brought it (claim); neither get
 * is broken off. Of the idle workers one watches the time (watching), as long as a demand get is silent. hedge.h bounds
 * how many second gets there are.
 *
 * One mutex for table and queues, never held across I/O, waiting, or the callback. Lock order: it
 * comes before a flight's own lock.
 */
#include "fetch/fetch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/le.h"
#include "base/log.h"
#include "base/thread.h"
#include "fetch/flight_internal.h"
#include "fetch/hedge.h"
#include "store/chunk_read.h"

enum {
    WORKERS_DEFAULT = 16,
    GAP_DEFAULT = 64 << 10,
    RUN_DEFAULT = 4 << 20,
    QUEUE_DEFAULT = 4096,
    RUN_CHUNKS_MAX = 128, /* bounds a run of tiny chunks */
    BUCKETS = 8192,
};

struct counters {
    counter chunks[LANES], joins, raised, dropped;
    counter requests, chunk_bytes, bytes, refetches, verify_failures, errors, hedges, hedge_wins;
};

struct lane_queue {
    struct flight *first, *last;
};

struct fetch {
    struct fetch_config config; /* defaults filled in */
    unsigned background_max;    /* workers on readahead and warm at most */
    struct counters counters;
    struct histogram gets;
    pthread_t *threads;
    unsigned thread_count;

    pthread_mutex_t lock; /* everything below */
    pthread_cond_t work;
    bool stopping;
    struct lane_queue lanes[LANES];
    size_t queued, queued_waiterless, flights;
    unsigned busy, busy_background;
    bool watching; /* an idle worker waits until a demand get is late */
    struct hedge hedge;
    struct flight *buckets[BUCKETS];
};

/* What a worker carries out by one ranged get. */
struct run {
    struct hedge_get get; /* on the demand lane; must be first; under the fetch's lock */
    struct fetch *f;
    enum fetch_lane lane;
    size_t n;
    struct store *store;
    struct flight *flights[RUN_CHUNKS_MAX];  /* a reference to each */
    struct chunk_ref chunks[RUN_CHUNKS_MAX]; /* copies: theirs go with them */
    const struct chunk_ref *refs[RUN_CHUNKS_MAX];
    int again[RUN_CHUNKS_MAX]; /* not 0: failed so, in a way that one get of its own may heal */

    bool second; /* the second get of its chunks */
    bool won;    /* it has brought a chunk before the first; under the fetch's lock */
};

/* ---- table ---- */

static struct flight **bucket_of(struct fetch *f, const struct chunk_ref *chunk)
{
    return &f->buckets[le64_get(chunk->digest.b) % BUCKETS];
}

static struct flight *find_locked(struct fetch *f, const struct store *store, const struct chunk_ref *chunk)
{
    struct flight *at = *bucket_of(f, chunk);
    while (at && (at->store != store || at->chunk.plain_len != chunk->plain_len ||
                  !digest_equal(&at->chunk.digest, &chunk->digest)))
        at = at->bucket_next;
    return at;
}

static void insert_locked(struct fetch *f, struct flight *flight)
{
    struct flight **bucket = bucket_of(f, &flight->chunk);
    flight->bucket_next = *bucket;
    *bucket = flight;
    f->flights++;
}

void fetch_retire(struct fetch *f, struct flight *flight)
{
    {
        SCOPED_LOCK(&f->lock);
        struct flight **at = bucket_of(f, &flight->chunk);
        while (*at != flight) {
            assert(*at); /* retired twice */
            at = &(*at)->bucket_next;
        }
        *at = flight->bucket_next;
        f->flights--;
    }
    flight_unref(flight);
}

/* ---- queues ---- */

static void enqueue_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane)
{
    struct lane_queue *q = &f->lanes[lane];
    flight->lane = lane;
    flight->queued = true;
    flight->next = NULL;
    flight->prev = q->last;
    if (q->last)
        q->last->next = flight;
    else
        q->first = flight;
    q->last = flight;
    f->queued++;
    f->queued_waiterless += flight->waiterless;
}

static void dequeue_locked(struct fetch *f, struct flight *flight)
{
    struct lane_queue *q = &f->lanes[flight->lane];
    if (flight->prev)
        flight->prev->next = flight->next;
    else
        q->first = flight->next;
    if (flight->next)
        flight->next->prev = flight->prev;
    else
        q->last = flight->prev;
    flight->prev = flight->next = NULL;
    flight->queued = false;
    f->queued--;
    f->queued_waiterless -= flight->waiterless;
}

/* ---- start ---- */

static int by_place(const void *a, const void *b)
{
    const struct flight *x = *(struct flight *const *)a, *y = *(struct flight *const *)b;
    int order = memcmp(&x->chunk.object, &y->chunk.object, sizeof x->chunk.object);
    if (order)
        return order;
    return x->chunk.offset < y->chunk.offset ? -1 : x->chunk.offset > y->chunk.offset;
}

/* May next be read by the same get as the run that begins with head and ends at `end`? */
static bool follows(const struct fetch *f, const struct flight *head, const struct flight *next, uint64_t end)
{
    const struct chunk_ref *a = &head->chunk, *b = &next->chunk;
    return next->store == head->store && b->kind == a->kind && digest_equal(&b->object, &a->object) &&
           b->offset >= end && b->offset - end <= f->config.gap_max &&
           (uint64_t)b->offset + b->stored_len - a->offset <= f->config.run_max;
}

/* Move a queued flight to a better lane, and with it those behind it that come in the same get. */
static void raise_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane)
{
    const struct flight *head = flight;
    uint64_t end;
    do {
        struct flight *next = flight->next;
        dequeue_locked(f, flight);
        enqueue_locked(f, flight, lane);
        end = (uint64_t)flight->chunk.offset + flight->chunk.stored_len;
        counter_add(&f->counters.raised, 1);
        flight = next;
    } while (flight && follows(f, head, flight, end));
}

/* Join the flight that is in the air. True when it was raised. */
static bool join_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane, bool waiting)
{
    bool raise = flight->queued && lane < flight->lane;
    if (raise)
        raise_locked(f, flight, lane);
    if (waiting) {
        counter_add(&f->counters.joins, 1);
        f->queued_waiterless -= flight->queued && flight->waiterless;
        flight->waiterless = false;
    }
    return raise;
}

/* The chunks of one fetch_start. */
struct request {
    size_t n, wanted;
    enum fetch_lane lane;
    struct flight **flights; /* n, made but not yet known to the table */
    struct flight **spare;   /* n; what was not used (joined, dropped) is put there */
    struct flight **out_flights;
    bool raised;
};

/* Join or insert the flights. New ones, to be queued, are moved to the front, the lane they are meant
 * for set; returns their number. */
static size_t place_locked(struct fetch *f, struct request *r)
{
    size_t fresh = 0;
    for (size_t i = 0; i < r->n; i++) {
        bool waiting = i < r->wanted;
        enum fetch_lane lane = waiting ? r->lane : GR_MAX(r->lane, LANE_READAHEAD);
        struct flight *mine = r->flights[i], *there = find_locked(f, mine->store, &mine->chunk);
        r->spare[i] = there ? mine : NULL;
        if (there) {
            r->raised |= join_locked(f, there, lane, waiting);
        } else if (!waiting && f->queued_waiterless + fresh >= f->config.queue_max) {
            counter_add(&f->counters.dropped, 1);
            r->spare[i] = mine;
        } else {
            mine->waiterless = !waiting;
            mine->lane = lane;
            insert_locked(f, mine);
            r->flights[fresh++] = there = mine;
            counter_add(&f->counters.chunks[lane], 1);
        }
        if (waiting)
            r->out_flights[i] = flight_ref(there);
    }
    return fresh;
}

static void start_locked(struct fetch *f, struct request *r)
{
    size_t fresh = place_locked(f, r);
    qsort(r->flights, fresh, sizeof(struct flight *), by_place);
    const struct flight *head = NULL; /* of the run on r->lane that is being queued */
    uint64_t end = 0;
    for (size_t i = 0; i < fresh; i++) {
        struct flight *flight = r->flights[i];
        bool rides = head && follows(f, head, flight, end);
        if (flight->lane == r->lane && !rides)
            head = flight;
        if (flight->lane == r->lane || rides)
            end = (uint64_t)flight->chunk.offset + flight->chunk.stored_len;
        enqueue_locked(f, flight, rides ? r->lane : flight->lane);
    }
    if (fresh == 1 && !r->raised)
        pthread_cond_signal(&f->work);
    else if (fresh || r->raised)
        pthread_cond_broadcast(&f->work);
}

static void unref_all(struct flight **flights, size_t n)
{
    for (size_t i = 0; i < n; i++)
        flight_unref(flights[i]);
}

int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n, size_t wanted,
                enum fetch_lane lane, uint32_t tag, struct flight **out_flights)
{
    /* All memory first, so that a failure starts nothing. */
    CLEANUP_FREE struct flight **flights = calloc(2 * n + 1, sizeof *flights);
    if (!flights)
        return error_set(-ENOMEM, "fetch: out of memory");
    struct request request = {
        .n = n, .wanted = wanted, .lane = lane, .flights = flights, .spare = flights + n, .out_flights = out_flights};
    for (size_t i = 0; i < n; i++) {
        assert(!chunk_is_hole(refs[i]));
        flights[i] = flight_new(store, refs[i]);
        if (!flights[i]) {
            unref_all(flights, i);
            return error_set(-ENOMEM, "fetch: out of memory");
        }
        flights[i]->tag = tag;
    }
    {
        SCOPED_LOCK(&f->lock);
        start_locked(f, &request);
    }
    unref_all(request.spare, n);
    return 0;
}

/* ---- workers ---- */

static void add_to_run_locked(struct run *run, struct flight *flight)
{
    flight->attempts++;
    run->flights[run->n] = flight_ref(flight);
    run->chunks[run->n] = flight->chunk;
    run->refs[run->n] = &run->chunks[run->n];
    run->again[run->n] = 0;
    run->n++;
}

/* The demand get that is late first, if any may be hedged; one worker stays free for what comes. */
static struct hedge_get *next_late_locked(struct fetch *f, uint64_t *due_ms)
{
    return f->busy + 1 < f->config.workers ? hedge_next(&f->hedge, due_ms) : NULL;
}

/* Its time begins to count, and somebody idle watches it if nobody does. */
static void begin_silence_locked(struct fetch *f, struct run *run)
{
    uint64_t due_ms;
    hedge_begin(&f->hedge, &run->get, run->store, clock_now_ms());
    if (!f->watching && next_late_locked(f, &due_ms))
        pthread_cond_signal(&f->work);
}

static bool take_run_locked(struct fetch *f, struct run *run)
{
    enum fetch_lane lane = LANE_DEMAND;
    while (lane < LANES && !f->lanes[lane].first)
        lane++;
    if (lane == LANES || (lane != LANE_DEMAND && f->busy_background >= f->background_max))
        return false;
    run->lane = lane;
    run->second = false;
    run->n = 0;
    uint64_t end = 0;
    for (;;) {
        struct flight *flight = f->lanes[lane].first;
        if (!flight || run->n == RUN_CHUNKS_MAX || (run->n && !follows(f, run->flights[0], flight, end)))
            break;
        dequeue_locked(f, flight);
        end = (uint64_t)flight->chunk.offset + flight->chunk.stored_len;
        add_to_run_locked(run, flight);
    }
    run->store = run->flights[0]->store;
    f->busy++;
    f->busy_background += lane != LANE_DEMAND;
    if (lane == LANE_DEMAND && f->hedge.percent)
        begin_silence_locked(f, run);
    return true;
}

/* The second get of one that is late. It is silent still, so none of its flights is settled. */
static bool take_hedge_locked(struct fetch *f, struct run *run)
{
    uint64_t due_ms;
    struct hedge_get *get = next_late_locked(f, &due_ms);
    if (!get || clock_now_ms() < due_ms)
        return false;
    const struct run *late = (const struct run *)get;
    run->lane = LANE_DEMAND;
    run->second = true;
    run->won = false;
    run->n = 0;
    run->store = store_origin(late->store);
    for (size_t i = 0; i < late->n; i++)
        add_to_run_locked(run, late->flights[i]);
    f->busy++;
    hedge_send(&f->hedge, get);
    counter_add(&f->counters.hedges, 1);
    return true;
}

/* Errors that a get of this chunk alone may heal: wrong bytes, or a run that broke. A store that is
 * down or refuses has been tried until its deadline already. */
static bool worth_again(int rc)
{
    return rc == -EBADMSG || rc == -EIO;
}

/* Out of the table first: who asks after the failure has been seen starts afresh. */
static void fail(struct fetch *f, struct flight *flight, int rc)
{
    counter_add(&f->counters.errors, 1);
    flight_ref(flight);
    fetch_retire(f, flight);
    flight_land(flight, rc, NULL, NULL);
    flight_unref(flight);
}

/* The stored bytes of a compressed chunk, where they are wanted; without memory for them the chunk
 * goes on as if it were stored plain. */
static struct buf *keep_stored(const struct run *run, size_t i, const void *stored)
{
    const struct chunk_ref *ref = run->refs[i];
    if (!run->f->config.keep_stored || !stored || !(ref->flags & CHUNK_ZSTD))
        return NULL;
    struct buf *copy = buf_new(ref->stored_len);
    if (copy)
        memcpy(copy->data, stored, ref->stored_len);
    return copy;
}

/* Is this result of run's the flight's? The first good one is, or the last bad one. */
static bool claim(struct run *run, struct flight *flight, bool good)
{
    SCOPED_LOCK(&run->f->lock);
    flight->attempts--;
    if (flight->settled || (!good && flight->attempts))
        return false;
    flight->settled = true;
    if (run->second && good && !run->won) {
        run->won = true;
        counter_add(&run->f->counters.hedge_wins, 1);
    }
    return true;
}

static void land(struct run *run, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fetch *f = run->f;
    struct flight *flight = run->flights[i];
    if (!claim(run, flight, !rc)) {
        buf_unref(plain);
        return;
    }
    if (rc) {
        fail(f, flight, rc);
        return;
    }
    flight_land(flight, 0, plain, keep_stored(run, i, stored));
    if (f->config.on_landed)
        f->config.on_landed(f->config.arg, flight, run->lane);
    else
        fetch_retire(f, flight);
}

/* The get has brought its first chunk, or failed on it. */
static void end_silence(struct run *run, bool good)
{
    if (!run->get.silent) /* only this thread changes it */
        return;
    SCOPED_LOCK(&run->f->lock);
    hedge_end(&run->f->hedge, &run->get, good, clock_now_ms());
}

/* Another get has brought it, or failed for good. */
static bool is_settled(struct run *run, const struct flight *flight)
{
    SCOPED_LOCK(&run->f->lock);
    return flight->settled;
}

static void chunk_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct run *run = arg;
    end_silence(run, !rc);
    if (rc == -EBADMSG)
        counter_add(&run->f->counters.verify_failures, 1);
    run->again[i] = worth_again(rc) ? rc : 0;
    if (run->again[i])
        log_warning("%s; asking for this chunk once more", error_text());
    else
        land(run, i, rc, plain, stored);
}

static void count_request(struct fetch *f, const struct chunk_ref *const *refs, size_t n)
{
    uint64_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        wanted += refs[i]->stored_len;
    counter_add(&f->counters.requests, 1);
    counter_add(&f->counters.chunk_bytes, wanted);
    counter_add(&f->counters.bytes, (uint64_t)refs[n - 1]->offset + refs[n - 1]->stored_len - refs[0]->offset);
}

/* From the store itself: a tier in between may have been the cause, and would answer the same. */
static void fetch_again(struct run *run, size_t i)
{
    struct fetch *f = run->f;
    struct store *store = run->store;
    counter_add(&f->counters.refetches, 1);
    count_request(f, &run->refs[i], 1);
    struct buf *plain = NULL;
    int rc = chunk_read_one(store_origin(store), run->refs[i], &plain);
    if (rc == -EBADMSG)
        counter_add(&f->counters.verify_failures, 1);
    if (!rc && run->again[i] == -EBADMSG) {
        char key[OBJECT_KEY_MAX];
        store_blame(store, object_key(run->refs[i]->kind, &run->refs[i]->object, key));
    }
    land(run, i, rc, plain, NULL); /* stored bytes of so rare a case are not kept */
}

static void carry_out(struct run *run)
{
    count_request(run->f, run->refs, run->n);
    uint64_t began_us = clock_now_us();
    /* Each chunk's own result went to chunk_done: the get's adds nothing. */
    (void)chunk_read_run(run->store, run->refs, run->n, chunk_done, run);
    histogram_add(&run->f->gets, clock_now_us() - began_us);
    end_silence(run, false);
    for (size_t i = 0; i < run->n; i++)
        if (run->again[i] && !is_settled(run, run->flights[i]))
            fetch_again(run, i);
    unref_all(run->flights, run->n);
}

static void run_ended_locked(struct fetch *f, const struct run *run)
{
    f->busy--;
    f->busy_background -= run->lane != LANE_DEMAND;
}

/* Until there is work, or a get is late if no other worker waits for that. */
static void wait_for_work_locked(struct fetch *f)
{
    uint64_t due_ms;
    if (f->watching || !next_late_locked(f, &due_ms)) {
        pthread_cond_wait(&f->work, &f->lock);
        return;
    }
    struct timespec due = clock_at_ms(due_ms);
    f->watching = true;
    pthread_cond_timedwait(&f->work, &f->lock, &due);
    f->watching = false;
}

static void *worker(void *arg)
{
    struct fetch *f = arg;
    struct run run = {.f = f};
    pthread_setname_np(pthread_self(), "granary-fetch");
    pthread_mutex_lock(&f->lock);
    while (!f->stopping) {
        if (!take_run_locked(f, &run) && !take_hedge_locked(f, &run)) {
            wait_for_work_locked(f);
            continue;
        }
        pthread_mutex_unlock(&f->lock);
        carry_out(&run);
        pthread_mutex_lock(&f->lock);
        run_ended_locked(f, &run);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

/* ---- life ---- */

int fetch_new(const struct fetch_config *config, struct fetch **out)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (!f)
        return error_set(-ENOMEM, "fetch: out of memory");
    f->config = *config;
    struct fetch_config *c = &f->config;
    c->workers = c->workers ? c->workers : WORKERS_DEFAULT;
    c->gap_max = c->gap_max ? c->gap_max : GAP_DEFAULT;
    c->run_max = c->run_max ? c->run_max : RUN_DEFAULT;
    c->queue_max = c->queue_max ? c->queue_max : QUEUE_DEFAULT;
    f->background_max = c->workers > 1 ? c->workers - (c->workers + 3) / 4 : 1;
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->work);
    f->hedge.percent = config->hedge_percent;
    *out = f;
    return 0;
}

int fetch_start_threads(struct fetch *f)
{
    f->threads = calloc(f->config.workers, sizeof *f->threads);
    if (!f->threads)
        return error_set(-ENOMEM, "fetch: out of memory");
    int rc = 0;
    while (!rc && f->thread_count < f->config.workers) {
        rc = thread_start(&f->threads[f->thread_count], worker, f);
        f->thread_count += !rc;
    }
    return rc ? error_prefix(rc, "fetch: %u of %u", f->thread_count + 1, f->config.workers) : 0;
}

/* Flights that no worker has taken fail; those of running gets land by themselves. */
static void cancel_queued(struct fetch *f)
{
    for (;;) {
        struct flight *flight = NULL;
        {
            SCOPED_LOCK(&f->lock);
            for (int lane = 0; lane < LANES && !flight; lane++)
                flight = f->lanes[lane].first;
            if (flight)
                dequeue_locked(f, flight);
        }
        if (!flight)
            return;
        fail(f, flight, error_set(-ECANCELED, "fetch: the server is shutting down"));
    }
}

void fetch_free(struct fetch *f)
{
    if (!f)
        return;
    {
        SCOPED_LOCK(&f->lock);
        f->stopping = true;
        pthread_cond_broadcast(&f->work);
    }
    cancel_queued(f);
    for (unsigned i = 0; i < f->thread_count; i++)
        pthread_join(f->threads[i], NULL);
    cancel_queued(f);    /* what came in meanwhile */
    assert(!f->flights); /* landed, and whoever was told has not retired it */
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->lock);
    free(f->threads);
    free(f);
}

void fetch_counters(struct fetch *f, counter_visit *visit, void *arg)
{
    uint64_t flights, queued, busy;
    {
        SCOPED_LOCK(&f->lock);
        flights = f->flights;
        queued = f->queued;
        busy = f->busy;
    }
    struct counters *c = &f->counters;
    const struct counter_row rows[] = {
        {"granary_fetch_demand_chunks_total", "Chunks whose fetch a reader started",
         counter_get(&c->chunks[LANE_DEMAND])},
        {"granary_fetch_readahead_chunks_total", "Chunks whose fetch readahead started",
         counter_get(&c->chunks[LANE_READAHEAD])},
        {"granary_fetch_warm_chunks_total", "Chunks whose fetch a warm request started",
         counter_get(&c->chunks[LANE_WARM])},
        {"granary_fetch_joins_total", "Readers who found a chunk's fetch in the air and shared it",
         counter_get(&c->joins)},
        {"granary_fetch_raised_total", "Queued chunks moved to a better lane", counter_get(&c->raised)},
        {"granary_fetch_dropped_total", "Chunks that nobody waited for, dropped because the queue was full",
         counter_get(&c->dropped)},
        {"granary_fetch_requests_total", "Ranged gets sent to stores, their retries not counted",
         counter_get(&c->requests)},
        {"granary_fetch_chunk_bytes_total", "Stored bytes of the chunks asked of stores", counter_get(&c->chunk_bytes)},
        {"granary_fetch_bytes_total", "Bytes asked of stores, gaps between chunks included", counter_get(&c->bytes)},
        {"granary_fetch_refetches_total", "Chunks asked for once more after wrong bytes or a broken get",
         counter_get(&c->refetches)},
        {"granary_fetch_verify_failures_total", "Times a chunk arrived short or did not match its checksums",
         counter_get(&c->verify_failures)},
        {"granary_fetch_hedges_total", "Second gets sent because the first was silent for long",
         counter_get(&c->hedges)},
        {"granary_fetch_hedge_wins_total", "Second gets that brought a chunk before the first",
         counter_get(&c->hedge_wins)},
        {"granary_fetch_errors_total", "Chunks whose fetch failed for good", counter_get(&c->errors)},
        {"granary_fetch_in_flight", "Chunks in the air now, or landed and being written to the cache", flights},
        {"granary_fetch_queued", "Chunks waiting for a worker now", queued},
        {"granary_fetch_busy_workers", "Workers in a get now", busy},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        visit(arg, &rows[i]);
}

void fetch_histograms(struct fetch *f, histogram_visit *visit, void *arg)
{
    const struct histogram_row gets = {
        "granary_store_get_seconds", "How long ranged gets took, retries and decoding included", {0}, 0};
    histogram_show(&f->gets, gets, visit, arg);
}

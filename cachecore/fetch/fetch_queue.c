/* Which flights there are, in which order they go, and which of them come by one get: the table, a queue a lane, and
 * how runs are formed.
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
 * others on the readahead lane. What other requests have queued beside them is gone on from: a flight is put next to
 * its neighbours, not at the end of the queue, as long as they make one run. One that is raised to a better lane leaves
 * a gap in its queue and nothing else to mend.
 *
 * No more gets are in the air than concurrency.h allows, and of those for readahead and warm together no more than
 * three quarters: a demand read finds a place that is free, or waits for another demand read. While anybody reads,
 * warming has two gets in the air: the link is shared by connections, and readers have few. Of several stores none
 * has more than three quarters of the places, nor the last ones while nothing is in the air for another: gets that wait
 * for a store that is away leave some to those who read from one that is there.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/le.h"

enum {
    BESIDE_MOST = 128, /* of a queue's last flights, looked through for neighbours of a new one */
    HOLD_SHARE = 16,   /* of the time that a get takes at least */
    HOLD_LEAST_US = 250,
    HOLD_MOST_US = 1000,
    HOLD_BYTES = 256 << 10,
    TIMEOUT_PARTS = 64,
    WARM_BESIDE_DEMAND = 2,   /* gets for warming while there is demand, */
    DEMAND_QUIET_US = 100000, /* which there is until nothing was asked for so long */
};

/* ---- table ---- */

static struct flight **bucket_of(struct fetch *f, const struct chunk_ref *chunk)
{
    return &f->buckets[le64_get(chunk->digest.b) % FETCH_BUCKETS];
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

/* Before `next` of that lane's queue; NULL: at its end. */
static void enqueue_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane, struct flight *next)
{
    struct fetch_lane_queue *q = &f->lanes[lane];
    flight->lane = lane;
    flight->queued = true;
    flight->due_us = 0;
    flight->next = next;
    flight->prev = next ? next->prev : q->last;
    *(flight->prev ? &flight->prev->next : &q->first) = flight;
    *(next ? &next->prev : &q->last) = flight;
    f->queued++;
    f->queued_waiterless += !flight->wanted_us;
}

static void dequeue_locked(struct fetch *f, struct flight *flight)
{
    struct fetch_lane_queue *q = &f->lanes[flight->lane];
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
    f->queued_waiterless -= !flight->wanted_us;
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

static uint64_t end_of(const struct flight *flight)
{
    return (uint64_t)flight->chunk.offset + flight->chunk.stored_len;
}

/* The deadline of a get is that of who has waited for longest: one who has just come must not fail with him. */
static bool wait_alike(const struct fetch *f, const struct flight *a, const struct flight *b)
{
    uint64_t first_us = GR_MIN(a->wanted_us, b->wanted_us), last_us = GR_MAX(a->wanted_us, b->wanted_us);
    return !first_us || last_us - first_us <= f->config.timeout_ms * 1000 / TIMEOUT_PARTS;
}

/* May next be read by the same get as the run that begins with head and ends at `end`? */
static bool follows(const struct fetch *f, const struct flight *head, const struct flight *next, uint64_t end)
{
    const struct chunk_ref *a = &head->chunk, *b = &next->chunk;
    return next->store == head->store && b->kind == a->kind && digest_equal(&b->object, &a->object) &&
           b->offset >= end && b->offset - end <= f->config.gap_max && end_of(next) - a->offset <= f->config.run_max &&
           wait_alike(f, head, next);
}

/* The first and the last that come by one get with a queued flight. */
static const struct flight *first_of_run(const struct fetch *f, const struct flight *flight)
{
    const struct flight *last = flight;
    while (flight->prev && follows(f, flight->prev, flight, end_of(flight->prev)) &&
           end_of(last) - flight->prev->chunk.offset <= f->config.run_max)
        flight = flight->prev;
    return flight;
}

static const struct flight *last_of_run(const struct fetch *f, const struct flight *flight)
{
    const struct flight *first = flight;
    while (flight->next && follows(f, first, flight->next, end_of(flight)))
        flight = flight->next;
    return flight;
}

/* A place in a lane's queue where a flight comes by the same get as others that are queued already: in *out_next what
 * stands behind it. */
static bool find_beside_locked(struct fetch *f, const struct flight *flight, enum fetch_lane lane,
                               struct flight **out_next)
{
    unsigned seen = 0;
    for (struct flight *at = f->lanes[lane].last; at && seen < BESIDE_MOST; at = at->prev, seen++) {
        if (follows(f, at, flight, end_of(at)) && follows(f, first_of_run(f, at), flight, end_of(at)) &&
            !(at->next && follows(f, at, at->next, end_of(at)) && at->next->chunk.offset < end_of(flight))) {
            *out_next = at->next;
            return true;
        }
        if (follows(f, flight, at, end_of(flight)) && !(at->prev && follows(f, at->prev, at, end_of(at->prev))) &&
            end_of(last_of_run(f, at)) - flight->chunk.offset <= f->config.run_max) {
            *out_next = at;
            return true;
        }
    }
    return false;
}

/* Move a queued flight to a better lane, and with it those behind it that come in the same get. */
static void raise_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane)
{
    const struct flight *head = flight;
    uint64_t end;
    do {
        struct flight *next = flight->next;
        dequeue_locked(f, flight);
        enqueue_locked(f, flight, lane, NULL);
        end = end_of(flight);
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
        f->queued_waiterless -= flight->queued && !flight->wanted_us;
        flight->wanted_us = flight->wanted_us ? flight->wanted_us : clock_now_us();
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
    uint64_t now_us;
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
            mine->wanted_us = waiting ? r->now_us : 0;
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

/* Where gets take long, little that is asked for waits a moment: the parts of a request that was split come as fast as
 * threads take them, and go by one get then. Not where the request has brought neighbours: it is known what is wanted.
 */
static uint64_t hold_us(const struct fetch *f, const struct request *r, size_t fresh)
{
    uint64_t bytes = 0, hold = f->concurrency.base_us / HOLD_SHARE;
    for (size_t i = 0; i < fresh; i++)
        bytes += r->flights[i]->chunk.stored_len;
    bool little = r->lane == LANE_DEMAND && r->n == r->wanted && bytes <= HOLD_BYTES;
    return !little || hold < HOLD_LEAST_US ? 0 : GR_MIN(hold, (uint64_t)HOLD_MOST_US);
}

/* A flight that does not ride on one of its own request. */
static void enqueue_head_locked(struct fetch *f, struct flight *flight, uint64_t hold)
{
    struct flight *next = NULL;
    if (!find_beside_locked(f, flight, flight->lane, &next)) {
        enqueue_locked(f, flight, flight->lane, NULL);
        flight->due_us = hold ? clock_now_us() + hold : 0;
        return;
    }
    counter_add(&f->counters.merged, 1);
    enqueue_locked(f, flight, flight->lane, next);
    if (next && follows(f, flight, next, end_of(flight)))
        flight->due_us = next->due_us; /* it may be the first of its run now */
}

/* Behind last, a flight of the same request, and those of its run that lie in front of this one. */
static void enqueue_rider_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane, struct flight *last)
{
    while (last->next && last->next->chunk.offset < flight->chunk.offset && follows(f, last, last->next, end_of(last)))
        last = last->next;
    enqueue_locked(f, flight, lane, last->next);
}

static struct fetch_store *find_store_locked(struct fetch *f, const struct store *store)
{
    for (unsigned i = 0; i < f->store_count; i++)
        if (f->stores[i].store == store)
            return &f->stores[i];
    return NULL;
}

static void note_store_locked(struct fetch *f, const struct store *store)
{
    if (f->store_count == FETCH_STORES_MAX || find_store_locked(f, store))
        return;
    f->stores[f->store_count++] = (struct fetch_store){.store = store};
    f->idle_stores++;
}

static void start_locked(struct fetch *f, struct request *r)
{
    size_t fresh = place_locked(f, r);
    uint64_t hold = hold_us(f, r, fresh);
    qsort(r->flights, fresh, sizeof(struct flight *), by_place);
    struct flight *head = NULL, *last = NULL; /* of the run on r->lane that is being queued */
    for (size_t i = 0; i < fresh; i++) {
        struct flight *flight = r->flights[i];
        bool rides = head && follows(f, head, flight, end_of(last));
        if (rides)
            enqueue_rider_locked(f, flight, r->lane, last);
        else
            enqueue_head_locked(f, flight, hold);
        if (flight->lane != r->lane)
            continue;
        last = flight;
        head = rides ? head : flight;
    }
    if (fresh || r->raised)
        pthread_cond_signal(&f->work); /* whom it wakes wakes the next one, if there is work for two */
}

int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n, size_t wanted,
                enum fetch_lane lane, uint32_t tag, struct flight **out_flights)
{
    /* All memory first, so that a failure starts nothing. */
    CLEANUP_FREE struct flight **flights = calloc(2 * n + 1, sizeof *flights);
    if (!flights)
        return error_set(-ENOMEM, "fetch: out of memory");
    struct request request = {.n = n,
                              .wanted = wanted,
                              .lane = lane,
                              .flights = flights,
                              .spare = flights + n,
                              .out_flights = out_flights,
                              .now_us = clock_now_us()};
    for (size_t i = 0; i < n; i++) {
        assert(!chunk_is_hole(refs[i]));
        flights[i] = flight_new(store, refs[i]);
        if (!flights[i]) {
            flight_unref_all(flights, i);
            return error_set(-ENOMEM, "fetch: out of memory");
        }
        flights[i]->tag = tag;
    }
    {
        SCOPED_LOCK(&f->lock);
        note_store_locked(f, store);
        start_locked(f, &request);
    }
    flight_unref_all(request.spare, n);
    return 0;
}

/* ---- runs ---- */

void fetch_add_to_run_locked(struct fetch_run *run, struct flight *flight)
{
    flight->attempts++;
    run->flights[run->n] = flight_ref(flight);
    run->chunks[run->n] = flight->chunk;
    run->refs[run->n] = &run->chunks[run->n];
    run->again[run->n] = 0;
    run->n++;
}

static unsigned three_quarters(unsigned n)
{
    return n > 1 ? n - (n + 3) / 4 : 1;
}

/* Is there a place for a get of the flight's store? */
static bool has_place_locked(struct fetch *f, const struct flight *flight)
{
    const struct fetch_store *s = f->store_count > 1 ? find_store_locked(f, flight->store) : NULL;
    if (!s)
        return true;
    unsigned limit = f->concurrency.limit, most = three_quarters(limit), others = f->idle_stores - !s->busy;
    return s->busy < most && f->busy + GR_MIN(others, limit / 4) < limit &&
           (flight->lane == LANE_DEMAND || s->busy_background < three_quarters(most));
}

/* The first of a lane's runs that has a place and is not held, and in *due_us when the first of the others is not, if
 * that is sooner. */
static struct flight *first_due_locked(struct fetch *f, enum fetch_lane lane, uint64_t *due_us)
{
    uint64_t now_us = 0;
    for (struct flight *flight = f->lanes[lane].first; flight; flight = last_of_run(f, flight)->next) {
        if (!has_place_locked(f, flight))
            continue;
        if (!flight->due_us)
            return flight;
        now_us = now_us ? now_us : clock_now_us();
        if (flight->due_us <= now_us)
            return flight;
        *due_us = GR_MIN(*due_us, flight->due_us);
    }
    return NULL;
}

/* May another get be sent for warming, as far as readers are concerned? Else *due_us is when to look again. */
static bool warming_may_go_locked(const struct fetch *f, uint64_t *due_us)
{
    if (f->busy_warm < WARM_BESIDE_DEMAND || !f->lanes[LANE_WARM].first)
        return true;
    uint64_t now_us = clock_now_us(), demand_us = f->busy > f->busy_background ? now_us : f->demand_us;
    if (now_us - demand_us >= DEMAND_QUIET_US)
        return true;
    *due_us = GR_MIN(*due_us, demand_us + DEMAND_QUIET_US);
    return false;
}

static bool lane_is_open_locked(const struct fetch *f, enum fetch_lane lane, uint64_t *due_us)
{
    if (lane != LANE_DEMAND && f->busy_background >= three_quarters(f->concurrency.limit))
        return false;
    return lane != LANE_WARM || warming_may_go_locked(f, due_us);
}

struct flight *fetch_next_locked(struct fetch *f, uint64_t *due_us)
{
    struct flight *next = NULL;
    *due_us = UINT64_MAX;
    if (f->busy >= f->concurrency.limit)
        return NULL;
    for (enum fetch_lane lane = LANE_DEMAND; lane < LANES && !next; lane++)
        if (lane_is_open_locked(f, lane, due_us))
            next = first_due_locked(f, lane, due_us);
    return next;
}

bool fetch_is_full_locked(struct fetch *f)
{
    bool background = f->lanes[LANE_READAHEAD].first || f->lanes[LANE_WARM].first;
    uint64_t due_us;
    if (!f->queued)
        return false;
    return (background && f->busy_background >= three_quarters(f->concurrency.limit)) ||
           (!fetch_next_locked(f, &due_us) && due_us == UINT64_MAX);
}

static void count_get_locked(struct fetch *f, const struct fetch_run *run, unsigned by)
{
    struct fetch_store *s = find_store_locked(f, run->store);
    bool background = run->lane != LANE_DEMAND;
    f->busy += by;
    f->busy_background += background ? by : 0;
    f->busy_warm += run->lane == LANE_WARM ? by : 0;
    if (!background)
        f->demand_us = clock_now_us();
    if (!s || run->second)
        return;
    f->idle_stores -= !s->busy;
    s->busy += by;
    s->busy_background += background ? by : 0;
    f->idle_stores += !s->busy;
}

void fetch_end_run_locked(struct fetch *f, const struct fetch_run *run)
{
    count_get_locked(f, run, -1u);
}

bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run)
{
    uint64_t due_us;
    struct flight *flight = fetch_next_locked(f, &due_us);
    if (!flight)
        return false;
    run->lane = flight->lane;
    run->second = run->answered = false;
    run->n = 0;
    uint64_t end = 0;
    while (flight && run->n < FETCH_RUN_CHUNKS_MAX && (!run->n || follows(f, run->flights[0], flight, end))) {
        struct flight *next = flight->next;
        dequeue_locked(f, flight);
        end = end_of(flight);
        fetch_add_to_run_locked(run, flight);
        flight = next;
    }
    run->store = run->flights[0]->store;
    count_get_locked(f, run, 1);
    return true;
}

/* ---- ends ---- */

/* Out of the table first: who asks after the failure has been seen starts afresh. */
void fetch_fail(struct fetch *f, struct flight *flight, int rc)
{
    counter_add(&f->counters.errors, 1);
    flight_ref(flight);
    fetch_retire(f, flight);
    flight_land(flight, rc, NULL, NULL);
    flight_unref(flight);
}

void fetch_cancel_queued(struct fetch *f)
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
        fetch_fail(f, flight, error_set(-ECANCELED, "fetch: the server is shutting down"));
    }
}

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
 * others on the readahead lane. One that is raised to a better lane leaves a gap in its queue and nothing else to mend.
 *
 * No more gets are in the air than concurrency.h allows, and of those for readahead and warm together no more than
 * three quarters: a demand read finds a place that is free, or waits for another demand read.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/le.h"

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

static void enqueue_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane)
{
    struct fetch_lane_queue *q = &f->lanes[lane];
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
    struct request request = {
        .n = n, .wanted = wanted, .lane = lane, .flights = flights, .spare = flights + n, .out_flights = out_flights};
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

/* The best lane with a run that may be taken, or LANES. */
static enum fetch_lane next_lane_locked(const struct fetch *f)
{
    unsigned limit = f->concurrency.limit, background = limit > 1 ? limit - (limit + 3) / 4 : 1;
    enum fetch_lane lane = LANE_DEMAND;
    while (lane < LANES && !f->lanes[lane].first)
        lane++;
    bool full = f->busy >= limit || (lane != LANE_DEMAND && f->busy_background >= background);
    return full ? LANES : lane;
}

bool fetch_has_run_locked(const struct fetch *f)
{
    return next_lane_locked(f) < LANES;
}

bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run)
{
    enum fetch_lane lane = next_lane_locked(f);
    if (lane == LANES)
        return false;
    run->lane = lane;
    run->second = run->answered = false;
    run->n = 0;
    uint64_t end = 0;
    for (;;) {
        struct flight *flight = f->lanes[lane].first;
        if (!flight || run->n == FETCH_RUN_CHUNKS_MAX || (run->n && !follows(f, run->flights[0], flight, end)))
            break;
        dequeue_locked(f, flight);
        end = (uint64_t)flight->chunk.offset + flight->chunk.stored_len;
        fetch_add_to_run_locked(run, flight);
    }
    run->store = run->flights[0]->store;
    f->busy++;
    f->busy_background += lane != LANE_DEMAND;
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

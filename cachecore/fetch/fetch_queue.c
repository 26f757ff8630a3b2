/* Which flights there are, and in which order they go: the table and a queue a lane. fetch_take.c takes them out.
 *
 * Table: a map, keyed by chunk digest and store (the same chunk asked of two stores is two flights, so that a dead
 * store delays nobody who reads from a living one; the plain length is compared too, since a hostile index may lie
 * about it). The table holds one reference to each flight from its start until it is retired; queues and workers borrow
 * that one.
 *
 * Runs are formed when a worker takes work, not when flights are queued: it takes the first flight
 * of the best lane and goes on with its successors while they lie behind it in the same object.
 * Flights that start together are queued sorted by object and offset, so they come out together:
 * neighbours of a demand read that its own get passes over or goes on to ride on the demand lane, all
 * others on the readahead lane. What other requests have queued beside them is gone on from: a flight is put next to
 * its neighbours, not at the end of the queue, as long as they make one run. One that is raised to a better lane leaves
 * a gap in its queue and nothing else to mend.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    BESIDE_MOST = 128, /* of a queue's last flights, looked through for neighbours of a new one */
    TIMEOUT_PARTS = 64,
};

/* ---- table ---- */

struct flight_entry {
    uint64_t hash;
    struct flight *flight;
};

/* What a flight is looked up by. */
struct flight_key {
    const struct store *store;
    const struct chunk_ref *chunk;
};

static bool flight_entry_is(const void *entry, const void *flight_key)
{
    const struct flight *flight = ((const struct flight_entry *)entry)->flight;
    const struct flight_key *key = flight_key;
    return flight->store == key->store && flight->chunk.plain_len == key->chunk->plain_len &&
           digest_equal(&flight->chunk.digest, &key->chunk->digest);
}

static const struct map_type flight_entries = {.size = sizeof(struct flight_entry), .is = flight_entry_is};

static struct flight_entry *find_locked(struct fetch *f, const struct store *store, const struct chunk_ref *chunk)
{
    return map_find(&f->flights, &flight_entries, digest_hash(&chunk->digest), &(struct flight_key){store, chunk});
}

void fetch_retire(struct fetch *f, struct flight *flight)
{
    {
        SCOPED_LOCK(&f->lock);
        struct flight_entry *entry = find_locked(f, flight->store, &flight->chunk);
        assert(entry && entry->flight == flight); /* else retired twice */
        map_remove(&f->flights, &flight_entries, entry);
    }
    flight_unref(flight);
}

uint64_t fetch_longest_wait_us(struct fetch *f, const struct store *store)
{
    uint64_t now = clock_now_us(), since = now;
    SCOPED_LOCK(&f->lock);
    for (const struct flight_entry *entry = NULL; (entry = map_next(&f->flights, &flight_entries, entry));) {
        const struct flight *flight = entry->flight;
        if (flight->store == store && flight->wanted_us && !flight->settled)
            since = GR_MIN(since, flight->wanted_us);
    }
    return now - since;
}

/* ---- queues ---- */

/* Before `next` of that lane's queue; NULL: at its end. */
static void enqueue_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane, struct flight *next)
{
    struct fetch_lane_queue *q = &f->lanes[lane];
    flight->lane = lane;
    flight->queued = true;
    flight->next = next;
    flight->prev = next ? next->prev : q->last;
    *(flight->prev ? &flight->prev->next : &q->first) = flight;
    *(next ? &next->prev : &q->last) = flight;
    q->len++;
    f->queued++;
    f->queued_waiterless += !flight->wanted_us;
}

void fetch_dequeue_locked(struct fetch *f, struct flight *flight)
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
    q->len--;
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

/* The deadline of a get is that of who has waited for longest: one who has just come must not fail with him. */
static bool wait_alike(const struct fetch *f, const struct flight *a, const struct flight *b)
{
    uint64_t first_us = GR_MIN(a->wanted_us, b->wanted_us), last_us = GR_MAX(a->wanted_us, b->wanted_us);
    return !first_us || last_us - first_us <= f->config.timeout_ms * 1000 / TIMEOUT_PARTS;
}

/* Skipped bytes come for nothing; a get more costs no time where nobody waits for it. */
static uint32_t gap_of(const struct fetch *f, const struct flight *head)
{
    return head->lane == LANE_READAHEAD ? 0 : f->config.gap_max;
}

bool fetch_follows(const struct fetch *f, const struct flight *head, const struct flight *next, uint64_t end)
{
    const struct chunk_ref *a = &head->chunk, *b = &next->chunk;
    return next->store == head->store && b->kind == a->kind && digest_equal(&b->object, &a->object) &&
           b->offset >= end && b->offset - end <= gap_of(f, head) &&
           fetch_end_of(next) - a->offset <= f->config.run_max && wait_alike(f, head, next);
}

/* The first and the last that come by one get with a queued flight. */
static const struct flight *first_of_run(const struct fetch *f, const struct flight *flight)
{
    const struct flight *last = flight;
    while (flight->prev && fetch_follows(f, flight->prev, flight, fetch_end_of(flight->prev)) &&
           fetch_end_of(last) - flight->prev->chunk.offset <= f->config.run_max)
        flight = flight->prev;
    return flight;
}

const struct flight *fetch_last_of_run(const struct fetch *f, const struct flight *flight)
{
    const struct flight *first = flight;
    while (flight->next && fetch_follows(f, first, flight->next, fetch_end_of(flight)))
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
        if (fetch_follows(f, at, flight, fetch_end_of(at)) &&
            fetch_follows(f, first_of_run(f, at), flight, fetch_end_of(at)) &&
            !(at->next && fetch_follows(f, at, at->next, fetch_end_of(at)) &&
              at->next->chunk.offset < fetch_end_of(flight))) {
            *out_next = at->next;
            return true;
        }
        if (fetch_follows(f, flight, at, fetch_end_of(flight)) &&
            !(at->prev && fetch_follows(f, at->prev, at, fetch_end_of(at->prev))) &&
            fetch_end_of(fetch_last_of_run(f, at)) - flight->chunk.offset <= f->config.run_max) {
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
        fetch_dequeue_locked(f, flight);
        enqueue_locked(f, flight, lane, NULL);
        end = fetch_end_of(flight);
        counter_add(&f->counters.raised, 1);
        flight = next;
    } while (flight && fetch_follows(f, head, flight, end));
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
        struct flight *mine = r->flights[i];
        const struct flight_entry *entry = find_locked(f, mine->store, &mine->chunk);
        struct flight *there = entry ? entry->flight : NULL;
        r->spare[i] = there ? mine : NULL;
        if (there) {
            r->raised |= join_locked(f, there, lane, waiting);
        } else if (!waiting && f->queued_waiterless + fresh >= f->config.queue_max) {
            counter_add(&f->counters.dropped, 1);
            r->spare[i] = mine;
        } else {
            mine->wanted_us = waiting ? r->now_us : 0;
            mine->lane = lane;
            map_put(&f->flights, &flight_entries, &(struct flight_entry){digest_hash(&mine->chunk.digest), mine});
            r->flights[fresh++] = there = mine;
            counter_add(&f->counters.chunks[lane], 1);
        }
        if (waiting)
            r->out_flights[i] = flight_ref(there);
    }
    return fresh;
}

/* A flight that does not ride on one of its own request. */
static void enqueue_head_locked(struct fetch *f, struct flight *flight)
{
    struct flight *next = NULL;
    if (find_beside_locked(f, flight, flight->lane, &next))
        counter_add(&f->counters.merged, 1);
    enqueue_locked(f, flight, flight->lane, next);
}

/* Behind last, a flight of the same request, and those of its run that lie in front of this one. */
static void enqueue_rider_locked(struct fetch *f, struct flight *flight, enum fetch_lane lane, struct flight *last)
{
    while (last->next && last->next->chunk.offset < flight->chunk.offset &&
           fetch_follows(f, last, last->next, fetch_end_of(last)))
        last = last->next;
    enqueue_locked(f, flight, lane, last->next);
}

static void start_locked(struct fetch *f, struct request *r)
{
    size_t fresh = place_locked(f, r);
    qsort(r->flights, fresh, sizeof(struct flight *), by_place);
    struct flight *head = NULL, *last = NULL; /* of the run on r->lane that is being queued */
    for (size_t i = 0; i < fresh; i++) {
        struct flight *flight = r->flights[i];
        bool rides = head && fetch_follows(f, head, flight, fetch_end_of(last));
        if (rides)
            enqueue_rider_locked(f, flight, r->lane, last);
        else
            enqueue_head_locked(f, flight);
        if (flight->lane != r->lane)
            continue;
        last = flight;
        head = rides ? head : flight;
    }
    if (fresh || r->raised)
        pthread_cond_signal(&f->work); /* whom it wakes wakes the next one, if there is work for two */
}

static int start_of_store(struct fetch *f, const struct store *store, struct request *r)
{
    struct fetch_store *of;
    SCOPED_LOCK(&f->lock);
    int rc =
        map_reserve(&f->flights, &flight_entries, r->n) ? error_no_memory() : fetch_find_store_locked(f, store, &of);
    for (size_t i = 0; !rc && i < r->n; i++)
        r->flights[i]->of = of;
    if (!rc)
        start_locked(f, r);
    return rc;
}

int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n, size_t wanted,
                enum fetch_lane lane, uint32_t tag, struct flight **out_flights)
{
    /* All memory first, so that a failure starts nothing. */
    CLEANUP_FREE struct flight **flights = calloc(2 * n + 1, sizeof *flights);
    if (!flights)
        return error_no_memory();
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
            return error_no_memory();
        }
        flights[i]->tag = tag;
    }
    int rc = start_of_store(f, store, &request);
    flight_unref_all(rc ? flights : request.spare, n);
    return rc;
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
                fetch_dequeue_locked(f, flight);
        }
        if (!flight)
            return;
        fetch_fail(f, flight, error_set(-ECANCELED, "fetch: the server is shutting down"));
    }
}

/* The table of the in-flight fetches (inflight.c), and a queue for each priority. fetch_take.c takes runs out of the
 * queues.
 *
 * Table: a map keyed by store and chunk digest. The same chunk of two stores is two fetches, so that a dead store does
 * not delay readers of a healthy one. The plain length is part of the key too, because a hostile index may lie about
 * it. The table holds one reference to each fetch until it is retired; queues and workers borrow that reference.
 *
 * Queues: runs are formed when a worker takes work, not when fetches are queued. The worker takes the head of the best
 * priority and continues with its successors while fetch_follows() allows it. So the queues only have to keep
 * neighbours side by side:
 *
 *   demand     [A 0-64K][A 64K-128K]   [B 512K-576K]      one run of A, one of B
 *   readahead  [A 192K-256K]           [B 576K-640K]
 *
 * Fetches that start together are sorted by object and offset before they are queued. Each head of a run is inserted
 * next to queued neighbours of other requests if they make one run (find_beside_locked), else appended. Neighbours
 * without a waiter that follow a demand fetch in its run are queued at demand priority: the same GET delivers them. A
 * fetch that is raised to a better priority just leaves a gap in its old queue.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum {
    BESIDE_MOST = 128,  /* fetches at a queue's end that are searched for neighbours of a new one */
    TIMEOUT_PARTS = 64, /* see wait_alike */
};

/* ---- tables: fetches, stores ---- */

/* An entry of fetch.inflights. hash is the digest's. */
struct inflight_entry {
    uint64_t hash;
    struct inflight *inflight;
};

/* The key of a lookup in the table. */
struct inflight_key {
    const struct store *store;
    const struct chunk_ref *chunk;
};

static bool inflight_entry_is(const void *entry, const void *inflight_key)
{
    const struct inflight *inflight = ((const struct inflight_entry *)entry)->inflight;
    const struct inflight_key *key = inflight_key;
    return inflight->store == key->store && inflight->chunk.plain_len == key->chunk->plain_len &&
           digest_equal(&inflight->chunk.digest, &key->chunk->digest);
}

static const struct map_type inflight_entries = {.size = sizeof(struct inflight_entry), .is = inflight_entry_is};

static struct inflight_entry *fetch_queue_find_locked(struct fetch *f, const struct store *store,
                                                      const struct chunk_ref *chunk)
{
    return map_find(&f->inflights, &inflight_entries, digest_hash(&chunk->digest),
                    &(struct inflight_key){store, chunk});
}

static bool same_place(const struct chunk_ref *a, const struct chunk_ref *b)
{
    return a->kind == b->kind && digest_equal(&a->object, &b->object) && a->offset == b->offset &&
           a->stored_len == b->stored_len && a->stored_crc == b->stored_crc && a->flags == b->flags;
}

struct inflight *fetch_find(struct fetch *f, const struct store *store, const struct chunk_ref *chunk)
{
    SCOPED_LOCK(&f->lock);
    const struct inflight_entry *entry = fetch_queue_find_locked(f, store, chunk);
    return entry && same_place(&entry->inflight->chunk, chunk) ? inflight_ref(entry->inflight) : NULL;
}

void fetch_look(struct fetch *f, const struct store *store, const struct chunk_ref *const *chunks, size_t n, bool *out)
{
    SCOPED_LOCK(&f->lock);
    for (size_t i = 0; i < n; i++)
        out[i] = fetch_queue_find_locked(f, store, chunks[i]);
}

void fetch_retire(struct fetch *f, struct inflight *inflight)
{
    {
        SCOPED_LOCK(&f->lock);
        struct inflight_entry *entry = fetch_queue_find_locked(f, inflight->store, &inflight->chunk);
        assert(entry && entry->inflight == inflight); /* else retired twice */
        map_remove(&f->inflights, &inflight_entries, entry);
    }
    {
        SCOPED_LOCK(&inflight->lock);
        inflight->retired = true;
        pthread_cond_broadcast(&inflight->retirement);
    }
    inflight_unref(inflight);
}

uint64_t fetch_longest_wait_us(struct fetch *f, const struct store *store)
{
    uint64_t now = clock_now_us(), since = now;
    SCOPED_LOCK(&f->lock);
    for (const struct inflight_entry *entry = NULL; (entry = map_next(&f->inflights, &inflight_entries, entry));) {
        const struct inflight *inflight = entry->inflight;
        if (inflight->store == store && inflight->wanted_us && !inflight->completed)
            since = GR_MIN(since, inflight->wanted_us);
    }
    return now - since;
}

/* An entry of fetch.stores. */
struct store_entry {
    uint64_t hash; /* the store's address */
    struct fetch_store *of;
};

static bool store_entry_is(const void *entry, const void *store)
{
    return ((const struct store_entry *)entry)->of->store == store;
}

static const struct map_type store_entries = {.size = sizeof(struct store_entry), .is = store_entry_is};

/* Find or create the entry of `store`. -ENOMEM. */
static int find_store_locked(struct fetch *f, const struct store *store, struct fetch_store **out)
{
    const struct store_entry *entry = map_find(&f->stores, &store_entries, (uintptr_t)store, store);
    if (!entry) {
        struct fetch_store *s = map_reserve(&f->stores, &store_entries, 1) ? NULL : calloc(1, sizeof *s);
        if (!s)
            return error_no_memory();
        s->store = store;
        entry = map_put(&f->stores, &store_entries, &(struct store_entry){(uintptr_t)store, s});
    }
    *out = entry->of;
    return 0;
}

void fetch_free_stores(struct fetch *f)
{
    for (const struct store_entry *entry = NULL; (entry = map_next(&f->stores, &store_entries, entry));)
        free(entry->of);
    map_release(&f->stores);
}

/* ---- queues ---- */

/* Insert a fetch before `next` in the queue of `priority`; with NULL, at the end. */
static void enqueue_locked(struct fetch *f, struct inflight *inflight, enum fetch_priority priority,
                           struct inflight *next)
{
    struct fetch_queue *q = &f->queues[priority];
    inflight->priority = priority;
    inflight->queued = true;
    inflight->next = next;
    inflight->prev = next ? next->prev : q->last;
    *(inflight->prev ? &inflight->prev->next : &q->first) = inflight;
    *(next ? &next->prev : &q->last) = inflight;
    q->len++;
    f->queued++;
    f->queued_waiterless += !inflight->wanted_us;
}

void fetch_dequeue_locked(struct fetch *f, struct inflight *inflight)
{
    struct fetch_queue *q = &f->queues[inflight->priority];
    if (inflight->prev)
        inflight->prev->next = inflight->next;
    else
        q->first = inflight->next;
    if (inflight->next)
        inflight->next->prev = inflight->prev;
    else
        q->last = inflight->prev;
    inflight->prev = inflight->next = NULL;
    inflight->queued = false;
    q->len--;
    f->queued--;
    f->queued_waiterless -= !inflight->wanted_us;
}

/* ---- start ---- */

static int by_place(const void *a, const void *b)
{
    const struct inflight *x = *(struct inflight *const *)a, *y = *(struct inflight *const *)b;
    int order = memcmp(&x->chunk.object, &y->chunk.object, sizeof x->chunk.object);
    if (order)
        return order;
    return x->chunk.offset < y->chunk.offset ? -1 : x->chunk.offset > y->chunk.offset;
}

/* Have the two fetches been waited for about equally long? The deadline of a GET is that of its longest waiter, and a
 * recent waiter must not fail with an old one. So their waits may differ by 1/TIMEOUT_PARTS of the timeout. A fetch
 * without a waiter fits any other. */
static bool wait_alike(const struct fetch *f, const struct inflight *a, const struct inflight *b)
{
    uint64_t first_us = GR_MIN(a->wanted_us, b->wanted_us), last_us = GR_MAX(a->wanted_us, b->wanted_us);
    return !first_us || last_us - first_us <= f->config.timeout_ms * 1000 / TIMEOUT_PARTS;
}

/* Return the gap that a run with this head may skip. Reading over a gap moves useless bytes to save a GET. For
 * readahead that does not pay, because no reader waits for the additional GET. */
static uint32_t gap_of(const struct fetch *f, const struct inflight *head)
{
    return head->priority == PRIORITY_READAHEAD ? 0 : f->config.gap_max;
}

bool fetch_follows(const struct fetch *f, const struct inflight *head, const struct inflight *next, uint64_t end)
{
    const struct chunk_ref *a = &head->chunk, *b = &next->chunk;
    bool stripe = !head->store->striped ||
                  (a->offset / STORE_STRIPE == b->offset / STORE_STRIPE && chunk_is_delta(a) == chunk_is_delta(b));
    return stripe && next->store == head->store && b->kind == a->kind && digest_equal(&b->object, &a->object) &&
           b->offset >= end && b->offset - end <= gap_of(f, head) &&
           fetch_end_of(next) - a->offset <= f->config.run_max && wait_alike(f, head, next);
}

/* Return the first queued fetch of the run that `inflight` belongs to. The backward walk also bounds the run's length,
 * which fetch_follows() only measures from its head. */
static const struct inflight *first_of_run(const struct fetch *f, const struct inflight *inflight)
{
    const struct inflight *last = inflight;
    while (inflight->prev && fetch_follows(f, inflight->prev, inflight, fetch_end_of(inflight->prev)) &&
           fetch_end_of(last) - inflight->prev->chunk.offset <= f->config.run_max)
        inflight = inflight->prev;
    return inflight;
}

const struct inflight *fetch_last_of_run(const struct fetch *f, const struct inflight *inflight)
{
    const struct inflight *first = inflight;
    while (inflight->next && fetch_follows(f, first, inflight->next, fetch_end_of(inflight)))
        inflight = inflight->next;
    return inflight;
}

/* Find the position in the queue of `priority` where a new fetch joins the run of queued ones. Two positions fit:
 * after a queued fetch, if its whole run stays within bounds and the next fetch of that run does not overlap; or in
 * front of the first fetch of a run. *out_next is the fetch that the new one must precede, NULL for the end of the
 * queue. */
static bool find_beside_locked(struct fetch *f, const struct inflight *inflight, enum fetch_priority priority,
                               struct inflight **out_next)
{
    unsigned seen = 0;
    for (struct inflight *at = f->queues[priority].last; at && seen < BESIDE_MOST; at = at->prev, seen++) {
        if (fetch_follows(f, at, inflight, fetch_end_of(at)) &&
            fetch_follows(f, first_of_run(f, at), inflight, fetch_end_of(at)) &&
            !(at->next && fetch_follows(f, at, at->next, fetch_end_of(at)) &&
              at->next->chunk.offset < fetch_end_of(inflight))) {
            *out_next = at->next;
            return true;
        }
        if (fetch_follows(f, inflight, at, fetch_end_of(inflight)) &&
            !(at->prev && fetch_follows(f, at->prev, at, fetch_end_of(at->prev))) &&
            fetch_end_of(fetch_last_of_run(f, at)) - inflight->chunk.offset <= f->config.run_max) {
            *out_next = at;
            return true;
        }
    }
    return false;
}

/* Move a queued fetch and the rest of its run to a better priority. */
static void raise_locked(struct fetch *f, struct inflight *inflight, enum fetch_priority priority)
{
    const struct inflight *head = inflight;
    uint64_t end;
    do {
        struct inflight *next = inflight->next;
        fetch_dequeue_locked(f, inflight);
        enqueue_locked(f, inflight, priority, NULL);
        end = fetch_end_of(inflight);
        counter_add(&f->counters.raised, 1);
        inflight = next;
    } while (inflight && fetch_follows(f, head, inflight, end));
}

/* Join an existing fetch. Returns true if it was raised. */
static bool join_locked(struct fetch *f, struct inflight *inflight, enum fetch_priority priority, bool waiting)
{
    bool raise = inflight->queued && priority < inflight->priority;
    if (raise)
        raise_locked(f, inflight, priority);
    if (waiting) {
        counter_add(&f->counters.joins, 1);
        f->queued_waiterless -= inflight->queued && !inflight->wanted_us;
        inflight->wanted_us = inflight->wanted_us ? inflight->wanted_us : clock_now_us();
    }
    return raise;
}

/* The chunks of one fetch_start. */
struct request {
    size_t n, wanted;
    enum fetch_priority priority;
    struct inflight **inflights; /* n, allocated but not yet in the table */
    struct inflight **spare;     /* n; fetches that turned out unnecessary (joined, dropped), freed outside the lock */
    struct inflight **out_inflights;
    uint64_t now_us;
    bool raised; /* a queued fetch was raised: a worker may have work */
};

/* Join or insert the fetches of a request. The inserted ones are moved to the front of r->inflights with their priority
 * set. Returns how many they are. */
static size_t place_locked(struct fetch *f, struct request *r)
{
    size_t fresh = 0;
    for (size_t i = 0; i < r->n; i++) {
        bool waiting = i < r->wanted;
        enum fetch_priority priority = waiting ? r->priority : GR_MAX(r->priority, PRIORITY_READAHEAD);
        struct inflight *mine = r->inflights[i];
        const struct inflight_entry *entry = fetch_queue_find_locked(f, mine->store, &mine->chunk);
        struct inflight *there = entry ? entry->inflight : NULL;
        r->spare[i] = there ? mine : NULL;
        if (there) {
            r->raised |= join_locked(f, there, priority, waiting);
        } else if (!waiting && f->queued_waiterless + fresh >= f->config.queue_max) {
            counter_add(&f->counters.dropped, 1);
            r->spare[i] = mine;
        } else {
            mine->wanted_us = waiting ? r->now_us : 0;
            mine->priority = priority;
            map_put(&f->inflights, &inflight_entries, &(struct inflight_entry){digest_hash(&mine->chunk.digest), mine});
            r->inflights[fresh++] = there = mine;
            counter_add(&f->counters.chunks[priority], 1);
        }
        if (waiting) {
            there->warm |= r->priority == PRIORITY_WARM;
            r->out_inflights[i] = inflight_ref(there);
        }
    }
    return fresh;
}

/* Queue the chunks of a request and wake a worker. A fetch that continues the run of its own request goes behind the
 * one before it. Other requests may have queued chunks of the same run in between: those with lower offsets are
 * skipped, so that the run stays in offset order. */
static void start_locked(struct fetch *f, struct request *r)
{
    size_t fresh = place_locked(f, r);
    qsort(r->inflights, fresh, sizeof(struct inflight *), by_place);
    struct inflight *head = NULL, *last = NULL; /* of the run at `priority` that is being queued */
    for (size_t i = 0; i < fresh; i++) {
        struct inflight *inflight = r->inflights[i], *next = NULL;
        bool rides = head && fetch_follows(f, head, inflight, fetch_end_of(last));
        if (rides) {
            while (last->next && last->next->chunk.offset < inflight->chunk.offset &&
                   fetch_follows(f, last, last->next, fetch_end_of(last)))
                last = last->next;
            next = last->next;
        } else if (find_beside_locked(f, inflight, inflight->priority, &next)) {
            counter_add(&f->counters.merged, 1);
        }
        enqueue_locked(f, inflight, rides ? r->priority : inflight->priority, next);
        if (inflight->priority != r->priority)
            continue;
        last = inflight;
        head = rides ? head : inflight;
    }
    if (fresh || r->raised)
        pthread_cond_signal(&f->work); /* that worker wakes the next one if there is work for two */
}

int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n, size_t wanted,
                enum fetch_priority priority, uint32_t tag, struct inflight **out_inflights)
{
    /* Allocate everything first: a failure must start nothing. */
    CLEANUP_FREE struct inflight **inflights = calloc(2 * n + 1, sizeof *inflights);
    if (!inflights)
        return error_no_memory();
    struct request request = {.n = n,
                              .wanted = wanted,
                              .priority = priority,
                              .inflights = inflights,
                              .spare = inflights + n,
                              .out_inflights = out_inflights,
                              .now_us = clock_now_us()};
    for (size_t i = 0; i < n; i++) {
        assert(!chunk_is_hole(refs[i]));
        inflights[i] = inflight_new(store, refs[i]);
        if (!inflights[i]) {
            inflight_unref_all(inflights, i);
            return error_no_memory();
        }
        inflights[i]->tag = tag;
    }
    int rc;
    {
        struct fetch_store *of = NULL;
        SCOPED_LOCK(&f->lock);
        rc = map_reserve(&f->inflights, &inflight_entries, n) ? error_no_memory() : find_store_locked(f, store, &of);
        for (size_t i = 0; !rc && i < n; i++)
            inflights[i]->of = of;
        if (!rc)
            start_locked(f, &request);
    }
    inflight_unref_all(rc ? inflights : request.spare, n);
    return rc;
}

/* ---- ends ---- */

/* The fetch leaves the table before its waiters wake, so that a request made after the failure starts a new one. */
void fetch_fail(struct fetch *f, struct inflight *inflight, int rc)
{
    counter_add(&f->counters.errors, 1);
    inflight_ref(inflight);
    fetch_retire(f, inflight);
    inflight_land(inflight, rc, NULL, NULL);
    inflight_unref(inflight);
}

/* One at a time, because landing a fetch must not happen under the lock. */
void fetch_cancel_queued(struct fetch *f)
{
    for (;;) {
        struct inflight *inflight = NULL;
        {
            SCOPED_LOCK(&f->lock);
            for (int priority = 0; priority < PRIORITIES && !inflight; priority++)
                inflight = f->queues[priority].first;
            if (inflight)
                fetch_dequeue_locked(f, inflight);
        }
        if (!inflight)
            return;
        fetch_fail(f, inflight, error_set(-ECANCELED, "fetch: the server is shutting down"));
    }
}

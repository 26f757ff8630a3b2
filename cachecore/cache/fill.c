/* Filling: chunks that landed are written to their slots behind the reply.
 *
 * fetch's worker hands a landed flight to fill_landed, its waiters awake already. The flight goes to
 * a queue bounded in bytes and from there to FILL_THREADS writers; when the queue is full the chunk
 * is not kept (dropped, counted). Either way the flight is retired only when the chunk is readable
 * in the index or certainly will not be: who asks meanwhile gets the bytes from the flight, and
 * nobody fetches a chunk that is just being written.
 *
 * The warm lane waits for its fills: cache_ensure, having the bytes in hand, calls fill_chunk itself.
 * Whichever of it and a writer comes first has the slot (state filling), the other waits for the
 * outcome. Its flights are queued however much waits, since their chunks will be readable. Its memory is bounded
 * before the fetch starts, by fill_warm_acquire, in the thread that asked, so that no fetch worker ever waits for a
 * disk.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "cache/cache_internal.h"

enum { FILL_MEMORY_DEFAULT = 16 << 20, QUEUE_ITEMS_MIN = 16, QUEUE_ITEMS_MAX = 65536 };
enum { WARM_MEMORY_LEAST = 2, WARM_MEMORY_MOST = 8 }; /* of the warm lane, in fill memories */

int fill_init(struct fill *f, size_t memory)
{
    f->memory = memory ? memory : FILL_MEMORY_DEFAULT;
    size_t items = WARM_MEMORY_MOST * f->memory / 4096;
    items = GR_MIN(GR_MAX(items, (size_t)QUEUE_ITEMS_MIN), (size_t)QUEUE_ITEMS_MAX);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->room, NULL);
    f->queue = queue_new(items);
    return f->queue ? 0 : error_no_memory();
}

void fill_release(struct fill *f)
{
    queue_free(f->queue);
    pthread_cond_destroy(&f->room);
    pthread_mutex_destroy(&f->lock);
}

/* ---- one chunk ---- */

static void wait_for_change_locked(struct cache *c)
{
    space_assert(&c->space);
    pthread_cond_wait(&c->changed, &c->lock);
}

static bool takes_fills(const struct cache *c)
{
    for (size_t i = 0; i < c->dir_count; i++)
        if (cache_dir_fills(c->dirs[i]))
            return true;
    return false;
}

/* The chunk's own slot, filling, or 0 with done when it is readable already. */
static int claim_locked(struct cache *c, const struct space_want *want, bool wait, struct space_slot *slot, bool *done)
{
    for (;;) {
        uint32_t id = space_find(&c->space, &want->digest);
        *done = id != SPACE_NONE && cache_readable_locked(c, id);
        if (*done)
            return 0;
        if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY) {
            if (!takes_fills(c) || space_slot_at(&c->space, id)->flags & RECORD_PINNED)
                return -ENODEV;        /* a user's pin stays with its slot */
            space_drop(&c->space, id); /* where it cannot be read: kept elsewhere */
            id = SPACE_NONE;
        }
        bool damaged = id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_DAMAGED;
        if (id == SPACE_NONE || damaged) {
            int rc = damaged ? space_refill(&c->space, id, want, slot) : space_alloc(&c->space, want, slot);
            if (rc != -EAGAIN || !wait)
                return rc;
        }
        wait_for_change_locked(c);
    }
}

static int claim(struct cache *c, const struct space_want *want, bool wait, struct space_slot *slot, bool *done)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    atomic_fetch_add(&c->waiters, 1); /* before looking at pins: cache_unpin looks in the other order */
    int rc = claim_locked(c, want, wait, slot, done);
    atomic_fetch_sub(&c->waiters, 1);
    return rc;
}

int fill_write(struct cache *c, const struct space_slot *slot, const struct digest *digest, struct buf *stored)
{
    uint64_t patience = (uint64_t)c->disk_timeout_ms * WRITE_PATIENCE;
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + patience);
    if (!ring)
        return -EAGAIN;
    int rc = -EAGAIN; /* went down while a writer was waited for */
    if (cache_dir_fills(c->dirs[slot->dir]))
        rc = cache_dir_fill(c->dirs[slot->dir], ring, slot, digest, stored, clock_now_ms() + patience);
    cache_note(c, slot->dir, CACHE_WRITING, rc); /* before the ring is another's, who might lose it there too */
    rings_return(ring);
    return rc;
}

struct space_want fill_want(const struct chunk_ref *ref)
{
    return (struct space_want){
        .digest = ref->digest,
        .plain_len = ref->plain_len,
        .stored_len = ref->plain_len,
        .flags = ref->kind == OBJECT_INDEX ? RECORD_META : 0,
        .media = CACHE_MEDIA_ANY,
    };
}

/* fill_chunk in the directory that is chosen now. *out_dir: which, if a slot was had. */
static int fill_once(struct cache *c, const struct space_want *want, struct buf *stored, bool wait,
                     struct cache_dir **out_dir)
{
    struct space_slot slot;
    bool done;
    int rc = claim(c, want, wait, &slot, &done);
    if (rc || done)
        return rc;
    *out_dir = c->dirs[slot.dir];
    rc = fill_write(c, &slot, &want->digest, stored);
    if (rc != -EAGAIN)
        counter_add(rc ? &c->stats.fill_errors : &c->stats.fills, 1);
    counter_add(&c->stats.fill_bytes, rc ? 0 : stored->len);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    if (rc)
        space_abort(&c->space, slot.id);
    else
        space_commit(&c->space, slot.id);
    pthread_cond_broadcast(&c->changed);
    return rc;
}

int fill_chunk(struct cache *c, const struct space_want *want, struct buf *stored, bool wait)
{
    for (size_t tries = 1;; tries++) {
        struct cache_dir *dir = NULL;
        int rc = fill_once(c, want, stored, wait, &dir);
        bool elsewhere = rc && wait && dir && !cache_dir_fills(dir) && takes_fills(c);
        if (!elsewhere || tries >= c->dir_count)
            return rc;
    }
}

/* Compressed bytes are kept where they save a size class: a slot is a power of two, and what saves less
 * would cost its readers the decoding for nothing. */
int fill_flight(struct cache *c, struct flight *flight, struct buf *plain, bool named)
{
    struct space_want want = fill_want(flight_chunk(flight));
    uint32_t quota = flight_tag(flight);
    want.group = (uint8_t)quota;
    want.owner = quota ? c->quotas[quota - 1].owner : 0;
    CLEANUP_BUF struct buf *stored = flight_stored(flight);
    want.force = named;
    if (!stored || cache_class_of((uint32_t)stored->len) == cache_class_of(want.plain_len))
        return fill_chunk(c, &want, plain, named);
    want.stored_len = (uint32_t)stored->len;
    want.flags |= RECORD_ZSTD;
    return fill_chunk(c, &want, stored, named);
}

/* Memory that a flight holds once it has landed. */
static size_t flight_bytes(const struct cache *c, const struct flight *flight)
{
    const struct chunk_ref *ref = flight_chunk(flight);
    return ref->plain_len + (c->compressed && ref->flags & CHUNK_ZSTD ? ref->stored_len : 0);
}

/* ---- the queue ---- */

/* Index nodes get twice the room: while one is missing, so is for a start without the store all that it
 * describes. */
static bool is_node(const struct flight *flight)
{
    return flight_chunk(flight)->kind == OBJECT_INDEX;
}

static bool take_memory(struct fill *f, size_t bytes, bool node, bool warm)
{
    SCOPED_LOCK(&f->lock);
    bool full = f->queued_bytes && f->queued_bytes + bytes > (node ? 2 * f->memory : f->memory);
    if (f->stopping || (full && !warm))
        return false;
    f->queued_bytes += bytes;
    return true;
}

static bool has_room_locked(const struct fill *f)
{
    return f->queued_bytes <= f->memory / 2;
}

static void give_memory(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->queued_bytes -= bytes;
    if (has_room_locked(f))
        pthread_cond_broadcast(&f->room);
}

size_t fill_queued_bytes(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return f->queued_bytes;
}

bool fill_has_room(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return has_room_locked(f);
}

void fill_wait_for_room(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    while (!f->stopping && !has_room_locked(f))
        pthread_cond_wait(&f->room, &f->lock);
}

void fill_landed(void *arg, struct flight *flight, enum fetch_lane lane)
{
    struct cache *c = arg;
    size_t bytes = flight_bytes(c, flight);
    bool keeps = c->dir_count || c->front, warm = lane == LANE_WARM;
    if (keeps && take_memory(&c->fill, bytes, is_node(flight), warm)) {
        if (queue_try_push(c->fill.queue, flight_ref(flight)))
            return;
        flight_unref(flight);
        give_memory(&c->fill, bytes);
    }
    if (keeps && !warm) /* the warm lane's own thread writes it */
        counter_add(&c->stats.fills_dropped, 1);
    fetch_retire(c->fetch, flight);
}

/* A disk that is slow without failing must not hold the end of the cache for all that is queued. */
static bool time_is_over(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return f->stopping && clock_now_ms() > f->stop_ms;
}

static void keep_landed(struct cache *c, struct flight *flight)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = flight_wait(flight, &plain);
    assert(rc == 0); /* it landed with bytes */
    size_t bytes = flight_bytes(c, flight);
    rc = memory_landed(c, &flight_chunk(flight)->digest, plain, false);
    if (time_is_over(&c->fill)) {
        rc = -EAGAIN;
    } else if (c->dir_count) {
        rc = fill_flight(c, flight, plain, is_node(flight));
    } else { /* who looked before the chunk was in memory starts its fetch under this lock: it joins the flight */
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
    }
    if (rc == -EAGAIN || rc == -ENODEV)
        counter_add(&c->stats.fills_dropped, 1);
    else if (rc == -EDQUOT)
        counter_add(&c->stats.not_admitted, 1);
    fetch_retire(c->fetch, flight);
    flight_unref(flight);
    give_memory(&c->fill, bytes);
}

static void *write_fills(void *arg)
{
    struct cache *c = arg;
    struct flight *flight;
    while ((flight = queue_pop(c->fill.queue)))
        keep_landed(c, flight);
    return NULL;
}

int fill_start_threads(struct cache *c)
{
    int rc = 0;
    while (!rc && (c->dir_count || c->front) && c->fill.thread_count < FILL_THREADS) {
        rc = thread_start(&c->fill.threads[c->fill.thread_count], write_fills, c);
        c->fill.thread_count += rc == 0;
    }
    return rc ? error_prefix(rc, "cache") : 0;
}

static void tell_to_stop(struct fill *f, uint64_t until_ms)
{
    SCOPED_LOCK(&f->lock);
    f->stop_ms = until_ms;
    f->stopping = true;
    pthread_cond_broadcast(&f->room);
}

void fill_take_no_more(struct fill *f)
{
    tell_to_stop(f, UINT64_MAX);
}

void fill_stop(struct fill *f, uint32_t patience_ms)
{
    tell_to_stop(f, clock_now_ms() + patience_ms);
    queue_close(f->queue);
    while (f->thread_count)
        pthread_join(f->threads[--f->thread_count], NULL);
}

/* ---- warm memory ---- */

void fill_warm_acquire(struct fill *f, size_t bytes, uint64_t window)
{
    size_t most =
        (size_t)GR_MIN(GR_MAX(window, (uint64_t)WARM_MEMORY_LEAST * f->memory), (uint64_t)WARM_MEMORY_MOST * f->memory);
    SCOPED_LOCK(&f->lock);
    uint64_t turn = f->warm_turns++;
    while (turn != f->warm_turn || (f->warm_bytes && (f->warm_bytes + bytes > most || f->queued_bytes > most)))
        pthread_cond_wait(&f->room, &f->lock);
    f->warm_turn++;
    f->warm_bytes += bytes;
    pthread_cond_broadcast(&f->room); /* the next one may go too */
}

void fill_warm_release(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->warm_bytes -= bytes;
    pthread_cond_broadcast(&f->room);
}

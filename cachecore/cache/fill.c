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
 * outcome. Its memory is bounded before the fetch starts, by fill_warm_acquire, in the thread that
 * asked, so that no fetch worker ever waits for a disk.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "base/error.h"
#include "cache/cache_internal.h"

enum { FILL_MEMORY_DEFAULT = 64 << 20, QUEUE_ITEMS_MIN = 16, QUEUE_ITEMS_MAX = 65536 };

int fill_init(struct fill *f, size_t memory)
{
    f->memory = memory ? memory : FILL_MEMORY_DEFAULT;
    size_t items = f->memory / 4096;
    items = GR_MIN(GR_MAX(items, (size_t)QUEUE_ITEMS_MIN), (size_t)QUEUE_ITEMS_MAX);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->room, NULL);
    f->queue = queue_new(items);
    return f->queue ? 0 : error_set(-ENOMEM, "cache: out of memory");
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
    pthread_cond_wait(&c->changed, &c->lock);
}

/* The chunk's own slot, filling, or 0 with done when it is readable already. */
static int claim_locked(struct cache *c, const struct digest *digest, uint32_t len, bool wait, struct space_slot *slot,
                        bool *done)
{
    for (;;) {
        uint32_t id = space_find(&c->space, digest);
        *done = id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY;
        if (*done)
            return 0;
        if (id == SPACE_NONE) {
            int rc = space_alloc(&c->space, digest, len, slot);
            if (rc != -EAGAIN || !wait)
                return rc;
        }
        wait_for_change_locked(c);
    }
}

static int claim(struct cache *c, const struct digest *digest, uint32_t len, bool wait, struct space_slot *slot,
                 bool *done)
{
    SCOPED_LOCK(&c->lock);
    atomic_fetch_add(&c->waiters, 1); /* before looking at pins: cache_unpin looks in the other order */
    int rc = claim_locked(c, digest, len, wait, slot, done);
    atomic_fetch_sub(&c->waiters, 1);
    return rc;
}

int fill_chunk(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait)
{
    struct space_slot slot;
    bool done;
    int rc = claim(c, digest, (uint32_t)plain->len, wait, &slot, &done);
    if (rc || done)
        return rc;
    struct cache_dir *dir = c->dirs[slot.dir];
    rc = cache_dir_fill(dir, &slot, digest, plain);
    if (rc)
        cache_dir_fault(dir, "writing", rc);
    else
        cache_dir_well(dir);
    counter_add(rc ? &c->stats.fill_errors : &c->stats.fills, 1);
    counter_add(&c->stats.fill_bytes, rc ? 0 : plain->len);
    SCOPED_LOCK(&c->lock);
    if (rc)
        space_abort(&c->space, slot.id);
    else
        space_commit(&c->space, slot.id);
    pthread_cond_broadcast(&c->changed);
    return rc;
}

/* ---- the queue ---- */

static bool take_memory(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    if (f->stopping || (f->queued_bytes && f->queued_bytes + bytes > f->memory))
        return false;
    f->queued_bytes += bytes;
    return true;
}

static void give_memory(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->queued_bytes -= bytes;
}

void fill_landed(void *arg, struct flight *flight, enum fetch_lane lane)
{
    struct cache *c = arg;
    size_t bytes = flight_chunk(flight)->plain_len;
    if (c->dir_count && take_memory(&c->fill, bytes)) {
        if (queue_try_push(c->fill.queue, flight_ref(flight)))
            return;
        flight_unref(flight);
        give_memory(&c->fill, bytes);
    }
    if (c->dir_count && lane != LANE_WARM) /* the warm lane's own thread writes it */
        counter_add(&c->stats.fills_dropped, 1);
    fetch_retire(c->fetch, flight);
}

static void fill_flight(struct cache *c, struct flight *flight)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = flight_wait(flight, &plain);
    assert(rc == 0); /* it landed with bytes */
    size_t bytes = flight_chunk(flight)->plain_len;
    if (fill_chunk(c, &flight_chunk(flight)->digest, plain, false) == -EAGAIN)
        counter_add(&c->stats.fills_dropped, 1);
    fetch_retire(c->fetch, flight);
    flight_unref(flight);
    give_memory(&c->fill, bytes);
}

static void *write_fills(void *arg)
{
    struct cache *c = arg;
    struct flight *flight;
    while ((flight = queue_pop(c->fill.queue)))
        fill_flight(c, flight);
    return NULL;
}

int fill_start_threads(struct cache *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the front's business */
    int rc = 0;
    while (!rc && c->dir_count && c->fill.thread_count < FILL_THREADS) {
        rc = pthread_create(&c->fill.threads[c->fill.thread_count], NULL, write_fills, c);
        c->fill.thread_count += rc == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? error_set(-rc, "cache: cannot start a thread: %s", strerror(rc)) : 0;
}

void fill_stop(struct fill *f)
{
    {
        SCOPED_LOCK(&f->lock);
        f->stopping = true;
    }
    queue_close(f->queue);
    while (f->thread_count)
        pthread_join(f->threads[--f->thread_count], NULL);
}

/* ---- warm memory ---- */

void fill_warm_acquire(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    while (f->warm_bytes && f->warm_bytes + bytes > f->memory / 2)
        pthread_cond_wait(&f->room, &f->lock);
    f->warm_bytes += bytes;
}

void fill_warm_release(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->warm_bytes -= bytes;
    pthread_cond_broadcast(&f->room);
}

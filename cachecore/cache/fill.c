/* Filling: chunks that landed are written to their slots after the readers have been answered.
 *
 *    fetch worker            queue (bounded in bytes)           FILL_THREADS writers
 *    fill_landed ---------> | f f f f f f | ------------------> memory tier, slot on disk, fetch_retire
 *         `-- full: dropped, counted, fetch_retire
 *
 * The fetch's worker hands a landed fetch to fill_landed after waking its waiters. Written or dropped, the in-flight
 * fetch is retired only when the chunk is readable in the index or certainly never will be. Until then a reader that
 * asks for it joins the in-flight fetch, so nobody fetches a chunk that is just being written.
 *
 * Warming waits for its fills: cache_ensure waits until its fetches are retired, and writes itself what a writer did not
 * keep, because the policy refused it for example. Warm fetches, those too that a reader has raised to demand priority,
 * are queued however much waits, since their chunks will be readable. Their memory is bounded before the fetch starts,
 * by fill_warm_acquire in the warming thread, so that a fetch worker never waits for a disk.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/le.h"
#include "base/thread.h"
#include "cache/cache_internal.h"

enum { FILL_MEMORY_DEFAULT = 16 << 20, QUEUE_ITEMS_MIN = 16, QUEUE_ITEMS_MAX = 65536 };
enum { PUT_TRIES = 2000, PUT_PAUSE_MS = 1 }; /* for callers that wait: readers hold a slot of memory for microseconds */
enum { WARM_MEMORY_LEAST = 2, WARM_MEMORY_MOST = 8 }; /* limits of warming's memory, in multiples of fill.memory */

int fill_init(struct fill *f, size_t memory)
{
    f->memory = memory ? memory : FILL_MEMORY_DEFAULT;
    size_t items = WARM_MEMORY_MOST * f->memory / 4096;
    items = GR_MIN(GR_MAX(items, (size_t)QUEUE_ITEMS_MIN), (size_t)QUEUE_ITEMS_MAX);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->memory_freed, NULL);
    f->queue = queue_new(items);
    return f->queue ? 0 : error_no_memory();
}

void fill_release(struct fill *f)
{
    queue_free(f->queue);
    pthread_cond_destroy(&f->memory_freed);
    pthread_mutex_destroy(&f->lock);
}

/* ---- one chunk ---- */

/* Can any directory take a chunk now? */
static bool takes_fills(const struct cache *c)
{
    for (size_t i = 0; i < c->dir_count; i++)
        if (cache_dir_fills(c->dirs[i]))
            return true;
    return false;
}

/* Claim a slot (filling) for the chunk, or return 0 with *done when the chunk is readable already. Another thread's
 * fill of the same chunk is waited for with `wait`. -ENODEV: the chunk is pinned in a directory that cannot be read;
 * else as space_alloc. */
static int claim_locked(struct cache *c, const struct space_request *request, bool wait, struct space_slot *slot,
                        bool *done)
{
    for (;;) {
        uint32_t id = space_find(&c->space, &request->digest);
        *done = id != SPACE_NONE && cache_readable_locked(c, id);
        if (*done)
            return 0;
        if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY) {
            if (!takes_fills(c) || space_slot_at(&c->space, id)->flags & RECORD_PINNED)
                return -ENODEV;        /* a user's pin stays with its slot, readable or not */
            space_drop(&c->space, id); /* its directory is down: cache the chunk in another one */
            id = SPACE_NONE;
        }
        bool damaged = id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_DAMAGED;
        if (id == SPACE_NONE || damaged) {
            int rc = damaged ? space_refill(&c->space, id, request, slot) : space_alloc(&c->space, request, slot);
            if (rc != -EAGAIN || !wait)
                return rc;
        }
        space_assert(&c->space);
        pthread_cond_wait(&c->changed, &c->lock);
    }
}

/* Claim a slot under the lock. c->waiters is raised before the pins are looked at, and cache_unpin looks at it after
 * it has released the pin, so a release is never missed. */
static int fill_claim(struct cache *c, const struct space_request *request, bool wait, struct space_slot *slot,
                      bool *done)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    atomic_fetch_add(&c->waiters, 1);
    int rc = claim_locked(c, request, wait, slot, done);
    atomic_fetch_sub(&c->waiters, 1);
    return rc;
}

int fill_write(struct cache *c, const struct space_slot *slot, const struct digest *digest, struct buf *stored)
{
    uint64_t timeout_ms = (uint64_t)c->disk_timeout_ms * WRITE_TIMEOUT_FACTOR;
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + timeout_ms);
    if (!ring)
        return -EAGAIN;
    int rc = -EAGAIN; /* the directory went down while this thread waited for a ring */
    if (cache_dir_fills(c->dirs[slot->dir]))
        rc = cache_dir_fill(c->dirs[slot->dir], ring, slot, digest, stored, clock_now_ms() + timeout_ms);
    cache_note(c, slot->dir, CACHE_WRITING,
               rc); /* before the ring is returned: its next user could lose it to the same disk */
    rings_return(ring);
    return rc;
}

struct space_request fill_request(const struct chunk_ref *ref)
{
    return (struct space_request){
        .digest = ref->digest,
        .plain_len = ref->plain_len,
        .stored_len = ref->plain_len,
        .flags = ref->kind == OBJECT_INDEX ? RECORD_META : 0,
        .media = CACHE_MEDIA_ANY,
    };
}

/* Try fill_chunk once, in the directory chosen now. *out_dir: that directory, if a slot was claimed. Ends the claim
 * by commit or abort and wakes the threads that wait for the outcome. */
static int fill_once(struct cache *c, const struct space_request *request, struct buf *stored, bool wait,
                     struct cache_dir **out_dir)
{
    struct space_slot slot;
    bool done;
    int rc = fill_claim(c, request, wait, &slot, &done);
    if (rc || done)
        return rc;
    *out_dir = c->dirs[slot.dir];
    rc = fill_write(c, &slot, &request->digest, stored);
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

int fill_chunk(struct cache *c, const struct space_request *request, struct buf *stored, bool wait)
{
    for (size_t tries = 1;; tries++) {
        struct cache_dir *dir = NULL;
        int rc = fill_once(c, request, stored, wait, &dir);
        bool elsewhere = rc && wait && dir && !cache_dir_fills(dir) && takes_fills(c);
        if (!elsewhere || tries >= c->dir_count)
            return rc;
    }
}

/* Keep the compressed bytes where they save a size class, or where other nodes ask for them. A slot is a power of two:
 * smaller savings would only cost readers the decoding. */
int fill_inflight(struct cache *c, struct inflight *inflight, struct buf *plain, bool named)
{
    struct space_request request = fill_request(inflight_chunk(inflight));
    uint32_t tag = inflight_tag(inflight);
    request.group = (uint16_t)(tag <= SPACE_GROUPS_MAX ? tag : 0);
    CLEANUP_BUF struct buf *stored = inflight_stored(inflight);
    request.force = named;
    bool saves = stored && cache_class_of((uint32_t)stored->len) < cache_class_of(request.plain_len);
    if (!stored || !(saves || c->as_stored))
        return fill_chunk(c, &request, plain, named);
    request.stored_len = (uint32_t)stored->len;
    request.flags |= RECORD_ZSTD;
    return fill_chunk(c, &request, stored, named);
}

int fill_memory(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait)
{
    if (!c->memory_tier)
        return 0;
    int rc = memory_tier_put(c->memory_tier, digest, plain->data, (uint32_t)plain->len, wait);
    for (int i = 0; wait && rc == -EAGAIN && i < PUT_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PUT_PAUSE_MS * 1000000L}, NULL);
        rc = memory_tier_put(c->memory_tier, digest, plain->data, (uint32_t)plain->len, wait);
    }
    return rc;
}

/* ---- chunks that another node keeps ---- */

/* Chunks of other nodes that were fetched: a tag for each slot, which the next chunk there replaces. One that comes
 * again before that is hot. */
enum { SEEN_SLOTS = 1 << 16 };
struct seen {
    _Atomic uint32_t tags[SEEN_SLOTS];
};

int fill_seen_new(struct seen **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : error_no_memory();
}

/* Note the chunk; was it noted before? */
static bool seen_before(struct seen *seen, const struct digest *digest)
{
    uint32_t tag = le32_get(digest->b + 4) | 1;
    return atomic_exchange_explicit(&seen->tags[le32_get(digest->b) % SEEN_SLOTS], tag, memory_order_relaxed) == tag;
}

bool fill_is_ours(const struct cache *c, struct store *store, const struct chunk_ref *ref, struct chunk_stripe *stripe)
{
    if (c->others == CACHE_OTHERS_ALL || ref->kind == OBJECT_INDEX)
        return true;
    if (!chunk_stripe_has(stripe, ref))
        stripe->yes = chunk_is_own(store, ref);
    return stripe->yes;
}

/* The same for a chunk that has landed, and the only place that notes what is hot. */
static bool landed_is_ours(struct cache *c, struct inflight *inflight)
{
    const struct chunk_ref *ref = inflight_chunk(inflight);
    if (c->others == CACHE_OTHERS_ALL || ref->kind == OBJECT_INDEX || inflight_is_own(inflight))
        return true;
    return c->others == CACHE_OTHERS_HOT && seen_before(c->seen, &ref->digest);
}

/* Return the memory that an in-flight fetch holds once it has landed. */
static size_t inflight_bytes(const struct cache *c, const struct inflight *inflight)
{
    const struct chunk_ref *ref = inflight_chunk(inflight);
    return ref->plain_len + (c->compressed && ref->flags & CHUNK_ZSTD ? ref->stored_len : 0);
}

/* ---- warm memory ---- */

/* A caller of fill_warm_acquire that waits, on its stack. Each has a condition of its own: dozens wait, and one that is
 * woken before its turn costs two changes of thread. */
struct warm_wait {
    size_t bytes, most;
    pthread_cond_t turn;
    struct warm_wait *next;
};

static bool warm_fits_locked(const struct fill *f, const struct warm_wait *w)
{
    return !f->warm_bytes || (f->warm_bytes + w->bytes <= w->most && f->queued_bytes <= w->most);
}

/* Wake the first caller that waits, if it need not wait any longer. */
static void warm_wake_locked(struct fill *f)
{
    if (f->first_warm && warm_fits_locked(f, f->first_warm))
        pthread_cond_signal(&f->first_warm->turn);
}

static void stand_in_line_locked(struct fill *f, struct warm_wait *w)
{
    *(f->first_warm ? &f->last_warm->next : &f->first_warm) = w;
    f->last_warm = w;
}

/* The callers stand in line, so that a large request is not overtaken forever by small ones. */
void fill_warm_acquire(struct fill *f, size_t bytes, uint64_t window)
{
    struct warm_wait w = {
        .bytes = bytes,
        .most = (size_t)GR_MIN(GR_MAX(window, (uint64_t)WARM_MEMORY_LEAST * f->memory),
                               (uint64_t)WARM_MEMORY_MOST * f->memory),
        .turn = PTHREAD_COND_INITIALIZER,
    };
    SCOPED_LOCK(&f->lock);
    stand_in_line_locked(f, &w);
    while (f->first_warm != &w || !warm_fits_locked(f, &w))
        pthread_cond_wait(&w.turn, &f->lock);
    f->first_warm = w.next;
    f->warm_bytes += bytes;
    warm_wake_locked(f); /* the next may fit as well */
    pthread_cond_destroy(&w.turn);
}

void fill_warm_release(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->warm_bytes -= bytes;
    warm_wake_locked(f);
}

/* ---- the queue ---- */

/* Index nodes get twice the room. Without a node, a server that starts without its store cannot read anything the
 * node describes. */
static bool is_node(const struct inflight *inflight)
{
    return inflight_chunk(inflight)->kind == OBJECT_INDEX;
}

/* Reserve queue memory. Warm chunks always get it, and an empty queue takes a chunk of any size. */
static bool take_memory(struct fill *f, size_t bytes, bool node, bool warm)
{
    SCOPED_LOCK(&f->lock);
    bool full = f->queued_bytes && f->queued_bytes + bytes > (node ? 2 * f->memory : f->memory);
    if (f->stopping || (full && !warm))
        return false;
    f->queued_bytes += bytes;
    return true;
}

/* Half of the memory is the threshold: chunks fetched ahead must leave room for what readers fetch. */
static bool has_memory_locked(const struct fill *f)
{
    return f->queued_bytes <= f->memory / 2;
}

static void give_memory(struct fill *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->queued_bytes -= bytes;
    if (has_memory_locked(f))
        pthread_cond_broadcast(&f->memory_freed);
    warm_wake_locked(f);
}

size_t fill_queued_bytes(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return f->queued_bytes;
}

bool fill_has_memory(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return has_memory_locked(f);
}

void fill_wait_for_memory(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    while (!f->stopping && !has_memory_locked(f))
        pthread_cond_wait(&f->memory_freed, &f->lock);
}

void fill_landed(void *arg, struct inflight *inflight, bool warm)
{
    struct cache *c = arg;
    size_t bytes = inflight_bytes(c, inflight);
    bool keeps = c->dir_count || c->memory_tier;
    if (keeps && take_memory(&c->fill, bytes, is_node(inflight), warm)) {
        if (queue_try_push(c->fill.queue, inflight_ref(inflight)))
            return;
        inflight_unref(inflight);
        give_memory(&c->fill, bytes);
    }
    if (keeps && !warm) /* the warming thread writes it itself */
        counter_add(&c->stats.fills_dropped, 1);
    fetch_retire(c->fetch, inflight);
}

/* Is the cache closing, and the time for queued chunks over? A disk that is slow without failing must not delay the
 * end. */
static bool time_is_over(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return f->stopping && clock_now_ms() > f->stop_ms;
}

/* ---- for other nodes ---- */

bool fill_has_stored_locked(const struct cache *c, const struct chunk_ref *ref)
{
    uint32_t id = c->dir_count ? space_find(&c->space, &ref->digest) : SPACE_NONE;
    if (id == SPACE_NONE || !cache_readable_locked(c, id))
        return false;
    const struct slot *slot = space_slot_at(&c->space, id);
    return !(slot->flags & RECORD_ZSTD) == !(ref->flags & CHUNK_ZSTD) && slot->plain_len == ref->plain_len &&
           slot->stored_len == ref->stored_len;
}

/* Drop a chunk that is cached uncompressed, from before other nodes were answered, where they ask for it compressed.
 * Else it would be fetched for each of them. The other way round stays: two packs may have one chunk in two forms. */
static bool drop_uncompressed(struct cache *c, const struct chunk_ref *ref)
{
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        uint32_t id = space_find(&c->space, &ref->digest);
        if (!(ref->flags & CHUNK_ZSTD) || id == SPACE_NONE || !cache_readable_locked(c, id) ||
            space_slot_at(&c->space, id)->flags & RECORD_ZSTD)
            return false;
    }
    return !cache_evict(c, &ref->digest, false);
}

/* What replaces another form of a chunk is kept whatever the policy says. */
static void keep_for_others(struct cache *c, struct inflight *inflight)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = inflight_wait(inflight, &plain);
    assert(rc == 0); /* it has landed with bytes */
    bool over = time_is_over(&c->fill), replaces = !over && drop_uncompressed(c, inflight_chunk(inflight));
    rc = over ? -EAGAIN : fill_inflight(c, inflight, plain, replaces);
    if (rc == -EAGAIN || rc == -ENODEV)
        counter_add(&c->stats.fills_dropped, 1);
    else if (rc == -EDQUOT)
        counter_add(&c->stats.not_admitted, 1);
    fetch_retire(c->for_others, inflight);
}

void fill_landed_for_others(void *arg, struct inflight *inflight, bool warm)
{
    struct cache *c = arg;
    size_t bytes = inflight_bytes(c, inflight);
    if (!c->dir_count || inflight_tag(inflight) != TAG_KEEP) {
        fetch_retire(c->for_others, inflight);
        return;
    }
    if (take_memory(&c->fill, bytes, is_node(inflight), false)) {
        if (queue_try_push(c->fill.queue, inflight_ref(inflight)))
            return;
        inflight_unref(inflight);
        give_memory(&c->fill, bytes);
    }
    keep_for_others(c, inflight);
}

/* ---- the writer threads ---- */

/* Write one landed chunk to memory and disk, then retire its fetch, in this order (see the top of the file). */
static void keep_for_readers(struct cache *c, struct inflight *inflight)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = inflight_wait(inflight, &plain);
    assert(rc == 0);                         /* fill_landed is called only for fetches that succeeded */
    bool ours = landed_is_ours(c, inflight); /* if not, a thread that warms it writes it itself */
    rc = fill_memory(c, &inflight_chunk(inflight)->digest, plain, false);
    if (time_is_over(&c->fill)) {
        rc = -EAGAIN;
    } else if (c->dir_count && ours) {
        rc = fill_inflight(c, inflight, plain, is_node(inflight));
    } else { /* Without disks: a lookup that ran before the chunk was in memory starts its fetch in the same locked
                section. Passing through the lock makes sure that it has joined this in-flight fetch before the fetch is
                retired. */
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
    }
    if (!ours)
        counter_add(&c->stats.others, 1);
    else if (rc == -EAGAIN || rc == -ENODEV)
        counter_add(&c->stats.fills_dropped, 1);
    else if (rc == -EDQUOT)
        counter_add(&c->stats.not_admitted, 1);
    fetch_retire(c->fetch, inflight);
}

static void keep_landed(struct cache *c, struct inflight *inflight)
{
    size_t bytes = inflight_bytes(c, inflight);
    if (inflight_tag(inflight) == TAG_KEEP)
        keep_for_others(c, inflight);
    else
        keep_for_readers(c, inflight);
    inflight_unref(inflight);
    give_memory(&c->fill, bytes);
}

/* A writer thread: write landed chunks until the queue is closed and empty. */
static void *write_fills(void *arg)
{
    struct cache *c = arg;
    struct inflight *inflight;
    while ((inflight = queue_pop(c->fill.queue)))
        keep_landed(c, inflight);
    return NULL;
}

int fill_start_threads(struct cache *c)
{
    int rc = 0;
    while (!rc && (c->dir_count || c->memory_tier) && c->fill.thread_count < FILL_THREADS) {
        rc = thread_start(&c->fill.threads[c->fill.thread_count], write_fills, c);
        c->fill.thread_count += rc == 0;
    }
    return rc ? error_prefix(rc, "cache") : 0;
}

/* Refuse new chunks, and wake fill_wait_for_memory. Chunks still queued at until_ms are not written. */
static void tell_to_stop(struct fill *f, uint64_t until_ms)
{
    SCOPED_LOCK(&f->lock);
    f->stop_ms = until_ms;
    f->stopping = true;
    pthread_cond_broadcast(&f->memory_freed);
}

void fill_take_no_more(struct fill *f)
{
    tell_to_stop(f, UINT64_MAX);
}

void fill_stop(struct fill *f, uint32_t timeout_ms)
{
    tell_to_stop(f, clock_now_ms() + timeout_ms);
    queue_close(f->queue);
    while (f->thread_count)
        pthread_join(f->threads[--f->thread_count], NULL);
}

/* Filling: chunks that landed are written to their slots after the readers have been answered.
 *
 *    fetch worker            queue (bounded in bytes)       FILL_THREADS writers, in batches
 *    fill_landed ---------> | f f f f f f | ------------------> memory tier, slot on disk, fetch_retire
 *         `-- full: dropped, counted, fetch_retire
 *
 * The fetch's worker hands a landed fetch to fill_landed after waking its waiters. Written or dropped, the in-flight
 * fetch is retired only when the chunk is readable in the index or certainly never will be. Until then a reader that
 * asks for it joins the in-flight fetch, so nobody fetches a chunk that is just being written.
 *
 * Warming waits for its fills: cache_ensure waits until its fetches are retired, and writes itself what a writer did
 * not keep, because the policy refused it for example. Warm fetches, those too that a reader has raised to demand
 * priority, are queued however much waits, since their chunks will be readable. Their memory is bounded before the
 * fetch starts, by fill_warm_acquire in the warming thread, so that a fetch worker never waits for a disk.
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
enum { BATCH_BYTES = 1 << 20 }; /* a writer takes no more chunks at a time than this many bytes need */
enum { STUCK_MS = 100 };        /* writers that took nothing for STUCK_MS may be held by a disk that hangs */
enum { PUT_TRIES = 2000, PUT_PAUSE_MS = 1 }; /* for callers that wait: readers hold a slot of memory for microseconds */
enum { WARM_MEMORY_LEAST = 2, WARM_MEMORY_MOST = 8 }; /* limits of warming's memory, in multiples of fill.memory */

int fill_init(struct fill *f, size_t memory)
{
    f->memory = memory ? memory : FILL_MEMORY_DEFAULT;
    size_t items = WARM_MEMORY_MOST * f->memory / 4096;
    items = GR_MIN(GR_MAX(items, (size_t)QUEUE_ITEMS_MIN), (size_t)QUEUE_ITEMS_MAX);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->memory_freed, NULL);
    pthread_cond_init(&f->work, NULL);
    f->limit = items;
    f->queue = calloc(items, sizeof *f->queue);
    return f->queue ? 0 : error_no_memory();
}

void fill_release(struct fill *f)
{
    free(f->queue);
    pthread_cond_destroy(&f->work);
    pthread_cond_destroy(&f->memory_freed);
    pthread_mutex_destroy(&f->lock);
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
    if (c->others == CACHE_OTHERS_ALL || ref->kind == OBJECT_INDEX || chunk_is_delta(ref))
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

/* Wake a writer if none is awake, if those that are have more to do than the next batch of each, or if they seem to be
 * stuck. A writer that is awake looks again before it sleeps, so nothing stays behind; and the fewer are awake, the
 * larger are the batches. What comes last before a disk hangs may wait for the deadline of its writes. */
static void wake_writer_locked(struct fill *f)
{
    unsigned awake = f->writers - f->idle;
    bool enough =
        !f->singly && f->ready_bytes <= (size_t)awake * BATCH_BYTES && clock_now_ms() <= f->taken_ms + STUCK_MS;
    if (!f->idle || (awake && enough))
        return;
    f->idle--;
    f->woken++;
    pthread_cond_signal(&f->work);
}

/* Queue a landed fetch and take a reference to it. Warm chunks always have memory, and an empty queue takes a chunk of
 * any size. false: there is no room. */
static bool queue_fill(struct fill *f, struct inflight *inflight, size_t bytes, bool warm)
{
    SCOPED_LOCK(&f->lock);
    bool full = f->queued_bytes && f->queued_bytes + bytes > (is_node(inflight) ? 2 * f->memory : f->memory);
    if (f->stopping || (full && !warm) || f->len == f->limit)
        return false;
    f->queue[(f->head + f->len++) % f->limit] = inflight_ref(inflight);
    f->queued_bytes += bytes;
    f->ready_bytes += bytes;
    wake_writer_locked(f);
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
    if (keeps && queue_fill(&c->fill, inflight, bytes, warm))
        return;
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
    if (!c->dir_count) {
        fetch_retire(c->for_others, inflight);
        return;
    }
    if (queue_fill(&c->fill, inflight, bytes, false))
        return;
    keep_for_others(c, inflight);
}

/* ---- the writer threads ---- */

/* A landed fetch that a writer has taken. */
struct taken {
    struct inflight *inflight;
    bool ours, written;
};

/* Put a landed chunk into memory, and set up *item if it is to be written to disk. */
static void prepare(struct cache *c, struct taken *t, struct fill_item *item)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = inflight_wait(t->inflight, &plain);
    assert(rc == 0);                          /* fill_landed is called only for fetches that succeeded */
    t->ours = landed_is_ours(c, t->inflight); /* if not, a thread that warms it writes it itself */
    rc = fill_memory(c, &inflight_chunk(t->inflight)->digest, plain, false);
    bool over = time_is_over(&c->fill);
    t->written = c->dir_count && t->ours && !over;
    if (t->written) {
        fill_item_init(c, item, t->inflight, plain, is_node(t->inflight));
        return;
    }
    item->rc = over ? -EAGAIN : rc;
    /* Without disks: a lookup that ran before the chunk was in memory starts its fetch in the same locked section.
     * Passing through the lock makes sure that it has joined this in-flight fetch before the fetch is retired. */
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
}

/* Count what became of a chunk, and retire its fetch. */
static void conclude(struct cache *c, const struct taken *t, int rc)
{
    if (!t->ours)
        counter_add(&c->stats.others, 1);
    else if (rc == -EAGAIN || rc == -ENODEV)
        counter_add(&c->stats.fills_dropped, 1);
    else if (rc == -EDQUOT)
        counter_add(&c->stats.not_admitted, 1);
    fetch_retire(c->fetch, t->inflight);
}

/* Write landed chunks to memory and disk, then retire their fetches, in this order (see the top of the file). */
static void keep_for_readers(struct cache *c, struct taken *taken, size_t n)
{
    struct fill_item items[CACHE_FILLS_MAX], *item = items;
    for (size_t i = 0; i < n; i++) {
        prepare(c, &taken[i], item);
        if (taken[i].written)
            item++;
        else
            conclude(c, &taken[i], item->rc);
    }
    fill_items(c, items, (size_t)(item - items));
    item = items;
    for (size_t i = 0; i < n; i++)
        if (taken[i].written) {
            buf_unref(item->stored);
            conclude(c, &taken[i], item++->rc);
        }
}

/* Keep what one writer took: chunks for other nodes one by one, for they may replace others. */
static void keep_landed(struct cache *c, struct inflight *const *batch, size_t n)
{
    struct taken taken[CACHE_FILLS_MAX];
    size_t bytes = 0, count = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += inflight_bytes(c, batch[i]);
        if (inflight_tag(batch[i]) == TAG_FOR_OTHERS)
            keep_for_others(c, batch[i]);
        else
            taken[count++].inflight = batch[i];
    }
    keep_for_readers(c, taken, count);
    for (size_t i = 0; i < n; i++)
        inflight_unref(batch[i]);
    give_memory(&c->fill, bytes);
}

/* Return how many chunks a writer may take. More than one only where all directories write them at once: a thread of a
 * ring would have to write all of them within the time for one. */
static size_t batch_limit(const struct cache *c)
{
    for (unsigned i = 0; i < c->dir_count; i++)
        if (!rings_write_at_once(c->writers, cache_data_file(i)))
            return 1;
    return CACHE_FILLS_MAX;
}

/* Wait for landed chunks, and take the oldest: no more than a batch. 0: the queue is closed and empty. */
static size_t take_batch(struct cache *c, struct inflight **out)
{
    struct fill *f = &c->fill;
    size_t n = 0, bytes = 0, limit = batch_limit(c);
    SCOPED_LOCK(&f->lock);
    while (!f->len && !f->closed) {
        f->idle++;
        while (!f->woken)
            pthread_cond_wait(&f->work, &f->lock);
        f->woken--;
    }
    while (f->len && n < limit && bytes < BATCH_BYTES) {
        out[n] = f->queue[f->head];
        bytes += inflight_bytes(c, out[n++]);
        f->head = (f->head + 1) % f->limit;
        f->len--;
    }
    f->ready_bytes -= bytes;
    f->taken_ms = clock_now_ms();
    f->singly = limit == 1;
    if (f->len)
        wake_writer_locked(f);
    return n;
}

/* A writer thread: write landed chunks until the queue is closed and empty. */
static void *write_fills(void *arg)
{
    struct cache *c = arg;
    struct inflight *batch[CACHE_FILLS_MAX];
    {
        SCOPED_LOCK(&c->fill.lock);
        c->fill.writers++;
    }
    for (size_t n; (n = take_batch(c, batch));)
        keep_landed(c, batch, n);
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

static void close_queue(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    f->closed = true;
    f->woken += f->idle;
    f->idle = 0;
    pthread_cond_broadcast(&f->work);
}

void fill_stop(struct fill *f, uint32_t timeout_ms)
{
    tell_to_stop(f, clock_now_ms() + timeout_ms);
    close_queue(f);
    while (f->thread_count)
        pthread_join(f->threads[--f->thread_count], NULL);
}

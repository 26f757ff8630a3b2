/* Completion. Each thread repeats: take the leaf with credit of which most was read, fetch one unit of it. A search
 * looks at up to LOOK_LEAVES leaves from an image's hand on. Work is found by the leaves' counts alone; there is no
 * queue that could grow.
 *
 * A unit is assembled next to the chunks that clients miss, in the order of the packs. The search for it begins at the
 * unit that contains the latest miss, and continues to the end of the leaf, then from its beginning. A client that
 * reads a directory in any order has the neighbours it will read next there. Chunks that another thread has claimed are
 * left to that thread.
 *
 * Locks: `search` is held while leaves are searched. Readers never take it. `lock` guards only sleeping and waking; it
 * is innermost.
 *
 * Waking without a lost wake-up: a reader increments `wakes`, then reads `idle`. A thread reads `wakes` before its
 * search; after an empty search it increments `idle`, then compares `wakes`. Both are sequentially consistent, so at
 * least one side sees the other.
 *
 *   reader   wakes++ ........... idle != 0? signal
 *   thread   w = wakes; search; idle++; wakes == w? sleep
 *
 * Pauses: an image whose unit failed rests for REST_MS, because the cache has no room or the store does not answer. A
 * unit with a bad or missing chunk is skipped instead. An image without a relevant read for IDLE_MS is left alone, so
 * that the remains of a job that ended are not fetched for hours.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "image/image_internal.h"

enum {
    LOOK_LEAVES = 4096, /* leaves that one search looks at */
    REST_MS = 2000,     /* pause of an image after a failure */
    TELL_MS = 30000,    /* between two log lines about one image */
    IDLE_MS = 10000,    /* without a miss and without a read of a chunk fetched ahead */
};

/* An image being watched. `search` guards the members. */
struct watched {
    struct image *img;            /* one reference */
    uint64_t rest_until_ms;       /* no unit is begun before */
    uint64_t hand;                /* the leaf where the next search begins */
    uint64_t reported_ms, failed; /* time of the last log line; failures since then */
    unsigned jobs;                /* units in flight */
    bool removed;                 /* freed with the last job */
};

/* The threads and the images they complete. */
struct ahead {
    pthread_t *threads;
    unsigned thread_count, thread_max;
    _Atomic uint64_t image_bytes; /* size of all watched images */
    _Atomic unsigned idle;        /* threads that are about to sleep or do */
    _Atomic uint64_t wakes;       /* reads that may have created work */

    pthread_mutex_t search; /* guards images, next and every struct watched */
    VEC(struct watched *) images;
    size_t next; /* the image to search first */

    pthread_mutex_t lock; /* guards stopping and the condition; held for a few instructions; innermost */
    pthread_cond_t work;
    bool stopping;
};

/* One unit to fetch: a leaf of a watched image. */
struct job {
    struct watched *of;
    uint64_t leaf;
};

/* ---- one unit ---- */

enum {
    UNIT_BYTES = 1 << 20, /* of a unit, which has at least one chunk */
    UNIT_CHUNKS = 16,     /* likewise */
    LOOK = 64,            /* chunks looked up under one lock */
    FREE_PART = 64,       /* of the cache always stays free */
};

/* A unit being assembled. */
struct unit {
    struct image *img;
    struct demand_leaf *leaf;
    uint32_t most, count; /* chunks it may have; chunks it has */
    bool missing;         /* an uncached chunk was seen, claimed or not */
    uint32_t first;       /* number of its first chunk */
    uint32_t numbers[UNIT_CHUNKS];
    struct cache_piece pieces[UNIT_CHUNKS];
    uint64_t bytes;
};

/* Return how many chunks a unit has. */
static uint32_t complete_unit(const struct image *img)
{
    uint32_t chunks = UNIT_BYTES / img->manifest.chunk_size;
    return GR_MIN(GR_MAX(chunks, 1u), (uint32_t)UNIT_CHUNKS);
}

/* Return from which credit on (in chunks) a unit of the leaf is worth a GET. A last leaf with few chunks may never have
 * a whole unit's credit. */
static uint32_t complete_worth(const struct image *img, uint64_t leaf)
{
    uint64_t chunks = img->demand.chunks - leaf * INDEX_FANOUT;
    uint32_t unit = complete_unit(img);
    return chunks < (uint64_t)INDEX_FANOUT ? (uint32_t)GR_MIN((uint64_t)unit, chunks / 64 + 1) : unit;
}

/* Claim a chunk and add it to the unit. False: the unit is full, or the chunk is too far from its first one. */
static bool complete_add(struct unit *u, const struct chunk_ref *ref, uint32_t number)
{
    u->missing = true;
    if (u->count == u->most || (u->count && number >= u->first + 2 * u->most))
        return false;
    if (!demand_claim(u->leaf, number))
        return true;
    u->first = u->count ? u->first : number;
    u->numbers[u->count] = number;
    u->pieces[u->count++] =
        (struct cache_piece){.ref = *ref, .store = u->img->config.store, .quota = image_quota(u->img)};
    u->bytes += ref->plain_len;
    return true;
}

/* Add the missing ones of the chunks [from, end) of the leaf. False: the unit is full. */
static bool add_missing(struct unit *u, const struct span *span, uint32_t from, uint32_t end)
{
    while (from < end) {
        struct digest digests[LOOK];
        struct cache_chunk states[LOOK];
        uint32_t numbers[LOOK], n = 0;
        for (; from < end && n < LOOK; from++) {
            struct chunk_ref ref;
            if (!span_chunk(span, span->first + from, &ref))
                continue;
            digests[n] = ref.digest;
            numbers[n++] = from;
        }
        cache_query(u->img->config.cache, digests, n, states);
        for (uint32_t i = 0; i < n; i++) {
            struct chunk_ref ref;
            if (!states[i].cached && span_chunk(span, span->first + numbers[i], &ref) &&
                !complete_add(u, &ref, numbers[i]))
                return false;
        }
    }
    return true;
}

/* Fill in the unit. A leaf without anything to claim loses its credit. */
static void complete_choose(struct unit *u, const struct span *span)
{
    uint32_t count = (uint32_t)(span->end - span->first), unit = complete_unit(u->img);
    uint32_t start = atomic_load_explicit(&u->leaf->last, memory_order_relaxed) / unit * unit;
    if (add_missing(u, span, start, count) && !u->count)
        (void)add_missing(u, span, 0, start);
    if (!u->count)
        demand_exhausted(u->leaf, !u->missing);
}

/* May the image be completed? Only if it fits into the cache. If several images compete, only free space is used:
 * completing one must not evict another. */
static bool has_room(const struct image *img, bool shared)
{
    struct cache_capacity capacity = cache_capacity(img->config.cache, image_quota(img));
    if (capacity.most < img->manifest.size)
        return false;
    return !shared || capacity.free > capacity.most / FREE_PART + UNIT_BYTES;
}

/* Fetch one unit of a leaf, as far as its credit allows, and wait until it is in the cache. The credit is checked
 * again: other threads may have used it since the leaf was found. shared: the served images do not fit into the cache
 * together, so only free space is used. 0 also if nothing was missing. -EDQUOT, -ENODEV (no sentence): the cache cannot
 * hold the image, or takes no more of it now. Else the error of a fetch; after one that error_of_one_thing() is true
 * for, the unit stays claimed and is not tried again. */
static int complete_some(struct image *img, uint64_t leaf, bool shared)
{
    if (!has_room(img, shared))
        return -EDQUOT;
    struct span span;
    int rc = span_locate(img->nodes, leaf * INDEX_FANOUT, SPAN_FETCHED, &span);
    if (rc)
        return rc;
    struct unit u = {.img = img, .leaf = demand_leaf(&img->demand, leaf)};
    u.most = GR_MIN(demand_credit(&img->demand, leaf), complete_unit(img));
    if (span.leaf && u.most)
        complete_choose(&u, &span);
    node_unref(span.leaf);
    if (!u.count)
        return 0;
    rc = cache_ahead(img->config.cache, u.pieces, u.count);
    /* A bad chunk would fail again: its unit stays claimed. */
    for (uint32_t i = 0; rc && !error_of_one_thing(rc) && i < u.count; i++)
        demand_unclaim(u.leaf, u.numbers[i]);
    if (!rc)
        counter_add(&img->completion_bytes, u.bytes);
    return rc;
}

/* ---- images ---- */

int ahead_new(unsigned threads, struct ahead **out)
{
    struct ahead *a = calloc(1, sizeof *a);
    if (!a)
        return error_no_memory();
    a->thread_max = threads;
    pthread_mutex_init(&a->search, NULL);
    pthread_mutex_init(&a->lock, NULL);
    thread_cond_init(&a->work);
    *out = a;
    return 0;
}

/* The image's `noted` callback, on a reader's thread: wake a thread if the leaf now has credit for a unit. */
static void wake(void *arg, struct image *img, uint64_t leaf)
{
    struct ahead *a = arg;
    atomic_store_explicit(&img->active_ms, clock_now_ms(), memory_order_relaxed);
    if (demand_credit(&img->demand, leaf) < complete_worth(img, leaf))
        return;
    atomic_fetch_add(&a->wakes, 1);
    if (!atomic_load(&a->idle))
        return;
    SCOPED_LOCK(&a->lock);
    pthread_cond_signal(&a->work);
}

/* The image's `noted` callback is set before its first read, so readers need no lock to call it. */
int ahead_add(struct ahead *a, struct image *img)
{
    struct watched *w = calloc(1, sizeof *w);
    SCOPED_LOCK(&a->search);
    if (!w || vec_push(&a->images, w)) {
        free(w);
        return error_no_memory();
    }
    w->img = image_ref(img);
    atomic_fetch_add(&a->image_bytes, img->manifest.size);
    img->noted_arg = a;
    img->noted = wake;
    return 0;
}

/* NULL is allowed. */
static void watched_free(struct watched *w)
{
    if (!w)
        return;
    image_close(w->img);
    free(w);
}

/* Remove an image. Returns what the caller passes to watched_free; NULL: it is not watched, or its last job frees it.
 */
static struct watched *take_out(struct ahead *a, struct image *img)
{
    SCOPED_LOCK(&a->search);
    size_t i = 0;
    while (i < a->images.len && a->images.items[i]->img != img)
        i++;
    if (i == a->images.len)
        return NULL;
    struct watched *w = a->images.items[i];
    memmove(&a->images.items[i], &a->images.items[i + 1], (a->images.len - i - 1) * sizeof w);
    a->images.len--;
    atomic_fetch_sub(&a->image_bytes, img->manifest.size);
    w->removed = true;
    return w->jobs ? NULL : w;
}

void ahead_remove(struct ahead *a, struct image *img)
{
    watched_free(take_out(a, img));
}

/* ---- what is to be done ---- */

/* Find the leaf to complete next: of the leaves from the hand on, the one with credit of which most was read. False:
 * none has credit; the hand moves on. */
static bool find_leaf(struct watched *w, uint64_t *out)
{
    const struct demand *d = &w->img->demand;
    uint64_t looks = GR_MIN(d->leaf_count, (uint64_t)LOOK_LEAVES), most = 0;
    for (uint64_t i = 0; i < looks; i++) {
        uint64_t number = (w->hand + i) % d->leaf_count;
        if (demand_credit(d, number) < complete_worth(w->img, number))
            continue;
        uint64_t pages = demand_pages(demand_leaf(d, number));
        if (pages > most) {
            most = pages;
            *out = number;
        }
    }
    if (!most)
        w->hand = (w->hand + looks) % d->leaf_count;
    return most > 0;
}

/* Was the image read recently in a way that completion can help? */
static bool is_active(const struct watched *w, uint64_t now_ms)
{
    return now_ms < atomic_load_explicit(&w->img->active_ms, memory_order_relaxed) + IDLE_MS;
}

/* Find a unit to fetch; images take turns. False: there is none; *again_ms is when a resting image may be searched
 * again, 0 if none rests. */
static bool find_job(struct ahead *a, struct job *job, uint64_t *again_ms)
{
    SCOPED_LOCK(&a->search);
    uint64_t now_ms = clock_now_ms();
    *again_ms = 0;
    for (size_t i = 0; i < a->images.len; i++) {
        struct watched *w = a->images.items[(a->next + i) % a->images.len];
        if (is_active(w, now_ms) && now_ms < w->rest_until_ms)
            *again_ms = w->rest_until_ms;
        if (!is_active(w, now_ms) || now_ms < w->rest_until_ms)
            continue;
        for (uint64_t looked = 0; looked < w->img->demand.leaf_count; looked += LOOK_LEAVES)
            if (find_leaf(w, &job->leaf)) {
                job->of = w;
                w->jobs++;
                a->next += i + 1;
                return true;
            }
    }
    return false;
}

/* ---- threads ---- */

/* Make the image rest, and log the failure: no client waits for the unit, so nothing else reports it. A full cache
 * (-EDQUOT, -ENODEV) is no failure. */
static void note_failure(struct ahead *a, struct watched *w, int rc)
{
    char hex[DIGEST_HEX_SIZE];
    uint64_t now_ms = clock_now_ms(), failed;
    {
        SCOPED_LOCK(&a->search);
        if (!error_of_one_thing(rc))
            w->rest_until_ms = now_ms + REST_MS;
        if (rc == -EDQUOT || rc == -ENODEV)
            return;
        failed = ++w->failed;
        if (w->reported_ms && now_ms - w->reported_ms < TELL_MS)
            return;
        w->reported_ms = now_ms;
        w->failed = 0;
    }
    log_warning(
        "image sha256:%s: fetching in the background has failed, %llu times since the last such message: %.300s",
        digest_hex(&w->img->digest, hex), (unsigned long long)failed, error_text());
}

/* Fetch the unit of a job. shared: the watched images do not fit into the cache together. */
static void carry_out(struct ahead *a, const struct job *job)
{
    struct watched *w = job->of;
    bool last, shared = cache_capacity(w->img->config.cache, 0).most < atomic_load(&a->image_bytes);
    int rc = complete_some(w->img, job->leaf, shared);
    if (rc)
        note_failure(a, w, rc);
    {
        SCOPED_LOCK(&a->search);
        last = !--w->jobs && w->removed;
    }
    if (last)
        watched_free(w);
}

/* Sleep until a reader creates work after `wakes` was read, or until again_ms if that is not 0. */
static void wait_for_work(struct ahead *a, uint64_t wakes, uint64_t again_ms)
{
    SCOPED_LOCK(&a->lock);
    atomic_fetch_add(&a->idle, 1);
    bool nothing = !a->stopping && atomic_load(&a->wakes) == wakes;
    const struct timespec until = clock_at_ms(again_ms);
    if (nothing && again_ms)
        pthread_cond_timedwait(&a->work, &a->lock, &until);
    else if (nothing)
        pthread_cond_wait(&a->work, &a->lock);
    atomic_fetch_sub(&a->idle, 1);
}

static bool is_stopping(struct ahead *a)
{
    SCOPED_LOCK(&a->lock);
    return a->stopping;
}

/* `wakes` is read before the search, so that a reader that comes during the search is noticed. */
static void *ahead_run(void *arg)
{
    struct ahead *a = arg;
    pthread_setname_np(pthread_self(), "granary-ahead");
    while (!is_stopping(a)) {
        struct job job;
        uint64_t again_ms, wakes = atomic_load(&a->wakes);
        if (find_job(a, &job, &again_ms))
            carry_out(a, &job);
        else
            wait_for_work(a, wakes, again_ms);
    }
    return NULL;
}

int ahead_start_threads(struct ahead *a)
{
    a->threads = calloc(a->thread_max, sizeof *a->threads);
    if (!a->threads)
        return error_no_memory();
    int rc = 0;
    while (!rc && a->thread_count < a->thread_max) {
        rc = thread_start(&a->threads[a->thread_count], ahead_run, a);
        a->thread_count += !rc;
    }
    return rc ? error_prefix(rc, "image") : 0;
}

/* Units in flight are finished, not aborted. */
void ahead_free(struct ahead *a)
{
    if (!a)
        return;
    {
        SCOPED_LOCK(&a->lock);
        a->stopping = true;
        pthread_cond_broadcast(&a->work);
    }
    while (a->thread_count)
        pthread_join(a->threads[--a->thread_count], NULL);
    pthread_cond_destroy(&a->work);
    pthread_mutex_destroy(&a->lock);
    pthread_mutex_destroy(&a->search);
    for (size_t i = 0; i < a->images.len; i++)
        watched_free(a->images.items[i]);
    vec_release(&a->images);
    free(a->threads);
    free(a);
}

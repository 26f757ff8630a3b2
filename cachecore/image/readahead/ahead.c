/* Each thread takes the leaf with credit of which most was asked, among those it looks at from the hand on, and
 * fetches a unit of it; then the next. Work is found in the leaves' counts alone: there is no queue that could grow.
 *
 * Who looks through leaves holds the search, and no reader waits for that: a wake is a count, which a thread compares
 * with the one before its search once it is known to be idle (both sequentially consistent), so that none is lost.
 *
 * An image whose unit failed rests for a while: the cache has no room, or its store does not answer. A unit with a
 * chunk that is bad or missing is passed over. One that nobody
 * has read for a while is left alone, so that what a job left behind when it ended is not fetched for hours.
 */
#include "image/readahead/ahead.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "image/readahead/complete.h"

enum {
    LOOK_LEAVES = 4096, /* in one search */
    REST_MS = 2000,     /* after a failure */
    TELL_MS = 30000,    /* between two lines of log about one image */
    IDLE_MS = 10000,    /* without a read that missed, or found what was fetched ahead */
};

struct watched {
    struct image *img;      /* a reference */
    uint64_t rest_until_ms; /* under the search, like all below */
    uint64_t hand;
    uint64_t reported_ms, failed; /* when the log last heard of failures; those since then */
    unsigned jobs;                /* in flight */
    bool removed;                 /* goes with the last of them */
};

struct ahead {
    pthread_t *threads;
    unsigned thread_count, thread_max;
    _Atomic uint64_t image_bytes; /* of all images */
    _Atomic unsigned idle;
    _Atomic uint64_t wakes;

    pthread_mutex_t search;       /* held while leaves are looked through */
    VEC(struct watched *) images; /* under the search */
    size_t next;                  /* of them; under the search */

    pthread_mutex_t lock; /* held for a few instructions; innermost */
    pthread_cond_t work;
    bool stopping; /* under the lock */
};

struct job {
    struct watched *of;
    uint64_t leaf;
};

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

static void watched_free(struct watched *w)
{
    if (!w)
        return;
    image_close(w->img);
    free(w);
}

/* For watched_free; NULL: it is not watched, or a job has it. */
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

/* The leaf to go on with, of those from the hand on. false: none has credit. */
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

static bool is_active(const struct watched *w, uint64_t now_ms)
{
    return now_ms < atomic_load_explicit(&w->img->active_ms, memory_order_relaxed) + IDLE_MS;
}

/* Images take turns. *again_ms: when to look again at one that rests; 0: none does. */
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

/* Nobody waits for it, so nobody else would say that it fails. That the cache has no room is no failure. */
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
        "image sha256:%s: fetching in the background what lies beside what is read has failed, %llu times since "
        "this was last said: %.300s",
        digest_hex(&w->img->digest, hex), (unsigned long long)failed, error_text());
}

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

/* Until something was asked since `wakes` were counted, or again_ms, if that is not 0. */
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

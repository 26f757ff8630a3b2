/* The workers: each takes a run, gets it by one ranged get and lands its chunks.
 *
 * A demand get that is silent for longer than 95 in 100 gets of its store is *hedged*: a worker that has nothing else
 * to do asks for the same chunks once more, of the store itself where shared tiers stand in between. Each chunk is
 * landed by the get that brings it first, and fails with the last one that could have brought it (claim); neither get
 * is broken off. hedge.h bounds how many second gets there are. Of the idle workers one watches the time (watched_us),
 * as long as a demand get is silent or work is held back.
 */
#include "fetch/fetch_internal.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "store/read/chunk_read.h"

enum { LOOK_AGAIN_US = 3000000 };

/* The demand get that is late first, if any may be hedged; one worker stays free for what comes. */
static struct hedge_get *next_late_locked(struct fetch *f, uint64_t *due_ms)
{
    return f->busy + 1 < f->config.workers ? hedge_next(&f->hedge, due_ms) : NULL;
}

/* The second get of one that is late. It is silent still, so none of its in-flight fetches is completed. */
static bool take_hedge_locked(struct fetch *f, struct fetch_run *run)
{
    uint64_t due_ms;
    struct hedge_get *get = next_late_locked(f, &due_ms);
    if (!get || clock_now_ms() < due_ms)
        return false;
    const struct fetch_run *late = (const struct fetch_run *)get;
    run->priority = PRIORITY_DEMAND;
    run->second = true;
    run->won = run->answered = false;
    run->in_flight = 0;
    run->n = 0;
    run->store = store_origin(late->store);
    run->of = late->of;
    run->context.deadline_ms = late->context.deadline_ms;
    for (size_t i = 0; i < late->n; i++)
        fetch_add_to_run_locked(run, late->inflights[i]);
    fetch_begin_run_locked(f, run);
    hedge_send(&f->hedge, get);
    counter_add(&f->counters.hedges, 1);
    return true;
}

/* Until when the idle may wait: then work that is held back may go, or a get is late. 0: there is work by now. */
static uint64_t idle_until_locked(struct fetch *f)
{
    uint64_t delayed_us, late_ms;
    if (fetch_next_locked(f, &delayed_us))
        return 0;
    return next_late_locked(f, &late_ms) ? GR_MIN(delayed_us, late_ms * 1000) : delayed_us;
}

/* Whoever has got work wakes the next one, if there is work for him too, or a time that nobody watches. */
static void wake_next_locked(struct fetch *f)
{
    if (idle_until_locked(f) < f->watched_us)
        pthread_cond_signal(&f->work);
}

/* That of whoever has waited for longest, the time in the queue included; that time is counted. */
static uint64_t deadline_locked(const struct fetch_run *run)
{
    uint64_t since_us = run->sent_us;
    for (size_t i = 0; i < run->n; i++)
        if (run->inflights[i]->wanted_us) {
            since_us = GR_MIN(since_us, run->inflights[i]->wanted_us);
            histogram_add(&run->f->queue, run->sent_us - GR_MIN(run->sent_us, run->inflights[i]->wanted_us));
        }
    return since_us / 1000 + run->f->config.timeout_ms;
}

static bool take_locked(struct fetch *f, struct fetch_run *run)
{
    if (!fetch_take_run_locked(f, run) && !take_hedge_locked(f, run))
        return false;
    run->sent_us = clock_now_us();
    if (!run->second)
        run->context.deadline_ms = deadline_locked(run);
    run->context.tries = 0;
    run->context.from = NULL;
    run->context.fresh = false;
    if (run->priority == PRIORITY_DEMAND && !run->second && f->hedge.percent)
        hedge_begin(&f->hedge, &run->get, run->store, run->sent_us / 1000);
    wake_next_locked(f);
    return true;
}

/* Errors that a get of this chunk alone may heal: wrong bytes, or a run that broke. A store that is
 * down or refuses has been tried until its deadline already. */
static bool worth_again(int rc)
{
    return rc == -EBADMSG || rc == -EIO;
}

/* The stored bytes of a compressed chunk, where they are wanted; without memory for them the chunk
 * goes on as if it were stored plain. */
static struct buf *keep_stored(const struct fetch_run *run, size_t i, const void *stored)
{
    const struct chunk_ref *ref = run->refs[i];
    if (!run->f->config.keep_stored || !stored || !(ref->flags & CHUNK_ZSTD))
        return NULL;
    struct buf *copy = buf_new(ref->stored_len);
    if (copy)
        memcpy(copy->data, stored, ref->stored_len);
    return copy;
}

static void note_arrival_locked(struct fetch_run *run, const struct inflight *inflight)
{
    struct fetch *f = run->f;
    fetch_heard_locked(f, run->of);
    const struct concurrency_arrival arrival = {.sent_us = run->sent_us,
                                                .now_us = clock_now_us(),
                                                .bytes = inflight->chunk.stored_len,
                                                .first = !run->answered,
                                                .waiting = fetch_is_full_locked(f)};
    run->answered = true;
    window_arrived(&f->window, &arrival, f->concurrency.base_us, f->in_flight[PRIORITY_WARM],
                   f->in_flight[PRIORITY_READAHEAD]);
    if (concurrency_arrived(&f->concurrency, &arrival))
        pthread_cond_signal(&f->work);
}

/* Is this result of run's the in-flight fetch's? The first good one is, or the last bad one. *out_warm: see on_landed.
 */
static bool fetch_run_claim(struct fetch_run *run, struct inflight *inflight, bool good, bool *out_warm)
{
    SCOPED_LOCK(&run->f->lock);
    inflight->attempts--;
    fetch_landed_locked(run, inflight);
    if (inflight->completed || (!good && inflight->attempts))
        return false;
    inflight->completed = true;
    *out_warm = inflight->warm;
    if (good)
        note_arrival_locked(run, inflight);
    if (run->second && good && !run->won) {
        run->won = true;
        counter_add(&run->f->counters.hedge_wins, 1);
    }
    return true;
}

static void land(struct fetch_run *run, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fetch *f = run->f;
    struct inflight *inflight = run->inflights[i];
    bool warm;
    if (!fetch_run_claim(run, inflight, !rc, &warm)) {
        buf_unref(plain);
        return;
    }
    inflight_note(inflight, run->sent_us, &run->context);
    if (rc) {
        fetch_fail(f, inflight, rc);
        return;
    }
    inflight_land(inflight, 0, plain, keep_stored(run, i, stored));
    if (f->config.on_landed)
        f->config.on_landed(f->config.arg, inflight, warm);
    else
        fetch_retire(f, inflight);
}

/* The get has brought its first chunk, or failed on it. */
static void end_silence(struct fetch_run *run, bool good)
{
    if (!run->get.silent) /* only this thread changes it */
        return;
    SCOPED_LOCK(&run->f->lock);
    hedge_end(&run->f->hedge, &run->get, good, clock_now_ms());
}

/* Another get has brought it, or failed for good. */
static bool is_completed(struct fetch_run *run, const struct inflight *inflight)
{
    SCOPED_LOCK(&run->f->lock);
    return inflight->completed;
}

static void chunk_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fetch_run *run = arg;
    end_silence(run, !rc);
    if (rc == -EBADMSG)
        counter_add(&run->f->counters.verify_failures, 1);
    run->again[i] = worth_again(rc) && clock_now_ms() < run->context.deadline_ms ? rc : 0;
    if (!run->again[i])
        land(run, i, rc, plain, stored);
}

static void count_request(const struct fetch_run *run, const struct chunk_ref *const *refs, size_t n)
{
    struct fetch_counts *c = &run->f->counters;
    uint64_t wanted = 0, asked = (uint64_t)refs[n - 1]->offset + refs[n - 1]->stored_len - refs[0]->offset;
    for (size_t i = 0; i < n; i++)
        wanted += refs[i]->stored_len;
    counter_add(&c->requests, 1);
    counter_add(&c->chunk_bytes, wanted);
    counter_add(&c->bytes, asked);
    counter_add(&c->warm_bytes, run->priority == PRIORITY_WARM ? asked : 0);
}

/* One more get of a chunk alone, over a connection that nothing wrong has come over. */
static int read_again(struct fetch_run *run, size_t i, struct store *store, struct buf **out)
{
    struct fetch *f = run->f;
    struct store_with_context context;
    store_with_context_init(&context, store, &run->context);
    run->context.fresh = true;
    count_request(run, &run->refs[i], 1);
    int rc = chunk_read_one(&context.base, run->refs[i], out);
    if (rc == -EBADMSG)
        counter_add(&f->counters.verify_failures, 1);
    return rc;
}

/* Did a shared tier give what came last? Then there is somebody else to ask. */
static bool came_from_tier(const struct fetch_run *run)
{
    return run->context.from && strcmp(run->context.from, store_origin(run->store)->url);
}

/* What was healed nobody else hears of. What was not is the sentence of whoever waits for the chunk, once. */
static void say_healed(struct fetch_run *run, size_t i, bool of_tier)
{
    const struct chunk_ref *ref = run->refs[i];
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    counter_add(&run->f->counters.healed, 1);
    object_key(ref->kind, &ref->object, key);
    log_limited(&run->f->healed, LOG_LEVEL_WARNING, "%s: chunk %s in %s at %u+%u: %s; asked for once more, it is right",
                run->store->url, digest_hex(&ref->digest, hex), key, ref->offset, ref->stored_len,
                run->again[i] == -EBADMSG ? "wrong bytes" : "the get broke");
    if (run->again[i] == -EBADMSG && of_tier)
        store_report_bad(run->store, key);
}

/* Over another connection, then of the store itself where a tier gave it: the tier may keep wrong bytes. of_tier: it
 * gave those that are asked for again. */
static void fetch_again(struct fetch_run *run, size_t i, bool of_tier)
{
    struct fetch *f = run->f;
    struct buf *plain = NULL;
    counter_add(&f->counters.refetches, 1);
    int rc = read_again(run, i, run->store, &plain);
    if (worth_again(rc) && came_from_tier(run) && clock_now_ms() < run->context.deadline_ms) {
        of_tier = true;
        counter_add(&f->counters.origin_refetches, 1);
        rc = read_again(run, i, store_origin(run->store), &plain);
    }
    if (!rc)
        say_healed(run, i, of_tier);
    land(run, i, rc, plain, NULL); /* stored bytes of so rare a case are not kept */
}

static void carry_out(struct fetch_run *run)
{
    count_request(run, run->refs, run->n);
    /* Each chunk's own result went to chunk_done: the get's adds nothing. */
    struct store_with_context store;
    store_with_context_init(&store, run->store, &run->context);
    (void)chunk_read_run(&store.base, run->refs, run->n, chunk_done, run);
    bool of_tier = came_from_tier(run); /* a get that a tier broke off is the store's */
    histogram_add(of_tier ? &run->f->tier_gets : &run->f->gets, clock_now_us() - run->sent_us);
    end_silence(run, false);
    for (size_t i = 0; i < run->n; i++)
        if (run->again[i] && !is_completed(run, run->inflights[i]))
            fetch_again(run, i, of_tier);
    inflight_unref_all(run->inflights, run->n);
}

/* Until there is work, or the time has come if no other worker waits for that. What was held back a moment ago may go
 * by now: nobody would be woken for it. Every wait ends after LOOK_AGAIN_US: pthread_cond_signal() of glibc before 2.41
 * can be lost (bug 25847), and a store that has fallen silent meanwhile leaves its places to others. */
static void wait_for_work_locked(struct fetch *f)
{
    uint64_t until_us = idle_until_locked(f), again_us = clock_now_us() + LOOK_AGAIN_US;
    if (!until_us)
        return;
    if (!fetch_is_full_locked(f) && f->busy - fetch_shares_locked(f).silent_busy < f->concurrency.limit)
        concurrency_starved(&f->concurrency);
    bool watches = until_us < f->watched_us;
    struct timespec until = clock_at_us(watches ? GR_MIN(until_us, again_us) : again_us);
    if (watches)
        f->watched_us = until_us;
    pthread_cond_timedwait(&f->work, &f->lock, &until);
    if (watches)
        f->watched_us = UINT64_MAX;
}

void *fetch_worker(void *arg)
{
    struct fetch *f = arg;
    struct fetch_run run = {.f = f};
    pthread_setname_np(pthread_self(), "granary-fetch");
    pthread_mutex_lock(&f->lock);
    while (!f->stopping) {
        if (!take_locked(f, &run)) {
            wait_for_work_locked(f);
            continue;
        }
        pthread_mutex_unlock(&f->lock);
        carry_out(&run);
        pthread_mutex_lock(&f->lock);
        fetch_end_run_locked(f, &run);
    }
    pthread_mutex_unlock(&f->lock);
    return NULL;
}

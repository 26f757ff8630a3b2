/* The workers. Each takes a run, sends one ranged GET, and lands each chunk as soon as it is verified.
 *
 *   idle --take_locked--> carry_out: GET ---chunk_done, for each chunk---> land --> on_landed
 *    ^                        |                  |
 *    |                        |                  +-- wrong or broken: fetch_again, one chunk alone
 *    +------------------------+
 *
 * Hedged requests: a demand GET that has delivered nothing for longer than others of its length (hedge.c) is late. An
 * idle worker then requests the same chunks a second time, from the store itself if a shared cache proxy is in between.
 * Each chunk is landed by the GET that delivers it first. It fails only when the last GET for it fails
 * (fetch_run_claim). Neither GET is aborted. hedge.c bounds the number of hedged requests.
 *
 * Timers: an idle worker wakes for the next late GET or the next run that is delayed, unless another one wakes as early
 * (watched_us). All wake after LOOK_AGAIN_US at the latest, or by a signal.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "repository/read/chunk_read.h"

enum { LOOK_AGAIN_US = 3000000 }; /* longest wait of an idle worker */

/* Return the demand GET that is late first, if one may be hedged. One worker always stays free for new demand reads. */
static struct hedge_get *next_late_locked(struct fetch *f, uint64_t *due_ms)
{
    return f->busy + 1 < f->config.workers ? hedge_next(&f->hedge, due_ms) : NULL;
}

/* Prepare the hedged request of a late GET. One that is late with bases of deltas has delivered other chunks, which are
 * left out; a delta is requested again. It keeps the deadline of the first GET. */
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
    run->store = run->bases_store = store_origin(late->store);
    run->of = late->of;
    run->context.deadline_ms = late->context.deadline_ms;
    run->most = f->config.run_max;
    for (size_t i = 0; i < late->n; i++)
        if (!late->inflights[i]->completed)
            fetch_add_to_run_locked(run, late->inflights[i]);
    assert(run->n); /* else the GET would not be silent */
    fetch_begin_run_locked(f, run);
    hedge_send(&f->hedge, get);
    counter_add(&f->counters.hedges, 1);
    return true;
}

/* Return when an idle worker has to look again: a delayed run becomes due, or a GET late. 0: there is work now.
 * UINT64_MAX: only a signal brings work. */
static uint64_t idle_until_locked(struct fetch *f)
{
    uint64_t delayed_us, late_ms;
    if (fetch_next_locked(f, &delayed_us))
        return 0;
    return next_late_locked(f, &late_ms) ? GR_MIN(delayed_us, late_ms * 1000) : delayed_us;
}

/* Return the deadline of a run in ms: timeout_ms after its longest waiter began to wait, which includes the time in the
 * queue. Adds that time to the histogram. */
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

/* Take the next run or hedged request. False: there is none. */
static bool take_locked(struct fetch *f, struct fetch_run *run)
{
    if (!fetch_take_run_locked(f, run) && !take_hedge_locked(f, run))
        return false;
    run->sent_us = run->asked_us = clock_now_us();
    if (!run->second)
        run->context.deadline_ms = deadline_locked(run);
    run->bases_silent = false;
    run->context.tries = 0;
    run->context.from_l2 = 0;
    run->context.from_node = run->context.owner_lacks = false;
    run->base_sender = run->reported = run->wrong_twice = 0;
    *run->context.from = 0;
    run->context.fresh = false;
    if (idle_until_locked(f) < f->watched_us) /* more is runnable, or nobody watches the next timer */
        pthread_cond_signal(&f->work);
    return true;
}

/* May a GET of this chunk alone cure the error? Yes for wrong bytes and for a run that broke off. A store that is down
 * or refuses has already been retried until the deadline. */
static bool worth_again(int rc)
{
    return rc == -EBADMSG || rc == -EIO;
}

/* Return a copy of a compressed chunk's stored bytes if they are to be kept, else NULL. Without memory for the copy,
 * the chunk is treated as if it were stored uncompressed. */
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

/* Feed a delivered chunk of `bytes` to the controls of the load: the store's liveness, the windows and the number of
 * GETs. */
static void note_arrival_locked(struct fetch_run *run, uint32_t bytes)
{
    struct fetch *f = run->f;
    fetch_heard_locked(f, run->of);
    const struct concurrency_arrival arrival = {.sent_us = run->asked_us,
                                                .now_us = clock_now_us(),
                                                .bytes = bytes,
                                                .first = !run->answered || run->bases_silent,
                                                .waiting = fetch_is_full_locked(f)};
    run->answered = true;
    run->bases_silent = false;
    window_arrived(&f->window, &arrival, f->concurrency.base_us, f->in_flight[PRIORITY_WARM],
                   f->in_flight[PRIORITY_READAHEAD]);
    if (concurrency_arrived(&f->concurrency, &arrival))
        pthread_cond_signal(&f->work);
}

/* May `run` land this fetch with its result? The first good result lands it, or the last bad one. *out_warm: see
 * on_landed. */
static bool fetch_run_claim(struct fetch_run *run, struct inflight *inflight, bool good, bool *out_warm)
{
    SCOPED_LOCK(&run->f->lock);
    inflight->attempts--;
    fetch_arrived_locked(run, &inflight->chunk);
    if (inflight->completed || (!good && inflight->attempts))
        return false;
    inflight->completed = true;
    *out_warm = inflight->warm;
    if (good)
        note_arrival_locked(run, inflight->chunk.stored_len);
    if (run->second && good && !run->won) {
        run->won = true;
        counter_add(&run->f->counters.hedge_wins, 1);
    }
    return true;
}

/* Land chunk i with rc or plain; takes over the reference to plain. The result of a GET that came second is dropped. */
static void land(struct fetch_run *run, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fetch *f = run->f;
    struct inflight *inflight = run->inflights[i];
    bool warm;
    if (!fetch_run_claim(run, inflight, !rc, &warm)) {
        buf_unref(plain);
        return;
    }
    inflight_note(inflight, run);
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

/* The GET has delivered its first chunk, or failed: it is not a candidate for hedging any more. */
static void end_silence(struct fetch_run *run, bool good)
{
    if (!run->get.silent) /* only this thread changes it */
        return;
    SCOPED_LOCK(&run->f->lock);
    hedge_end(&run->f->hedge, &run->get, good, clock_now_ms());
}

/* Has another GET delivered the chunk, or failed as the last one? */
static bool is_completed(struct fetch_run *run, const struct inflight *inflight)
{
    SCOPED_LOCK(&run->f->lock);
    return inflight->completed;
}

/* The proxy that has just sent chunk i wrong. What is wrong with a delta shows when its base is there, which may have
 * come from another proxy; so a delta is charged to nobody, and a wrong base to its sender. */
static unsigned sender_of(const struct fetch_run *run, size_t i)
{
    return chunk_is_delta(run->refs[i]) ? run->base_sender : run->context.from_l2;
}

/* Called by the store for each chunk of the run, in order, on this worker. Chunks that are worth a second GET are kept
 * for the end of the run, so that they do not delay the others. */
static void chunk_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fetch_run *run = arg;
    end_silence(run, !rc);
    if (rc == -EBADMSG)
        counter_add(&run->f->counters.verify_failures, 1);
    bool again = worth_again(rc) && !run->f->config.no_again && clock_now_ms() < run->context.deadline_ms;
    run->again[i] = again ? rc : 0;
    run->senders[i] = rc == -EBADMSG ? sender_of(run, i) : 0;
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

/* Say in the header of a GET from proxies which chunks it is for: they may be nodes, which keep chunks. */
static void describe(struct fetch_run *run, struct store *store, const struct chunk_ref *const *refs, size_t n)
{
    run->context.header = NULL;
    if (!store->striped && store_origin(store) == store)
        return;
    memcpy(run->header, CHUNK_LIST_HEADER ": ", sizeof CHUNK_LIST_HEADER + 1);
    chunk_list_encode(refs, n, run->header + sizeof CHUNK_LIST_HEADER + 1);
    run->context.header = run->header;
}

/* A delta's base that is requested once more, with the delta. */
struct base_again {
    struct fetch_run *run;
    struct store *store;
    chunk_read_done *done;
    void *done_arg;
};

static void base_again_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    const struct base_again *a = arg;
    a->run->base_sender = rc == -EBADMSG ? a->run->context.from_l2 : 0;
    a->done(a->done_arg, i, rc, plain, stored);
}

/* A chunk_read_bases. */
static void get_base_again(void *arg, const struct chunk_ref *const *bases, size_t n, chunk_read_done *done,
                           void *done_arg)
{
    struct base_again *a = arg;
    a->done = done;
    a->done_arg = done_arg;
    (void)chunk_read_run(a->store, bases, n, base_again_done, a); /* base_again_done gets the result */
}

/* Read one chunk alone over a new connection: the old one may have delivered the wrong bytes. */
static int read_again(struct fetch_run *run, size_t i, struct store *store, struct buf **out)
{
    struct fetch *f = run->f;
    struct store_with_context context;
    store_with_context_init(&context, store, &run->context);
    run->context.fresh = true;
    describe(run, store, &run->refs[i], 1);
    count_request(run, &run->refs[i], 1);
    run->base_sender = 0;
    struct base_again base = {.run = run, .store = &context.base};
    int rc = chunk_read_one_upon(&context.base, run->refs[i], get_base_again, &base, out);
    if (rc == -EBADMSG)
        counter_add(&f->counters.verify_failures, 1);
    return rc;
}

/* Neighbouring bases that a run requests. */
struct base_get {
    struct fetch_run *run;
    const struct chunk_ref *const *refs;
    const size_t *numbers; /* theirs among the bases that the deltas need */
    chunk_read_done *done;
    void *done_arg;
};

static void note_base(struct fetch_run *run, const struct chunk_ref *ref, bool good)
{
    SCOPED_LOCK(&run->f->lock);
    fetch_arrived_locked(run, ref);
    if (good)
        note_arrival_locked(run, ref->stored_len);
}

static void base_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct base_get *get = arg;
    end_silence(get->run, !rc);
    note_base(get->run, get->refs[i], !rc);
    get->run->base_sender = rc == -EBADMSG ? get->run->context.from_l2 : 0;
    get->done(get->done_arg, get->numbers[i], rc, plain, stored);
}

/* May the run's GET be hedged? */
static bool is_watched(const struct fetch_run *run)
{
    return run->priority == PRIORITY_DEMAND && !run->second && run->f->hedge.percent;
}

/* A GET of n chunks was sent to `store`. One that this node sends on to the origin is compared with others of these,
 * one that another node answers with others that nodes answer. */
static void watch_locked(struct fetch_run *run, struct store *store, bool others, size_t n)
{
    struct fetch *f = run->f;
    const struct store *origin = store_origin(store);
    hedge_begin(&f->hedge, &run->get, others ? store : origin, origin, n, run->asked_us / 1000);
    if (idle_until_locked(f) < f->watched_us) /* as in take_locked */
        pthread_cond_signal(&f->work);
}

/* Note who keeps the run's chunks, and watch its GET. Without the lock: the store looks at the list of nodes, whose
 * last holder closes connections. */
static void watch(struct fetch_run *run)
{
    run->others = !chunk_is_own(run->inflights[0]->store, run->refs[0]);
    if (!is_watched(run))
        return;
    SCOPED_LOCK(&run->f->lock);
    watch_locked(run, run->store, run->others, run->n);
}

/* A GET for n bases begins: it counts in all limits, and is hedged, as if it were a run. But a run is hedged once. */
static void begin_bases(struct fetch_run *run, const struct chunk_ref *const *refs, size_t n)
{
    struct fetch *f = run->f;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += refs[i]->stored_len;
    count_request(run, refs, n);
    describe(run, run->bases_store, refs, n);
    bool others = is_watched(run) && !chunk_is_own(run->bases_store, refs[0]);
    SCOPED_LOCK(&f->lock);
    fetch_begin_bases_locked(run, bytes);
    if (is_watched(run) && !run->get.hedged)
        watch_locked(run, run->bases_store, others, n);
}

/* A chunk_read_bases: what the cache does not have comes by as few GETs as its gaps and the run's limit allow. */
static void get_bases(void *arg, const struct chunk_ref *const *bases, size_t n, chunk_read_done *done, void *done_arg)
{
    struct fetch_run *run = arg;
    const struct fetch_config *config = &run->f->config;
    const struct chunk_ref *refs[FETCH_RUN_CHUNKS_MAX];
    size_t numbers[FETCH_RUN_CHUNKS_MAX], left = 0;
    end_silence(run, false); /* the deltas have come; their total time says nothing about the first chunk */
    run->base_sender = 0;
    for (size_t i = 0; i < n; i++) {
        struct buf *plain =
            config->find_base ? config->find_base(config->arg, run->inflights[0]->store, bases[i]) : NULL;
        if (plain) {
            done(done_arg, i, 0, plain, NULL);
            continue;
        }
        refs[left] = bases[i];
        numbers[left++] = i;
    }
    for (size_t begin = 0, end; begin < left; begin = end) {
        end = chunk_reads_end(refs, begin, left, run->most);
        struct base_get get = {
            .run = run, .refs = &refs[begin], .numbers = &numbers[begin], .done = done, .done_arg = done_arg};
        struct store_with_context store;
        begin_bases(run, get.refs, end - begin);
        store_with_context_init(&store, run->bases_store, &run->context);
        (void)chunk_read_run(&store.base, get.refs, end - begin, base_done, &get); /* base_done gets each result */
    }
}

/* Report the proxy that sent wrong bytes of chunk i; of a delta, of its base. */
static void report(struct fetch_run *run, size_t i, unsigned proxy)
{
    const struct chunk_ref *ref = run->refs[i];
    const struct chunk_ref wrong = chunk_is_delta(ref) ? chunk_base_ref(ref) : *ref;
    char key[OBJECT_KEY_MAX];
    store_report_bad(run->bases_store, proxy, object_key(wrong.kind, &wrong.object, key));
}

/* The same for the run's GET, unless it has been done: an answer counts once. */
static void report_sender(struct fetch_run *run, size_t i)
{
    if (!run->senders[i] || run->senders[i] == run->reported)
        return;
    run->reported = run->senders[i];
    report(run, i, run->reported);
}

/* Log chunks recovered by a refetch; the waiter reports errors. */
static void say_healed(struct fetch_run *run, size_t i)
{
    const struct chunk_ref *ref = run->refs[i];
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    counter_add(&run->f->counters.healed, 1);
    object_key(ref->kind, &ref->object, key);
    log_limited(&run->f->healed, LOG_LEVEL_WARNING, "%s: chunk %s in %s at %u+%u: %s; requested again, it is right",
                run->store->url, digest_hex(&ref->digest, hex), key, ref->offset, ref->stored_len,
                run->again[i] == -EBADMSG ? "wrong bytes" : "the get broke");
}

/* Refetch chunk i over another connection, then from the store itself if a proxy answered again: the proxy may have
 * cached the wrong bytes. A proxy that was wrong twice about another chunk of the run is passed over, but after
 * the deadline the store is not asked. */
static void fetch_again(struct fetch_run *run, size_t i)
{
    struct fetch *f = run->f;
    struct buf *plain = NULL;
    unsigned wrong_again = 0; /* the proxy that was wrong the second time */
    int rc = -EBADMSG;
    const unsigned sender = run->senders[i];
    const bool passed_over = sender && sender == run->wrong_twice && clock_now_ms() < run->context.deadline_ms;
    counter_add(&f->counters.refetches, 1);
    if (!passed_over) {
        rc = read_again(run, i, run->store, &plain);
        wrong_again = rc == -EBADMSG ? sender_of(run, i) : 0;
    }
    if (passed_over || (worth_again(rc) && run->context.from_l2 && clock_now_ms() < run->context.deadline_ms)) {
        counter_add(&f->counters.origin_refetches, 1);
        rc = read_again(run, i, store_origin(run->store), &plain);
    }
    if (!rc) {
        say_healed(run, i);
        report_sender(run, i);
        if (wrong_again)
            report(run, i, run->wrong_twice = wrong_again);
    }
    land(run, i, rc, plain, NULL); /* the stored bytes are not kept: too rare to matter */
}

/* Fetch a run and land all of its chunks. Runs without the lock. */
static void carry_out(struct fetch_run *run)
{
    watch(run);
    count_request(run, run->refs, run->n);
    describe(run, run->store, run->refs, run->n);
    /* chunk_done received the result of each chunk; the result of the GET adds nothing. */
    struct store_with_context store;
    store_with_context_init(&store, run->store, &run->context);
    (void)chunk_read_run_upon(&store.base, run->refs, run->n, get_bases, run, chunk_done, run);
    /* Of a GET that a proxy broke off, the store delivered the rest. */
    histogram_add(run->context.from_l2 ? &run->f->l2_gets : &run->f->gets, clock_now_us() - run->sent_us);
    end_silence(run, false);
    for (size_t i = 0; i < run->n; i++)
        if (run->again[i] && !is_completed(run, run->inflights[i]))
            fetch_again(run, i);
        else if (run->again[i]) /* another GET was right */
            report_sender(run, i);
    inflight_unref_all(run->inflights, run->n);
}

/* Wait for a signal, or for the time of the next timer if no other worker watches it. Returns at once if work that was
 * held back has become runnable, because nobody signals that. Each wait ends after LOOK_AGAIN_US for two reasons:
 * pthread_cond_signal() of glibc before 2.41 can lose a signal (bug 25847), and a store that has fallen silent frees
 * slots without an event. */
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

/* Which run is sent next, and how much may be in flight.
 *
 *   priority    GETs in flight                            bytes in flight (window.c)
 *   demand      concurrency.c's limit                     not limited
 *   readahead   three quarters of it, with warming        window.ahead
 *   warming     three quarters of it, with readahead      window_alone(), or window.beside while clients read
 *
 * One quarter is thus reserved for demand reads, which wait for nothing but other demand reads. The limits in bytes
 * keep background data from filling the link's queue ahead of demand reads.
 *
 * Several stores share the GETs in flight. A GET to a silent store keeps its slot for minutes and cannot be taken back.
 * What counts is how many slots a store holds when it falls silent, and that it gets no more after that.
 *
 *   one store      all slots but a sixteenth of the workers, which stay free for a store that is added later
 *   several        share_allows() (base/share.h): three quarters of the slots at most, and the last slot is reserved
 *                  for a store that has none
 *   not answering  an eighth of the slots: its last GET failed, it has delivered nothing yet, or it is silent
 *   silent         it has GETs in flight and has delivered nothing for silent_ms. Its GETs and bytes are excluded from
 *                  the limits above, for they put no load on the link
 *
 * No event marks the moment a store falls silent. The next search for work notices it; idle workers search every few
 * seconds (fetch_run.c).
 */
#include "fetch/fetch_internal.h"

#include "base/clock.h"
#include "base/share.h"

enum { DEMAND_QUIET_US = 100000 }; /* clients count as reading until this long after the last demand GET */
enum {
    UNPROVEN_PART = 8,     /* a store that does not answer has at most this part of the limit in GETs */
    SOLE_LEAVES_PART = 16, /* a store that is alone leaves this part of the workers to others that may come */
};

/* ---- shares of stores ---- */

static bool is_silent(const struct fetch *f, const struct fetch_store *s, uint64_t now_us)
{
    return s->busy && now_us - GR_MIN(now_us, s->heard_us) >= f->config.silent_ms * 1000;
}

struct fetch_shares fetch_shares_locked(const struct fetch *f)
{
    struct fetch_shares shares = {.limit = f->concurrency.limit, .now_us = clock_now_us()};
    /* With a single store there is no other to protect: its GETs count as they are. */
    for (const struct fetch_store *s = f->stores.count > 1 ? f->busy_stores : NULL; s; s = s->busy_next)
        if (is_silent(f, s, shares.now_us)) {
            shares.silent_busy += s->busy;
            shares.silent_background += s->busy_background;
            for (int priority = 0; priority < PRIORITIES; priority++)
                shares.silent_in_flight[priority] += s->in_flight[priority];
        }
    shares.limit = GR_MIN(shares.limit + shares.silent_busy, f->config.workers);
    shares.free = shares.limit - GR_MIN(shares.limit, f->busy);
    return shares;
}

/* Has the store answered its last GET, and is it not silent? */
static bool is_answering(const struct fetch *f, const struct fetch_shares *shares, const struct fetch_store *s)
{
    return s->answers && !is_silent(f, s, shares->now_us);
}

/* Return three quarters of n, rounded down, but at least 1. */
static unsigned three_quarters(unsigned n)
{
    return n > 1 ? n - (n + 3) / 4 : 1;
}

/* May a GET of the fetch's store be sent now, by that store's share? Background GETs of one store get three quarters of
 * the three quarters that all background has. */
static bool has_place(const struct fetch *f, const struct fetch_shares *shares, const struct inflight *inflight)
{
    const struct fetch_store *s = inflight->of;
    unsigned unproven = GR_MAX(f->concurrency.limit / UNPROVEN_PART, 1u);
    if (f->stores.count == 1)
        return shares->free > 0 && s->busy < f->config.workers - f->config.workers / SOLE_LEAVES_PART;
    if (!is_answering(f, shares, s) && s->busy >= unproven)
        return false;
    return share_allows(s->busy, shares->free) && (inflight->priority == PRIORITY_DEMAND ||
                                                   s->busy_background < three_quarters(three_quarters(shares->limit)));
}

void fetch_heard_locked(struct fetch *f, struct fetch_store *s)
{
    bool first = !s->answers;
    s->answers = true;
    s->heard_us = clock_now_us();
    if (first && f->queued)
        pthread_cond_signal(&f->work); /* its share may be larger now */
}

/* ---- the next run ---- */

/* One evaluation of what may be sent now. */
struct look {
    struct fetch_shares shares;
    uint64_t due_us; /* a run becomes sendable then without another event; UINT64_MAX: none does */
    bool blocked;    /* a store that answers has used up its share of the slots */
};

/* Return the head of the first run of a priority whose store has a free slot, or NULL. Runs of other stores are
 * skipped, not waited for. */
static struct inflight *first_with_place_locked(struct fetch *f, enum fetch_priority priority, struct look *look)
{
    for (struct inflight *inflight = f->queues[priority].first; inflight;
         inflight = fetch_last_of_run(f, inflight)->next) {
        if (has_place(f, &look->shares, inflight))
            return inflight;
        look->blocked |= is_answering(f, &look->shares, inflight->of);
    }
    return NULL;
}

/* Return the maximum bytes of a GET for warming now, or 0 if none may be sent. With 0, look->due_us is set if the
 * reason passes with time: clients are reading, or the previous warming GET was just sent. */
static uint64_t warm_get_locked(const struct fetch *f, struct look *look)
{
    uint64_t beside = f->window.beside.bytes, alone = window_alone(&f->window, f->concurrency.base_us);
    uint64_t now_us = look->shares.now_us,
             in_flight = f->in_flight[PRIORITY_WARM] - look->shares.silent_in_flight[PRIORITY_WARM];
    uint64_t demand_us = f->busy > f->busy_background ? now_us : GR_MIN(f->demand_us, now_us);
    bool quiet = now_us - demand_us >= DEMAND_QUIET_US;
    if (now_us < f->window.due_us) {
        look->due_us = GR_MIN(look->due_us, f->window.due_us);
        return 0;
    }
    if (in_flight < (quiet ? alone : beside))
        return quiet ? (uint64_t)WINDOW_GET_ALONE : GR_MAX(window_get_beside(beside), UINT64_C(1));
    if (!quiet)
        look->due_us = GR_MIN(look->due_us, demand_us + DEMAND_QUIET_US);
    return 0;
}

/* Is queued warming held back by its limit in bytes, not by the number of GETs? */
static bool warming_is_held_locked(const struct fetch *f, struct look *look)
{
    return f->queues[PRIORITY_WARM].first && !warm_get_locked(f, look);
}

/* The same for readahead. */
static bool readahead_is_held_locked(const struct fetch *f, const struct look *look)
{
    return f->in_flight[PRIORITY_READAHEAD] - look->shares.silent_in_flight[PRIORITY_READAHEAD] >=
           f->window.ahead.bytes;
}

/* Do readahead and warming use all GETs that they may have? A silent store's GETs do not count. */
static bool background_is_full_locked(const struct fetch *f, const struct fetch_shares *shares)
{
    return f->busy_background - shares->silent_background >= three_quarters(f->concurrency.limit);
}

static bool priority_is_open_locked(const struct fetch *f, enum fetch_priority priority, struct look *look)
{
    if (priority != PRIORITY_DEMAND && background_is_full_locked(f, &look->shares))
        return false;
    if (priority == PRIORITY_READAHEAD)
        return !readahead_is_held_locked(f, look);
    return priority != PRIORITY_WARM || !warming_is_held_locked(f, look);
}

static struct look look_around_locked(const struct fetch *f)
{
    return (struct look){.shares = fetch_shares_locked(f), .due_us = UINT64_MAX};
}

static struct inflight *next_locked(struct fetch *f, struct look *look)
{
    struct inflight *next = NULL;
    for (enum fetch_priority priority = PRIORITY_DEMAND; look->shares.free && priority < PRIORITIES && !next;
         priority++)
        if (priority_is_open_locked(f, priority, look))
            next = first_with_place_locked(f, priority, look);
    return next;
}

struct inflight *fetch_next_locked(struct fetch *f, uint64_t *due_us)
{
    struct look look = look_around_locked(f);
    struct inflight *next = next_locked(f, &look);
    *due_us = look.due_us;
    return next;
}

/* Work that its limit in bytes holds back is not counted: a higher limit of GETs would not help it. */
bool fetch_is_full_locked(struct fetch *f)
{
    struct look look = look_around_locked(f), again = look;
    bool held = warming_is_held_locked(f, &again);
    bool background = (f->queues[PRIORITY_READAHEAD].first && !readahead_is_held_locked(f, &look)) ||
                      (f->queues[PRIORITY_WARM].first && !held);
    if (!background && !f->queues[PRIORITY_DEMAND].first)
        return false;
    return (background && background_is_full_locked(f, &look.shares)) || !look.shares.free ||
           (!next_locked(f, &look) && look.due_us == UINT64_MAX && look.blocked);
}

/* ---- runs ---- */

void fetch_add_to_run_locked(struct fetch_run *run, struct inflight *inflight)
{
    inflight->attempts++;
    run->inflights[run->n] = inflight_ref(inflight);
    run->chunks[run->n] = inflight->chunk;
    run->refs[run->n] = &run->chunks[run->n];
    run->again[run->n] = 0;
    run->n++;
}

/* Subtract bytes that arrived, or will not arrive, from the bytes in flight. That may allow another GET of the
 * priority. */
static void take_from_flight_locked(struct fetch_run *run, uint64_t bytes)
{
    bytes = GR_MIN(bytes, run->in_flight);
    run->in_flight -= bytes;
    run->of->in_flight[run->priority] -= bytes;
    run->f->in_flight[run->priority] -= bytes;
    if (bytes && run->f->queues[run->priority].first)
        pthread_cond_signal(&run->f->work);
}

void fetch_arrived_locked(struct fetch_run *run, const struct chunk_ref *chunk)
{
    take_from_flight_locked(run, chunk->stored_len);
}

/* Add the bytes of a GET just sent to the bytes in flight. */
static void put_in_flight_locked(struct fetch_run *run, uint64_t bytes)
{
    struct fetch *f = run->f;
    if (run->priority == PRIORITY_DEMAND)
        return;
    run->in_flight += bytes;
    run->of->in_flight[run->priority] += bytes;
    f->in_flight[run->priority] += bytes;
    if (run->priority == PRIORITY_WARM)
        window_sent(&f->window, bytes, f->concurrency.base_us, clock_now_us());
}

void fetch_begin_bases_locked(struct fetch_run *run, uint64_t bytes)
{
    run->asked_us = clock_now_us();
    run->bases_silent = true;
    put_in_flight_locked(run, bytes);
}

void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run)
{
    struct fetch_store *s = run->of;
    bool background = run->priority != PRIORITY_DEMAND;
    uint64_t now_us = clock_now_us();
    f->busy++;
    f->busy_background += background;
    s->busy_background += background;
    if (!s->busy++) {
        s->heard_us = now_us;
        s->busy_prev = NULL;
        s->busy_next = f->busy_stores;
        if (s->busy_next)
            s->busy_next->busy_prev = s;
        f->busy_stores = s;
    }
    if (!background)
        f->demand_us = now_us;
}

/* A GET whose chunks another GET delivered brings no chunk of its own; that says nothing against the store. */
void fetch_end_run_locked(struct fetch *f, struct fetch_run *run)
{
    struct fetch_store *s = run->of;
    bool background = run->priority != PRIORITY_DEMAND;
    take_from_flight_locked(run, run->in_flight);
    f->busy--;
    f->busy_background -= background;
    s->busy_background -= background;
    s->answers &= run->answered || run->second || run->get.hedged;
    if (!--s->busy) {
        *(s->busy_prev ? &s->busy_prev->busy_next : &f->busy_stores) = s->busy_next;
        if (s->busy_next)
            s->busy_next->busy_prev = s->busy_prev;
    }
    if (!background)
        f->demand_us = clock_now_us();
}

bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run)
{
    struct look look = look_around_locked(f);
    struct inflight *inflight = next_locked(f, &look);
    if (!inflight)
        return false;
    run->priority = inflight->priority;
    run->second = run->answered = run->get.hedged = false;
    run->n = 0;
    uint64_t begin = inflight->chunk.offset, end = 0;
    /* Warming takes smaller GETs than others, so that a demand read never waits behind a long one. */
    run->most = run->priority == PRIORITY_WARM ? warm_get_locked(f, &look) : f->config.run_max;
    while (inflight && run->n < FETCH_RUN_CHUNKS_MAX &&
           (!run->n ||
            (fetch_follows(f, run->inflights[0], inflight, end) && fetch_end_of(inflight) - begin <= run->most))) {
        struct inflight *next = inflight->next;
        fetch_dequeue_locked(f, inflight);
        end = fetch_end_of(inflight);
        fetch_add_to_run_locked(run, inflight);
        inflight = next;
    }
    run->bases_store = run->inflights[0]->store;
    run->store = run->bases_store->striped && chunk_is_delta(&run->inflights[0]->chunk) ? store_origin(run->bases_store)
                                                                                        : run->bases_store;
    run->of = run->inflights[0]->of;
    run->in_flight = 0;
    fetch_begin_run_locked(f, run);
    put_in_flight_locked(run, end - begin);
    return true;
}

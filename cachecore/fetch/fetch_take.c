/* Which work is taken next, and how much may be in flight.
 *
 * No more gets are in flight than concurrency.h allows, and of those for readahead and warm together no more than
 * three quarters: a demand read finds a place that is free, or waits for another demand read. What warming may have in
 * flight is counted in bytes (window.h), fewer while anybody reads: they stand before his. How stores share the places:
 * fetch_share.c.
 */
#include "fetch/fetch_internal.h"

#include "base/clock.h"

enum { DEMAND_QUIET_US = 100000 /* somebody reads until nothing was asked for so long */ };

void fetch_add_to_run_locked(struct fetch_run *run, struct inflight *inflight)
{
    inflight->attempts++;
    run->inflights[run->n] = inflight_ref(inflight);
    run->chunks[run->n] = inflight->chunk;
    run->refs[run->n] = &run->chunks[run->n];
    run->again[run->n] = 0;
    run->n++;
}

/* A look for work. */
struct look {
    struct fetch_shares shares;
    uint64_t due_us; /* when to look again; UINT64_MAX: not by itself */
    bool blocked;    /* a store that answers has no place for more */
};

/* The first of a priority's runs that has a place. */
static struct inflight *first_with_place_locked(struct fetch *f, enum fetch_priority priority, struct look *look)
{
    for (struct inflight *inflight = f->queues[priority].first; inflight;
         inflight = fetch_last_of_run(f, inflight)->next) {
        if (fetch_has_place(f, &look->shares, inflight))
            return inflight;
        look->blocked |= fetch_is_answering(f, &look->shares, inflight->of);
    }
    return NULL;
}

/* How long a get for warming may be; 0: none may be sent now. Then, if that is because somebody reads or the last one
 * was just sent, due_us is when to look again. */
static uint64_t warm_get_locked(const struct fetch *f, struct look *look)
{
    uint64_t beside = window_beside(&f->window), alone = window_alone(&f->window, f->concurrency.base_us);
    uint64_t now_us = look->shares.now_us,
             in_flight = f->in_flight[PRIORITY_WARM] - look->shares.silent_in_flight[PRIORITY_WARM];
    uint64_t demand_us = f->busy > f->busy_background ? now_us : GR_MIN(f->demand_us, now_us);
    bool quiet = now_us - demand_us >= DEMAND_QUIET_US;
    if (now_us < window_due_us(&f->window)) {
        look->due_us = GR_MIN(look->due_us, window_due_us(&f->window));
        return 0;
    }
    if (in_flight < (quiet ? alone : beside))
        return quiet ? window_get_alone(alone) : GR_MAX(window_get_beside(beside), UINT64_C(1));
    if (!quiet)
        look->due_us = GR_MIN(look->due_us, demand_us + DEMAND_QUIET_US);
    return 0;
}

/* Does warming wait for its bytes in flight to come, not for a place? */
static bool warming_is_held_locked(const struct fetch *f, struct look *look)
{
    return f->queues[PRIORITY_WARM].first && !warm_get_locked(f, look);
}

/* Does readahead wait for its bytes in flight to come, not for a place? */
static bool readahead_is_held_locked(const struct fetch *f, const struct look *look)
{
    return f->in_flight[PRIORITY_READAHEAD] - look->shares.silent_in_flight[PRIORITY_READAHEAD] >=
           window_ahead(&f->window);
}

static bool background_is_full_locked(const struct fetch *f, const struct fetch_shares *shares)
{
    return f->busy_background - shares->silent_background >= fetch_three_quarters(f->concurrency.limit);
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

static void take_from_flight_locked(struct fetch_run *run, uint64_t bytes)
{
    bytes = GR_MIN(bytes, run->in_flight);
    run->in_flight -= bytes;
    run->of->in_flight[run->priority] -= bytes;
    run->f->in_flight[run->priority] -= bytes;
    if (bytes && run->f->queues[run->priority].first)
        pthread_cond_signal(&run->f->work);
}

void fetch_landed_locked(struct fetch_run *run, const struct inflight *inflight)
{
    take_from_flight_locked(run, inflight->chunk.stored_len);
}

void fetch_end_run_locked(struct fetch *f, struct fetch_run *run)
{
    take_from_flight_locked(run, run->in_flight);
    fetch_end_get_locked(f, run->of, run->priority != PRIORITY_DEMAND, run->answered || run->second || run->get.hedged);
    if (run->priority == PRIORITY_DEMAND)
        f->demand_us = clock_now_us();
}

void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run)
{
    fetch_begin_get_locked(f, run->of, run->priority != PRIORITY_DEMAND);
    if (run->priority == PRIORITY_DEMAND)
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
    uint64_t most = run->priority == PRIORITY_WARM ? warm_get_locked(f, &look) : f->config.run_max;
    while (
        inflight && run->n < FETCH_RUN_CHUNKS_MAX &&
        (!run->n || (fetch_follows(f, run->inflights[0], inflight, end) && fetch_end_of(inflight) - begin <= most))) {
        struct inflight *next = inflight->next;
        fetch_dequeue_locked(f, inflight);
        end = fetch_end_of(inflight);
        fetch_add_to_run_locked(run, inflight);
        inflight = next;
    }
    run->store = run->inflights[0]->store;
    run->of = run->inflights[0]->of;
    run->in_flight = run->priority == PRIORITY_DEMAND ? 0 : end - begin;
    run->of->in_flight[run->priority] += run->in_flight;
    f->in_flight[run->priority] += run->in_flight;
    fetch_begin_run_locked(f, run);
    if (run->priority == PRIORITY_WARM)
        window_sent(&f->window, run->in_flight, f->concurrency.base_us, clock_now_us());
    return true;
}

/* Which work is taken next, and how much may be in the air.
 *
 * No more gets are in the air than concurrency.h allows, and of those for readahead and warm together no more than
 * three quarters: a demand read finds a place that is free, or waits for another demand read. What warming may have in
 * the air is counted in bytes (air.h), fewer while anybody reads: they stand before his. How stores share the places:
 * fetch_share.c.
 */
#include "fetch/fetch_internal.h"

#include "base/clock.h"

enum { DEMAND_QUIET_US = 100000 /* somebody reads until nothing was asked for so long */ };

void fetch_add_to_run_locked(struct fetch_run *run, struct flight *flight)
{
    flight->attempts++;
    run->flights[run->n] = flight_ref(flight);
    run->chunks[run->n] = flight->chunk;
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

/* The first of a lane's runs that has a place. */
static struct flight *first_with_place_locked(struct fetch *f, enum fetch_lane lane, struct look *look)
{
    for (struct flight *flight = f->lanes[lane].first; flight; flight = fetch_last_of_run(f, flight)->next) {
        if (fetch_has_place(f, &look->shares, flight))
            return flight;
        look->blocked |= fetch_is_answering(f, &look->shares, flight->of);
    }
    return NULL;
}

/* How long a get for warming may be; 0: none may be sent now. Then, if that is because somebody reads or the last one
 * was just sent, due_us is when to look again. */
static uint64_t warm_get_locked(const struct fetch *f, struct look *look)
{
    uint64_t beside = air_beside(&f->air), alone = air_alone(&f->air, f->concurrency.base_us);
    uint64_t now_us = look->shares.now_us, in_air = f->in_air[LANE_WARM] - look->shares.silent_in_air[LANE_WARM];
    uint64_t demand_us = f->busy > f->busy_background ? now_us : GR_MIN(f->demand_us, now_us);
    bool quiet = now_us - demand_us >= DEMAND_QUIET_US;
    if (now_us < air_due_us(&f->air)) {
        look->due_us = GR_MIN(look->due_us, air_due_us(&f->air));
        return 0;
    }
    if (in_air < (quiet ? alone : beside))
        return quiet ? air_get_alone(alone) : GR_MAX(air_get_beside(beside), UINT64_C(1));
    if (!quiet)
        look->due_us = GR_MIN(look->due_us, demand_us + DEMAND_QUIET_US);
    return 0;
}

/* Does warming wait for its bytes in the air to come, not for a place? */
static bool warming_is_held_locked(const struct fetch *f, struct look *look)
{
    return f->lanes[LANE_WARM].first && !warm_get_locked(f, look);
}

/* Does readahead wait for its bytes in the air to come, not for a place? */
static bool readahead_is_held_locked(const struct fetch *f, const struct look *look)
{
    return f->in_air[LANE_READAHEAD] - look->shares.silent_in_air[LANE_READAHEAD] >= air_ahead(&f->air);
}

static bool background_is_full_locked(const struct fetch *f, const struct fetch_shares *shares)
{
    return f->busy_background - shares->silent_background >= fetch_three_quarters(f->concurrency.limit);
}

static bool lane_is_open_locked(const struct fetch *f, enum fetch_lane lane, struct look *look)
{
    if (lane != LANE_DEMAND && background_is_full_locked(f, &look->shares))
        return false;
    if (lane == LANE_READAHEAD)
        return !readahead_is_held_locked(f, look);
    return lane != LANE_WARM || !warming_is_held_locked(f, look);
}

static struct look look_around_locked(const struct fetch *f)
{
    return (struct look){.shares = fetch_shares_locked(f), .due_us = UINT64_MAX};
}

static struct flight *next_locked(struct fetch *f, struct look *look)
{
    struct flight *next = NULL;
    for (enum fetch_lane lane = LANE_DEMAND; look->shares.free && lane < LANES && !next; lane++)
        if (lane_is_open_locked(f, lane, look))
            next = first_with_place_locked(f, lane, look);
    return next;
}

struct flight *fetch_next_locked(struct fetch *f, uint64_t *due_us)
{
    struct look look = look_around_locked(f);
    struct flight *next = next_locked(f, &look);
    *due_us = look.due_us;
    return next;
}

bool fetch_is_full_locked(struct fetch *f)
{
    struct look look = look_around_locked(f), again = look;
    bool held = warming_is_held_locked(f, &again);
    bool background =
        (f->lanes[LANE_READAHEAD].first && !readahead_is_held_locked(f, &look)) || (f->lanes[LANE_WARM].first && !held);
    if (!background && !f->lanes[LANE_DEMAND].first)
        return false;
    return (background && background_is_full_locked(f, &look.shares)) || !look.shares.free ||
           (!next_locked(f, &look) && look.due_us == UINT64_MAX && look.blocked);
}

static void take_from_air_locked(struct fetch_run *run, uint64_t bytes)
{
    bytes = GR_MIN(bytes, run->in_air);
    run->in_air -= bytes;
    run->of->in_air[run->lane] -= bytes;
    run->f->in_air[run->lane] -= bytes;
    if (bytes && run->f->lanes[run->lane].first)
        pthread_cond_signal(&run->f->work);
}

void fetch_landed_locked(struct fetch_run *run, const struct flight *flight)
{
    take_from_air_locked(run, flight->chunk.stored_len);
}

void fetch_end_run_locked(struct fetch *f, struct fetch_run *run)
{
    take_from_air_locked(run, run->in_air);
    fetch_end_get_locked(f, run->of, run->lane != LANE_DEMAND, run->answered || run->second || run->get.hedged);
    if (run->lane == LANE_DEMAND)
        f->demand_us = clock_now_us();
}

void fetch_begin_run_locked(struct fetch *f, struct fetch_run *run)
{
    fetch_begin_get_locked(f, run->of, run->lane != LANE_DEMAND);
    if (run->lane == LANE_DEMAND)
        f->demand_us = clock_now_us();
}

bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run)
{
    struct look look = look_around_locked(f);
    struct flight *flight = next_locked(f, &look);
    if (!flight)
        return false;
    run->lane = flight->lane;
    run->second = run->answered = run->get.hedged = false;
    run->n = 0;
    uint64_t begin = flight->chunk.offset, end = 0;
    uint64_t most = run->lane == LANE_WARM ? warm_get_locked(f, &look) : f->config.run_max;
    while (flight && run->n < FETCH_RUN_CHUNKS_MAX &&
           (!run->n || (fetch_follows(f, run->flights[0], flight, end) && fetch_end_of(flight) - begin <= most))) {
        struct flight *next = flight->next;
        fetch_dequeue_locked(f, flight);
        end = fetch_end_of(flight);
        fetch_add_to_run_locked(run, flight);
        flight = next;
    }
    run->store = run->flights[0]->store;
    run->of = run->flights[0]->of;
    run->in_air = run->lane == LANE_DEMAND ? 0 : end - begin;
    run->of->in_air[run->lane] += run->in_air;
    f->in_air[run->lane] += run->in_air;
    fetch_begin_run_locked(f, run);
    if (run->lane == LANE_WARM)
        air_sent(&f->air, run->in_air, f->concurrency.base_us, clock_now_us());
    return true;
}

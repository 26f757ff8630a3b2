/* Which work is taken next, and how much may be in the air.
 *
 * No more gets are in the air than concurrency.h allows, and of those for readahead and warm together no more than
 * three quarters: a demand read finds a place that is free, or waits for another demand read. What warming may have in
 * the air is counted in bytes (air.h), fewer while anybody reads: they stand before his. Of several stores none
 * has more than three quarters of the places, nor the last ones while nothing is in the air for another: gets that wait
 * for a store that is away leave some to those who read from one that is there.
 */
#include "fetch/fetch_internal.h"

#include "base/clock.h"

enum { DEMAND_QUIET_US = 100000 /* somebody reads until nothing was asked for so long */ };

/* ---- places ---- */

static struct fetch_store *find_store_locked(struct fetch *f, const struct store *store)
{
    for (unsigned i = 0; i < f->store_count; i++)
        if (f->stores[i].store == store)
            return &f->stores[i];
    return NULL;
}

void fetch_note_store_locked(struct fetch *f, const struct store *store)
{
    if (f->store_count == FETCH_STORES_MAX || find_store_locked(f, store))
        return;
    f->stores[f->store_count++] = (struct fetch_store){.store = store};
    f->idle_stores++;
}

void fetch_add_to_run_locked(struct fetch_run *run, struct flight *flight)
{
    flight->attempts++;
    run->flights[run->n] = flight_ref(flight);
    run->chunks[run->n] = flight->chunk;
    run->refs[run->n] = &run->chunks[run->n];
    run->again[run->n] = 0;
    run->n++;
}

static unsigned three_quarters(unsigned n)
{
    return n > 1 ? n - (n + 3) / 4 : 1;
}

/* Is there a place for a get of the flight's store? */
static bool has_place_locked(struct fetch *f, const struct flight *flight)
{
    const struct fetch_store *s = f->store_count > 1 ? find_store_locked(f, flight->store) : NULL;
    if (!s)
        return true;
    unsigned limit = f->concurrency.limit, most = three_quarters(limit), others = f->idle_stores - !s->busy;
    return s->busy < most && f->busy + GR_MIN(others, limit / 4) < limit &&
           (flight->lane == LANE_DEMAND || s->busy_background < three_quarters(most));
}

/* The first of a lane's runs that has a place and is not held, and in *due_us when the first of the others is not, if
 * that is sooner. */
static struct flight *first_due_locked(struct fetch *f, enum fetch_lane lane, uint64_t *due_us)
{
    uint64_t now_us = 0;
    for (struct flight *flight = f->lanes[lane].first; flight; flight = fetch_last_of_run(f, flight)->next) {
        if (!has_place_locked(f, flight))
            continue;
        if (!flight->due_us)
            return flight;
        now_us = now_us ? now_us : clock_now_us();
        if (flight->due_us <= now_us)
            return flight;
        *due_us = GR_MIN(*due_us, flight->due_us);
    }
    return NULL;
}

/* How long a get for warming may be; 0: none may be sent now. Then, if that is because somebody reads or the last one
 * was just sent, *due_us is when to look again. */
static uint64_t warm_get_locked(const struct fetch *f, uint64_t *due_us)
{
    uint64_t beside = air_beside(&f->air), alone = air_alone(&f->air, f->concurrency.base_us), now_us = clock_now_us();
    uint64_t demand_us = f->busy > f->busy_background ? now_us : f->demand_us;
    bool quiet = now_us - demand_us >= DEMAND_QUIET_US;
    if (now_us < air_due_us(&f->air)) {
        *due_us = GR_MIN(*due_us, air_due_us(&f->air));
        return 0;
    }
    if (f->in_air[LANE_WARM] < (quiet ? alone : beside))
        return quiet ? air_get_alone(alone) : GR_MAX(air_get_beside(beside), UINT64_C(1));
    if (!quiet)
        *due_us = GR_MIN(*due_us, demand_us + DEMAND_QUIET_US);
    return 0;
}

/* Does warming wait for its bytes in the air to come, not for a place? */
static bool warming_is_held_locked(const struct fetch *f, uint64_t *due_us)
{
    return f->lanes[LANE_WARM].first && !warm_get_locked(f, due_us);
}

/* Does readahead wait for its bytes in the air to come, not for a place? */
static bool readahead_is_held_locked(const struct fetch *f)
{
    return f->in_air[LANE_READAHEAD] >= air_ahead(&f->air);
}

static bool lane_is_open_locked(const struct fetch *f, enum fetch_lane lane, uint64_t *due_us)
{
    if (lane != LANE_DEMAND && f->busy_background >= three_quarters(f->concurrency.limit))
        return false;
    if (lane == LANE_READAHEAD)
        return !readahead_is_held_locked(f);
    return lane != LANE_WARM || !warming_is_held_locked(f, due_us);
}

struct flight *fetch_next_locked(struct fetch *f, uint64_t *due_us)
{
    struct flight *next = NULL;
    *due_us = UINT64_MAX;
    if (f->busy >= f->concurrency.limit)
        return NULL;
    for (enum fetch_lane lane = LANE_DEMAND; lane < LANES && !next; lane++)
        if (lane_is_open_locked(f, lane, due_us))
            next = first_due_locked(f, lane, due_us);
    return next;
}

bool fetch_is_full_locked(struct fetch *f)
{
    uint64_t due_us = UINT64_MAX;
    bool held = warming_is_held_locked(f, &due_us);
    bool background =
        (f->lanes[LANE_READAHEAD].first && !readahead_is_held_locked(f)) || (f->lanes[LANE_WARM].first && !held);
    if (!background && !f->lanes[LANE_DEMAND].first)
        return false;
    return (background && f->busy_background >= three_quarters(f->concurrency.limit)) ||
           (!fetch_next_locked(f, &due_us) && due_us == UINT64_MAX);
}

static void count_get_locked(struct fetch *f, const struct fetch_run *run, unsigned by)
{
    struct fetch_store *s = find_store_locked(f, run->store);
    bool background = run->lane != LANE_DEMAND;
    f->busy += by;
    f->busy_background += background ? by : 0;
    if (!background)
        f->demand_us = clock_now_us();
    if (!s || run->second)
        return;
    f->idle_stores -= !s->busy;
    s->busy += by;
    s->busy_background += background ? by : 0;
    f->idle_stores += !s->busy;
}

static void take_from_air_locked(struct fetch_run *run, uint64_t bytes)
{
    bytes = GR_MIN(bytes, run->in_air);
    run->in_air -= bytes;
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
    count_get_locked(f, run, -1u);
    take_from_air_locked(run, run->in_air);
}

bool fetch_take_run_locked(struct fetch *f, struct fetch_run *run)
{
    uint64_t due_us;
    struct flight *flight = fetch_next_locked(f, &due_us);
    if (!flight)
        return false;
    run->lane = flight->lane;
    run->second = run->answered = false;
    run->n = 0;
    uint64_t begin = flight->chunk.offset, end = 0;
    uint64_t most = run->lane == LANE_WARM ? warm_get_locked(f, &due_us) : f->config.run_max;
    while (flight && run->n < FETCH_RUN_CHUNKS_MAX &&
           (!run->n || (fetch_follows(f, run->flights[0], flight, end) && fetch_end_of(flight) - begin <= most))) {
        struct flight *next = flight->next;
        fetch_dequeue_locked(f, flight);
        end = fetch_end_of(flight);
        fetch_add_to_run_locked(run, flight);
        flight = next;
    }
    run->store = run->flights[0]->store;
    run->in_air = run->lane == LANE_DEMAND ? 0 : end - begin;
    f->in_air[run->lane] += run->in_air;
    count_get_locked(f, run, 1);
    if (run->lane == LANE_WARM)
        air_sent(&f->air, run->in_air, f->concurrency.base_us, clock_now_us());
    return true;
}

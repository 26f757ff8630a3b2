/* A search for the smallest number of GETs that fills the link, by trial and measurement:
 *
 *   RISE   one more for each GET that answers promptly while work waits: the limit doubles in the time of one GET. Ends
 *          when a round delivers less than a tenth more than the round before, with the limit of that round
 *   REST   keep the limit for some rounds and measure what it delivers
 *   UP     try half as many more; kept if that delivers a twentieth more, then tried again at once
 *   DOWN   try a quarter fewer; kept if that delivers as much
 *
 * After a rest, UP and DOWN alternate; when GETs answer late it is always DOWN.
 *
 * A GET answers late if its first chunk takes longer than twice the base latency plus LATE_US. Then its bytes wait in a
 * queue, which more GETs only lengthen. The first chunk is measured, not the whole GET, because GETs differ in length
 * and chunks do not.
 *
 * Far away, a connection delivers little until its congestion window has opened, which takes many round trips, and all
 * must open side by side. So RISE tolerates answers that are FAR_TIMES as late, and does not wait for them alone: it
 * adds a GET for each FAR_BYTES that a round trip delivers. A slow link, which seems far as well, delivers few. First
 * chunks are not counted: those of GETs that were sent together arrive together, however slow the link is.
 *
 * A round lasts a number of answers per slot. GETs that were sent together answer together, and a round that ended
 * within such a wave would measure the cut. If GETs take long, a number of chunks per slot ends the round.
 *
 * A round in which fewer GETs were in flight than allowed is not judged: it says nothing about the limit. One
 * exception: bursts too short for a round, whose GETs wait for a slot and answer promptly, start a RISE.
 */
#include "fetch/fetch_internal.h"

enum {
    ROUND_US = 100000,         /* minimum duration of a round */
    ROUND_WAVES = 2,           /* answers per slot that end a round, */
    ROUND_LONG_US = 3000000,   /* or this long */
    ROUND_CHUNKS = 4,          /* with this many chunks per slot */
    BASE_WINDOW_US = 30000000, /* time window of the base latency's minimum */
    LATE_US = 5000,            /* added to twice the base latency */
    REST_ROUNDS = 3,           /* rounds that are measured before a decision */
    TRY_ROUNDS = 2,            /* rounds of an attempt */
    FAR_TIMES = 2,             /* far away, a GET that is this many times as late still counts as prompt in RISE */
    FAR_BYTES = 128 << 10,     /* and RISE adds a GET for each of these that a round trip delivers */
    TRIP_MOST_US = 300000,     /* no round trip is longer: a base latency beyond it is a slow link's */
    IDLE_US = 1000000,         /* after so long without an arrival or a GET, what is delivered is measured anew */
};

void concurrency_init(struct concurrency *c, unsigned most, uint64_t now_us)
{
    unsigned first = GR_MIN(most, (unsigned)CONCURRENCY_FIRST);
    *c = (struct concurrency){
        .limit = first, .former = first, .most = most, .changed_us = now_us, .window_began_us = now_us};
}

/* Begin a round at now_us; 0: at the first answer that belongs to it. */
static void begin_round(struct concurrency *c, uint64_t now_us)
{
    c->round_began_us = now_us;
    c->bytes = c->latency_sum_us = 0;
    c->arrivals = c->answers = 0;
    c->round_limit = c->limit;
    c->due = ROUND_WAVES * c->limit;
    c->starved = c->waited = false;
}

static void begin_phase(struct concurrency *c, enum concurrency_phase phase)
{
    c->phase = phase;
    c->rate_sum = 0;
    c->rounds = c->crowded_rounds = 0;
}

/* Change the limit. If it differs, the next round counts only GETs that are sent under the new one. */
static void set_limit(struct concurrency *c, unsigned limit, uint64_t now_us)
{
    unsigned least = GR_MIN(c->most, (unsigned)CONCURRENCY_LEAST);
    limit = GR_MIN(GR_MAX(limit, least), c->most);
    if (limit != c->limit)
        c->changed_us = now_us;
    uint64_t began_us = limit == c->limit ? now_us : 0;
    c->limit = limit;
    begin_round(c, began_us);
}

/* Try a limit in the direction of `phase`, remembering the present one and its rate. At either bound there is nothing
 * to try. */
static void attempt(struct concurrency *c, enum concurrency_phase phase, double rate, uint64_t now_us)
{
    unsigned n = c->limit;
    c->former = n;
    c->former_rate = rate;
    set_limit(c, phase == CONCURRENCY_UP ? n + n / 2 : n - n / 4, now_us);
    begin_phase(c, c->limit == n ? CONCURRENCY_REST : phase);
}

/* Return to the former limit: the attempt did not pay. */
static void fall_back(struct concurrency *c, uint64_t now_us)
{
    set_limit(c, c->former, now_us);
    begin_phase(c, CONCURRENCY_REST);
}

/* Return the longest time to a first chunk whose bytes did not wait in a queue. */
static uint64_t late_us(uint64_t base_us)
{
    return 2 * base_us + LATE_US;
}

/* Return the base latency, as far as it can be a round trip. */
static uint64_t trip_us(const struct concurrency *c)
{
    return GR_MIN(c->base_us, (uint64_t)TRIP_MOST_US);
}

/* May a first chunk that took this long raise the limit? A new connection needs several round trips for it, without any
 * queue, and far away that would keep the limit down for many seconds. */
static bool is_prompt(const struct concurrency *c, uint64_t latency_us)
{
    unsigned times = c->base_us >= CONCURRENCY_FAR_US ? FAR_TIMES : 1;
    return latency_us <= times * late_us(trip_us(c));
}

/* Were the GETs of this round late on average? */
static bool is_crowded(const struct concurrency *c)
{
    return c->answers && c->latency_sum_us / c->answers > late_us(c->base_us);
}

/* End a round of RISE, in which prompt answers have raised the limit. */
static void judge_rise(struct concurrency *c, double rate, uint64_t now_us)
{
    if (rate < c->former_rate * 1.1) {
        fall_back(c, now_us);
        return;
    }
    bool grew = c->limit > c->former || c->former_rate <= 0;
    c->former = c->limit;
    c->former_rate = rate;
    if (!grew)
        set_limit(c, c->limit + c->limit / 2, now_us); /* more arrives although late: go on, in steps */
    if (c->former == c->most)
        begin_phase(c, CONCURRENCY_REST);
}

/* Decide after enough rounds of a phase: their mean rate, and whether most were late. */
static void concurrency_judge(struct concurrency *c, double rate, bool crowded, uint64_t now_us)
{
    switch (c->phase) {
    case CONCURRENCY_RISE:
        judge_rise(c, rate, now_us);
        break;
    case CONCURRENCY_REST:
        c->down_next |= crowded;
        attempt(c, c->down_next ? CONCURRENCY_DOWN : CONCURRENCY_UP, rate, now_us);
        c->down_next = !c->down_next;
        break;
    case CONCURRENCY_UP:
        if (rate > c->former_rate * 1.05)
            attempt(c, CONCURRENCY_UP, rate, now_us);
        else
            fall_back(c, now_us);
        break;
    case CONCURRENCY_DOWN:
        if (rate < c->former_rate * 0.99)
            fall_back(c, now_us);
        else if (crowded)
            attempt(c, CONCURRENCY_DOWN, GR_MAX(rate, c->former_rate), now_us);
        else
            begin_phase(c, CONCURRENCY_REST);
        break;
    }
}

/* End a round that did not use its limit: give up what was being tried. */
static void end_starved(struct concurrency *c, uint64_t now_us)
{
    bool bursts = c->waited && !is_crowded(c);
    if (c->phase == CONCURRENCY_UP || c->phase == CONCURRENCY_DOWN)
        fall_back(c, now_us);
    else if (c->phase == CONCURRENCY_REST && bursts)
        begin_phase(c, CONCURRENCY_RISE);
    if (c->phase == CONCURRENCY_RISE)
        c->former_rate = 0;
    begin_round(c, now_us);
}

/* Judge the round just ended, once its phase has enough of them. */
static void end_round(struct concurrency *c, uint64_t now_us)
{
    static const unsigned needed[] = {[CONCURRENCY_RISE] = 1,
                                      [CONCURRENCY_REST] = REST_ROUNDS,
                                      [CONCURRENCY_UP] = TRY_ROUNDS,
                                      [CONCURRENCY_DOWN] = TRY_ROUNDS};
    if (c->starved) {
        end_starved(c, now_us);
        return;
    }
    c->rate_sum += (double)c->bytes * 1000 / (double)(now_us - c->round_began_us);
    c->crowded_rounds += is_crowded(c);
    c->rounds++;
    double rate = c->rate_sum / c->rounds;
    bool crowded = 2 * c->crowded_rounds > c->rounds, enough = c->rounds >= needed[c->phase];
    begin_round(c, now_us);
    if (enough) {
        concurrency_judge(c, rate, crowded, now_us);
        if (c->phase == CONCURRENCY_RISE)
            begin_phase(c, CONCURRENCY_RISE);
    }
}

/* Keep the minimum of the current time window and of the one before, so that a route that became slower is noticed. */
static void note_base(struct concurrency *c, uint64_t latency_us, uint64_t now_us)
{
    if (now_us - c->window_began_us > BASE_WINDOW_US) {
        c->base_us = c->window_least_us;
        c->window_least_us = 0;
        c->window_began_us = now_us;
    }
    if (!c->window_least_us || latency_us < c->window_least_us)
        c->window_least_us = latency_us;
    if (!c->base_us || latency_us < c->base_us)
        c->base_us = latency_us;
}

static void note_arrival(struct concurrency *c, const struct concurrency_arrival *a)
{
    uint64_t latency_us = a->now_us - a->sent_us;
    c->arrivals++;
    c->bytes += a->bytes;
    c->waited |= a->waiting;
    if (!a->first)
        return;
    c->answers++;
    c->latency_sum_us += latency_us;
    if (c->phase == CONCURRENCY_RISE && a->waiting && is_prompt(c, latency_us))
        c->limit = GR_MIN(c->limit + 1, c->most);
}

/* Raise the limit to what a round trip has delivered since work began, if the store is far away and work waits. */
static void note_delivery(struct concurrency *c, const struct concurrency_arrival *a)
{
    const uint64_t trip = trip_us(c);
    if (!c->busy_since_us || a->sent_us > c->heard_us + IDLE_US) {
        c->busy_since_us = a->now_us;
        c->busy_bytes = 0;
    }
    c->heard_us = a->now_us;
    c->busy_bytes += a->first ? 0 : a->bytes;
    uint64_t took_us = a->now_us - c->busy_since_us;
    if (c->phase != CONCURRENCY_RISE || !a->waiting || trip < CONCURRENCY_FAR_US || took_us < trip)
        return;
    uint64_t limit = CONCURRENCY_FIRST + c->busy_bytes * trip / took_us / FAR_BYTES;
    if (limit > c->limit)
        c->limit = (unsigned)GR_MIN(limit, (uint64_t)c->most);
}

bool concurrency_arrived(struct concurrency *c, const struct concurrency_arrival *a)
{
    unsigned before = c->limit;
    if (a->first)
        note_base(c, a->now_us - a->sent_us, a->now_us);
    note_delivery(c, a);
    if (!c->round_began_us) {
        if (a->first && a->sent_us >= c->changed_us)
            begin_round(c, a->now_us);
        return c->limit != before;
    }
    note_arrival(c, a);
    uint64_t took_us = a->now_us - c->round_began_us;
    if (a->first && c->answers == c->due && took_us < ROUND_US)
        c->due += c->round_limit; /* a fast link: one more wave, so that the round is long enough to measure */
    if (c->answers >= c->due || (took_us >= ROUND_LONG_US && c->arrivals >= ROUND_CHUNKS * c->round_limit))
        end_round(c, a->now_us);
    return c->limit != before;
}

/* The round is marked, not ended: answers that are under way still belong to it. */
void concurrency_starved(struct concurrency *c)
{
    c->starved = true;
}

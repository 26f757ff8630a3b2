/* RISE    one more for each get that answers promptly while work waits, so that the limit doubles in the time of one
 *         get; until a round delivers less than a tenth more than the one before: back to what that one had
 * REST    keep it for some rounds, see what it delivers
 * UP      half as many again: kept when it delivers a twentieth more, and tried again at once
 * DOWN    a quarter fewer: kept when it delivers as much
 *
 * UP and DOWN take turns after a rest; where gets answer late it is always DOWN. A get answers late when its first
 * chunk takes twice as long as the quickest lately, and LATE_US: then its bytes stand in a queue, and more gets only
 * lengthen it. The time of the first chunk is compared, not of the get: gets are of many lengths, chunks of one.
 *
 * A round is so many answers for each place: gets that were sent together answer together, and a round that cut such a
 * wave in two would measure the cut; where gets are long, so many chunks will do. Rounds in which fewer gets were in
 * flight than the limit allows say nothing about it and are not judged; but bursts too short for a round, whose gets
 * wait for a place and answer promptly, make it rise.
 */
#include "fetch/concurrency.h"

#include "base/compiler.h"

enum {
    ROUND_US = 100000, /* at least, and */
    ROUND_WAVES = 2,   /* answers for each place; or */
    ROUND_LONG_US = 3000000,
    ROUND_CHUNKS = 4, /* and chunks for each place */
    BASE_WINDOW_US = 30000000,
    LATE_US = 5000,
    REST_ROUNDS = 3,
    TRY_ROUNDS = 2,
};

void concurrency_init(struct concurrency *c, unsigned most, uint64_t now_us)
{
    unsigned first = GR_MIN(most, (unsigned)CONCURRENCY_FIRST);
    *c = (struct concurrency){
        .limit = first, .former = first, .most = most, .changed_us = now_us, .window_began_us = now_us};
}

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

/* What is measured from now on belongs to gets sent under this limit. */
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

static void attempt(struct concurrency *c, enum concurrency_phase phase, double rate, uint64_t now_us)
{
    unsigned n = c->limit;
    c->former = n;
    c->former_rate = rate;
    set_limit(c, phase == CONCURRENCY_UP ? n + n / 2 : n - n / 4, now_us);
    begin_phase(c, c->limit == n ? CONCURRENCY_REST : phase);
}

static void fall_back(struct concurrency *c, uint64_t now_us)
{
    set_limit(c, c->former, now_us);
    begin_phase(c, CONCURRENCY_REST);
}

static bool is_late(const struct concurrency *c, uint64_t latency_us)
{
    return latency_us > 2 * c->base_us + LATE_US;
}

static bool is_crowded(const struct concurrency *c)
{
    return c->answers && is_late(c, c->latency_sum_us / c->answers);
}

/* A round of RISE: its limit grew meanwhile, by its gets. */
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
        set_limit(c, c->limit + c->limit / 2, now_us); /* more comes, though late */
    if (c->former == c->most)
        begin_phase(c, CONCURRENCY_REST);
}

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

/* It says nothing of the limit: what was being tried is given up. */
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
    if (c->phase == CONCURRENCY_RISE && a->waiting && !is_late(c, latency_us))
        c->limit = GR_MIN(c->limit + 1, c->most);
}

bool concurrency_arrived(struct concurrency *c, const struct concurrency_arrival *a)
{
    unsigned before = c->limit;
    if (a->first)
        note_base(c, a->now_us - a->sent_us, a->now_us);
    if (!c->round_began_us) {
        if (a->first && a->sent_us >= c->changed_us)
            begin_round(c, a->now_us);
        return false;
    }
    note_arrival(c, a);
    uint64_t took_us = a->now_us - c->round_began_us;
    if (a->first && c->answers == c->due && took_us < ROUND_US)
        c->due += c->round_limit;
    if (c->answers >= c->due || (took_us >= ROUND_LONG_US && c->arrivals >= ROUND_CHUNKS * c->round_limit))
        end_round(c, a->now_us);
    return c->limit != before;
}

void concurrency_starved(struct concurrency *c)
{
    c->starved = true;
}

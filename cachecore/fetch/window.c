/* The link's rate is the highest that a round of ROUND_US brought, forgotten slowly.
 *
 * What is asked for is not all on the link: the windows of new connections are small at the other end. So the window
 * while nobody reads is more than twice of what a full link has under way.
 *
 * Gets for warming are spread, far from the store, by little less time than the link takes for their bytes: the windows
 * of connections there are wide, each answer begins with a whole one, and many at once overflow the link's queue. What
 * is lost so takes seconds to come back. Nearer, windows are small. No wait is long: a store that was slow for a while
 * has taken the rate down.
 *
 * The windows beside readers follow the delay of gets (as LEDBAT, RFC 6817): each grows by a quarter at most while the
 * quickest of a round's answers is later than the base by less than late_us(), and shrinks by a quarter at most where
 * it is later. The quickest, because a store's own answers scatter, and a queue delays every one. That of warming is
 * never more than fills the link with a queue of late_us(), for what comes in bursts, with pauses between; nor less
 * than a quarter of what fills the link: warming goes on. Readahead may delay gets by more: what it brings is read
 * soon, and a link that is full stays full with a queue alone.
 */
#include "fetch/window.h"

#include "base/compiler.h"

#define MIB (UINT64_C(1) << 20)
#define SPREAD 1.5          /* times the link's rate, which may prove higher, is asked for */
#define RATE_FIRST 125000.0 /* until more is known: 1 Gbit/s */

enum {
    ROUND_US = 100000,
    FORGET = 16,      /* a round that brought less takes the rate down by so small a part of the difference */
    ALONE_TIMES = 8,  /* what is under way on a full link */
    PARTS_ALONE = 32, /* gets that share a window */
    PARTS_BESIDE = 4,
    ROUND_ANSWERS = 8,
    BESIDE_LATE_SHARE = 8, /* of the base, and */
    AHEAD_LATE_SHARE = 2,  /* or */
    LATE_US = 1000,
    LATE_MOST_US = 25000,
    GAIN = 4,
    FAR_US = 50000,
    SPREAD_MOST_US = 1000000,
};

static const uint64_t ALONE_FIRST = 32 * MIB, ALONE_LEAST = 16 * MIB, ALONE_MOST = 128 * MIB;
static const uint64_t BESIDE_FIRST = MIB / 2, BESIDE_LEAST = MIB / 4, GET_ALONE_LEAST = 2 * MIB;
static const uint64_t AHEAD_LEAST = MIB, AHEAD_MOST = 64 * MIB;

/* What the link carries in a round trip. */
static double under_way(const struct window *a, uint64_t base_us)
{
    return a->rate * (double)base_us / 1000;
}

void window_init(struct window *a)
{
    *a = (struct window){.rate = RATE_FIRST, .beside.bytes = BESIDE_FIRST, .ahead.bytes = AHEAD_LEAST};
}

/* Has nothing come for long because nothing was asked for? Else the link has taken so long. */
static bool has_paused(const struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us)
{
    return arrival->now_us - a->round_began_us > 2 * (ROUND_US + base_us) &&
           arrival->sent_us > a->round_began_us + ROUND_US;
}

static void note_rate(struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us)
{
    uint64_t took_us = arrival->now_us - a->round_began_us;
    if (!a->round_began_us || has_paused(a, arrival, base_us)) {
        a->round_began_us = arrival->now_us;
        a->round_bytes = 0;
        return;
    }
    a->round_bytes += arrival->bytes;
    if (took_us < GR_MAX((uint64_t)ROUND_US, base_us))
        return;
    double rate = (double)a->round_bytes * 1000 / (double)took_us;
    a->rate = rate > a->rate ? rate : a->rate - (a->rate - rate) / FORGET;
    a->round_began_us = arrival->now_us;
    a->round_bytes = 0;
}

static double late_us(uint64_t base_us, unsigned share)
{
    return GR_MIN((double)base_us / share + LATE_US, (double)LATE_MOST_US);
}

/* The quickest answer of a round was delay_us later than the base; by `late` it may be. */
static void window_judge(struct window_limit *w, double delay_us, double late_us, double least, double most)
{
    double off = GR_MAX((late_us - delay_us) / late_us, -1.0);
    if (off <= 0 || w->used)
        w->bytes = (uint64_t)GR_MAX(GR_MIN((double)w->bytes * (1 + off / GAIN), most), least);
    w->used = false;
}

static void judge_both(struct window *a, uint64_t base_us)
{
    double delay = (double)(a->least_us - GR_MIN(a->least_us, base_us)), full = under_way(a, base_us);
    double late = late_us(base_us, BESIDE_LATE_SHARE), most = full * (1 + late / (double)base_us);
    window_judge(&a->beside, delay, late, GR_MAX(full / GAIN, (double)BESIDE_LEAST), most);
    window_judge(&a->ahead, delay, late_us(base_us, AHEAD_LATE_SHARE), (double)AHEAD_LEAST, (double)AHEAD_MOST);
}

void window_arrived(struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes,
                    uint64_t ahead_bytes)
{
    uint64_t latency_us = arrival->now_us - arrival->sent_us;
    note_rate(a, arrival, base_us);
    a->beside.used |= warm_bytes >= a->beside.bytes / 2;
    a->ahead.used |= ahead_bytes >= a->ahead.bytes / 2;
    if (!arrival->first || !base_us)
        return;
    if (!a->answers || latency_us < a->least_us)
        a->least_us = latency_us;
    if (!a->answers++)
        a->answers_began_us = arrival->now_us;
    if (a->answers < ROUND_ANSWERS || arrival->now_us - a->answers_began_us < base_us)
        return;
    judge_both(a, base_us);
    a->answers = 0;
}

uint64_t window_alone(const struct window *a, uint64_t base_us)
{
    if (!base_us)
        return ALONE_FIRST;
    double window = ALONE_TIMES * under_way(a, base_us);
    return (uint64_t)GR_MIN(GR_MAX(window, (double)ALONE_LEAST), (double)ALONE_MOST);
}

uint64_t window_beside(const struct window *a)
{
    return a->beside.bytes;
}

uint64_t window_ahead(const struct window *a)
{
    return a->ahead.bytes;
}

void window_sent(struct window *a, uint64_t bytes, uint64_t base_us, uint64_t now_us)
{
    double spread_us = (double)bytes * 1000 / (SPREAD * a->rate);
    if (base_us >= FAR_US)
        a->due_us = now_us + (uint64_t)GR_MIN(spread_us, (double)SPREAD_MOST_US);
}

uint64_t window_due_us(const struct window *a)
{
    return a->due_us;
}

uint64_t window_get_alone(uint64_t window)
{
    return GR_MAX(window / PARTS_ALONE, GET_ALONE_LEAST);
}

uint64_t window_get_beside(uint64_t window)
{
    return window / PARTS_BESIDE;
}

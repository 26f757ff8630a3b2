/* Rate: the link's rate is the highest that a round of ROUND_US delivered; slower rounds lower it slowly.
 *
 * Window while no client reads: not all requested bytes are on the link, because the congestion windows of new
 * connections start small. So this window is ALONE_TIMES what a full link carries in a round trip.
 *
 * Spreading: if the store is far away, the GETs of warming are spaced. Far connections have wide congestion windows.
 * Each answer starts with a whole window, and many such bursts at once overflow the link's queue; then all connections
 * lose at once, and recovery takes seconds. While the queue is empty, a little more is requested than the link carries,
 * since its rate may be higher than measured; the longer the queue, the less, down to the rate itself once the fastest
 * of the last few answers was as late as late_us() tolerates. Never less: the rate is measured by what arrives, and an
 * answer may be late without a queue of warming's own. It must be little, since what is requested now arrives a round
 * trip later. Near connections have small windows and need no spacing. The spacing is bounded by SPREAD_MOST_US, since
 * a store that was slow for a while has lowered the rate.
 *
 * Windows while clients read, and of readahead: controlled by the delay of GETs, as in LEDBAT (RFC 6817). A window
 * grows by at most a quarter while the fastest answer of a round exceeds the base latency by less than late_us(), and
 * shrinks by at most a quarter otherwise. The fastest counts because a store's answers vary, whereas a queue delays
 * every one of them.
 *
 *   warming     at most what fills the link plus a queue of late_us(), for sources that burst and pause; at least a
 *               quarter of what fills the link, so that warming makes progress
 *   readahead   may delay GETs more: its data is read soon, and only a queue keeps a full link full
 */
#include "fetch/fetch_internal.h"

#define MIB (UINT64_C(1) << 20)
#define SPREAD 1.05         /* GETs are spaced for this multiple of the rate while the link has no queue, */
#define SPREAD_LEAST 1.0    /* and for this one while it is long: less would lower the rate itself, on and on */
#define RATE_FIRST 125000.0 /* bytes per ms until the first measurement: 1 Gbit/s */

enum {
    ROUND_US = 100000,        /* minimum duration of a round of the rate */
    FORGET = 16,              /* a slower round lowers the rate by this fraction of the difference */
    ALONE_TIMES = 8,          /* multiple of what a full link carries in a round trip */
    PARTS_BESIDE = 4,         /* GETs that share the window while clients read */
    ROUND_ANSWERS = 8,        /* answers of a round of the windows, and between two looks at the queue */
    BESIDE_LATE_SHARE = 8,    /* tolerated delay: this fraction of the base latency, */
    AHEAD_LATE_SHARE = 2,     /* or this one for readahead, */
    LATE_US = 1000,           /* plus this, */
    LATE_MOST_US = 25000,     /* but at most this */
    GAIN = 4,                 /* a round changes a window by at most 1/GAIN */
    SPREAD_MOST_US = 1000000, /* longest pause between two GETs of warming */
};

static const uint64_t ALONE_FIRST = 64 * MIB, ALONE_LEAST = 16 * MIB, ALONE_MOST = 128 * MIB;
static const uint64_t BESIDE_FIRST = MIB / 2, BESIDE_LEAST = MIB / 4;
static const uint64_t AHEAD_LEAST = MIB, AHEAD_MOST = 64 * MIB;

/* Return the bytes that a full link carries in a round trip. */
static double under_way(const struct window *a, uint64_t base_us)
{
    return a->rate * (double)base_us / 1000;
}

void window_init(struct window *a)
{
    *a = (struct window){.rate = RATE_FIRST, .beside.bytes = BESIDE_FIRST, .ahead.bytes = AHEAD_LEAST};
}

/* Did nothing arrive for long because nothing was requested? If so, the gap says nothing about the link's rate. */
static bool has_paused(const struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us)
{
    return arrival->now_us - a->round_began_us > 2 * (ROUND_US + base_us) &&
           arrival->sent_us > a->round_began_us + ROUND_US;
}

/* Add an arrival to the round of the rate; at its end update the rate. */
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

/* Return the tolerated delay of GETs. */
static double late_us(uint64_t base_us, unsigned share)
{
    return GR_MIN((double)base_us / share + LATE_US, (double)LATE_MOST_US);
}

/* Adjust a limit after a round whose fastest answer exceeded the base latency by delay_us, of late_us tolerated. An
 * unused limit may shrink but not grow: the round did not test it. */
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

/* Measure the link's queue. Not over a round trip, as the windows do: then it would be full before it was noticed. */
static void note_queue(struct window *a, uint64_t latency_us, uint64_t base_us)
{
    if (!a->recent || latency_us < a->recent_least_us)
        a->recent_least_us = latency_us;
    if (++a->recent < ROUND_ANSWERS)
        return;
    a->queued_us = a->recent_least_us - GR_MIN(a->recent_least_us, base_us);
    a->recent = 0;
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
    note_queue(a, latency_us, base_us);
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

void window_sent(struct window *a, uint64_t bytes, uint64_t base_us, uint64_t now_us)
{
    if (base_us < CONCURRENCY_FAR_US)
        return;
    double late = GR_MIN((double)a->queued_us / late_us(base_us, BESIDE_LATE_SHARE), 1.0);
    double spread_us = (double)bytes * 1000 / ((SPREAD - late * (SPREAD - SPREAD_LEAST)) * a->rate);
    a->due_us = now_us + (uint64_t)GR_MIN(spread_us, (double)SPREAD_MOST_US);
}

uint64_t window_get_beside(uint64_t window)
{
    return window / PARTS_BESIDE;
}

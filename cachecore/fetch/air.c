/* The link's rate is the highest that a round of ROUND_US brought, forgotten slowly.
 *
 * What is asked for is not all on the link: the windows of new connections are small at the other end. So the window
 * while nobody reads is more than twice of what a full link has under way.
 *
 * The window beside readers follows the delay of gets (as LEDBAT, RFC 6817): it grows by a quarter at most while the
 * quickest of a round's answers is later than the base by less than late_us(), and shrinks by a quarter at most where
 * it is later. The quickest, because a store's own answers scatter, and a queue delays every one. It is never
 * more than fills the link with a queue of late_us(), for what comes in bursts, with pauses between; nor
 * less than a quarter of what fills the link: warming goes on.
 */
#include "fetch/air.h"

#include "base/compiler.h"

#define MIB (UINT64_C(1) << 20)
#define RATE_FIRST 125000.0 /* until more is known: 1 Gbit/s */

enum {
    ROUND_US = 100000,
    FORGET = 16,      /* a round that brought less takes the rate down by so small a part of the difference */
    ALONE_TIMES = 8,  /* what is under way on a full link */
    PARTS_ALONE = 32, /* gets that share a window */
    PARTS_BESIDE = 4,
    ROUND_ANSWERS = 8,
    LATE_SHARE = 8, /* of the base, and */
    LATE_US = 1000,
    LATE_MOST_US = 25000,
    GAIN = 4,
};

static const uint64_t ALONE_FIRST = 32 * MIB, ALONE_LEAST = 16 * MIB, ALONE_MOST = 128 * MIB;
static const uint64_t BESIDE_FIRST = MIB / 2, BESIDE_LEAST = MIB / 4, GET_ALONE_LEAST = 2 * MIB;

/* What the link carries in a round trip. */
static double under_way(const struct air *a, uint64_t base_us)
{
    return a->rate * (double)base_us / 1000;
}

void air_init(struct air *a)
{
    *a = (struct air){.rate = RATE_FIRST, .beside = BESIDE_FIRST};
}

/* Has nothing come for long because nothing was asked for? Else the link has taken so long. */
static bool has_paused(const struct air *a, const struct concurrency_arrival *arrival, uint64_t base_us)
{
    return arrival->now_us - a->round_began_us > 2 * (ROUND_US + base_us) &&
           arrival->sent_us > a->round_began_us + ROUND_US;
}

static void note_rate(struct air *a, const struct concurrency_arrival *arrival, uint64_t base_us)
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

static uint64_t late_us(uint64_t base_us)
{
    return GR_MIN(base_us / LATE_SHARE + LATE_US, (uint64_t)LATE_MOST_US);
}

/* The quickest answer of a round was delay_us later than the base. */
static void judge(struct air *a, uint64_t delay_us, uint64_t base_us)
{
    double late = (double)late_us(base_us), off = (late - (double)delay_us) / late;
    off = GR_MAX(off, -1.0);
    if (off > 0 && !a->used)
        return;
    double full = under_way(a, base_us), least = GR_MAX(full / GAIN, (double)BESIDE_LEAST);
    double most = full * (1 + late / (double)base_us);
    a->beside = (uint64_t)GR_MAX(GR_MIN((double)a->beside * (1 + off / GAIN), most), least);
}

void air_arrived(struct air *a, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes)
{
    uint64_t latency_us = arrival->now_us - arrival->sent_us;
    note_rate(a, arrival, base_us);
    a->used |= warm_bytes >= a->beside / 2;
    if (!arrival->first || !base_us)
        return;
    if (!a->answers || latency_us < a->least_us)
        a->least_us = latency_us;
    if (!a->answers++)
        a->answers_began_us = arrival->now_us;
    if (a->answers < ROUND_ANSWERS || arrival->now_us - a->answers_began_us < base_us)
        return;
    judge(a, a->least_us - GR_MIN(a->least_us, base_us), base_us);
    a->answers = 0;
    a->used = false;
}

uint64_t air_alone(const struct air *a, uint64_t base_us)
{
    if (!base_us)
        return ALONE_FIRST;
    double window = ALONE_TIMES * under_way(a, base_us);
    return (uint64_t)GR_MIN(GR_MAX(window, (double)ALONE_LEAST), (double)ALONE_MOST);
}

uint64_t air_beside(const struct air *a)
{
    return a->beside;
}

uint64_t air_get_alone(uint64_t window)
{
    return GR_MAX(window / PARTS_ALONE, GET_ALONE_LEAST);
}

uint64_t air_get_beside(uint64_t window)
{
    return window / PARTS_BESIDE;
}

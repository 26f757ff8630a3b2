/* How many GETs may be in flight: as many as fill the link, and few more. The limit grows while more GETs deliver more,
 * and shrinks when GETs answer late and fewer of them deliver as much.
 *
 * Pure arithmetic: no lock, no clock, no thread. The caller measures, and serializes the calls.
 */
#ifndef GRANARY_FETCH_CONCURRENCY_H
#define GRANARY_FETCH_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CONCURRENCY_FIRST = 16, /* initial limit */
    CONCURRENCY_LEAST = 4,  /* minimum, unless the maximum is lower */
};

/* See concurrency.c. */
enum concurrency_phase { CONCURRENCY_RISE, CONCURRENCY_REST, CONCURRENCY_UP, CONCURRENCY_DOWN };

/* Embedded by the owner; nothing to release. */
struct concurrency {
    unsigned limit; /* GETs that may be in flight now */
    unsigned most;  /* maximum of limit */
    enum concurrency_phase phase;
    unsigned former;    /* the limit under which former_rate was measured */
    double former_rate; /* bytes per ms; 0: unknown */

    /* Base latency: that of an undisturbed GET, the minimum of the last two time windows. */
    uint64_t base_us, window_least_us, window_began_us;

    /* The current round. It begins with the first answer of a GET that was sent under the current limit. */
    uint64_t changed_us, round_began_us; /* round_began_us 0: not begun */
    unsigned round_limit;                /* the limit when it began */
    unsigned due;                        /* answers that end it */
    unsigned arrivals, answers;          /* chunks; GETs that delivered their first chunk */
    uint64_t bytes, latency_sum_us;
    bool starved, waited; /* at some time in the round: slots were free without work; work waited for a slot */

    /* The rounds of the current phase. */
    double rate_sum;
    unsigned rounds, crowded_rounds;
    bool down_next;
};

/* A chunk that arrived. */
struct concurrency_arrival {
    uint64_t sent_us, now_us; /* when its GET was sent; when the chunk arrived */
    uint32_t bytes;
    bool first;   /* it is the first chunk of its GET */
    bool waiting; /* work is waiting for a GET slot */
};

/* Start with CONCURRENCY_FIRST, or `most` if that is lower. */
void concurrency_init(struct concurrency *c, unsigned most, uint64_t now_us);
/* Account for an arrival. True: the limit changed. */
bool concurrency_arrived(struct concurrency *c, const struct concurrency_arrival *arrival);
/* Note that a slot is free and no work waits for it. */
void concurrency_starved(struct concurrency *c);

#endif

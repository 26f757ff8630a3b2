/* How many gets may be in flight: as many as fill the link, and not many more. It grows while more is delivered for
 * it, and shrinks when gets answer late and fewer deliver as much. Arithmetic alone: no lock, no clock, no thread; the
 * caller measures.
 */
#ifndef GRANARY_FETCH_CONCURRENCY_H
#define GRANARY_FETCH_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CONCURRENCY_FIRST = 16, /* to begin with, */
    CONCURRENCY_LEAST = 4,  /* and never fewer, unless the cap is lower */
};

enum concurrency_phase { CONCURRENCY_RISE, CONCURRENCY_REST, CONCURRENCY_UP, CONCURRENCY_DOWN };

/* In the caller's memory; there is nothing to release. */
struct concurrency {
    unsigned limit; /* gets in flight, now */
    unsigned most;  /* the cap */
    enum concurrency_phase phase;
    unsigned former;    /* the limit that delivered former_rate */
    double former_rate; /* bytes a millisecond; 0: not known */

    /* How soon gets answer when nothing is in their way: the least of two windows of time. */
    uint64_t base_us, window_least_us, window_began_us;

    /* The round: it begins when a get that was sent under the present limit answers. */
    uint64_t changed_us, round_began_us; /* round_began_us 0: not yet */
    unsigned round_limit;                /* when it began */
    unsigned due;                        /* it ends with so many answers */
    unsigned arrivals, answers;          /* chunks, first chunks of a get */
    uint64_t bytes, latency_sum_us;
    bool starved, waited; /* at some moment: fewer than the limit were in flight; work waited for a place */

    /* The rounds of this phase. */
    double rate_sum;
    unsigned rounds, crowded_rounds;
    bool down_next;
};

/* A chunk that was delivered. */
struct concurrency_arrival {
    uint64_t sent_us, now_us; /* its get was sent; it has come */
    uint32_t bytes;
    bool first;   /* of its get */
    bool waiting; /* more work waits for a place */
};

void concurrency_init(struct concurrency *c, unsigned most, uint64_t now_us);
/* True: the limit is another now. */
bool concurrency_arrived(struct concurrency *c, const struct concurrency_arrival *arrival);
/* There is no work for a place that is free. */
void concurrency_starved(struct concurrency *c);

#endif

/* How many bytes warming and readahead may have in the air. Warming while nobody reads: a few times what is under way
 * on a full link, so that it stays full, and no more. Beside readers: what leaves their gets answering nearly as soon
 * as without it; what is asked for beyond what the link carries in a round trip stands in its queue, before every
 * reader. Readahead, which serves them: what fills the link, and little more, for the same reason. Arithmetic alone: no
 * lock, no clock, no thread.
 */
#ifndef GRANARY_FETCH_AIR_H
#define GRANARY_FETCH_AIR_H

#include <stdbool.h>
#include <stdint.h>

#include "fetch/concurrency.h"

struct air_window {
    uint64_t bytes;
    bool used; /* half as much at least was in the air since the round began */
};

/* In the caller's memory; there is nothing to release. */
struct air {
    /* What the link brings, bytes a millisecond: of rounds of time. */
    double rate;
    uint64_t round_began_us, round_bytes;
    uint64_t due_us; /* when warming may send its next get */

    /* Judged by rounds of so many answers, whose quickest counts. */
    struct air_window beside, ahead; /* of warming beside readers; of readahead */
    uint64_t answers_began_us, least_us;
    unsigned answers;
};

void air_init(struct air *a);

/* A chunk was delivered, of whatever lane. base_us: how soon gets answer when nothing is in their way; 0: not known.
 * warm_bytes, ahead_bytes: in the air for warming and for readahead when it came. */
void air_arrived(struct air *a, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes,
                 uint64_t ahead_bytes);

/* Bytes that may be in the air for warming: while nobody reads, and beside readers. */
uint64_t air_alone(const struct air *a, uint64_t base_us);
uint64_t air_beside(const struct air *a);
/* Bytes that may be in the air for readahead. */
uint64_t air_ahead(const struct air *a);

/* A get of so many bytes was sent for warming, and when the next may be: air_due_us. */
void air_sent(struct air *a, uint64_t bytes, uint64_t base_us, uint64_t now_us);
uint64_t air_due_us(const struct air *a);

/* How long a get of warming's may be, of such a window. */
uint64_t air_get_alone(uint64_t window);
uint64_t air_get_beside(uint64_t window);

#endif

/* How many bytes warming and readahead may have in flight. Warming while nobody reads: a few times what is under way
 * on a full link, so that it stays full, and no more. Beside readers: what leaves their gets answering nearly as soon
 * as without it; what is asked for beyond what the link carries in a round trip stands in its queue, before every
 * reader. Readahead, which serves them: what fills the link, and little more, for the same reason. Arithmetic alone: no
 * lock, no clock, no thread.
 */
#ifndef GRANARY_FETCH_WINDOW_H
#define GRANARY_FETCH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "fetch/concurrency.h"

struct window_limit {
    uint64_t bytes;
    bool used; /* half as much at least was in flight since the round began */
};

/* In the caller's memory; there is nothing to release. */
struct window {
    /* What the link brings, bytes a millisecond: of rounds of time. */
    double rate;
    uint64_t round_began_us, round_bytes;
    uint64_t due_us; /* when warming may send its next get */

    /* Judged by rounds of so many answers, whose quickest counts. */
    struct window_limit beside, ahead; /* of warming beside readers; of readahead */
    uint64_t answers_began_us, least_us;
    unsigned answers;
};

void window_init(struct window *a);

/* A chunk was delivered, of whatever priority. base_us: how soon gets answer when nothing is in their way; 0: not
 * known. warm_bytes, ahead_bytes: in flight for warming and for readahead when it came. */
void window_arrived(struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes,
                    uint64_t ahead_bytes);

/* Bytes that may be in flight for warming: while nobody reads, and beside readers. */
uint64_t window_alone(const struct window *a, uint64_t base_us);
uint64_t window_beside(const struct window *a);
/* Bytes that may be in flight for readahead. */
uint64_t window_ahead(const struct window *a);

/* A get of so many bytes was sent for warming, and when the next may be: window_due_us. */
void window_sent(struct window *a, uint64_t bytes, uint64_t base_us, uint64_t now_us);
uint64_t window_due_us(const struct window *a);

/* How long a get of warming's may be, of such a window. */
uint64_t window_get_alone(uint64_t window);
uint64_t window_get_beside(uint64_t window);

#endif

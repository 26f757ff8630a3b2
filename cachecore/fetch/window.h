/* How many bytes warming and readahead may have in flight. Whatever exceeds what the link carries in a round trip waits
 * in the link's queue, ahead of every demand read.
 *
 *   warming, no client reads     several times what a full link carries, so that it stays full
 *   warming, clients read        as much as delays the clients' GETs only slightly
 *   readahead                    what fills the link, and little more
 *
 * Pure arithmetic: no lock, no clock, no thread. The caller serializes the calls (the fetch's lock).
 */
#ifndef GRANARY_FETCH_WINDOW_H
#define GRANARY_FETCH_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

#include "fetch/concurrency.h"

/* One limit that follows the delay of GETs. */
struct window_limit {
    uint64_t bytes;
    bool used; /* at least half of it was in flight at some time in this round */
};

/* Embedded by the owner; nothing to release. */
struct window {
    /* The link's rate, measured over rounds of time. */
    double rate; /* bytes per millisecond */
    uint64_t round_began_us, round_bytes;
    uint64_t due_us; /* warming's next GET may be sent from then on */

    /* Adjusted after each round of answers, by the round's fastest answer. */
    struct window_limit beside, ahead; /* for warming while clients read; for readahead */
    uint64_t answers_began_us, least_us;
    unsigned answers;
};

void window_init(struct window *a);

/* Account for a chunk of any priority that arrived. base_us: latency of an undisturbed GET, 0 if unknown. warm_bytes,
 * ahead_bytes: bytes in flight for warming and for readahead at that moment. */
void window_arrived(struct window *a, const struct concurrency_arrival *arrival, uint64_t base_us, uint64_t warm_bytes,
                    uint64_t ahead_bytes);

/* Return the bytes that may be in flight for warming: while no client reads, and while clients read. */
uint64_t window_alone(const struct window *a, uint64_t base_us);
uint64_t window_beside(const struct window *a);
/* Return the bytes that may be in flight for readahead. */
uint64_t window_ahead(const struct window *a);

/* Account for a warming GET of `bytes` bytes. window_due_us returns when the next one may be sent. */
void window_sent(struct window *a, uint64_t bytes, uint64_t base_us, uint64_t now_us);
uint64_t window_due_us(const struct window *a);

/* Return the maximum length in bytes of one warming GET under such a window. */
uint64_t window_get_alone(uint64_t window);
uint64_t window_get_beside(uint64_t window);

#endif

/* Counts of chunks that are not cached, but were missed or evicted recently: a table of fingerprints with a count each.
 * Bounded and approximate: entries are overwritten, and about two keys in ten thousand share a fingerprint. For the
 * eviction policies only, as a hint.
 *
 * Not thread-safe: the eviction's lock guards it.
 */
#ifndef GRANARY_CACHE_POLICY_EVICT_GHOST_H
#define GRANARY_CACHE_POLICY_EVICT_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum { GHOST_COUNT_MAX = 63 };

/* The table. sets 0: unused. */
struct ghost {
    uint32_t *cells;       /* sets of four; see evict_ghost.c */
    uint32_t sets;         /* number of sets */
    uint32_t hand;         /* the set that ageing visits next */
    uint32_t turn;         /* rotates which cell of a set is examined first */
    uint64_t window, left; /* the clock of "recently": evicted chunks, in all; a window of them */
};

/* Allocate cells for about `keys` keys, 4 bytes each. A key that was evicted counts as evicted recently until `window`
 * more keys were. -ENOMEM. */
GR_MUST_CHECK int ghost_init(struct ghost *g, uint64_t keys, uint64_t window);
void ghost_release(struct ghost *g);

/* A key that is not cached was read. Returns its count, including this read. */
unsigned ghost_ask(struct ghost *g, uint64_t key);
/* Return the key's count; 0: unknown. */
unsigned ghost_count(const struct ghost *g, uint64_t key);
/* The key was evicted with this count. */
void ghost_leave(struct ghost *g, uint64_t key, unsigned count);
/* The key is cached again: remove it here. Returns its count. *out_lately: it was evicted recently. */
unsigned ghost_take(struct ghost *g, uint64_t key, bool *out_lately);
/* Halve the counts of the next n sets. True: this completed a round over all sets. */
bool ghost_age(struct ghost *g, uint32_t n);

#endif

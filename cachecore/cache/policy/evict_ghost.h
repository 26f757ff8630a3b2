/* Chunks that are not in the cache but were asked for or were in it lately: a table of fingerprints
 * with a count each. Bounded, forgetful, and now and then wrong (two keys in some ten thousand share
 * a cell): a hint. The cache's eviction alone uses it. */
#ifndef GRANARY_CACHE_POLICY_EVICT_GHOST_H
#define GRANARY_CACHE_POLICY_EVICT_GHOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

enum { GHOST_COUNT_MAX = 63 };

struct ghost {
    uint32_t *cells;
    uint32_t sets;         /* of GHOST_WAYS cells */
    uint32_t hand;         /* the next set that ageing comes to */
    uint32_t turn;         /* which cell of a set is looked at first */
    uint64_t window, left; /* chunks that left, ever: the clock of "lately" */
};

/* Room for about `keys`, 4 bytes each; what left the cache did so lately until `window` more have
 * left. -ENOMEM. */
GR_MUST_CHECK int ghost_init(struct ghost *g, uint64_t keys, uint64_t window);
void ghost_release(struct ghost *g);

/* The key was asked for and is not in the cache: its count, this time included. */
unsigned ghost_ask(struct ghost *g, uint64_t key);
/* Its count; 0: unknown. */
unsigned ghost_count(const struct ghost *g, uint64_t key);
/* The key left the cache with this count. */
void ghost_leave(struct ghost *g, uint64_t key, unsigned count);
/* It comes back: forgotten here. Returns its count; *out_lately: it left lately. */
unsigned ghost_take(struct ghost *g, uint64_t key, bool *out_lately);
/* Halve the counts of the next n sets; true: this round is at its end. */
bool ghost_age(struct ghost *g, uint32_t n);

#endif

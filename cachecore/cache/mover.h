/* What is hot goes up: one thread that reads a chunk that was hit twice on disk in parts, whole, into
 * the memory tier, and copies one that was hit twice on a slow directory to a fast one.
 *
 * Never in anybody's way: one chunk at a time, and a pause three times as
 * long as the work after each.
 */
#ifndef GRANARY_CACHE_MOVER_H
#define GRANARY_CACHE_MOVER_H

#include "base/counter.h"
#include "cache/cache.h"
#include "cache/hot.h"

struct mover;

struct mover_config {
    struct cache *cache;
    struct hot *hot; /* what is due; outlives the mover */
};

struct mover_stats {
    counter lifts; /* chunks read whole for the memory tier */
    counter moves; /* chunks that have a slot on a fast directory in place of that on a slow one */
};

/* Makes no thread. -ENOMEM. */
GR_MUST_CHECK int mover_new(const struct mover_config *config, struct mover **out);
GR_MUST_CHECK int mover_start_thread(struct mover *m);
/* Ends the thread, and closes hot; what is queued is dropped. NULL is allowed. */
void mover_stop(struct mover *m);
void mover_free(struct mover *m);

struct mover_stats *mover_stats(struct mover *m);

#endif

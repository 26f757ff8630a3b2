/* One thread that brings hot chunks to a faster tier: a chunk that was hit twice on disk in parts is read whole into
 * the memory tier; a chunk that was hit twice on a slow directory is moved to a fast one.
 *
 * It keeps out of the way of readers: one chunk at a time, and after each a pause three times as long as the work
 * took.
 */
#ifndef GRANARY_CACHE_MOVER_H
#define GRANARY_CACHE_MOVER_H

#include "base/counter.h"
#include "cache/cache.h"
#include "cache/hot.h"

struct mover;

struct mover_config {
    struct cache *cache;
    struct hot *hot; /* hot chunks; outlives the mover */
};

struct mover_stats {
    counter lifts; /* chunks read whole for the memory tier */
    counter moves; /* chunks moved from a slow directory to a fast one */
};

/* Make a mover; no thread yet. -ENOMEM. */
GR_MUST_CHECK int mover_new(const struct mover_config *config, struct mover **out);
GR_MUST_CHECK int mover_start_thread(struct mover *m);
/* Close hot and end the thread; queued chunks are dropped. NULL is allowed. */
void mover_stop(struct mover *m);
void mover_free(struct mover *m);

struct mover_stats *mover_stats(struct mover *m);

#endif

/* What is hot goes up: one thread that reads a chunk that was hit twice on disk in parts, whole, into
 * the memory tier, and copies one that was hit twice on a slow directory to a fast one.
 *
 * Never in anybody's way: a bounded queue that drops, one chunk at a time, and a pause three times as
 * long as the work after each.
 */
#ifndef GRANARY_CACHE_MOVER_H
#define GRANARY_CACHE_MOVER_H

#include "base/counter.h"
#include "cache/cache.h"

struct mover;

struct mover_config {
    struct cache *cache;
    uint64_t capacity; /* bytes of the tiers above the slowest: how many chunks it remembers goes by it */
    bool to_memory;    /* there is a memory tier */
    uint32_t apart_ms; /* hits of one chunk on a slow directory that are closer count as one; 0: 1000 */
};

struct mover_stats {
    counter lifts;   /* chunks read whole for the memory tier */
    counter moves;   /* chunks that have a slot on a fast directory in place of that on a slow one */
    counter dropped; /* neither, because the queue was full */
};

/* Makes no thread. -ENOMEM. */
GR_MUST_CHECK int mover_new(const struct mover_config *config, struct mover **out);
GR_MUST_CHECK int mover_start_thread(struct mover *m);
/* Ends the thread; what is queued is dropped. NULL is allowed. */
void mover_stop(struct mover *m);
void mover_free(struct mover *m);

/* A piece was hit on disk. slow: on a directory that has a faster one beside it. Any thread; allocates
 * only when it queues a chunk. */
void mover_hit(struct mover *m, const struct cache_piece *piece, bool slow);

struct mover_stats *mover_stats(struct mover *m);

#endif

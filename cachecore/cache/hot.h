/* Which chunks are hot: those that were hit twice on disk, and what is to be done with them. A table of one word a
 * chunk remembers first hits; what is due waits in a bounded queue, which drops, for the mover.
 */
#ifndef GRANARY_CACHE_HOT_H
#define GRANARY_CACHE_HOT_H

#include "base/counter.h"
#include "cache/cache.h"

struct hot;

struct hot_config {
    uint64_t capacity; /* bytes of the tiers above the slowest: how many chunks it remembers goes by it */
    bool to_memory;    /* there is a memory tier */
    uint32_t apart_ms; /* hits of one chunk on a slow directory that are closer count as one; 0: 1000 */
};

enum { HOT_LIFT = 1, HOT_MOVE = 2, HOT_WORK = 3 };

struct hot_chunk {
    struct cache_piece piece; /* the whole chunk; no dst, no store */
    unsigned work;            /* HOT_LIFT: read it whole, for the memory tier; HOT_MOVE: to a fast directory */
};

/* -ENOMEM. */
GR_MUST_CHECK int hot_new(const struct hot_config *config, struct hot **out);
void hot_free(struct hot *h); /* NULL is allowed; nobody waits in hot_take */
DEFINE_CLEANUP(hot, struct hot *, hot_free)

/* A piece was hit on disk. slow: on a directory that has a faster one beside it. Any thread; allocates only when it
 * queues a chunk. */
void hot_hit(struct hot *h, const struct cache_piece *piece, bool slow);

/* Wait for a chunk that is due; for hot_done. NULL: closed, and nothing is left. */
struct hot_chunk *hot_take(struct hot *h);
/* Frees it. The chunk starts anew: it may be hot again later. */
void hot_done(struct hot *h, struct hot_chunk *chunk);
/* Nothing is queued any more. */
void hot_close(struct hot *h);

/* Chunks not queued because the queue was full. */
uint64_t hot_dropped(struct hot *h);

#endif

/* Which chunks are hot, and what to do with them. A chunk is hot when it was hit twice on disk. A table of one word a
 * chunk remembers first hits; hot chunks wait in a bounded queue for the mover, and are dropped when it is full. */
#ifndef GRANARY_CACHE_HOT_H
#define GRANARY_CACHE_HOT_H

#include "base/counter.h"
#include "cache/cache.h"

struct hot;

struct hot_config {
    uint64_t capacity; /* bytes of the tiers above the slowest; the size of the table follows from it */
    bool to_memory;    /* there is a memory tier to read chunks into */
    uint32_t apart_ms; /* hits of one chunk on a slow directory that are closer together count as one; 0: 1000 */
};

/* What is to be done with a hot chunk; bits. */
enum { HOT_LIFT = 1, HOT_MOVE = 2, HOT_WORK = 3 };

struct hot_chunk {
    struct cache_piece piece; /* the whole chunk; no dst, no store */
    unsigned work;            /* HOT_LIFT: read it whole into the memory tier; HOT_MOVE: move it to a fast directory */
};

/* -ENOMEM. */
GR_MUST_CHECK int hot_new(const struct hot_config *config, struct hot **out);
void hot_free(struct hot *h); /* NULL is allowed; no thread may be in hot_take */
DEFINE_CLEANUP(hot, struct hot *, hot_free)

/* Note that a piece was hit on disk. slow: in a directory that has a faster one beside it. Any thread; allocates only
 * when it queues a chunk. */
void hot_hit(struct hot *h, const struct cache_piece *piece, bool slow);

/* Wait for a hot chunk; give it to hot_done afterwards. NULL: closed, and the queue is empty. */
struct hot_chunk *hot_take(struct hot *h);
/* Free it and forget its hits: the chunk may become hot again. */
void hot_done(struct hot *h, struct hot_chunk *chunk);
/* Queue nothing from now on, and let hot_take return NULL once the queue is empty. */
void hot_close(struct hot *h);

/* Return how many chunks were not queued because the queue was full. */
uint64_t hot_dropped(struct hot *h);

#endif

/* The misses of one window of pieces: their fetches and those of neighbours are started together, then waited for.
 * Private to cache_read.c and cache_fetch.c. */
#ifndef GRANARY_CACHE_MISS_H
#define GRANARY_CACHE_MISS_H

#include "cache/cache_internal.h"

enum { MISSES_MAX = 64 };

/* A piece that is not cached, and the fetch that brings its chunk. */
struct miss {
    const struct cache_piece *piece;
    struct inflight *inflight; /* NULL: not started */
};

struct misses {
    size_t count;
    struct miss items[MISSES_MAX];
};

static inline void misses_add(struct misses *m, const struct cache_piece *piece)
{
    m->items[m->count++] = (struct miss){.piece = piece};
}

/* What to do with a miss whose fetch was started: wait for it, and deliver or keep it. Returns 0 or -errno with a
 * message. */
typedef int miss_use(struct cache *c, struct miss *miss);

/* Start the fetches of the misses from `from` on, one fetch for each run of one store and quota. In cache-only mode
 * only warming fetches: others get -ENODATA. Neighbours go along with the last group if they belong to it, else they
 * are fetched by themselves. On an error some fetches may have been started: call misses_finish in any case. */
GR_MUST_CHECK int misses_start_locked(struct cache *c, struct misses *m, size_t from, struct cache_piece *ahead,
                                      size_t ahead_count, enum fetch_priority priority);
/* Use each started miss in order and drop its reference. After the first error (start_rc counts) the rest are only
 * released, unless `on`: then those behind a chunk that is missing or bad are used too. Any other error is the
 * store's, and the rest would wait for it just as long. Returns the first error; an error of the store replaces one
 * of a chunk.
 */
GR_MUST_CHECK int misses_finish(struct cache *c, struct misses *m, int start_rc, miss_use *use, bool on);

/* Is the chunk in a slot that can be read? */
bool miss_ready_locked(const struct cache *c, const struct digest *digest);
/* If the piece's chunk were fetched now, would the cache keep it? */
bool miss_would_stay_locked(const struct cache *c, const struct cache_piece *p);

#endif

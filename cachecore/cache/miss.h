/* The pieces of a window that the cache has not: their fetches, and those of neighbours, started together and waited
 * for. Only cache_read.c and cache_ensure.c include it.
 */
#ifndef GRANARY_CACHE_MISS_H
#define GRANARY_CACHE_MISS_H

#include "cache/cache_internal.h"

enum { MISSES_MAX = 64 };

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

/* What is done with a miss whose fetch was started: wait for it, and deliver or keep it. -errno with its sentence. */
typedef int miss_use(struct cache *c, struct miss *miss);

/* Start those from `from` on, in groups; behind the fence none but those of who warms; neighbours go with the last one,
 * if they are of it, or by themselves. */
GR_MUST_CHECK int misses_start_locked(struct cache *c, struct misses *m, size_t from, struct cache_piece *ahead,
                                      size_t ahead_count, enum fetch_priority priority);
/* End every in-flight fetch; those before the first error (start_rc counts) are used. on: so are those behind a chunk
 * that is missing or bad; other errors are the store's, and the others would wait as long for it. */
GR_MUST_CHECK int misses_finish(struct cache *c, struct misses *m, int start_rc, miss_use *use, bool on);

/* The chunk is in a slot that can be read. */
bool miss_ready_locked(const struct cache *c, const struct digest *digest);
/* Would it be in the cache when it is asked for? */
bool miss_would_stay_locked(const struct cache *c, const struct cache_piece *p);

#endif

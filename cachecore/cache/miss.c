/* Misses that share a store and a quota go through one fetch, so that their gets coalesce, and neighbours that are
 * not cached go along. Fetches are started under cache.lock, in the same locked section as the lookup: a chunk that
 * is neither readable nor in flight at that moment really has to be fetched, so nothing is fetched twice. */
#include "cache/miss.h"

#include <errno.h>

#include "base/error.h"

enum { AHEAD_MAX = 64 /* neighbours fetched with a window's misses */ };

/* Start one fetch for n misses, all of first's store and quota, with their neighbours behind them. Only the misses
 * get a reference to their in-flight fetch. */
static int start_group(struct cache *c, const struct cache_piece *first, struct miss *misses, size_t n,
                       const struct chunk_ref *const *ahead, size_t ahead_count, enum fetch_priority priority)
{
    const struct chunk_ref *refs[MISSES_MAX + AHEAD_MAX];
    struct inflight *inflights[MISSES_MAX];
    for (size_t i = 0; i < n; i++)
        refs[i] = &misses[i].piece->ref;
    for (size_t i = 0; i < ahead_count; i++)
        refs[n + i] = ahead[i];
    int rc = fetch_start(c->fetch, first->store, refs, n + ahead_count, n, priority, first->quota, inflights);
    for (size_t i = 0; !rc && i < n; i++)
        misses[i].inflight = inflights[i];
    return rc;
}

bool miss_ready_locked(const struct cache *c, const struct digest *digest)
{
    uint32_t id = c->dir_count ? space_find(&c->space, digest) : SPACE_NONE;
    return id != SPACE_NONE && cache_readable_locked(c, id);
}

/* Could a reader get the chunk from disk or from memory now? */
static bool in_reach_locked(const struct cache *c, const struct digest *digest)
{
    return miss_ready_locked(c, digest) || cache_memory_has(c, digest);
}

static bool same_group(const struct cache_piece *a, const struct cache_piece *b)
{
    return a->store == b->store && a->quota == b->quota;
}

bool miss_would_stay_locked(const struct cache *c, const struct cache_piece *p)
{
    const struct space_request request = fill_request(&p->ref);
    return c->memory_tier || (c->dir_count && space_admits(&c->space, &request));
}

/* Choose the neighbours to fetch with first's group, mark them as started, and return how many there are. None while
 * writing is behind: they would be dropped after the fetch. */
static size_t choose_ahead_locked(struct cache *c, struct cache_piece *ahead, size_t n, const struct cache_piece *first,
                                  const struct chunk_ref **out)
{
    size_t count = 0;
    if (n && !fill_has_memory(&c->fill))
        return 0;
    for (size_t i = 0; i < n && count < AHEAD_MAX; i++) {
        if (!same_group(&ahead[i], first) || in_reach_locked(c, &ahead[i].ref.digest) ||
            !miss_would_stay_locked(c, &ahead[i]))
            continue;
        ahead[i].started = true;
        out[count++] = &ahead[i].ref;
    }
    return count;
}

int misses_start_locked(struct cache *c, struct misses *m, size_t from, struct cache_piece *ahead, size_t ahead_count,
                        enum fetch_priority priority)
{
    const struct chunk_ref *wanted[AHEAD_MAX];
    if (c->fenced && priority != PRIORITY_WARM)
        return from < m->count ? error_set(-ENODATA, "cache: not cached, and nothing is fetched for a reader") : 0;
    while (from < m->count || ahead_count) {
        const struct cache_piece *first = from < m->count ? m->items[from].piece : ahead;
        size_t to = from, wanted_count = 0;
        while (to < m->count && same_group(m->items[to].piece, first))
            to++;
        if (to == m->count) {
            wanted_count = choose_ahead_locked(c, ahead, ahead_count, first, wanted);
            ahead_count = 0;
        }
        int rc = to - from + wanted_count
                     ? start_group(c, first, m->items + from, to - from, wanted, wanted_count, priority)
                     : 0;
        if (rc)
            return rc;
        from = to;
    }
    return 0;
}

int misses_finish(struct cache *c, struct misses *m, int start_rc, miss_use *use, bool on)
{
    struct error first;
    error_take(&first, start_rc);
    for (size_t i = 0; i < m->count; i++) {
        if (!m->items[i].inflight)
            continue;
        bool others = on && error_of_one_thing(first.code);
        int rc = first.code && !others ? 0 : use(c, &m->items[i]);
        if (rc && (!first.code || !error_of_one_thing(rc)))
            error_take(&first, rc);
        inflight_unref(m->items[i].inflight);
    }
    return first.code ? error_restore(&first) : 0;
}

/* Fetching what is missing: for the readers of cache_read.c, for warming (cache_ensure) and for chunks fetched ahead of
 * readers (cache_ahead).
 *
 * Misses that share a store and a quota go through one fetch, so that their gets coalesce, and neighbours that are
 * not cached go along. Fetches are started under cache.lock, in the same locked section as the lookup: a chunk that
 * is neither readable nor in flight at that moment really has to be fetched, so nothing is fetched twice.
 *
 * A chunk that is being fetched for another node, from the store, is waited for instead.
 *
 * The chunks are written afterwards, by fill.c. cache_ensure and cache_ahead wait for that; what was not kept then, and
 * what cache_put gets, the calling thread writes.
 *
 * A window of WARM_WINDOW chunks is in flight at a time. Warming reserves memory for a window before its fetches
 * start (fill_warm_acquire); chunks fetched ahead are bounded by the number of their threads.
 */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cache/cache_internal.h"

enum {
    AHEAD_MAX = 64,   /* neighbours fetched with a window's misses */
    WARM_WINDOW = 16, /* chunks of warming in flight at once, for each caller */
    TAKE_MS = 600000, /* for a window of cache_take, whose fetches end by themselves long before */
};

/* ---- misses ---- */

/* Return a reference to the fetch for another node that brings this very chunk, or NULL. */
static struct inflight *find_for_others(const struct cache *c, const struct cache_piece *p)
{
    return c->for_others ? fetch_find(c->for_others, store_origin(p->store), &p->ref) : NULL;
}

/* Is a fetch under way for another node that brings the very same chunk? It goes to the store, as this one would. */
static bool join_others(struct cache *c, struct miss *miss, enum fetch_priority priority)
{
    miss->inflight = find_for_others(c, miss->piece);
    miss->joined = miss->inflight;
    miss->priority = priority;
    return miss->joined;
}

/* Start one fetch for n misses, all of first's store and quota, with their neighbours after them. Only the misses
 * get a reference to their in-flight fetch. */
static int start_group(struct cache *c, const struct cache_piece *first, struct miss *misses, size_t n,
                       const struct chunk_ref *const *ahead, size_t ahead_count, enum fetch_priority priority)
{
    const struct chunk_ref *refs[MISSES_MAX + AHEAD_MAX];
    struct inflight *inflights[MISSES_MAX];
    struct miss *starting[MISSES_MAX];
    size_t wanted = 0;
    for (size_t i = 0; i < n; i++)
        if (!join_others(c, &misses[i], priority)) {
            refs[wanted] = &misses[i].piece->ref;
            starting[wanted++] = &misses[i];
        }
    for (size_t i = 0; i < ahead_count; i++)
        refs[wanted + i] = ahead[i];
    int rc = wanted + ahead_count ? fetch_start(c->fetch, first->store, refs, wanted + ahead_count, wanted, priority,
                                                first->quota, inflights)
                                  : 0;
    for (size_t i = 0; !rc && i < wanted; i++)
        starting[i]->inflight = inflights[i];
    return rc;
}

int misses_wait(struct cache *c, struct miss *miss, struct buf **out)
{
    const struct chunk_ref *ref = &miss->piece->ref;
    struct inflight *again;
    int rc = inflight_wait(miss->inflight, out);
    if (!rc || !miss->joined || rc == -ECANCELED)
        return rc;
    rc = fetch_start(c->fetch, miss->piece->store, &ref, 1, 1, miss->priority, miss->piece->quota, &again);
    if (rc)
        return rc;
    inflight_unref(miss->inflight);
    miss->inflight = again;
    miss->joined = false;
    return inflight_wait(again, out);
}

/* Is the chunk in a slot that can be read? */
static bool is_on_disk_locked(const struct cache *c, const struct digest *digest)
{
    uint32_t id = c->dir_count ? space_find(&c->space, digest) : SPACE_NONE;
    return id != SPACE_NONE && cache_readable_locked(c, id);
}

static bool same_group(const struct cache_piece *a, const struct cache_piece *b)
{
    return a->store == b->store && a->quota == b->quota;
}

/* If the piece's chunk were fetched now, would the cache keep it? */
static bool would_stay_locked(const struct cache *c, const struct cache_piece *p)
{
    const struct space_request request = fill_request(&p->ref);
    return c->memory_tier || (c->dir_count && !p->others && space_admits(&c->space, &request));
}

/* Is it being fetched for another node? It will be on disk soon. */
static bool is_for_others(const struct cache *c, const struct cache_piece *p)
{
    struct inflight *inflight = find_for_others(c, p);
    if (inflight)
        inflight_unref(inflight);
    return inflight;
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
        if (!same_group(&ahead[i], first) || is_on_disk_locked(c, &ahead[i].ref.digest) ||
            memory_tier_has(c->memory_tier, &ahead[i].ref.digest) || !would_stay_locked(c, &ahead[i]) ||
            is_for_others(c, &ahead[i]))
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
    bool fenced = c->fenced || (from < m->count && m->items[from].piece->fenced);
    if (fenced && priority != PRIORITY_WARM)
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

/* ---- bringing chunks into the cache ---- */

/* Wait for a miss and write it to disk, or to memory where there is no disk. `named`: whatever the policy says.
 * *out_kept: what the write came to. Returns the error of the fetch. */
static int bring(struct cache *c, struct miss *miss, bool named, int *out_kept)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = misses_wait(c, miss, &plain);
    if (rc)
        return rc;
    *out_kept = c->dir_count ? fill_inflight(c, miss->inflight, plain, named)
                             : fill_memory(c, &inflight_chunk(miss->inflight)->digest, plain, true);
    return 0;
}

/* A miss_use for warming: a chunk that cannot be kept is an error. */
static int ensure_keep(struct cache *c, struct miss *miss)
{
    int kept = 0, rc = bring(c, miss, true, &kept);
    if (kept == -ENODEV)
        return error_set(-EIO, "cache: no directory of the cache can be read and written at the moment; the log says "
                               "why, and when it works again");
    return kept ? error_set(-EIO, "cache: a chunk could not be kept: %s", strerror(-kept)) : rc;
}

/* A miss_use for chunks fetched ahead: they evict nothing that is worth more. -EDQUOT, -ENODEV: it was not kept. */
static int keep_ahead(struct cache *c, struct miss *miss)
{
    int kept = 0, rc = bring(c, miss, false, &kept);
    return kept == -EDQUOT || kept == -ENODEV ? kept : rc;
}

/* Is the chunk kept? Memory counts only where there is no directory. */
static bool kept_locked(const struct cache *c, const struct digest *digest)
{
    return c->dir_count ? is_on_disk_locked(c, digest) : memory_tier_has(c->memory_tier, digest);
}

/* Collect the pieces that are missing; return their bytes. */
static size_t look_for_missing_locked(const struct cache *c, const struct cache_piece *pieces, size_t n,
                                      struct misses *m)
{
    size_t bytes = 0;
    m->count = 0;
    for (size_t i = 0; i < n; i++)
        if (!kept_locked(c, &pieces[i].ref.digest)) {
            misses_add(m, &pieces[i]);
            bytes += pieces[i].ref.plain_len;
        }
    return bytes;
}

/* Wait until the window's chunks have been written, or certainly are not, by fill.c, and release those that are kept.
 * The last comes first: the chunks of a GET arrive in their order, so a thread that waits for the last one is woken
 * about once. */
static void wait_for_fills(struct cache *c, struct misses *m)
{
    for (size_t i = m->count; i-- > 0;)
        if (m->items[i].inflight)
            inflight_wait_retired(m->items[i].inflight);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    for (size_t i = 0; i < m->count; i++)
        if (m->items[i].inflight && kept_locked(c, &m->items[i].piece->ref.digest))
            inflight_unref(steal_ptr(&m->items[i].inflight));
}

/* Bring one window of pieces into the cache. */
static int ensure_window(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_priority priority,
                         miss_use *use)
{
    struct misses m;
    size_t bytes;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        bytes = look_for_missing_locked(c, pieces, n, &m);
    }
    if (!bytes)
        return 0;
    bool warm = priority == PRIORITY_WARM; /* readahead is bounded by its threads, and must not wait behind warming */
    if (warm)
        fill_warm_acquire(&c->fill, bytes, fetch_warm_window(c->fetch));
    int rc;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        look_for_missing_locked(c, pieces, n, &m); /* again: the wait may have been long */
        rc = misses_start_locked(c, &m, 0, NULL, 0, priority);
    }
    wait_for_fills(c, &m);
    rc = misses_finish(c, &m, rc, use, use == ensure_keep); /* warming also keeps the chunks after a bad one */
    if (warm)
        fill_warm_release(&c->fill, bytes);
    return rc;
}

/* Bring all pieces, window by window; the first error ends it. */
static int ensure_all(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_priority priority,
                      miss_use *use)
{
    for (size_t done = 0; done < n;) {
        size_t part = GR_MIN(n - done, (size_t)WARM_WINDOW);
        int rc = ensure_window(c, pieces + done, part, priority, use);
        if (rc)
            return rc;
        done += part;
    }
    return 0;
}

int cache_ensure(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_priority priority)
{
    if (!c->dir_count && !c->memory_tier && n)
        return error_set(-EIO, c->absent_count
                                   ? "cache: no cache directory could be opened at the start; the log says why"
                                   : "cache: there is no cache directory to keep chunks in; give cache=DIR:SIZE");
    return ensure_all(c, pieces, n, priority, ensure_keep);
}

/* The chunk is written like one that warming wants: forced past the policy, and waiting for a slot. */
int cache_put(struct cache *c, const struct chunk_ref *ref, const void *data)
{
    fetch_count_object(c->fetch, ref->plain_len);
    if (!c->dir_count && !c->memory_tier)
        return -ENODEV;
    CLEANUP_BUF struct buf *plain = buf_new(ref->plain_len);
    if (!plain)
        return -ENOMEM;
    memcpy(plain->data, data, ref->plain_len);
    struct space_request request = fill_request(ref);
    request.force = true;
    return c->dir_count ? fill_chunk(c, &request, plain) : fill_memory(c, &ref->digest, plain, true);
}

/* cache_ahead of chunks that this node keeps. */
static int ahead_of_ours(struct cache *c, const struct cache_piece *pieces, size_t n)
{
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        for (size_t i = 0; i < n; i++)
            if (!would_stay_locked(c, &pieces[i]))
                return -EDQUOT;
    }
    return ensure_all(c, pieces, n, PRIORITY_READAHEAD, keep_ahead);
}

int cache_ahead(struct cache *c, const struct cache_piece *pieces, size_t n)
{
    struct chunk_stripe stripe = {.known = false};
    fill_wait_for_memory(&c->fill);
    for (size_t at = 0, end; at < n; at = end + 1) { /* what other nodes keep is left out */
        for (end = at; end < n && fill_is_ours(c, pieces[end].store, &pieces[end].ref, &stripe); end++)
            ;
        int rc = end > at ? ahead_of_ours(c, pieces + at, end - at) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- for other nodes ---- */

/* Copy what landed as it is stored. */
static int copy_stored(const struct miss *miss, const struct buf *plain)
{
    const struct chunk_ref *ref = &miss->piece->ref;
    CLEANUP_BUF struct buf *stored = inflight_stored(miss->inflight);
    const struct buf *bytes = ref->flags & CHUNK_ZSTD ? stored : plain;
    if (!bytes || bytes->len != ref->stored_len)
        return -ENODATA;
    if (miss->piece->dst)
        memcpy(miss->piece->dst, bytes->data, bytes->len);
    return 0;
}

/* A miss_use. */
static int hand_out(struct cache *c, struct miss *miss)
{
    CLEANUP_BUF struct buf *plain = NULL;
    uint64_t now = clock_now_ms();
    int rc = inflight_wait_ms(miss->inflight, miss->until_ms > now ? miss->until_ms - now : 0, &plain);
    return rc ? rc : copy_stored(miss, plain);
}

/* Join or start the fetches of m's chunks; joins: those of readers may be joined. In one locked section with a last
 * look, as for readers: what is neither cached nor in flight then has to be fetched. */
static int start_for_others(struct cache *c, struct misses *m, bool joins, enum fetch_priority priority)
{
    const struct chunk_ref *refs[MISSES_MAX];
    struct inflight *inflights[MISSES_MAX];
    struct miss *starting[MISSES_MAX];
    size_t n = 0;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    for (size_t i = 0; i < m->count; i++)
        if (fill_has_stored_locked(c, &m->items[i].piece->ref))
            return -EAGAIN;
    for (size_t i = 0; i < m->count; i++) {
        struct miss *miss = &m->items[i];
        const struct cache_piece *p = miss->piece;
        miss->inflight = joins ? fetch_find(c->fetch, p->store, &p->ref) : NULL;
        if (miss->inflight)
            continue;
        refs[n] = &p->ref;
        starting[n++] = miss;
    }
    int rc = n ? fetch_start(c->for_others, store_origin(m->items[0].piece->store), refs, n, n, priority,
                             TAG_FOR_OTHERS, inflights)
               : 0;
    for (size_t i = 0; !rc && i < n; i++)
        starting[i]->inflight = inflights[i];
    return rc;
}

/* Fetch up to MISSES_MAX chunks of one stripe for another node. Fetches of this node's readers are joined only if they
 * go to the store: what readers fetch from another node might wait for the very request that would wait for it here. */
static int get_stored(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_priority priority,
                      uint64_t until_ms)
{
    struct misses m = {.count = 0};
    bool joins = chunk_is_own(pieces[0].store, &pieces[0].ref); /* asked without the cache's lock */
    for (size_t i = 0; i < n; i++) {
        misses_add(&m, &pieces[i]);
        m.items[i].until_ms = until_ms;
    }
    int rc = start_for_others(c, &m, joins, priority);
    return misses_finish(c, &m, rc, hand_out, priority == PRIORITY_WARM);
}

int cache_get_stored(struct cache *c, const struct cache_piece *pieces, size_t n, uint64_t until_ms)
{
    int rc = c->fenced ? -ENODATA : 0;
    for (size_t done = 0, part; !rc && done < n; done += part) {
        part = GR_MIN(n - done, (size_t)MISSES_MAX);
        rc = get_stored(c, pieces + done, part, PRIORITY_DEMAND, until_ms);
    }
    return rc;
}

int cache_take(struct cache *c, const struct cache_piece *pieces, size_t n)
{
    int rc = c->fenced ? -ENODATA : 0;
    for (size_t done = 0, part; !rc && done < n; done += part) {
        part = GR_MIN(n - done, (size_t)MISSES_MAX);
        rc = get_stored(c, pieces + done, part, PRIORITY_WARM, clock_now_ms() + TAKE_MS);
    }
    return rc;
}

/* Bringing chunks into the cache: for warming (cache_ensure), for chunks fetched ahead of readers (cache_ahead), and
 * for bytes that the caller fetched itself (cache_put). Missing chunks are fetched, and the calling thread writes
 * them.
 *
 * A window of WARM_WINDOW chunks is in flight at a time. Warming reserves memory for a window before its fetches
 * start (fill_warm_acquire); chunks fetched ahead are bounded by the number of their threads.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cache/miss.h"

enum { WARM_WINDOW = 16 /* chunks in flight at once */ };

/* Wait for a miss and write it to disk, or to memory where there is no disk. `named`: whatever the policy says.
 * *out_kept: what the write came to. Returns the error of the fetch. */
static int bring(struct cache *c, struct miss *miss, bool named, int *out_kept)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = inflight_wait(miss->inflight, &plain);
    if (rc)
        return rc;
    *out_kept = c->dir_count ? fill_inflight(c, miss->inflight, plain, named)
                             : cache_memory_landed(c, &inflight_chunk(miss->inflight)->digest, plain, true);
    return 0;
}

/* A miss_use for warming: a chunk that cannot be kept is an error. */
static int cache_ensure_keep(struct cache *c, struct miss *miss)
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
    return c->dir_count ? miss_ready_locked(c, digest) : cache_memory_has(c, digest);
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
    rc = misses_finish(c, &m, rc, use, use == cache_ensure_keep); /* warming also keeps the chunks behind a bad one */
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
    return ensure_all(c, pieces, n, priority, cache_ensure_keep);
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
    return c->dir_count ? fill_chunk(c, &request, plain, true) : cache_memory_landed(c, &ref->digest, plain, true);
}

int cache_ahead(struct cache *c, const struct cache_piece *pieces, size_t n)
{
    fill_wait_for_memory(&c->fill);
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        for (size_t i = 0; i < n; i++)
            if (!miss_would_stay_locked(c, &pieces[i]))
                return -EDQUOT;
    }
    return ensure_all(c, pieces, n, PRIORITY_READAHEAD, keep_ahead);
}

/* Having chunks in the cache, for who warms and for what is fetched ahead of readers: those that are missing are
 * fetched, and written by the thread that asked.
 */
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cache/miss.h"

enum { WARM_WINDOW = 16 /* chunks in flight at once */ };

/* Wait for a miss and put it where it is kept; named: whatever the policy thinks of it. *out_kept: what that came to.
 */
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

static int cache_ensure_keep(struct cache *c, struct miss *miss)
{
    int kept = 0, rc = bring(c, miss, true, &kept);
    if (kept == -ENODEV)
        return error_set(-EIO, "cache: no directory of the cache can be read and written at the moment; the log says "
                               "why, and when it works again");
    return kept ? error_set(-EIO, "cache: a chunk could not be kept: %s", strerror(-kept)) : rc;
}

/* It pushes out nothing that is worth more. */
static int keep_ahead(struct cache *c, struct miss *miss)
{
    int kept = 0, rc = bring(c, miss, false, &kept);
    return kept == -EDQUOT || kept == -ENODEV ? kept : rc;
}

/* Memory counts as kept where there is nothing else. */
static bool kept_locked(const struct cache *c, const struct digest *digest)
{
    return c->dir_count ? miss_ready_locked(c, digest) : cache_memory_has(c, digest);
}

/* Which of the n pieces are missing; returns their bytes. */
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
    bool warm =
        priority == PRIORITY_WARM; /* what is fetched ahead is bounded by its threads, and not to wait for warming */
    if (warm)
        fill_warm_acquire(&c->fill, bytes, fetch_warm_window(c->fetch));
    int rc;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        look_for_missing_locked(c, pieces, n, &m); /* again: the wait may have been long */
        rc = misses_start_locked(c, &m, 0, NULL, 0, priority);
    }
    rc =
        misses_finish(c, &m, rc, use, use == cache_ensure_keep); /* the cache also keeps what came beside a bad chunk */
    if (warm)
        fill_warm_release(&c->fill, bytes);
    return rc;
}

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

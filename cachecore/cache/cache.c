/* The cache assembled: directories -> space (loaded) -> rings -> fetch -> fills, and taken down so
 * that nothing is retired after its fetch is gone: fills first (what lands later is not kept), then
 * the fetch, then the rest.
 */
#include "cache/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "cache/cache_internal.h"

static void cache_destroy(struct cache *c)
{
    fetch_free(c->fetch);
    rings_free(c->rings);
    space_release(&c->space);
    for (size_t i = 0; i < c->dir_count; i++)
        cache_dir_close(c->dirs[i]);
    fill_release(&c->fill);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
DEFINE_CLEANUP(cache, struct cache *, cache_destroy)

static int open_dirs(struct cache *c, const struct cache_config *config)
{
    if (config->dir_count > CACHE_DIRS_MAX)
        return error_set(-EINVAL, "cache: at most %d directories", CACHE_DIRS_MAX);
    for (size_t i = 0; i < config->dir_count; i++) {
        int rc = cache_dir_open(config->dirs[i].path, config->dirs[i].size, &c->dirs[i]);
        if (rc)
            return rc;
        c->dir_count++;
    }
    return 0;
}

static int load_dirs(struct cache *c)
{
    struct cache_geometry geometries[CACHE_DIRS_MAX];
    for (size_t i = 0; i < c->dir_count; i++)
        geometries[i] = c->dirs[i]->geometry;
    int rc = space_init(&c->space, geometries, c->dir_count);
    struct space_load load = {0};
    for (unsigned i = 0; !rc && i < c->dir_count; i++)
        rc = cache_dir_load(c->dirs[i], i, &c->space, &load);
    if (rc)
        vec_release(&load.slots);
    else
        space_load_finish(&c->space, &load);
    return rc;
}

static int make_rings(struct cache *c, bool no_uring)
{
    int fds[CACHE_DIRS_MAX];
    for (size_t i = 0; i < c->dir_count; i++)
        fds[i] = c->dirs[i]->data_fd;
    return rings_new(fds, c->dir_count, no_uring, &c->ring_stats, &c->rings);
}

int cache_open_with(const struct cache_config *config, bool no_uring, struct cache **out)
{
    CLEANUP(cleanup_cache) struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(-ENOMEM, "cache: out of memory");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    int rc = fill_init(&c->fill, config->fill_memory);
    if (!rc)
        rc = open_dirs(c, config);
    if (!rc)
        rc = load_dirs(c);
    if (!rc)
        rc = make_rings(c, no_uring);
    if (!rc) {
        struct fetch_config fetch = config->fetch;
        fetch.on_landed = fill_landed;
        fetch.arg = c;
        rc = fetch_new(&fetch, &c->fetch);
    }
    if (rc)
        return rc;
    if (c->dir_count)
        log_info("cache: %llu chunks kept from before", (unsigned long long)c->space.entries);
    *out = steal_ptr(&c);
    return 0;
}

int cache_open(const struct cache_config *config, struct cache **out)
{
    return cache_open_with(config, false, out);
}

int cache_start_threads(struct cache *c)
{
    for (size_t i = 0; i < c->dir_count; i++)
        cache_dir_sign(c->dirs[i]);
    int rc = fill_start_threads(c);
    return rc ? rc : fetch_start_threads(c->fetch);
}

void cache_close(struct cache *c)
{
    if (!c)
        return;
    fill_stop(&c->fill);
    cache_destroy(c);
}

void cache_unpin(struct cache *c, const struct space_slot *slot)
{
    space_unpin(slot->pins);
    if (atomic_load(&c->waiters) == 0)
        return;
    SCOPED_LOCK(&c->lock);
    pthread_cond_broadcast(&c->changed);
}

bool cache_has(struct cache *c, const struct digest *chunk)
{
    if (!c->dir_count)
        return false;
    SCOPED_LOCK(&c->lock);
    uint32_t id = space_find(&c->space, chunk);
    return id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY;
}

struct gauges {
    uint64_t entries, used, evictions;
};

static struct gauges read_gauges(struct cache *c)
{
    SCOPED_LOCK(&c->lock);
    return (struct gauges){c->space.entries, c->space.used_bytes, c->space.evictions};
}

void cache_counters(struct cache *c, counter_visit *visit, void *arg)
{
    struct cache_stats *s = &c->stats;
    struct gauges g = read_gauges(c);
    uint64_t budget = 0;
    for (size_t i = 0; i < c->dir_count; i++)
        budget += c->dirs[i]->geometry.budget;
    const struct counter_row rows[] = {
        {"granary_cache_hits_total", "Pieces of chunks served from the cache.", counter_get(&s->hits)},
        {"granary_cache_misses_total", "Pieces of chunks that had to be fetched.", counter_get(&s->misses)},
        {"granary_cache_hit_bytes_total", "Bytes served from the cache.", counter_get(&s->hit_bytes)},
        {"granary_cache_miss_bytes_total", "Bytes served after a fetch.", counter_get(&s->miss_bytes)},
        {"granary_cache_fills_total", "Chunks written to the cache.", counter_get(&s->fills)},
        {"granary_cache_fill_bytes_total", "Bytes written to the cache.", counter_get(&s->fill_bytes)},
        {"granary_cache_fills_dropped_total", "Chunks not kept because writing was behind.",
         counter_get(&s->fills_dropped)},
        {"granary_cache_fill_errors_total", "Chunks not kept because the disk refused them.",
         counter_get(&s->fill_errors)},
        {"granary_cache_read_errors_total", "Reads of the cache that the disk failed.", counter_get(&s->read_errors)},
        {"granary_cache_crc_errors_total", "Reads of the cache whose bytes differed from their checksum.",
         counter_get(&s->crc_errors)},
        {"granary_cache_evictions_total", "Chunks that made room for others.", g.evictions},
        {"granary_cache_entries", "Chunks in the cache.", g.entries},
        {"granary_cache_used_bytes", "Bytes of slots in use.", g.used},
        {"granary_cache_capacity_bytes", "Bytes of slots there are.", space_capacity(&c->space)},
        {"granary_cache_budget_bytes", "Bytes the cache may take on disk, everything counted.", budget},
        {"granary_cache_rings", "io_urings there are.", counter_get(&c->ring_stats.rings)},
        {"granary_cache_uring_reads_total", "Disk reads by io_uring.", counter_get(&c->ring_stats.reads)},
        {"granary_cache_pread_reads_total", "Disk reads by pread.", counter_get(&c->ring_stats.preads)},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        visit(arg, &rows[i]);
    fetch_counters(c->fetch, visit, arg);
}

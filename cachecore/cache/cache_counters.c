/* Every counter of the cache, in six tables: traffic, directories, slots, whole images, memory tier and mover, rings.
 * Values that the space guards are copied in one locked section first, so that visitors run without a lock. */
#include "cache/cache_internal.h"

/* What the space knows, copied under its lock. */
struct gauges {
    uint64_t entries, used, meta, capacity, evictions, quota_refusals, yielded, followed, budget;
};

struct view {
    struct cache *c;
    counter_visit *visit;
    void *arg;
    struct gauges gauges;
    struct memory_tier_stats memory;
};

static uint64_t count_dirs(const struct cache *c, enum cache_direction direction, enum health_state state)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->dir_count; i++)
        n += cache_dir_state(c->dirs[i], direction) == state;
    return n;
}

static uint64_t count_deleted(const struct cache *c)
{
    uint64_t n = 0;
    for (size_t i = 0; i < c->dir_count; i++)
        n += atomic_load(&c->dirs[i]->deleted);
    return n;
}

/* Copy what the space knows, in one locked section. */
static struct gauges read_gauges(struct cache *c)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    const struct space *s = &c->space;
    struct gauges g = {.entries = s->entries,
                       .used = s->used_bytes,
                       .meta = s->meta_bytes,
                       .capacity = s->capacity,
                       .evictions = s->evictions,
                       .quota_refusals = s->quota_refusals,
                       .followed = evict_followed(s->evict)};
    for (size_t i = 0; i < c->dir_count; i++) {
        g.budget += c->dirs[i]->geometry.budget;
        g.yielded += (uint64_t)s->dirs[i].yielded * s->dirs[i].geometry.slab_size;
    }
    return g;
}

static void show(const struct view *v, const struct counter_row *rows, size_t n)
{
    counter_show(rows, n, v->visit, v->arg);
}

/* Hits of the memory tier count as hits of the cache. */
static void show_traffic(const struct view *v)
{
    struct cache_stats *s = &v->c->stats;
    const struct gauges *g = &v->gauges;
    const struct memory_tier_stats *m = &v->memory;
    const struct counter_row rows[] = {
        {"granary_cache_hits_total", "Pieces of chunks served from the cache.", counter_get(&s->hits) + m->hits},
        {"granary_cache_misses_total", "Pieces of chunks that had to be fetched.", counter_get(&s->misses)},
        {"granary_cache_hit_bytes_total", "Bytes served from the cache.", counter_get(&s->hit_bytes) + m->hit_bytes},
        {"granary_cache_miss_bytes_total", "Bytes served after a fetch.", counter_get(&s->miss_bytes)},
        {"granary_cache_fills_total", "Chunks written to the cache.", counter_get(&s->fills)},
        {"granary_cache_fill_bytes_total", "Bytes written to the cache.", counter_get(&s->fill_bytes)},
        {"granary_cache_fills_dropped_total", "Chunks not kept because writing was behind.",
         counter_get(&s->fills_dropped)},
        {"granary_cache_not_admitted_total", "Chunks not kept because what is in the cache is worth more.",
         counter_get(&s->not_admitted)},
        {"granary_cache_others_total", "Chunks not kept because another node keeps them.", counter_get(&s->others)},
        {"granary_cache_quota_refusals_total", "Chunks not kept because their image's quota is used up.",
         g->quota_refusals},
        {"granary_cache_fill_queue_bytes", "Bytes of chunks that have arrived and are not written yet.",
         fill_queued_bytes(&v->c->fill)},
        {"granary_cache_fill_errors_total", "Chunks not kept because writing them to disk failed.",
         counter_get(&s->fill_errors)},
        {"granary_cache_read_errors_total", "Reads of the cache that failed on disk.", counter_get(&s->read_errors)},
        {"granary_cache_read_timeouts_total", "Reads of the cache that the disk did not answer in time.",
         counter_get(&s->read_timeouts)},
        {"granary_cache_crc_errors_total", "Reads of the cache whose bytes differed from their checksum.",
         counter_get(&s->crc_errors) + m->crc_errors},
        {"granary_cache_bypassed_total", "Pieces of cached chunks fetched because their directory is down or late.",
         counter_get(&s->bypassed)},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

static void show_directories(const struct view *v)
{
    const struct cache *c = v->c;
    const struct counter_row rows[] = {
        {"granary_cache_directories", "Cache directories in use.", c->dir_count},
        {"granary_cache_directories_absent", "Cache directories that could not be opened at the start.",
         c->absent_count},
        {"granary_cache_directories_deleted", "Cache directories whose files were deleted.", count_deleted(c)},
        {"granary_cache_reading_suspect", "Cache directories whose reading failed lately.",
         count_dirs(c, CACHE_READING, HEALTH_SUSPECT)},
        {"granary_cache_reading_down", "Cache directories that are not read.",
         count_dirs(c, CACHE_READING, HEALTH_DOWN)},
        {"granary_cache_writing_suspect", "Cache directories whose writing failed lately.",
         count_dirs(c, CACHE_WRITING, HEALTH_SUSPECT)},
        {"granary_cache_writing_down", "Cache directories that are not written.",
         count_dirs(c, CACHE_WRITING, HEALTH_DOWN)},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

static void show_slots(const struct view *v)
{
    const struct gauges *g = &v->gauges;
    const struct counter_row rows[] = {
        {"granary_cache_evictions_total", "Chunks evicted to make room for others.", g->evictions},
        {"granary_cache_eviction_followed",
         "Eviction policy in use: 1 lru, 2 s3fifo, 3 sticky, 4 lfu, 5 lfu-firm, 6 parts.", g->followed},
        {"granary_cache_entries", "Chunks in the cache.", g->entries},
        {"granary_cache_used_bytes", "Bytes of slots in use.", g->used},
        {"granary_cache_metadata_bytes", "Bytes of slots that hold index nodes and manifests.", g->meta},
        {"granary_cache_capacity_bytes", "Bytes of all slots.", g->capacity},
        {"granary_cache_yielded_bytes",
         "Bytes of slots given back: to a filesystem that is short of space, or to whole images.", g->yielded},
        {"granary_cache_budget_bytes", "Bytes the cache may take on disk, everything counted.", g->budget},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

static void show_residents(const struct view *v)
{
    const struct cache *c = v->c;
    uint64_t bytes = 0, complete = 0, in_use = 0, pinned = 0, bad = 0, filling = 0, filled = 0;
    for (size_t i = 0; i < c->dir_count; i++) {
        struct cache_dir *d = c->dirs[i];
        bytes += atomic_load(&d->resident);
        complete += atomic_load(&d->residents.complete);
        in_use += atomic_load(&d->residents.in_use);
        pinned += atomic_load(&d->residents.pinned);
        bad += atomic_load(&d->residents.bad);
        filling += atomic_load(&d->filling);
        filled += atomic_load(&d->filled);
    }
    const struct counter_row rows[] = {
        {"granary_cache_resident_bytes", "Bytes of whole images beside the slots.", bytes},
        {"granary_cache_resident_images", "Whole images beside the slots that are complete.", complete},
        {"granary_cache_resident_in_use", "Of these and the bad ones, those that are mounted or being checked.",
         in_use},
        {"granary_cache_resident_pinned", "Whole images beside the slots that are pinned.", pinned},
        {"granary_cache_resident_bad", "Files of whole images that a check found bad and that are still there.", bad},
        {"granary_cache_resident_filling_bytes", "Bytes of the whole images that are being written.", filling},
        {"granary_cache_resident_filled_bytes", "Of these, bytes that are done, holes included.", filled},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

static void show_memory_and_moves(const struct view *v)
{
    const struct memory_tier_stats *m = &v->memory;
    struct mover_stats none = {0}, *up = v->c->mover ? mover_stats(v->c->mover) : &none;
    const struct counter_row rows[] = {
        {"granary_cache_memory_hits_total", "Pieces of chunks served from memory.", m->hits},
        {"granary_cache_memory_hit_bytes_total", "Bytes served from memory.", m->hit_bytes},
        {"granary_cache_memory_entries", "Chunks in memory.", m->entries},
        {"granary_cache_memory_used_bytes", "Bytes of slots of memory in use.", m->used_bytes},
        {"granary_cache_memory_capacity_bytes", "Bytes of all slots of memory.", m->capacity},
        {"granary_cache_memory_evictions_total", "Chunks evicted from memory to make room for others.", m->evictions},
        {"granary_cache_memory_lifts_total", "Chunks read whole from disk into memory.", counter_get(&up->lifts)},
        {"granary_cache_moves_total", "Chunks moved from a slow directory to a fast one.", counter_get(&up->moves)},
        {"granary_cache_moves_dropped_total", "Chunks not read into memory or moved because the mover was behind.",
         v->c->hot ? hot_dropped(v->c->hot) : 0},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

static void show_rings(const struct view *v)
{
    struct cache *c = v->c;
    const struct counter_row rows[] = {
        {"granary_cache_rings_lost_total",
         "Rings of reads and writes abandoned because their disk did not answer in time.",
         counter_get(&c->reader_stats.lost) + counter_get(&c->writer_stats.lost)},
        {"granary_cache_rings", "io_urings open now.",
         counter_get(&c->reader_stats.rings) + counter_get(&c->writer_stats.rings)},
        {"granary_cache_record_hits_total", "Records of chunks found in memory, which were not read from disk.",
         counter_get(&c->stats.record_hits)},
        {"granary_cache_record_memory_bytes", "Bytes of memory that hold records of chunks.",
         record_memory_used(c->records)},
        {"granary_cache_uring_reads_total", "Disk reads by io_uring.", counter_get(&c->reader_stats.reads)},
        {"granary_cache_pread_reads_total", "Disk reads by pread.", counter_get(&c->reader_stats.preads)},
    };
    show(v, rows, GR_ARRAY_SIZE(rows));
}

/* The counters of fetches for other nodes that say something which those of the node's own fetches do not. */
static void show_for_others(void *arg, const struct counter_row *row)
{
    static const struct counter_row ours[] = {
        {"granary_peer_fetch_requests_total", "GETs sent to stores for other nodes", 0},
        {"granary_peer_fetch_errors_total", "Chunks for other nodes whose fetch failed and was given up", 0},
        {"granary_peer_fetch_verify_failures_total",
         "Times a chunk for another node did not match its checksums, or what that node said of it", 0},
        {"granary_peer_fetch_in_flight", "Fetches for other nodes now, and chunks of these that are being written", 0},
    };
    static const char theirs[] = "granary_fetch", mine[] = "granary_peer_fetch";
    const struct view *v = arg;
    for (size_t i = 0; i < GR_ARRAY_SIZE(ours); i++)
        if (!strcmp(row->name + sizeof theirs - 1, ours[i].name + sizeof mine - 1))
            v->visit(v->arg, &(struct counter_row){ours[i].name, ours[i].help, row->value});
}

uint64_t cache_longest_wait_us(struct cache *c, const struct store *store)
{
    return fetch_longest_wait_us(c->fetch, store);
}

void cache_counters(struct cache *c, counter_visit *visit, void *arg)
{
    struct view v = {.c = c, .visit = visit, .arg = arg, .gauges = read_gauges(c)};
    if (c->memory_tier)
        memory_tier_stats(c->memory_tier, &v.memory);
    show_traffic(&v);
    show_directories(&v);
    show_slots(&v);
    show_residents(&v);
    show_memory_and_moves(&v);
    show_rings(&v);
    fetch_counters(c->fetch, visit, arg);
    if (c->for_others)
        fetch_counters(c->for_others, show_for_others, &v);
}

void cache_histograms(struct cache *c, histogram_visit *visit, void *arg)
{
    const struct histogram_row disk_reads = {
        "granary_cache_disk_read_seconds",
        "How long all disk hits of one read took; for short reads of granary-nbd, each of its chunks.",
        {0},
        0};
    const struct histogram_row waits = {
        "granary_fetch_wait_seconds", "How long reads waited for a chunk's fetch, the queue included", {0}, 0};
    histogram_show(&c->disk_reads, disk_reads, visit, arg);
    histogram_show(&c->fetch_waits, waits, visit, arg);
    fetch_histograms(c->fetch, visit, arg);
}

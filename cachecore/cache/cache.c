/* The cache's life: open, start, close, and questions about the whole.
 *
 *    open:   directories (locked, reserved) -> space (loaded from records) -> memory tier -> mover -> rings -> fetch
 *    start:  fill threads, mover, disk monitor, fetch threads          (after a fork)
 *    close:  fills first, then the fetch, then the rest
 *
 * Fills end before the fetch is freed, because a fill retires its fetch: chunks that land later are not kept. A disk
 * that fails at the start costs its directory, never the server.
 */
#include "cache/cache_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "base/thread.h"

/* Free a cache whose threads have ended, also a half-made one. */
static void cache_destroy(struct cache *c)
{
    fetch_free(c->for_others);
    fetch_free(c->fetch);
    rings_free(c->readers);
    rings_free(c->writers);
    space_release(&c->space);
    mover_free(c->mover);
    hot_free(c->hot);
    record_memory_free(c->records);
    memory_tier_free(c->memory_tier);
    free(c->seen);
    for (size_t i = 0; i < c->dir_count; i++)
        cache_dir_close(c->dirs[i]);
    for (size_t i = 0; i < c->absent_count; i++)
        free(c->absent[i].path);
    disk_monitor_release(&c->disk_monitor);
    fill_release(&c->fill);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
}
DEFINE_CLEANUP(cache, struct cache *, cache_destroy)

/* Is the error the disk's, and not a fault of the configuration? */
static bool is_disk_fault(int rc)
{
    return rc == -EIO || rc == -EROFS || rc == -ENODEV || rc == -ENXIO || rc == -ETIMEDOUT || rc == -EUCLEAN ||
           rc == -ENOTCONN || rc == -ESTALE;
}

/* Remember the directory as absent and go on: a dead cache disk is no reason not to serve. */
static int note_absent(struct cache *c, const char *path, uint64_t size)
{
    log_error("%s; starting without this directory: until the next start nothing is kept there", error_text());
    char *copy = strdup(path);
    if (!copy)
        return error_no_memory();
    c->absent[c->absent_count].path = copy;
    c->absent[c->absent_count++].size = size;
    return 0;
}

/* Open and lock every directory, each within the timeout: a disk that hangs must not hold the start. */
static int open_dirs(struct cache *c, const struct cache_config *config, const struct cache_test_hooks *hooks)
{
    uint32_t timeout_ms = hooks->open_timeout_ms ? hooks->open_timeout_ms : OPEN_TIMEOUT_MS;
    if (config->dir_count > CACHE_DIRS_MAX)
        return error_set(-EINVAL, "cache: at most %d directories", CACHE_DIRS_MAX);
    for (size_t i = 0; i < config->dir_count; i++) {
        struct cache_dir_order order = {.path = config->dirs[i].path,
                                        .size = config->dirs[i].size,
                                        .percent = config->dirs[i].percent,
                                        .high = config->watermark.high,
                                        .begin = hooks->opening};
        int rc = cache_dir_open_within(&order, timeout_ms, &c->dirs[c->dir_count]);
        if (!rc)
            c->dirs[c->dir_count++]->media = config->dirs[i].hdd ? CACHE_MEDIA_HDD : CACHE_MEDIA_SSD;
        else if (!is_disk_fault(rc) || (rc = note_absent(c, order.path, order.size)))
            return rc;
    }
    return 0;
}

/* Return the hash by which records name an image; never 0, which means nobody. */
static uint64_t owner_of(const char *image)
{
    struct digest name = digest_of(image, strlen(image));
    uint64_t owner = le64_get(name.b);
    return owner ? owner : 1;
}

/* An image may have one quota only. */
static int check_quotas(const struct cache_config *config)
{
    if (config->quota_count > CACHE_QUOTAS_MAX)
        return error_set(-EINVAL, "cache: at most %d quotas", CACHE_QUOTAS_MAX);
    for (size_t i = 0; i < config->quota_count; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(config->quotas[i].name, config->quotas[k].name))
                return error_set(-EINVAL, "cache: two quotas of '%s'; give it one", config->quotas[i].name);
    return 0;
}

int cache_set_quota(struct cache *c, const char *image, uint64_t size)
{
    uint64_t owner = owner_of(image);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    if (!size && !space_limited(&c->space, owner))
        return 0;
    if (space_set_limit(&c->space, owner, size ? size : SPACE_NO_LIMIT))
        return 0;
    return error_set(-EDQUOT,
                     "the cache can account for %d images that have a quota, or had one and still have chunks; '%s' "
                     "gets no quota until some of those chunks are evicted (granary cache evict), or the server is "
                     "started again",
                     SPACE_GROUPS_MAX, image);
}

unsigned cache_quota(struct cache *c, const char *image)
{
    uint64_t owner = owner_of(image);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    return space_limited(&c->space, owner);
}

struct cache_quota_use cache_quota_use(struct cache *c, const char *image)
{
    uint64_t owner = owner_of(image);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    unsigned group = space_limited(&c->space, owner);
    if (!group)
        return (struct cache_quota_use){0};
    return (struct cache_quota_use){c->space.groups[group - 1].quota.limit, c->space.groups[group - 1].used};
}

/* Build the index from the records of every directory. Slots enter it at the end, in the order in which they were
 * filled. */
static int load_dirs(struct cache *c, const struct cache_config *from, const struct cache_test_hooks *hooks)
{
    struct space_config config = {.dir_count = c->dir_count, .policy = from->eviction};
    for (size_t i = 0; i < c->dir_count; i++) {
        config.dirs[i].geometry = c->dirs[i]->geometry;
        config.dirs[i].media = c->dirs[i]->media;
    }
    int rc = space_init(&c->space, &config);
    for (size_t i = 0; !rc && i < from->quota_count; i++) /* there are places for all */
        (void)space_set_limit(&c->space, owner_of(from->quotas[i].name), from->quotas[i].size);
    struct cache_load load = {.space = &c->space,
                              .calls = &hooks->calls,
                              .timeout_ms = hooks->load_timeout_ms ? hooks->load_timeout_ms : OPEN_TIMEOUT_MS};
    for (unsigned i = 0; !rc && i < c->dir_count; i++)
        rc = cache_dir_load(c->dirs[i], i, &load);
    for (unsigned i = 0; !rc && i < c->dir_count; i++)
        space_dir_writable(&c->space, i, cache_dir_fills(c->dirs[i]));
    if (!rc)
        return space_load_finish(&c->space, &load.slots);
    vec_release(&load.slots.slots);
    return rc;
}

/* Make the pools of rings. Readers use huge buffers; writers hand over asynchronously, so that a slow disk holds no
 * thread that only submits. */
static int make_rings(struct cache *c, const struct cache_test_hooks *hooks)
{
    int fds[RING_FILES_MAX];
    for (unsigned i = 0; i < c->dir_count; i++) {
        fds[cache_data_file(i)] = c->dirs[i]->data_fd;
        fds[cache_record_file(i)] = c->dirs[i]->record_fd;
    }
    struct rings_config config = {
        .fds = fds,
        .count = c->dir_count * 2,
        .limit = READERS_MAX,
        .huge_bounce = true,
        .no_uring = hooks->no_uring,
        .calls = hooks->calls,
    };
    int rc = rings_new(&config, &c->reader_stats, &c->readers);
    config.limit = WRITERS_MAX;
    config.huge_bounce = false;
    config.async = true;
    config.no_uring = hooks->no_uring || hooks->calls.pwrite;
    return rc ? rc : rings_new(&config, &c->writer_stats, &c->writers);
}

/* Make the mover where there is a faster tier to move chunks to: memory, or SSDs beside hard disks. */
static int make_mover(struct cache *c, const struct cache_config *config, uint32_t apart_ms)
{
    struct hot_config hot = {.capacity = config->memory, .to_memory = c->memory_tier, .apart_ms = apart_ms};
    uint64_t fast = 0, slow = 0;
    for (size_t i = 0; i < c->dir_count; i++)
        *(c->dirs[i]->media == CACHE_MEDIA_HDD ? &slow : &fast) += c->dirs[i]->geometry.budget;
    c->tiered = fast && slow;
    if (c->tiered)
        hot.capacity += fast;
    if (!c->dir_count || (!c->memory_tier && !c->tiered))
        return 0;
    int rc = hot_new(&hot, &c->hot);
    return rc ? rc : mover_new(c, &c->mover);
}

/* Open the cache in the order at the top of the file. On an error the cleanup frees what was made so far. */
int cache_open_with(const struct cache_config *config, const struct cache_test_hooks *hooks, struct cache **out)
{
    CLEANUP(cleanup_cache) struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    pthread_mutex_init(&c->lock, NULL);
    thread_cond_init(&c->changed);
    disk_monitor_init(&c->disk_monitor);
    c->disk_timeout_ms = config->disk_timeout_ms ? config->disk_timeout_ms : DISK_TIMEOUT_DEFAULT_MS;
    c->compressed = config->compressed || config->as_stored;
    c->as_stored = config->as_stored;
    c->others = config->others;
    c->fenced = config->fenced;
    c->watermark.high = config->watermark.high;
    c->watermark.low = config->watermark.low;
    int rc = fill_init(&c->fill, config->fill_memory);
    if (!rc)
        rc = check_quotas(config);
    if (!rc)
        rc = open_dirs(c, config, hooks);
    if (!rc)
        rc = load_dirs(c, config, hooks);
    if (!rc && config->others == CACHE_OTHERS_HOT)
        rc = fill_seen_new(&c->seen);
    if (!rc && config->memory)
        rc = memory_tier_new(config->memory, config->eviction, &c->memory_tier);
    if (!rc)
        rc = make_mover(c, config, hooks->apart_ms);
    if (!rc)
        rc = make_rings(c, hooks);
    if (!rc && c->dir_count)
        rc = record_memory_new(c->space.capacity, &c->records);
    if (!rc) {
        struct fetch_config fetch = config->fetch;
        fetch.keep_stored = c->compressed;
        fetch.on_landed = fill_landed;
        fetch.find_base = cache_find_base;
        fetch.arg = c;
        rc = fetch_new(&fetch, &c->fetch);
    }
    if (!rc && c->as_stored)
        rc = fetch_new(&(struct fetch_config){.workers = CACHE_OTHERS_GETS,
                                              .timeout_ms = CACHE_OTHERS_MS,
                                              .keep_stored = true,
                                              .no_again = true,
                                              .on_landed = fill_landed_for_others,
                                              .arg = c},
                       &c->for_others);
    if (rc)
        return rc;
    if (c->dir_count)
        log_info("cache: %llu chunks kept from before", (unsigned long long)c->space.entries);
    *out = steal_ptr(&c);
    return 0;
}

int cache_open(const struct cache_config *config, struct cache **out)
{
    static const struct cache_test_hooks none;
    return cache_open_with(config, &none, out);
}

int cache_start_threads(struct cache *c)
{
    for (size_t i = 0; i < c->dir_count; i++)
        cache_dir_sign(c->dirs[i]);
    int rc = fill_start_threads(c);
    if (!rc && c->mover)
        rc = mover_start_thread(c->mover);
    if (!rc)
        rc = disk_monitor_start(c);
    if (!rc && c->for_others)
        rc = fetch_start_threads(c->for_others);
    return rc ? rc : fetch_start_threads(c->fetch);
}

void cache_keep_no_more(struct cache *c)
{
    fill_take_no_more(&c->fill);
}

size_t cache_unwritten(struct cache *c)
{
    return fill_queued_bytes(&c->fill);
}

void cache_close(struct cache *c)
{
    if (!c)
        return;
    disk_monitor_tell_to_stop(&c->disk_monitor);
    mover_stop(c->mover);
    fill_stop(&c->fill, c->disk_timeout_ms);
    disk_monitor_stop(&c->disk_monitor);
    cache_destroy(c);
}

bool cache_has(struct cache *c, const struct digest *chunk)
{
    if (memory_tier_has(c->memory_tier, chunk))
        return true;
    if (!c->dir_count)
        return false;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, chunk);
    return id != SPACE_NONE && cache_readable_locked(c, id);
}

/* Without directories the memory tier is all there is. Otherwise pinned slots and metadata do not count as room for
 * an image, and a quota bounds it further. */
struct cache_capacity cache_capacity(struct cache *c, unsigned quota)
{
    struct cache_capacity capacity = {0, 0};
    if (!c->dir_count && c->memory_tier) {
        struct memory_tier_stats memory;
        memory_tier_stats(c->memory_tier, &memory);
        capacity.most = memory.capacity;
        capacity.free = memory.capacity - GR_MIN(memory.capacity, memory.used_bytes);
        return capacity;
    }
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    const struct space *s = &c->space;
    uint64_t kept = s->pinned_bytes + s->meta_bytes;
    capacity.most = s->capacity - GR_MIN(s->capacity, kept);
    capacity.free = s->capacity - GR_MIN(s->capacity, s->used_bytes);
    if (quota)
        capacity.most = GR_MIN(capacity.most, s->groups[quota - 1].quota.limit);
    return capacity;
}

size_t cache_dir_reports(struct cache *c, struct cache_dir_report out[CACHE_DIRS_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < c->dir_count; i++) {
        const struct cache_dir *d = c->dirs[i];
        out[n++] = (struct cache_dir_report){
            .path = d->path,
            .size = d->size,
            .reading = health_name(cache_dir_state(d, CACHE_READING)),
            .writing = health_name(cache_dir_state(d, CACHE_WRITING)),
            .deleted = atomic_load(&d->deleted),
        };
    }
    for (size_t i = 0; i < c->absent_count; i++)
        out[n++] = (struct cache_dir_report){
            .path = c->absent[i].path, .size = c->absent[i].size, .reading = "absent", .writing = "absent"};
    return n;
}

unsigned cache_format_version(void)
{
    return CACHE_META_VERSION;
}

/* The read side, assembled in this order and taken down in reverse:
 *
 *   digests   each reference resolved, once: a tag that moves later moves nothing here. With the store away, by
 *             the table of exports beside the cache (resolver.h)
 *   stores    one for each store URL, with retries (store_open), behind its shared tiers where there are any
 *             (store_tiers_open_urls); nothing is asked of it yet
 *   cache     directories locked and loaded, with the fetch scheduler under it; no thread yet
 *   ahead     what completes the images in the background, unless that is not wanted
 *   images    manifests by the table or from the store, verified; then the table is written
 *   threads   stack_start_threads, after the fork of a front door that daemonizes
 */
#include "stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"
#include "image/ahead.h"
#include "net/http_places.h"
#include "store/resolver.h"

enum { COUNTER_ROWS_MAX = 32, INDEX_MEMORY_DEFAULT = 64 << 20, AHEAD_THREADS = 8 };

struct stack_entry {
    char *export_name;
    struct image_ref ref; /* by digest */
    struct store *store;  /* one of the stack's */
    struct image *image;
};

struct stack_store {
    char *url;
    struct store *store;
};

struct stack {
    VEC(struct stack_store) stores;
    VEC(struct stack_entry) images;
    struct cache *cache;
    struct ahead *ahead; /* NULL: nothing is completed */
    struct histogram reads;
    struct slow_reads slow;
    struct rate rate;
    struct http_places places;  /* of all stores, their tiers, and the handles of stack_open_store */
    struct store_options store; /* the config's; with the rate where it is limited */
    bool tiered;                /* the only store is behind tiers */
    uint64_t opened_ms;         /* on clock_now_ms */
};
DEFINE_CLEANUP(stack, struct stack *, stack_close)

static int no_memory(void)
{
    return error_set(-ENOMEM, "stack: out of memory");
}

static int open_store(const struct stack *s, const char *url, const struct stack_config *config, struct store **out)
{
    struct store *origin = NULL;
    int rc = store_open(url, &s->store, &origin);
    if (rc || !config->tier_count) {
        *out = origin;
        return rc;
    }
    return store_tiers_open_urls(origin, config->tiers, config->tier_count, &s->store, out);
}

static int add_store(struct stack *s, const char *url, const struct stack_config *config, struct store **out)
{
    for (size_t i = 0; i < s->stores.len; i++)
        if (!strcmp(s->stores.items[i].url, url)) {
            *out = s->stores.items[i].store;
            return 0;
        }
    if (config->tier_count && s->stores.len)
        return error_set(-EINVAL,
                         "shared tiers answer for one store, and the images are of two: %s and %s; serve each store's "
                         "images by a server of their own",
                         s->stores.items[0].url, url);
    CLEANUP_FREE char *copy = strdup(url);
    CLEANUP(cleanup_store) struct store *store = NULL;
    if (!copy)
        return no_memory();
    int rc = open_store(s, url, config, &store);
    if (rc)
        return rc;
    const struct stack_store entry = {.url = copy, .store = store};
    if (vec_push(&s->stores, entry))
        return no_memory();
    *out = steal_ptr(&store);
    steal_ptr(&copy);
    return 0;
}

static int check_export_name(const struct stack *s, const char *name)
{
    if (!*name)
        return error_set(-EINVAL, "image: an export's name is empty; write image=NAME=STORE/IMAGE");
    for (size_t i = 0; i < s->images.len; i++)
        if (!strcmp(s->images.items[i].export_name, name))
            return error_set(-EINVAL,
                             "image: two images would be exported as '%s'; give one of them another name with "
                             "image=NAME=STORE/IMAGE",
                             name);
    return 0;
}

/* Parse, resolve, open its store. The image itself comes later: it needs the cache. */
static int add_image(struct stack *s, const struct stack_image *image, const struct stack_config *config,
                     struct resolver *resolver)
{
    struct stack_entry entry = {0};
    int rc = image_ref_parse(image->ref, &entry.ref);
    if (rc)
        return rc;
    const char *name = image->export_name ? image->export_name : entry.ref.name;
    rc = check_export_name(s, name);
    if (!rc)
        rc = resolver_resolve(resolver, &entry.ref);
    if (!rc)
        rc = add_store(s, entry.ref.store, config, &entry.store);
    if (rc)
        return rc;
    CLEANUP_FREE char *copy = strdup(name);
    entry.export_name = copy;
    if (!copy || vec_push(&s->images, entry))
        return no_memory();
    steal_ptr(&copy);
    return 0;
}

static int open_image(struct stack *s, const struct stack_config *config, struct resolver *resolver,
                      struct stack_entry *e)
{
    size_t memory = config->index_memory ? config->index_memory : INDEX_MEMORY_DEFAULT;
    struct manifest manifest;
    int rc = resolver_manifest(resolver, &e->ref, &manifest);
    if (rc)
        return rc;
    const struct image_config image = {
        .cache = s->cache,
        .store = e->store,
        .manifest = &manifest,
        .index_memory = memory / s->images.len,
        .quota = cache_quota(s->cache, e->ref.name),
        .readahead = config->readahead,
        .latency = &s->reads,
        .slow = &s->slow,
    };
    rc = image_open(&image, &e->ref.digest, &e->image);
    return rc || !s->ahead ? rc : ahead_add(s->ahead, e->image);
}

/* A quota of no image here is a slip of the pen. */
static int check_quotas(const struct stack *s, const struct cache_config *cache)
{
    for (size_t i = 0; i < cache->quota_count; i++) {
        bool found = false;
        for (size_t k = 0; k < s->images.len; k++)
            found |= !strcmp(s->images.items[k].ref.name, cache->quotas[i].name);
        if (!found)
            return error_set(-EINVAL, "cache: a quota for '%s', but no image of that name is served",
                             cache->quotas[i].name);
    }
    return 0;
}

static int open_all(struct stack *s, const struct stack_config *config, struct resolver *resolver)
{
    for (size_t i = 0; i < config->image_count; i++) {
        int rc = add_image(s, &config->images[i], config, resolver);
        if (rc)
            return rc;
    }
    int rc = check_quotas(s, &config->cache);
    if (!rc)
        rc = cache_open(&config->cache, &s->cache);
    if (!rc && config->readahead && !config->no_completion)
        rc = ahead_new(AHEAD_THREADS, &s->ahead);
    for (size_t i = 0; !rc && i < s->images.len; i++) {
        rc = open_image(s, config, resolver, &s->images.items[i]);
        if (rc)
            return error_prefix(rc, "export %s", s->images.items[i].export_name);
    }
    if (!rc)
        resolver_save(resolver);
    return rc;
}

int stack_open(const struct stack_config *config, struct stack **out)
{
    const char *dirs[CACHE_DIRS_MAX];
    const struct resolver_config resolve = {.dirs = dirs,
                                            .dir_count = GR_MIN(config->cache.dir_count, (size_t)CACHE_DIRS_MAX),
                                            .store = config->store,
                                            .resolved = config->resolved};
    for (size_t i = 0; i < resolve.dir_count; i++)
        dirs[i] = config->cache.dirs[i].path;
    CLEANUP(cleanup_resolver) struct resolver *resolver = NULL;
    CLEANUP(cleanup_stack) struct stack *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory();
    s->opened_ms = clock_now_ms();
    rate_init(&s->rate, GR_MAX(config->bwlimit, (uint64_t)1));
    s->store = config->store;
    if (config->bwlimit)
        s->store.rate = &s->rate;
    http_places_init(&s->places, GR_MAX(config->store.connections, 1u));
    if (config->store.connections)
        s->store.places = &s->places;
    s->tiered = config->tier_count;
    slow_reads_init(&s->slow, config->slow_read_ms * 1000);
    int rc = resolver_new(&resolve, &resolver);
    if (!rc)
        rc = open_all(s, config, resolver);
    if (!rc)
        *out = steal_ptr(&s);
    return rc;
}

int stack_start_threads(struct stack *s)
{
    int rc = cache_start_threads(s->cache);
    return rc || !s->ahead ? rc : ahead_start_threads(s->ahead);
}

void stack_close(struct stack *s)
{
    if (!s)
        return;
    ahead_free(s->ahead);
    for (size_t i = 0; i < s->images.len; i++) {
        image_close(s->images.items[i].image);
        free(s->images.items[i].export_name);
    }
    if (s->cache)
        cache_close(s->cache);
    for (size_t i = 0; i < s->stores.len; i++) {
        store_close(s->stores.items[i].store);
        free(s->stores.items[i].url);
    }
    vec_release(&s->images);
    vec_release(&s->stores);
    http_places_release(&s->places);
    rate_release(&s->rate);
    free(s);
}

size_t stack_image_count(const struct stack *s)
{
    return s->images.len;
}

struct image *stack_image_at(const struct stack *s, size_t i)
{
    return s->images.items[i].image;
}

const char *stack_export_name(const struct stack *s, size_t i)
{
    return s->images.items[i].export_name;
}

struct image *stack_find(const struct stack *s, const char *export_name)
{
    if (!*export_name && s->images.len == 1)
        return s->images.items[0].image;
    for (size_t i = 0; i < s->images.len; i++)
        if (!strcmp(s->images.items[i].export_name, export_name))
            return s->images.items[i].image;
    return NULL;
}

struct cache *stack_cache(struct stack *s)
{
    return s->cache;
}

int stack_open_store(const struct stack *s, size_t i, uint64_t timeout_ms, const volatile int *cancel,
                     struct store **out)
{
    struct store_options options = s->store;
    options.timeout_ms = timeout_ms;
    options.cancel = cancel;
    for (size_t k = 0; k < s->stores.len; k++)
        if (s->stores.items[k].store == s->images.items[i].store)
            return store_open(s->stores.items[k].url, &options, out);
    return error_set(-ENOENT, "stack: image %zu has no store", i);
}

const char *stack_store_health(const struct stack *s, size_t i, struct store_health *out)
{
    if (i >= s->stores.len)
        return NULL;
    store_health(s->stores.items[i].store, out);
    return s->stores.items[i].url;
}

/* ---- counters ---- */

/* The rows of the images, or of the stores, added up: each shows the same names in the same order. */
struct sums {
    size_t at, count;
    struct counter_row rows[COUNTER_ROWS_MAX];
};

static void add_row(void *arg, const struct counter_row *row)
{
    struct sums *sums = arg;
    size_t i = sums->at++;
    if (i >= COUNTER_ROWS_MAX)
        return;
    if (i < sums->count) {
        sums->rows[i].value += row->value;
    } else {
        sums->rows[i] = *row;
        sums->count = i + 1;
    }
}

static void show_sums(const struct sums *sums, counter_visit *visit, void *arg)
{
    for (size_t i = 0; i < sums->count; i++)
        visit(arg, &sums->rows[i]);
}

size_t stack_cache_dirs(struct stack *s, struct cache_dir_report out[CACHE_DIRS_MAX])
{
    return cache_dir_reports(s->cache, out);
}

size_t stack_tiers(struct stack *s, struct store_tier_report out[STORE_TIERS_MAX])
{
    return s->tiered && s->stores.len ? store_tiers_reports(s->stores.items[0].store, out) : 0;
}

uint64_t stack_age_ms(const struct stack *s)
{
    return clock_now_ms() - s->opened_ms;
}

void stack_counters(struct stack *s, counter_visit *visit, void *arg)
{
    cache_counters(s->cache, visit, arg);
    struct sums images = {0}, stores = {0};
    for (size_t i = 0; i < s->images.len; i++) {
        images.at = 0;
        image_counters(s->images.items[i].image, add_row, &images);
    }
    for (size_t i = 0; i < s->stores.len; i++) {
        stores.at = 0;
        store_counters(s->stores.items[i].store, add_row, &stores);
    }
    show_sums(&images, visit, arg);
    visit(arg, &(struct counter_row){"granary_slow_reads_total", "Reads that took as long as slow-read= says",
                                     counter_get(&s->slow.total)});
    show_sums(&stores, visit, arg);
    visit(arg, &(struct counter_row){"granary_store_connections_waiting",
                                     "Requests that wait for a place among the connections to stores",
                                     http_places_waiting(&s->places)});
}

void stack_histograms(struct stack *s, histogram_visit *visit, void *arg)
{
    const struct histogram_row reads = {"granary_read_seconds", "How long reads took, failed ones too", {0}, 0};
    histogram_show(&s->reads, reads, visit, arg);
    cache_histograms(s->cache, visit, arg);
}

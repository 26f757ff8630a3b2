/* Assembles the read side in this order, and takes it down in reverse:
 *
 *   digests   resolve each reference, once: a tag that moves later changes nothing here. If the store is away, the
 *             table of exports beside the cache answers (resolver.h)
 *   stores    one for each URL and for each export with keys of its own, with retries (store_open), behind the shared
 *             cache proxies if there are any (store_proxies_open, store_l2_open); no request is made yet
 *   cache     lock and load the directories, set up the fetch scheduler; no thread yet
 *   ahead     background completion of images, unless it is turned off
 *   images    read manifests from the table or the store, verify them; then write the table
 *   threads   stack_start_threads, after the fork of a front end that daemonizes
 *
 * stack_exports.c adds and removes exports later; stack_names.c and stack_follow.c have names that follow tags;
 * stack_report.c has counters and health. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "stack_internal.h"

enum { AHEAD_THREADS = 8 };

DEFINE_CLEANUP(stack, struct stack *, stack_close)

/* Add one of the configured images to the table. Two of one name are a mistake in the parameters. */
static int add_image(struct stack *s, const struct stack_image *image, struct resolver *resolver)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL, *there = NULL;
    int rc = stack_export_new(s, image, resolver, &e);
    if (!rc)
        rc = stack_export_add_store(s, e);
    if (!rc)
        rc = stack_link(s, e, &there);
    if (rc == -EEXIST && there)
        return error_set(-EINVAL,
                         "image: two images would be exported as '%s'; give one of them another name with "
                         "image=NAME=STORE/IMAGE",
                         e->name);
    if (!rc)
        steal_ptr(&e);
    return rc;
}

/* Refuse a quota for an image that is not served: a typing error. */
static int check_quotas(const struct stack *s)
{
    const struct cache_config *cache = &s->config.cache;
    struct image_ref ref;
    for (size_t i = 0; i < cache->quota_count; i++) {
        bool found = false;
        for (size_t k = 0; k < s->exports.len; k++)
            found |= !strcmp(s->exports.items[k]->ref.name, cache->quotas[i].name);
        for (size_t k = 0; k < s->config.followed_count; k++)
            found |= !image_ref_parse(s->config.followed[k].ref, &ref) && !strcmp(ref.name, cache->quotas[i].name);
        if (!found)
            return error_set(-EINVAL, "cache: a quota for '%s', but no image of that name is served",
                             cache->quotas[i].name);
    }
    return 0;
}

/* Resolve all references and fetch their manifests in parallel, which saves round trips with many images. A reference
 * that cannot be parsed is reported later, by add_image. */
static int ask_ahead(const struct stack_config *config, struct resolver *resolver)
{
    CLEANUP_FREE struct image_ref *refs = calloc(config->image_count + 1, sizeof *refs);
    size_t n = 0;
    if (!refs)
        return error_no_memory();
    for (size_t i = 0; i < config->image_count; i++)
        n += !image_ref_parse(config->images[i].ref, &refs[n]);
    return resolver_ahead(resolver, refs, n, true);
}

/* Link every export, open the cache, then the images, in the order at the top. */
static int open_all(struct stack *s, struct resolver *resolver)
{
    const struct stack_config *config = &s->config;
    int rc = stack_keep_names(s);
    if (!rc && config->image_count > 1)
        rc = ask_ahead(config, resolver);
    if (rc)
        return rc;
    for (size_t i = 0; i < config->image_count; i++) {
        rc = add_image(s, &config->images[i], resolver);
        if (rc)
            return rc;
    }
    /* Before the cache is opened, so a typing error leaves no trace. */
    rc = config->image_count || config->followed_count ? check_quotas(s) : 0;
    if (!rc)
        rc = cache_open(&config->cache, &s->cache);
    if (!rc && config->readahead && !config->no_completion)
        rc = ahead_new(AHEAD_THREADS, &s->ahead);
    if (!rc && config->slow_read_ms)
        rc = slow_names_new(&s->slow, &s->names);
    for (size_t i = 0; !rc && i < s->exports.len; i++) {
        rc = stack_export_open(s, resolver, s->exports.items[i]);
        if (rc)
            return error_prefix(rc, "export %s", s->exports.items[i]->name);
    }
    if (!rc)
        resolver_save(resolver);
    return rc;
}

/* Put the shared limits in place: one rate and one set of connection slots for all stores and proxies. */
static void init(struct stack *s, const struct stack_config *config)
{
    s->config = *config;
    s->opened_ms = clock_now_ms();
    pthread_mutex_init(&s->noting, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->front_end_lock, NULL);
    /* Rate and slots are initialised even where there is no limit, so that stack_close can release them. */
    rate_init(&s->rate, GR_MAX(config->bwlimit, (uint64_t)1));
    s->store = config->store;
    if (config->bwlimit)
        s->store.rate = &s->rate;
    http_slots_init(&s->slots, GR_MAX(config->store.connections, 1u));
    if (config->store.connections)
        s->store.slots = &s->slots;
    slow_reads_init(&s->slow, config->slow_read_ms * 1000);
}

int stack_open(const struct stack_config *config, struct stack **out)
{
    CLEANUP(cleanup_resolver) struct resolver *resolver = NULL;
    CLEANUP(cleanup_stack) struct stack *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    init(s, config);
    struct stack_resolving resolving;
    int rc =
        config->l2_count ? store_proxies_open(config->l2, config->l2_count, &s->store, &config->node, &s->proxies) : 0;
    if (!rc)
        rc = resolver_new(stack_resolving(s, NULL, NULL, &resolving), &resolver);
    if (!rc)
        rc = open_all(s, resolver);
    if (!rc && config->node.address) {
        store_proxies_weigh(s->proxies, stack_node_weight(s));
        rc = store_leaving_open(s->proxies, &s->leaving);
    }
    s->config.resolved = 0; /* tags resolved later have their own time */
    if (!rc)
        *out = steal_ptr(&s);
    return rc;
}

int stack_start_threads(struct stack *s)
{
    int rc = cache_start_threads(s->cache);
    if (!rc && s->names)
        rc = slow_names_start_thread(s->names);
    if (!rc && s->proxies)
        rc = store_proxies_start_thread(s->proxies);
    return rc || !s->ahead ? rc : ahead_start_threads(s->ahead);
}

void stack_close(struct stack *s)
{
    if (!s)
        return;
    /* First the threads that use images; the cache after the images that read through it, the stores last. */
    ahead_free(s->ahead);
    slow_names_free(s->names);
    for (size_t i = 0; i < s->followed.len; i++) {
        stack_put(s->followed.items[i].to);
        free(s->followed.items[i].name);
    }
    for (size_t i = 0; i < s->exports.len; i++)
        stack_put(s->exports.items[i]);
    if (s->cache)
        cache_close(s->cache);
    store_close(s->leaving);
    for (size_t i = 0; i < s->stores.len; i++) {
        store_close(s->stores.items[i].store);
        s3_keys_unref(s->stores.items[i].keys);
        free(s->stores.items[i].url);
        free(s->stores.items[i].of);
    }
    store_proxies_close(s->proxies);
    vec_release(&s->followed);
    vec_release(&s->exports);
    vec_release(&s->stores);
    http_slots_release(&s->slots);
    rate_release(&s->rate);
    pthread_mutex_destroy(&s->front_end_lock);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->noting);
    free(s);
}

struct cache *stack_cache(struct stack *s)
{
    return s->cache;
}

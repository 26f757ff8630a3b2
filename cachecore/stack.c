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
 *
 * Exports that come and go later: stack_exports.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "stack_internal.h"

enum { AHEAD_THREADS = 8 };

DEFINE_CLEANUP(stack, struct stack *, stack_close)

/* What is served under one name is one image; the sentence is for who wrote the parameters. */
static int add_image(struct stack *s, const struct stack_image *image, struct resolver *resolver)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL, *there = NULL;
    int rc = stack_export_new(s, image, resolver, &e);
    if (!rc)
        rc = stack_link(s, e, &there);
    if (rc == -EEXIST)
        return error_set(-EINVAL,
                         "image: two images would be exported as '%s'; give one of them another name with "
                         "image=NAME=STORE/IMAGE",
                         e->name);
    if (!rc)
        steal_ptr(&e);
    return rc;
}

/* A quota of no image here is a slip of the pen. */
static int check_quotas(const struct stack *s)
{
    const struct cache_config *cache = &s->config.cache;
    for (size_t i = 0; i < cache->quota_count; i++) {
        bool found = false;
        for (size_t k = 0; k < s->exports.len; k++)
            found |= !strcmp(s->exports.items[k]->ref.name, cache->quotas[i].name);
        if (!found)
            return error_set(-EINVAL, "cache: a quota for '%s', but no image of that name is served",
                             cache->quotas[i].name);
    }
    return 0;
}

/* What the stores are asked about many images goes to them at once. What is wrong with a reference is said later. */
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

static int open_all(struct stack *s, struct resolver *resolver)
{
    const struct stack_config *config = &s->config;
    int rc = config->image_count > 1 ? ask_ahead(config, resolver) : 0;
    if (rc)
        return rc;
    for (size_t i = 0; i < config->image_count; i++) {
        rc = add_image(s, &config->images[i], resolver);
        if (rc)
            return rc;
    }
    rc = check_quotas(s);
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

static void init(struct stack *s, const struct stack_config *config)
{
    s->config = *config;
    s->opened_ms = clock_now_ms();
    pthread_mutex_init(&s->noting, NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->front_end_lock, NULL);
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
    int rc = resolver_new(stack_resolving(s, NULL, &resolving), &resolver);
    if (!rc)
        rc = open_all(s, resolver);
    s->config.resolved = 0; /* what is resolved from now on is so at its time */
    if (!rc)
        *out = steal_ptr(&s);
    return rc;
}

int stack_start_threads(struct stack *s)
{
    int rc = cache_start_threads(s->cache);
    if (!rc && s->names)
        rc = slow_names_start_thread(s->names);
    return rc || !s->ahead ? rc : ahead_start_threads(s->ahead);
}

void stack_close(struct stack *s)
{
    if (!s)
        return;
    ahead_free(s->ahead);
    slow_names_free(s->names);
    for (size_t i = 0; i < s->exports.len; i++)
        stack_put(s->exports.items[i]);
    if (s->cache)
        cache_close(s->cache);
    for (size_t i = 0; i < s->stores.len; i++) {
        store_close(s->stores.items[i].store);
        free(s->stores.items[i].url);
    }
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

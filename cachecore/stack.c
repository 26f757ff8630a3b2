/* The read side, assembled in this order and taken down in reverse:
 *
 *   stores    one for each store URL, with retries (store_open); checked to be Granary stores
 *   digests   each reference resolved, once: a tag that moves later moves nothing here
 *   cache     directories locked and loaded, with the fetch scheduler under it; no thread yet
 *   images    manifests loaded and verified
 *   threads   stack_start_threads, after the fork of a front door that daemonizes
 */
#include "stack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "store/repository.h"

enum { COUNTER_ROWS_MAX = 32, INDEX_MEMORY_DEFAULT = 64 << 20 };

struct stack_entry {
    char *export_name;
    struct store *store; /* one of the stack's */
    struct digest digest;
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
};
DEFINE_CLEANUP(stack, struct stack *, stack_close)

static int no_memory(void)
{
    return error_set(-ENOMEM, "stack: out of memory");
}

static int add_store(struct stack *s, const char *url, const struct store_options *options, struct store **out)
{
    for (size_t i = 0; i < s->stores.len; i++)
        if (!strcmp(s->stores.items[i].url, url)) {
            *out = s->stores.items[i].store;
            return 0;
        }
    CLEANUP_FREE char *copy = strdup(url);
    CLEANUP(cleanup_store) struct store *store = NULL;
    if (!copy)
        return no_memory();
    int rc = store_open(url, options, &store);
    if (!rc)
        rc = repository_check(store, false);
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

/* Parse, open its store, resolve. The image itself comes later: it needs the cache. */
static int add_image(struct stack *s, const struct stack_image *config, const struct store_options *options)
{
    struct image_ref ref;
    int rc = image_ref_parse(config->ref, &ref);
    if (rc)
        return rc;
    const char *name = config->export_name ? config->export_name : ref.name;
    rc = check_export_name(s, name);
    struct stack_entry entry = {0};
    if (!rc)
        rc = add_store(s, ref.store, options, &entry.store);
    if (!rc)
        rc = repository_resolve(entry.store, &ref, &entry.digest, NULL);
    if (rc)
        return rc;
    CLEANUP_FREE char *copy = strdup(name);
    entry.export_name = copy;
    if (!copy || vec_push(&s->images, entry))
        return no_memory();
    steal_ptr(&copy);
    return 0;
}

static int open_images(struct stack *s, const struct stack_config *config)
{
    size_t memory = config->index_memory ? config->index_memory : INDEX_MEMORY_DEFAULT;
    for (size_t i = 0; i < s->images.len; i++) {
        struct stack_entry *e = &s->images.items[i];
        const struct image_config image = {
            .cache = s->cache,
            .store = e->store,
            .index_memory = memory / s->images.len,
            .readahead = config->readahead,
        };
        int rc = image_open(&image, &e->digest, &e->image);
        if (rc)
            return error_prefix(rc, "export %s", e->export_name);
    }
    return 0;
}

int stack_open(const struct stack_config *config, struct stack **out)
{
    CLEANUP(cleanup_stack) struct stack *s = calloc(1, sizeof *s);
    if (!s)
        return no_memory();
    for (size_t i = 0; i < config->image_count; i++) {
        int rc = add_image(s, &config->images[i], &config->store);
        if (rc)
            return rc;
    }
    int rc = cache_open(&config->cache, &s->cache);
    if (!rc)
        rc = open_images(s, config);
    if (rc)
        return rc;
    *out = steal_ptr(&s);
    return 0;
}

int stack_start_threads(struct stack *s)
{
    return cache_start_threads(s->cache);
}

void stack_close(struct stack *s)
{
    if (!s)
        return;
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
    show_sums(&stores, visit, arg);
}

/* The read side assembled: stores + retry, cache with its fetch, images. One function builds it
 * from a const config and one tears it down in reverse: read stack.c to learn the order. Used by
 * the plugin and by tests and tools directly.
 */
#ifndef GRANARY_STACK_H
#define GRANARY_STACK_H

#include "cache/cache.h"
#include "image/image.h"
#include "store/store_tiers.h"

struct stack;

struct stack_image {
    const char *ref;         /* image reference */
    const char *export_name; /* NULL: the image's name */
};

struct stack_config {
    const struct stack_image *images;
    size_t image_count;
    struct store_options store;
    const char *tiers[STORE_TIERS_MAX]; /* URLs of shared tiers in front of the store, which is one then */
    size_t tier_count;
    struct cache_config cache;
    size_t index_memory;   /* shared evenly by the images; 0: 64 MiB */
    uint64_t bwlimit;      /* bytes a second from the store and its tiers together; 0: no limit */
    uint32_t readahead;    /* bytes; see image_config */
    uint64_t slow_read_ms; /* reads that take so long are logged; 0: none */
    bool no_completion;    /* nothing is fetched in the background; no readahead has the same effect */
    int64_t resolved;      /* when tags that stand beside digests were resolved; 0: now */
};

/* Resolves tags once, locks and loads the cache directories, loads manifests. What earlier lives noted
 * in the directories stands in for a store that is away. No thread is made. */
GR_MUST_CHECK int stack_open(const struct stack_config *config, struct stack **out);
GR_MUST_CHECK int stack_start_threads(struct stack *s);
void stack_close(struct stack *s);

size_t stack_image_count(const struct stack *s);
struct image *stack_image_at(const struct stack *s, size_t i);
const char *stack_export_name(const struct stack *s, size_t i);
/* By export name; the empty name is the only image when there is one. NULL: none. */
struct image *stack_find(const struct stack *s, const char *export_name);

/* Of all images. */
struct cache *stack_cache(struct stack *s);
/* A handle of one's own on the store of image i, for work that may be cancelled and need not go on as
 * long as reads do. *out: store_close. */
GR_MUST_CHECK int stack_open_store(const struct stack *s, size_t i, uint64_t timeout_ms, const volatile int *cancel,
                                   struct store **out);

/* The URL of the i-th store that images are read from, and whether it answers; NULL: there are no more. */
const char *stack_store_health(const struct stack *s, size_t i, struct store_health *out);

/* store_tiers_reports; 0 without tiers. */
size_t stack_tiers(struct stack *s, struct store_tier_report out[STORE_TIERS_MAX]);

/* How long ago it was opened. */
uint64_t stack_age_ms(const struct stack *s);

void stack_counters(struct stack *s, counter_visit *visit, void *arg);
/* How long it took: reads of all images, then the layers below. */
void stack_histograms(struct stack *s, histogram_visit *visit, void *arg);
/* The cache's directories: cache_dir_reports. */
size_t stack_cache_dirs(struct stack *s, struct cache_dir_report out[CACHE_DIRS_MAX]);

#endif

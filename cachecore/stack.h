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
struct stack_export;

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
    const char *handed;    /* resolver_config's; NULL: none */
    int64_t resolved;      /* when tags that stand beside digests were resolved; 0: now */
};

/* Resolves tags once, locks and loads the cache directories, loads manifests. What earlier lives noted
 * in the directories stands in for a store that is away. No thread is made. What the config points to outlives the
 * stack. */
GR_MUST_CHECK int stack_open(const struct stack_config *config, struct stack **out);
GR_MUST_CHECK int stack_start_threads(struct stack *s);
/* Nobody holds an export any more. */
void stack_close(struct stack *s);

/* ---- exports ----
 *
 * The images and their names: a table that grows and shrinks while others walk it. Whoever is given an export has a
 * reference, and it is whole until that is given back, whether or not it is in the table by then. Any thread; nothing
 * here waits for I/O but stack_add. */

enum { STACK_EXPORTS_MAX = 10000, STACK_EXPORT_NAME_MAX = 4096 /* as NBD has it */ };

/* By name; the empty name is the only export when there is one. NULL: none. */
struct stack_export *stack_get(struct stack *s, const char *name);
struct stack_export *stack_ref(struct stack_export *e); /* one reference more; e */
void stack_put(struct stack_export *e);                 /* NULL is allowed */
DEFINE_CLEANUP(stack_export, struct stack_export *, stack_put)
/* The first one (after: NULL), or the one behind `after`, in the order of their coming; takes the reference on `after`.
 * NULL: there is no more. for (e = NULL; (e = stack_next(s, e));) walks over all that stay. */
struct stack_export *stack_next(struct stack *s, struct stack_export *after);
size_t stack_count(struct stack *s);

/* For a front end's clients: stack_get of an export that is not removed before stack_disconnect, which gives it back.
 */
struct stack_export *stack_connect(struct stack *s, const char *name);
void stack_disconnect(struct stack_export *e);

/* Ascends in the order of their coming; no other export of this stack ever has it. */
uint64_t stack_export_number(const struct stack_export *e);
const char *stack_export_name(const struct stack_export *e);
struct image *stack_export_image(const struct stack_export *e);
const struct image_ref *stack_export_ref(const struct stack_export *e); /* by digest */
unsigned stack_export_clients(const struct stack_export *e);

/* Serve one image more: what stack_open does for one. Blocks for the store, at most until *cancel (may be NULL).
 * *out: the export, for stack_put. Where it is there already, of the same image, that one: *out_added is false.
 * -EEXIST: of another image; -ENOSPC: there are STACK_EXPORTS_MAX. */
GR_MUST_CHECK int stack_add(struct stack *s, const struct stack_image *image, const volatile int *cancel,
                            struct stack_export **out, bool *out_added);
/* The same for many: the tables beside the cache are read once, and written once, at the end. In one thread; the
 * errors of stack_adding_add are stack_add's, and others may be added after one. */
struct stack_adding;
GR_MUST_CHECK int stack_adding_begin(struct stack *s, const volatile int *cancel, struct stack_adding **out);
GR_MUST_CHECK int stack_adding_add(struct stack_adding *a, const struct stack_image *image, struct stack_export **out,
                                   bool *out_added);
/* The thread's error stays as it was. NULL is allowed. */
void stack_adding_end(struct stack_adding *a);
DEFINE_CLEANUP(stack_adding, struct stack_adding *, stack_adding_end)

/* Serve one less. -ENOENT; -EBUSY: clients are connected to it. */
GR_MUST_CHECK int stack_remove(struct stack *s, const char *name);

/* ---- of all images ---- */

struct cache *stack_cache(struct stack *s);
/* A handle of one's own on an export's store, for work that may be cancelled and need not go on as long as reads do.
 * *out: store_close. */
GR_MUST_CHECK int stack_open_store(const struct stack *s, const struct stack_export *e, uint64_t timeout_ms,
                                   const volatile int *cancel, struct store **out);

/* The URL of the i-th store that images are read from, whether it answers, and how long reads have been waiting for it;
 * NULL: there are no more. */
const char *stack_store_health(struct stack *s, size_t i, struct store_health *out);

/* store_tiers_reports; 0 without tiers. */
size_t stack_tiers(struct stack *s, struct store_tier_report out[STORE_TIERS_MAX]);

/* How long ago it was opened. */
uint64_t stack_age_ms(const struct stack *s);

/* What the front end that serves the exports holds for its clients now, and may at most. */
struct stack_front_end {
    uint64_t connections, connections_max;
    uint64_t threads, threads_max;         /* that read, busy or idle */
    uint64_t reply_bytes, reply_bytes_max; /* of replies that are being made or wait to be sent */
};
/* ask is called for the counters, on the thread of whoever wants them, and wants no counters itself. NULL: no more;
 * it is not running when this returns. */
void stack_set_front_end(struct stack *s, void (*ask)(void *arg, struct stack_front_end *out), void *arg);

void stack_counters(struct stack *s, counter_visit *visit, void *arg);
/* How long it took: reads of all images, then the layers below. */
void stack_histograms(struct stack *s, histogram_visit *visit, void *arg);
/* The cache's directories: cache_dir_reports. */
size_t stack_cache_dirs(struct stack *s, struct cache_dir_report out[CACHE_DIRS_MAX]);

#endif

/* What the files of the stack share. Only they include it. */
#ifndef GRANARY_STACK_INTERNAL_H
#define GRANARY_STACK_INTERNAL_H

#include <pthread.h>

#include "base/vec.h"
#include "image/readahead/ahead.h"
#include "image/slow_names.h"
#include "net/http.h"
#include "stack.h"
#include "store/resolver.h"

enum { STACK_ROWS_MAX = 32 };

struct stack_export {
    _Atomic unsigned refs;    /* the table's is one */
    _Atomic unsigned clients; /* each has a reference too; more come only under the lock, and while it is listed */
    uint64_t number;          /* ascending in the table; constant once it is there, as all below */
    char *name;
    struct image_ref ref; /* by digest */
    struct store *store;  /* one of the stack's */
    struct image *image;
};

struct stack_store {
    char *url;
    struct store *store;
};

/* The rows of the images, or of the stores, added up: each shows the same names in the same order. */
struct stack_sums {
    size_t at, count;
    struct counter_row rows[STACK_ROWS_MAX];
};

struct stack {
    struct stack_config config; /* its strings are others' */
    struct cache *cache;
    struct ahead *ahead; /* NULL: nothing is completed */
    struct histogram reads;
    struct slow_reads slow;
    struct slow_names *names; /* NULL: slow reads are not logged */
    struct rate rate;
    struct http_slots slots;    /* of all stores, their tiers, and the handles of stack_open_store */
    struct store_options store; /* the config's; with the rate where it is limited */
    uint64_t opened_ms;         /* on clock_now_ms */

    pthread_mutex_t front_end_lock; /* held while the front end is asked; outside its locks */
    void (*front_end)(void *arg, struct stack_front_end *out);
    void *front_end_arg;

    pthread_mutex_t noting; /* of the tables beside the cache: those who add exports write them one after another */

    /* Of what follows. Held for a few instructions, or as many as there are exports; outside the locks of images. */
    pthread_mutex_t lock;
    VEC(struct stack_store) stores; /* grows only: fetches in flight are of them */
    VEC(struct stack_export *) exports;
    uint64_t numbers;
    struct stack_sums removed; /* of images that were removed: a total never falls */
};

/* Of stack_resolving. */
struct stack_resolving {
    struct resolver_config config;
    const char *dirs[CACHE_DIRS_MAX];
};
/* What a resolver is told; it lies in *out. cancel: instead of the stores' own; may be NULL. */
const struct resolver_config *stack_resolving(const struct stack *s, const volatile int *cancel,
                                              struct stack_resolving *out);

/* Add what the image counts. */
void stack_sums_add(struct stack_sums *sums, struct image *img);

/* An export as it is before it is opened: its reference resolved, its store open. *out: stack_put. */
GR_MUST_CHECK int stack_export_new(struct stack *s, const struct stack_image *image, struct resolver *resolver,
                                   struct stack_export **out);
/* Its image, by its manifest. */
GR_MUST_CHECK int stack_export_open(struct stack *s, struct resolver *resolver, struct stack_export *e);
/* Put it into the table, which takes the caller's reference. -EEXIST: there is one of that name, *out_there, with a
 * reference. */
GR_MUST_CHECK int stack_link(struct stack *s, struct stack_export *e, struct stack_export **out_there);

#endif

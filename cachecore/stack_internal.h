/* Shared by the files of the stack; private to them. */
#ifndef GRANARY_STACK_INTERNAL_H
#define GRANARY_STACK_INTERNAL_H

#include <pthread.h>

#include "base/vec.h"
#include "image/image.h"
#include "net/http.h"
#include "repository/resolver.h"
#include "stack.h"

enum { STACK_ROWS_MAX = 32 };

/* An export. Freed when refs drops to 0. */
struct stack_export {
    _Atomic unsigned refs;    /* the table holds one */
    _Atomic unsigned clients; /* connected clients; each has a reference too; grows only under the lock, while the
                                 export is listed */
    _Atomic uint64_t left_ms; /* stack_export_left_ms */
    uint64_t number;          /* ascending in the table; constant once listed, like all members below */
    char *name;
    struct image_ref ref; /* by digest */
    struct store *store;  /* one of the stack's */
    struct image *image;
    struct stack *stack;
    struct s3_keys *keys; /* of its own, and those of its store; NULL: none */
    struct bytes proof;   /* stack_export_proof */
    bool fenced;
    uint64_t quota; /* its own, in bytes; 0: none */
    bool unwarmed;
};

/* A store that images are read from; open until the stack is closed, since fetches in flight use it. One with keys
 * belongs to one export. When that is gone, the keys are wiped, and the next export of that URL takes it over. */
struct stack_store {
    char *url;
    struct store *store;
    struct s3_keys *keys; /* NULL: the process's; shared by all exports without keys of their own */
    char *of;             /* the export that has it; NULL: none */
};

/* A name that leads to one export after the other. */
struct stack_name {
    char *name;
    struct stack_export *to; /* a reference; NULL: none yet */
};

/* The sums of the counters of all images, or of all stores. Each shows the same rows in the same order, so rows are
 * added by position. */
struct stack_sums {
    size_t at, count; /* row that comes next; rows so far */
    struct counter_row rows[STACK_ROWS_MAX];
};

/* The stack. Its three locks are never held together. */
struct stack {
    struct stack_config config; /* its pointers are borrowed */
    struct cache *cache;
    struct ahead *ahead; /* NULL: no background completion */
    /* Shared by all images, each with its own synchronization. */
    struct histogram reads;
    struct slow_reads slow;
    struct slow_names *names; /* NULL: slow reads are not logged */
    struct rate rate;
    struct http_slots slots;       /* shared by all stores, their proxies, and the handles of stack_open_store */
    struct store_proxies *proxies; /* NULL: none */
    struct store *leaving;         /* what nodes that leave have; NULL: the server is no node */
    struct stack_peer_counts peers;
    struct store_options store; /* the config's options with the shared slots and rate */
    uint64_t opened_ms;         /* on clock_now_ms */

    /* Guards the next two. Held while front_end runs, and taken before the front end's own locks. */
    pthread_mutex_t front_end_lock;
    void (*front_end)(void *arg, struct stack_front_end *out);
    void *front_end_arg;

    pthread_mutex_t noting; /* serializes writing of the tables beside the cache */

    /* Guards the members below. Never held across I/O, at most for a loop over all exports. Locks of images are taken
     * inside it, and that of the cache (stack_quotas.c). */
    pthread_mutex_t lock;
    VEC(struct stack_store) stores; /* grows only: fetches in flight use them */
    VEC(struct stack_export *) exports;
    VEC(struct stack_name) followed; /* of config.followed, in that order; only `to` changes */
    uint64_t numbers;                /* exports ever listed */
    struct stack_sums removed;       /* counters of removed images, so that totals never fall */
};

/* A resolver's configuration with the array that it points to. */
struct stack_resolving {
    struct resolver_config config;
    const char *dirs[CACHE_DIRS_MAX];
};
/* Fill in a resolver's configuration, which lies in *out. image: the one to be added with its own keys; NULL: any
 * without. cancel (may be NULL) replaces the store options' flag. */
const struct resolver_config *stack_resolving(const struct stack *s, const struct stack_image *image,
                                              const volatile int *cancel, struct stack_resolving *out);

/* Add an image's counters to the sums. */
void stack_sums_add(struct stack_sums *sums, struct image *img);

/* Make an export with its reference resolved, and nothing opened yet. The caller drops *out with stack_put. -EINVAL:
 * bad reference or name; else errors of the resolver. */
GR_MUST_CHECK int stack_export_new(struct stack *s, const struct stack_image *image, struct resolver *resolver,
                                   struct stack_export **out);
/* Find or open the export's store. -EINVAL: a second one with proxies, or keys for a store that is not S3; -ENOSPC: too
 * many; errors of store_open. */
GR_MUST_CHECK int stack_export_add_store(struct stack *s, struct stack_export *e);
/* Leave the store of the export's own, if it has one, to the next export of that URL. */
void stack_export_leave_store(struct stack_export *e);
/* Open the export's image by its manifest, and register it for background completion. */
GR_MUST_CHECK int stack_export_open(struct stack *s, struct resolver *resolver, struct stack_export *e);
/* Put an export into the table, which takes over the caller's reference. -EEXIST: another export has that name;
 * *out_there is a reference to it. -ENOSPC: the table is full; -EDQUOT: as for stack_add. */
GR_MUST_CHECK int stack_link(struct stack *s, struct stack_export *e, struct stack_export **out_there);

/* ---- stack_names.c ---- */

/* Keep the names of the followed images. -EINVAL: two of one name, a bad reference, or one by digest. */
GR_MUST_CHECK int stack_keep_names(struct stack *s);
/* Return the export that a followed name leads to, borrowed; NULL: none. The empty name means the only followed one, if
 * no image was given besides. */
struct stack_export *stack_names_find_locked(struct stack *s, const char *name);
/* Refuse an export whose name has another digest than its image: -ESTALE. */
GR_MUST_CHECK int stack_names_check(const struct stack_export *e);

/* ---- stack_quotas.c ---- */

/* May an export that is not in the table yet bring its quota? -EDQUOT: its image has another one. */
GR_MUST_CHECK int stack_quota_claim_locked(const struct stack *s, const struct stack_export *e);
/* Set an image's quota in the cache to what the exports in the table say. -EDQUOT: too many images have one. */
GR_MUST_CHECK int stack_quota_apply_locked(struct stack *s, const struct image_ref *ref);

#endif

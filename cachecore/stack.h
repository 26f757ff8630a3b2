/* The assembled read side: stores with retries and proxies, the cache with its fetch scheduler, images under export
 * names. stack_open builds it from a const config and stack_close takes it down in reverse; stack.c shows the order.
 * Used by server/ for every front end, and by tests. */
#ifndef GRANARY_STACK_H
#define GRANARY_STACK_H

#include "cache/cache.h"
#include "image/image.h"
#include "net/aws/s3_keys.h"
#include "repository/trust.h"
#include "store/store.h"

struct stack;
struct stack_export;

/* An image to serve. */
struct stack_image {
    const char *ref;         /* image reference */
    const char *export_name; /* NULL: the image's name */
    /* With stack_add: S3 keys of the export's own, copied. It then has a connection to its store that no other export
     * uses, and the tables beside the cache do not stand in for the store: the keys must read the image's manifest
     * first. NULL: those of the process. */
    struct s3_keys *keys;
    bool fenced;               /* with stack_add: in cache-only mode (cache_config), whatever the cache is */
    uint64_t quota;            /* with stack_add: bytes of the cache for the image and its other versions; 0: none */
    bool unwarmed;             /* with stack_add: stack_export_unwarmed */
    const struct bytes *proof; /* stack_export_proof of the same export in the process before, instead; NULL: none */
};

/* The configuration. Pointers are borrowed and must outlive the stack; defaults come from stack_options.h. */
struct stack_config {
    const struct stack_image *images;
    size_t image_count;
    const struct stack_image *followed; /* by tag: their names are kept for stack_show, and nothing is opened */
    size_t followed_count;
    struct store_options store;
    const char *l2[STORE_L2_LISTS_MAX]; /* lists of shared cache proxies (store_proxies_open); all images must then be
                                           in one store */
    size_t l2_count;
    struct store_node node; /* what it is to other nodes */
    struct cache_config cache;
    size_t index_memory;   /* bytes for index nodes, shared evenly by the images; 0: 64 MiB */
    uint64_t bwlimit;      /* bytes per second from all stores and proxies together; 0: no limit */
    uint32_t readahead;    /* bytes; see image_config */
    uint64_t slow_read_ms; /* reads that take at least this long are logged; 0: none */
    bool no_completion;    /* no background completion; readahead 0 turns it off too */
    struct trust trust;    /* only images that one of these keys has signed; no keys: any image */
    const char *handed;    /* resolver_config's; NULL: none */
    int64_t resolved;      /* when the tags of references by digest were resolved, seconds since the epoch; 0: now */
};

/* Open a stack: resolve the tags once, lock and load the cache directories, load the manifests. The tables of exports
 * in the directories stand in for a store that is away (resolver.h). Starts no thread, so that a front end can fork.
 * The caller closes *out with stack_close. -EINVAL: two exports of one name, or a quota for an image that is not
 * served; otherwise the errors of the resolver and the cache. */
GR_MUST_CHECK int stack_open(const struct stack_config *config, struct stack **out);
/* Start the threads of the cache, the fetch scheduler and completion. Called once, after any fork. Fails if the system
 * refuses a thread or a ring. */
GR_MUST_CHECK int stack_start_threads(struct stack *s);
/* Stop the threads and free everything. The caller has released every reference to an export. NULL is allowed. */
void stack_close(struct stack *s);

/* ---- exports ----
 *
 * The table of exports changes while other threads walk it. A function that returns an export returns a reference; the
 * export stays valid until the reference is dropped, even if it leaves the table. Any thread. Only stack_add and
 * stack_adding_add wait for I/O. */

enum { STACK_EXPORTS_MAX = 10000, STACK_EXPORT_NAME_MAX = 4096 /* NBD's limit for strings */ };

/* Return a reference to the export of that name, or NULL. The empty name means the only export, if there is just
 * one. */
struct stack_export *stack_get(struct stack *s, const char *name);
struct stack_export *stack_ref(struct stack_export *e); /* add a reference; return e */
void stack_put(struct stack_export *e);                 /* drop a reference; frees on the last; NULL is allowed */
DEFINE_CLEANUP(stack_export, struct stack_export *, stack_put)
/* Return the first export (after: NULL) or the one after `after`, in the order in which they were added; NULL at the
 * end. Drops the reference on `after`. for (e = NULL; (e = stack_next(s, e));) visits every export that stays in the
 * table. */
struct stack_export *stack_next(struct stack *s, struct stack_export *after);
/* The number of exports in the table. */
size_t stack_count(struct stack *s);

/* The same as stack_get, for a front end's client: the export is not removed before stack_disconnect drops the
 * reference. */
struct stack_export *stack_connect(struct stack *s, const char *name);
void stack_disconnect(struct stack_export *e);

/* ---- names that lead to one export after the other ---- */

/* The name of the i-th followed image; NULL: there are no more. Constant for the stack's life. No export has such a
 * name; stack_get and stack_connect find the export that it leads to. Any thread. */
const char *stack_followed(const struct stack *s, size_t i);
/* Return the followed name by which a client that asks for this name gets its export; NULL: it gets the export of that
 * name itself, always of the same image, or none. Two connections by a followed name may have different images. Any
 * thread. */
const char *stack_followed_as(const struct stack *s, const char *name);
/* Have the i-th name lead to this export from now on, in one step. Clients that are connected keep theirs. -ENOENT: the
 * export has been removed. Any thread. */
GR_MUST_CHECK int stack_show(struct stack *s, size_t i, struct stack_export *e);
/* Ask which image a reference by tag names now. *out_from_store false: the store does not answer, and a table beside
 * the cache did. Errors as for stack_add. */
GR_MUST_CHECK int stack_ask(struct stack *s, const struct stack_image *image, const volatile int *cancel,
                            struct digest *out, bool *out_from_store);

/* Have the tables beside the cache know that the store said that the tag names this image, an export's: a start while
 * the store is away then finds it. The tables have its manifest, or else the store is asked. Errors of
 * resolver_manifest. */
GR_MUST_CHECK int stack_note_tag(struct stack *s, const struct stack_image *image, const struct digest *digest);

/* A number that ascends in the order of adding and is never used again in this stack. What the functions below return
 * belongs to the export and is valid as long as the caller's reference. */
uint64_t stack_export_number(const struct stack_export *e);
const char *stack_export_name(const struct stack_export *e);
struct image *stack_export_image(const struct stack_export *e);
const struct image_ref *stack_export_ref(const struct stack_export *e); /* by digest */
unsigned stack_export_clients(const struct stack_export *e);
uint64_t stack_export_left_ms(const struct stack_export *e); /* when a client left last, clock_now_ms; 0: none has */
struct s3_keys *stack_export_keys(const struct stack_export *e); /* of its own; NULL: it has none */
bool stack_export_fenced(const struct stack_export *e);          /* in cache-only mode of its own */
uint64_t stack_export_quota(const struct stack_export *e);       /* its own, in bytes; 0: none */
bool stack_export_unwarmed(const struct stack_export *e);        /* the server does not warm its metadata by itself */
/* The quota that its image has, its own or another's or the configuration's, and what is charged to that. */
struct cache_quota_use stack_export_quota_use(const struct stack_export *e);
/* What shows, to the process after this one, that the export's own keys have read its manifest: empty without keys. */
const struct bytes *stack_export_proof(const struct stack_export *e);

/* Add an export. Waits for the store, at most until *cancel (may be NULL) is set. The caller drops *out with
 * stack_put. If the same image is exported under that name already, *out is that export and *out_added is false; with
 * keys, its keys are then replaced by these, while it is read. -EEXIST: another image has the name, or it is a followed
 * one; -ESTALE: the name ends in "@sha256:HEX" and the image has another digest; -EPERM: one of them has keys of its
 * own and the other has not, or it is to be in cache-only mode and is not; -EDQUOT: the image or the export that is
 * there has another quota or none, too many images have one, or there is no cache directory; -ENOSPC: there are
 * STACK_EXPORTS_MAX; -EINVAL: bad name or reference, keys for a store that is not S3, cache-only mode without a cache,
 * or a second store with proxies; otherwise the errors of the resolver. */
GR_MUST_CHECK int stack_add(struct stack *s, const struct stack_image *image, const volatile int *cancel,
                            struct stack_export **out, bool *out_added);
/* The same for many exports without keys of their own: the tables beside the cache are read once, and written once at
 * the end. Used by one thread. stack_adding_add fails like stack_add, and may be called again after a failure. */
struct stack_adding;
GR_MUST_CHECK int stack_adding_begin(struct stack *s, const volatile int *cancel, struct stack_adding **out);
GR_MUST_CHECK int stack_adding_add(struct stack_adding *a, const struct stack_image *image, struct stack_export **out,
                                   bool *out_added);
/* Write the tables, share the index memory anew and free a. Keeps the thread's error. NULL is allowed. */
void stack_adding_end(struct stack_adding *a);
DEFINE_CLEANUP(stack_adding, struct stack_adding *, stack_adding_end)

/* Remove an export; keys of its own are wiped. -ENOENT: no such export; -EBUSY: clients are connected to it, or a
 * followed name leads to it. */
GR_MUST_CHECK int stack_remove(struct stack *s, const char *name);

/* ---- the whole stack ---- */

/* Return the cache; borrowed. */
struct cache *stack_cache(struct stack *s);
/* Open a separate handle on an export's store, for work that may be cancelled or needs another timeout than reads. It
 * shares the connection slots and the rate limit. The caller closes *out with store_close. Errors of store_open. */
GR_MUST_CHECK int stack_open_store(const struct stack *s, const struct stack_export *e, uint64_t timeout_ms,
                                   const volatile int *cancel, struct store **out);

/* Return the URL of the i-th store that is in use, or NULL after the last. *out gets its health and how long reads have
 * been waiting for it; of: the export whose own keys it uses, or "". */
const char *stack_store_health(struct stack *s, size_t i, char of[STACK_EXPORT_NAME_MAX + 1], struct store_health *out);

/* Return the store in front of which the proxies are, or NULL: there are no proxies, or no export yet. Borrowed; it
 * lives as long as the stack. For answering other nodes, which are the proxies then. */
struct store *stack_peer_store(struct stack *s);
/* Is the server one of the nodes that are each other's cache (stack_config.node)? */
bool stack_is_node(const struct stack *s);
/* The server leaves the other nodes: nothing belongs to it any more, and it fetches nothing for them. */
void stack_leave(struct stack *s);
bool stack_is_leaving(const struct stack *s);
/* store_proxies_departures; 0 for a server that is no node. */
unsigned stack_departures(const struct stack *s);
/* Take over what an export's image has that belongs to this node since others leave: warm_take. */
GR_MUST_CHECK int stack_take_over(struct stack *s, struct stack_export *e, const volatile int *cancel,
                                  uint64_t *out_taken);
/* Return the server's weight among the nodes, which says how large its cache is: in GiB, rounded. At least 1. */
unsigned stack_node_weight(struct stack *s);
/* What the server answered other nodes. */
struct stack_peer_counts {
    counter served, bytes, refused;
    counter strangers; /* refused: no valid key or certificate */
    counter fetched;   /* bytes of stored chunks that were fetched for it */
    counter taken;     /* chunks taken over from nodes that leave */
};
struct stack_peer_counts *stack_peer_counts(struct stack *s);

/* Fill in the reports of the shared cache proxies (store_proxies_reports); the caller releases *out with
 * store_l2_reports_release. */
void stack_l2(struct stack *s, struct store_l2_reports *out);

/* Milliseconds since the stack was opened. */
uint64_t stack_age_ms(const struct stack *s);

/* What the front end holds for its clients now, and its limits. */
struct stack_front_end {
    uint64_t connections, connections_max;
    uint64_t threads, threads_max;         /* threads that read, busy or idle */
    uint64_t reply_bytes, reply_bytes_max; /* bytes of replies that are being read or wait to be sent */
};
/* Set the function that stack_counters calls, on its caller's thread, for the front end's figures; it must not call
 * stack_counters. NULL: none. When this returns, the previous function is not running and is not called again. */
void stack_set_front_end(struct stack *s, void (*ask)(void *arg, struct stack_front_end *out), void *arg);

/* Visit all counters: cache, images, stores, front end. */
void stack_counters(struct stack *s, counter_visit *visit, void *arg);
/* Visit all latency histograms: reads of all images, then those of the layers below. */
void stack_histograms(struct stack *s, histogram_visit *visit, void *arg);
/* Copy the last slow reads, the latest first; returns how many (slow_reads_last). */
size_t stack_slow_reads(struct stack *s, struct slow_read out[SLOW_READS_KEPT]);
/* Fill in the reports of the cache directories (cache_dir_reports) and return their number. */
size_t stack_cache_dirs(struct stack *s, struct cache_dir_report out[CACHE_DIRS_MAX]);

#endif

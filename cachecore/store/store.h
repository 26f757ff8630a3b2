/* An object store: keys and bytes under one prefix. docs/reference/format-store.md says which keys Granary uses.
 *
 * Callers use the store_*() functions below. An implementation fills in struct store_ops; the layers (store_retry,
 * store_l2, store_below) and the fakes of the tests are implementations too, so they can be stacked. Every
 * operation blocks and may be called by any thread. Objects are immutable, except tags, leases and trash marks.
 *
 * Every operation returns 0 or a negative errno, and a failure leaves a sentence in the thread's error that names the
 * store and the key:
 *
 *   -ENOENT                the object is absent
 *   -EACCES                the store refused access, perhaps to this object alone
 *   -ENOKEY                there are no credentials, or the store does not accept them
 *   -EAGAIN, -ETIMEDOUT    a passing failure, worth a retry; store_retry repeats these
 *   -EBADMSG               the object is shorter than the requested range
 *   -EEXIST                the condition of a put did not hold
 *   -EMSGSIZE              get_small met an object larger than allowed
 *   -EINVAL                the key or prefix is not valid
 *   -ECANCELED             the operation was interrupted
 *   -ENOTSUP               the store cannot do this; HTTP stores are read-only
 *   -ENOMEM                out of memory
 *   -EIO                   any other failure
 *
 * A non-zero value that the caller's sink or visitor returns is passed through unchanged. */
#ifndef GRANARY_STORE_STORE_H
#define GRANARY_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "base/counter.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/rate.h"

struct store;
struct http_slots;
struct s3_keys;

/* Receives the bytes of a get in order, as they arrive. A non-zero result stops the get, which then returns it. */
typedef int store_sink(void *arg, const void *data, size_t len);
/* One object, as store_list and store_stat report it. Pointers are valid during the visit. */
struct store_item {
    const char *key;
    uint64_t size; /* bytes */
    int64_t mtime; /* seconds since the epoch */
    /* Filled in by stat alone: the object's MD5 in lower-case hex, or empty if the store reports none. S3 reports any
     * ETag that looks like an MD5; for an object that the server encrypts, the ETag is something else
     * (repository_says_md5). */
    char md5[MD5_HEX_SIZE];
    int64_t now; /* filled in by stat alone: the server's clock when it answered; 0: unknown, or there is no server */
};
/* Visits one object; a non-zero result ends the listing, which then returns it. */
typedef int store_visit(void *arg, const struct store_item *item);

/* Conditions of a put, checked atomically by a store that honours them. */
enum store_put_mode {
    STORE_PUT_ALWAYS,    /* replace */
    STORE_PUT_IF_ABSENT, /* -EEXIST when the key exists */
    STORE_PUT_IF_MATCH,  /* -EEXIST when its version is not `version` */
};

/* How many refused objects of a store are counted. */
enum { STORE_REFUSED_MAX = 8 };

/* Whether a store answers, as its breaker sees it (breaker.c). All zero: no failures are known. */
struct store_health {
    bool silent;       /* the breaker is open: one operation at a time probes, the others wait */
    unsigned failures; /* passing failures in a row, up to now */
    unsigned refusals; /* objects that it refused in a row, for a reason that lasts; at most STORE_REFUSED_MAX */
    unsigned waiting;  /* operations that wait for another one's answer */
    uint64_t failing_ms, failed_ms;   /* since the first failure of the row, and since the last */
    uint64_t refusing_ms, refused_ms; /* the same for refusals */
    uint64_t read_waits_ms;           /* the longest current wait of a read; only stack_store_health fills this in */
    int refusal_code;                 /* of the last refusal; 0: there is none */
    char last[ERROR_TEXT_MAX], refusal[ERROR_TEXT_MAX]; /* the sentences of the last failure and the last refusal */
};

enum { STORE_FROM_MAX = 128 }; /* bytes of a server's URL in messages, with the NUL */

/* One get's context. The caller fills in the deadline, `fresh` and `header`; the layers below count tries, note the
 * server and set the rest. */
struct request_context {
    uint64_t deadline_ms;      /* on clock_now_ms; no retry starts after this time */
    bool fresh;                /* use a new connection: bytes that came over a kept-alive one were wrong */
    const char *header;        /* "Name: value" for a shared cache proxy that is a node; NULL: none */
    const char *proof;         /* the same, beside it: that this node has the nodes' key */
    struct store *meanwhile;   /* may have the range, too: store_retry asks it between tries; NULL: there is none */
    unsigned tries;            /* tries so far, including those of shared cache proxies */
    unsigned from_l2;          /* number of the shared cache proxy that got the last request; 0: the store did */
    bool from_node;            /* it is a node */
    int64_t node_weight;       /* what the node that answered last says of its weight; -1: no node answered */
    bool not_here;             /* a node answered it, and does not have the range: nothing speaks against the node */
    bool owner_lacks;          /* the store is asked because the node that owns the range did not have it */
    char from[STORE_FROM_MAX]; /* URL of the server that got the last request, for messages: perhaps cut; empty: none
                                  yet. A copy, since a proxy may be gone when it is shown. */
};

enum { STORE_VERSION_MAX = 256, STORE_KEY_MAX = 1024 }; /* bytes, with and without the NUL */

/* One put. Everything is borrowed until the put returns. */
struct store_put {
    const char *key;
    const void *data;
    size_t len;
    const struct digest *sha256; /* SHA-256 of data if known, else NULL */
    enum store_put_mode mode;
    const char *version; /* for STORE_PUT_IF_MATCH: the version from store_get_small */
};

/* The operations of an implementation. store.c checks keys and prefixes before it calls them. */
struct store_ops {
    /* Pass the bytes [off, off+len) of key to sink, exactly that many; len is above 0. -EBADMSG if the object ends
     * before off+len. context: see store_get_until; an implementation that makes one try calls store_note_try. An
     * implementation holds no lock while it calls sink. */
    int (*get)(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
               store_sink *sink, void *arg);
    /* Append a whole object of at most out->max bytes to out, and write its version, for a later STORE_PUT_IF_MATCH,
     * to version (may be NULL). Never answered from a cache. A failure may leave a part of the object in out, which
     * store_get_small removes; it also sets the sentence of -EMSGSIZE, the object is larger. */
    int (*get_small)(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
    /* Write a whole object. It appears at once and complete, or not at all. */
    int (*put)(struct store *s, const struct store_put *put);
    /* Report an object's size, time and, if known, MD5. -ENOENT: absent. */
    int (*stat)(struct store *s, const char *key, struct store_item *out);
    /* Visit all objects whose key begins with prefix, in any order. */
    int (*list)(struct store *s, const char *prefix, store_visit *visit, void *arg);
    /* Remove an object. 0 also if it is absent. */
    int (*remove)(struct store *s, const char *key);
    /* Optional (NULL: it does not): report whether the store honours STORE_PUT_IF_ABSENT and STORE_PUT_IF_MATCH. Where
     * that is unknown, a few puts to a key below probe/ find out, once. On a store that does not honour them, IF_ABSENT
     * may overwrite an object, and IF_MATCH overwrites or fails with -ENOTSUP: call this first. */
    int (*probe_conditional)(struct store *s, bool *out);
    /* Free the store. No operation may be running. */
    void (*close)(struct store *s);
    /* Optional (may be NULL): visit the objects under prefix whose keys come after `after` in byte order, ascending. A
     * store with this operation lists in ascending order too. store_retry uses it to resume a broken listing. */
    int (*list_after)(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg);
    /* Optional (NULL: the store has no counters). */
    void (*counters)(struct store *s, counter_visit *visit, void *arg);
    /* Optional (NULL: its health is not tracked): see store_health. */
    void (*health)(struct store *s, struct store_health *out);
    /* Optional (NULL: there are no shared cache proxies): see store_origin, store_report_bad, store_is_own. */
    struct store *(*origin)(struct store *s);
    void (*report_bad)(struct store *s, unsigned proxy, const char *key);
    bool (*is_own)(struct store *s, const char *key, uint64_t off);
};

/* The first member of every implementation's struct. */
struct store {
    const struct store_ops *ops;
    const char *url;      /* for messages; contains no secret */
    unsigned l2;          /* number of the shared cache proxy, for request_context.from_l2; 0: it is none */
    _Atomic bool node;    /* and the proxy is a node, by its answers, or because this server is one, too */
    _Atomic bool striped; /* its proxies are nodes, each of which has stripes of an object (STORE_STRIPE): this server
                             is one, or is known to them, or one has answered */
    char *_Atomic id;     /* in its granary.json, noted by repository/; "": it has none; NULL: not read yet */
};

/* Count the try that an implementation is about to make for a get, and note s as the server that is asked. */
static inline void store_note_try(const struct store *s, struct request_context *context)
{
    context->tries++;
    context->from_l2 = s->l2;
    context->from_node = atomic_load_explicit(&s->node, memory_order_relaxed);
    snprintf(context->from, sizeof context->from, "%s", s->url);
}

/* How to reach a store. All zero is valid. Pointers are borrowed; see each member for how long. */
struct store_options {
    const char *endpoint;        /* s3: --endpoint; NULL: as in s3_config */
    struct s3_keys *keys;        /* s3: the only keys to use; the store takes a reference. NULL: as in s3_config */
    const char *hdfs_token_file; /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    unsigned connections;        /* connections at a time; 0: 64 */
    /* Connection slots that several stores share, instead of `connections`; must outlive them. NULL: none. */
    struct http_slots *slots;
    uint64_t timeout_ms; /* how long an operation is retried; 0: 5 minutes */
    unsigned request_s;  /* http, s3, hdfs: a request that receives nothing for this long fails with -ETIMEDOUT; 0: 10 s
                            to connect, then 30 s */
    unsigned connect_ms; /* http, s3: limit for connecting; 0: as request_s */
    const volatile int *cancel; /* set asynchronously to interrupt: retries end with -ECANCELED, running requests end
                                   within a second, later ones within two; may be NULL */
    const char *nodes;          /* http: http_config.nodes; NULL: none */
    /* Limits the bytes read and written, shared with others; must outlive the store. NULL: no limit. */
    struct rate *rate;
};

/* Open the store at a URL (file:///p or just /p, s3://b/p, hdfs://n:9870/p, http(s)://h/p), wrapped in store_retry.
 * options may be NULL. Uses the network only where credentials need it. The caller closes *out with store_close.
 * -EINVAL: unknown scheme (the sentence lists the known ones), a malformed URL, or keys for a store that is not S3;
 * s3: -ENOENT: no credentials; -ENOMEM. */
GR_MUST_CHECK int store_open(const char *url, const struct store_options *options, struct store **out);

/* Free a store and the layers that it owns. NULL is allowed. */
static inline void store_close(struct store *s)
{
    if (!s)
        return;
    free(s->id);
    s->ops->close(s);
}
DEFINE_CLEANUP(store, struct store *, store_close)

/* The operations; struct store_ops documents each. A key has 1 to STORE_KEY_MAX bytes: components separated by single
 * slashes. No component is empty, "." or "..", so no key can lead out of the store, wherever it came from. A prefix
 * may be empty, and its last component may be cut off anywhere. -EINVAL otherwise. */
int store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int store_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
int store_put(struct store *s, const struct store_put *put);
int store_stat(struct store *s, const char *key, struct store_item *out);
int store_list(struct store *s, const char *prefix, store_visit *visit, void *arg);
/* Can this store list from a key on? Then store_list_after may be called. */
bool store_lists_after(const struct store *s);
int store_list_after(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg);
int store_remove(struct store *s, const char *key);
int store_probe_conditional(struct store *s, bool *out);

/* A store_sink that appends to arg, a struct bytes. */
int store_append(void *arg, const void *data, size_t len);

/* store_get with a context: retries end at its deadline at the latest, and it then tells how many tries were made, and
 * by which server. */
int store_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg);

/* A view of s that makes every get with one request's context, for functions that take a plain store. It supports
 * store_get of at least one byte, and nothing else. It lives in the caller's memory and is not closed. */
struct store_with_context {
    struct store base;
    struct store *inner;
    struct request_context *context;
};
void store_with_context_init(struct store_with_context *e, struct store *s, struct request_context *context);

/* Open the part of `outer` below dir as a store: the keys that begin with dir and a slash, without these. Its URL is
 * the outer URL followed by dir, which must be the beginning of a valid key. `outer` remains the caller's and must
 * outlive *out, which the caller closes with store_close. Operations return -EINVAL for a key that is too long with
 * dir in front; -ENOMEM. */
GR_MUST_CHECK int store_below_open(struct store *outer, const char *dir, struct store **out);

/* Visit the counters of a store and of the layers below it. */
void store_counters(struct store *s, counter_visit *visit, void *arg);

/* Report whether the store answers; all zero if nothing tracks that. */
void store_health(struct store *s, struct store_health *out);

/* Return the store behind the shared cache proxies, for a second get when the bytes from a proxy were wrong; s itself
 * if there are no proxies. Lives as long as s; not to be closed. */
struct store *store_origin(struct store *s);
/* Report a proxy of s (request_context.from_l2) for an answer in which bytes of key did not match their checksum, while
 * those of a later get did. Once for each answer, however much of it was wrong. */
void store_report_bad(struct store *s, unsigned proxy, const char *key);

/* The implementations, without retries. options may be NULL. -EINVAL: the URL is malformed; s3: -ENOENT: no
 * credentials; -ENOMEM. */
GR_MUST_CHECK int store_file_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_s3_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_hdfs_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_http_open(const char *url, const struct store_options *options, struct store **out);

/* Wrap `inner` so that operations that fail with -EAGAIN or -ETIMEDOUT are retried with exponential backoff and full
 * jitter, until timeout_ms after they began, or with -ECANCELED once *cancel (may be NULL) is set. A retried get
 * continues after the bytes already passed on. A retried conditional put that finds its own bytes in the store
 * succeeds. While `inner` does not answer, one operation at a time probes it (breaker.c) and the others wait, each for
 * its own timeout_ms at most. Takes ownership of inner, also on failure. -ENOMEM. */
GR_MUST_CHECK int store_retry_open(struct store *inner, uint64_t timeout_ms, const volatile int *cancel,
                                   struct store **out);

/* ---- shared cache proxies (l2/) ----
 *
 * HTTP servers, usually caching proxies in front of a store, each of which answers GET URL/KEY with ranges; they may
 * also be the nodes that read, this one among them. Rendezvous hashing spreads the stripes of packs and index nodes
 * over the proxies. So all nodes that have the same list of proxies fetch a stripe from the same one, and when a proxy
 * goes away only its own stripes move. All other keys, and gets that a proxy fails, go to the store.
 *
 * Proxies are not trusted. The reader verifies each chunk, fetches a wrong one again, in the end from store_origin(),
 * and reports the proxy that sent it by store_report_bad(). */

/* Proxies at a time, and lists of them (`--l2` may be repeated). A get computes a score for each proxy: 30 us for 500
 * of them. */
enum { STORE_L2_MAX = 1024, STORE_L2_LISTS_MAX = 16 };
/* Where the proxies are nodes, an object is cut into stripes of this many bytes, and each belongs to a node by itself.
 * A get belongs where its first byte does, and should not go beyond its stripe. All nodes must agree: never change it.
 * A caching proxy, which may keep whole objects, has whole objects. */
enum { STORE_STRIPE = 4 << 20 };

/* Is it this node that other nodes ask for the key at off? True also where there are no proxies. */
bool store_is_own(struct store *s, const char *key, uint64_t off);

/* Nodes that leave: such a node answers from its cache alone, and what it had belongs to the others. A get asks it
 * first, as long as it answers, and then the new owner. */

/* The proxies of one store, and the health of each. Any thread. */
struct store_proxies;

/* This server as one of the nodes that are each other's proxies. What it points to outlives the proxies. */
struct store_node {
    const char *address;  /* HOST:PORT at which it answers the others, so that it knows itself in the lists; NULL: it is
                             none of them, and asks them alone */
    struct peer_key *key; /* of all nodes; NULL: they ask without a proof */
    const char *tls;      /* the directory of http_config.nodes: they speak TLS; NULL: they do not */
};

/* One proxy's state and counts since it joined. */
struct store_l2_report {
    const char *url;
    unsigned weight; /* of a file, or what the node says; else 1 */
    bool self;       /* it is this node: its stripes are fetched from the store */
    bool leaving;    /* it is a node that has said so */
    bool down;       /* skipped, except for a trial request now and then */
    bool untried;    /* down, but the next request for it is a trial: nobody has asked since its pause ended */
    uint64_t requests, bytes;
    uint64_t failures; /* gets that it did not answer in full */
    uint64_t wrong;    /* its answers with wrong bytes, which a later get corrected */
};

/* A list that is followed, as it was read last. */
struct store_l2_list {
    const char *list;    /* as it was given; lives as long as the proxies */
    size_t len;          /* proxies of it */
    uint64_t failing_ms; /* since it could not be read; 0: it was read */
    /* why not, or ""; its proxies are those of before then */
    char failure[ERROR_TEXT_MAX];
};

/* What there is at a moment; strings are valid until it is released. */
struct store_l2_reports {
    struct store_l2_report *items;
    size_t len, list_count;
    struct store_l2_list lists[STORE_L2_LISTS_MAX]; /* those that can change */
    struct proxy_list *list;                        /* keeps the strings */
};

/* Make the proxies of n lists (1 to STORE_L2_LISTS_MAX), each of them the URL of a proxy, the absolute path of a file
 * of URLs, or dns+http://NAME:PORT/PATH for a proxy at each address of a name. A proxy in two lists has the higher
 * weight. Starts no thread and uses no network. Files are read; one that cannot be is logged, and read again later.
 * Names are looked up by the thread. Connecting to a proxy may take 2 s, and one that sends nothing for 5 s has failed.
 * Of the store's options the proxies share rate and cancel, and slots or else `connections` (for each proxy). node:
 * NULL: the server is no node. The caller closes *out with store_proxies_close. -EINVAL: not an address of an HTTP
 * server, or a password in it, or an URL given twice; -ENOMEM. */
GR_MUST_CHECK int store_proxies_open(const char *const *lists, size_t n, const struct store_options *of_store,
                                     const struct store_node *node, struct store_proxies **out);
/* Say this node's weight, 1 to STORE_WEIGHT_MAX, before the first get. Nodes whose weight no list gives are taken to
 * have the same until they answer, and say theirs. */
enum { STORE_WEIGHT_MAX = 1000000 };
void store_proxies_weigh(struct store_proxies *p, unsigned weight);
/* This node leaves: nothing belongs to it from now on. Any thread. */
void store_proxies_leave(struct store_proxies *p);
bool store_proxies_left(const struct store_proxies *p);
/* How often a node has said that it leaves, this one not counted. */
unsigned store_proxies_departures(const struct store_proxies *p);
/* Does the key at off belong to this node because another one is leaving, which may still have it? */
bool store_proxies_inherits(struct store_proxies *p, const char *key, uint64_t off);
/* Open a store of what leaving nodes have: a get asks the one that had the key at off, and nobody else. -ENOENT: nobody
 * that leaves had it, or has it any more. The caller closes it; it keeps a reference to the proxies. -ENOMEM. */
GR_MUST_CHECK int store_leaving_open(struct store_proxies *p, struct store **out);
/* Start the thread that follows the lists that can change; without one there is none. Called once, after any fork.
 * Errors of thread_start. */
GR_MUST_CHECK int store_proxies_start_thread(struct store_proxies *p);
/* Stop the thread. The proxies are freed when the last store in front of which they are is closed. NULL is allowed. */
void store_proxies_close(struct store_proxies *p);
DEFINE_CLEANUP(store_proxies, struct store_proxies *, store_proxies_close)

/* Fill in the reports. The caller releases *out with store_l2_reports_release. Without memory, there are none. */
void store_proxies_reports(struct store_proxies *p, struct store_l2_reports *out);
void store_l2_reports_release(struct store_l2_reports *r);
/* Visit the sums over all proxies, of those that have left too. What a store's gets did besides is among its own
 * counters (store_counters). */
void store_proxies_counters(struct store_proxies *p, counter_visit *visit, void *arg);

/* Put the proxies in front of origin. origin retries failures itself (store_retry); the proxies do not, so that a get
 * they fail goes to origin at once. Takes ownership of origin, also on failure, and a reference to the proxies. The
 * caller closes *out with store_close. -ENOMEM. */
GR_MUST_CHECK int store_l2_open(struct store *origin, struct store_proxies *proxies, struct store **out);

#endif

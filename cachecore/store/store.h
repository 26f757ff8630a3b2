/* An object store: keys under one prefix (docs/reference/format-store.md). One vtable, blocking, any thread;
 * the fakes of the tests implement it too. Objects are immutable except tags, leases and trash
 * marks.
 *
 * Every operation returns 0 or -errno with a sentence naming the store and the key: -ENOENT absent,
 * -EACCES refused, -EAGAIN / -ETIMEDOUT worth a retry (store_retry does), -EEXIST a put's condition
 * did not hold, -ENOTSUP the store cannot do it (read-only http), -EIO.
 */
#ifndef GRANARY_STORE_STORE_H
#define GRANARY_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/counter.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/rate.h"

struct store;
struct http_places;

/* Receives bytes in order as they arrive; non-zero stops the get with that -errno. */
typedef int store_sink(void *arg, const void *data, size_t len);
/* Visits one key (relative to the store); non-zero ends the listing with that value. */
struct store_item {
    const char *key;
    uint64_t size;
    int64_t mtime; /* seconds since the epoch */
    /* stat alone: what may be the object's MD5 in lower-case hex (S3: an ETag that looks like one; of an object that
     * the server encrypts it is something else). Empty: the store says none. */
    char md5[MD5_HEX_SIZE];
};
typedef int store_visit(void *arg, const struct store_item *item);

enum store_put_mode {
    STORE_PUT_ALWAYS,    /* replace */
    STORE_PUT_IF_ABSENT, /* -EEXIST when the key exists */
    STORE_PUT_IF_MATCH,  /* -EEXIST when its version is not `version` */
};

/* Whether a store answers; all zero: as far as is known. */
struct store_health {
    bool silent;               /* it answers nobody: one operation at a time asks, the others wait */
    unsigned failures;         /* passing ones in a row, up to now */
    unsigned waiting;          /* operations, for another one's answer */
    uint64_t failing_ms;       /* since the first of the failures */
    uint64_t read_waits_ms;    /* the longest that a read has been waiting for it; of stack_store_health alone */
    char last[ERROR_TEXT_MAX]; /* the sentence of the last one */
};

/* A get's deadline, and what became of it. */
struct store_errand {
    uint64_t deadline_ms; /* on clock_now_ms: nothing is tried again after that */
    bool fresh;           /* over new connections: what came over one that is kept alive was wrong */
    unsigned tries;       /* so many so far, those of shared tiers counted */
    const char *from;     /* the URL of who was asked last; lives as long as the store; NULL: nobody */
};

enum { STORE_VERSION_MAX = 256, STORE_KEY_MAX = 1024 };

struct store_put {
    const char *key;
    const void *data;
    size_t len;
    const struct digest *sha256; /* of data when known, else NULL */
    enum store_put_mode mode;
    const char *version; /* STORE_PUT_IF_MATCH: what store_get_small gave */
};

/* What an implementation does. Keys and prefixes are valid; callers have the functions below. */
struct store_ops {
    /* Bytes [off, off+len) of key, exactly that many; fewer in the object is -EBADMSG. */
    int (*get)(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
    /* A whole object of at most out->max bytes (appended to out; -EMSGSIZE beyond) and its version
     * for a later STORE_PUT_IF_MATCH (version may be NULL). Never answered from a cache. */
    int (*get_small)(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
    int (*put)(struct store *s, const struct store_put *put);
    /* Size of an object; -ENOENT absent. */
    int (*stat)(struct store *s, const char *key, struct store_item *out);
    /* All keys that begin with prefix, in any order. */
    int (*list)(struct store *s, const char *prefix, store_visit *visit, void *arg);
    /* Absent already: 0. */
    int (*remove)(struct store *s, const char *key);
    /* True when STORE_PUT_IF_ABSENT and IF_MATCH are honoured (found out once, by a few puts to a
     * key below probe/, where unknown). Where they are not, IF_ABSENT may overwrite what a rival
     * put at the same moment, or at all, and IF_MATCH overwrites or is -ENOTSUP: ask first. */
    int (*probe_conditional)(struct store *s, bool *out);
    void (*close)(struct store *s);
    /* Optional (NULL): the keys under prefix that stand behind `after` in byte order, ascending;
     * list is ascending too then. Lets store_retry go on with a listing that broke. */
    int (*list_after)(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg);
    /* Optional (NULL: it never tries again): see store_get_until. */
    int (*get_until)(struct store *s, const char *key, uint64_t off, uint64_t len, struct store_errand *errand,
                     store_sink *sink, void *arg);
    /* Optional (NULL: it keeps no connections): get over new ones. */
    int (*get_fresh)(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
    /* Optional (NULL: it counts nothing). */
    void (*counters)(struct store *s, counter_visit *visit, void *arg);
    /* Optional (NULL: nobody watches it): see store_health. */
    void (*health)(struct store *s, struct store_health *out);
    /* Optional, both or none (NULL: nothing stands in between): see store_origin, store_blame. */
    struct store *(*origin)(struct store *s);
    void (*blame)(struct store *s, const char *key);
};

/* First member of every implementation. */
struct store {
    const struct store_ops *ops;
    const char *url; /* for messages; holds no secret */
};

struct store_options {
    const char *endpoint;        /* s3: --endpoint; NULL: environment */
    const char *hdfs_token_file; /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    unsigned connections;        /* 0: 64 */
    struct http_places *places;  /* shared by several stores, instead of connections; outlives them; NULL: none */
    uint64_t timeout_ms;         /* retries go on for so long; 0: 5 minutes */
    unsigned request_s;          /* http, s3, hdfs: a request that gets nothing for so long fails with -ETIMEDOUT; 0:
                                    10 s to connect, then 30 s */
    unsigned connect_ms;         /* http, s3: to connect; 0: as request_s says */
    const volatile int *cancel; /* set asynchronously: nothing is tried again, -ECANCELED; requests end within a second,
                                   those made afterwards within two; may be NULL */
    struct rate *rate;          /* of what is read and written, shared; outlives the store; NULL: no limit */
};

/* Open the store of a URL (file:///p or just /p, s3://b/p, hdfs://n:9870/p, http(s)://h/p), wrapped in store_retry.
 * Touches the network only for what credentials need. -EINVAL: unknown scheme, listing the known ones. *out:
 * store_close. */
GR_MUST_CHECK int store_open(const char *url, const struct store_options *options, struct store **out);

static inline void store_close(struct store *s)
{
    if (s)
        s->ops->close(s);
}
DEFINE_CLEANUP(store, struct store *, store_close)

/* The operations, which do what store_ops says. A key is 1 to STORE_KEY_MAX bytes of components divided by single
 * slashes; no component is empty, "." or "..", so that no key, wherever it came from, leads out of the store. A prefix
 * may be empty, and its last component may be cut anywhere. -EINVAL otherwise. */
int store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int store_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
int store_put(struct store *s, const struct store_put *put);
int store_stat(struct store *s, const char *key, struct store_item *out);
int store_list(struct store *s, const char *prefix, store_visit *visit, void *arg);
int store_remove(struct store *s, const char *key);
int store_probe_conditional(struct store *s, bool *out);

/* store_get as the errand says, tried again until its deadline at the latest. */
int store_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct store_errand *errand,
                    store_sink *sink, void *arg);

/* s for one errand: what to read from where a store is wanted, get alone. In the caller's memory; not to be closed. */
struct store_on_errand {
    struct store base;
    struct store *inner;
    struct store_errand *errand;
};
void store_on_errand_init(struct store_on_errand *e, struct store *s, struct store_errand *errand);

/* A part of a store as a store of its own: the keys of `outer` that begin with dir and a slash, without them. Its URL
 * is the outer one's with dir. outer: stays the caller's, and outlives it. dir: the beginning of a valid key. *out:
 * store_close. A key that is too long together with dir is -EINVAL. */
GR_MUST_CHECK int store_below_open(struct store *outer, const char *dir, struct store **out);

/* Retries and whatever else the store counts. */
void store_counters(struct store *s, counter_visit *visit, void *arg);

void store_health(struct store *s, struct store_health *out);

/* The same objects without the shared tiers in between: where to ask again for what arrived wrong. Lives as long as s;
 * not to be closed. */
struct store *store_origin(struct store *s);
/* What s gave of key did not match its checksum, and what it or store_origin(s) gave then did. */
void store_blame(struct store *s, const char *key);

/* The implementations, unwrapped. */
GR_MUST_CHECK int store_file_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_s3_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_hdfs_open(const char *url, const struct store_options *options, struct store **out);
GR_MUST_CHECK int store_http_open(const char *url, const struct store_options *options, struct store **out);

/* A store that repeats what failed with -EAGAIN or -ETIMEDOUT, with exponential backoff and full
 * jitter, until timeout_ms after the first try or, with -ECANCELED, until *cancel (may be NULL) is set. A get goes on
 * behind the bytes already handed on. A repeated conditional put that finds its own bytes there counts as done. While
 * inner answers nobody one operation at a time asks it (breaker.h); the others wait, for their own timeout_ms at most.
 * Takes ownership of inner (also on failure). */
GR_MUST_CHECK int store_retry_open(struct store *inner, uint64_t timeout_ms, const volatile int *cancel,
                                   struct store **out);

#endif

/* For implementations of sources: how each kind is opened, and what the kinds share. From outside, include source.h. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_INTERNAL_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/compiler.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"
#include "net/aws/s3.h"

/* ---- one function for each kind; errors as from source_open ---- */

/* bucket_and_prefix: the part of url after "s3://". */
GR_MUST_CHECK int source_s3_open(const char *url, const char *bucket_and_prefix, const struct source_options *options,
                                 struct source **out);

/* url: hdfs://... or swebhdfs://... */
GR_MUST_CHECK int source_hdfs_open(const char *url, const struct source_options *options, struct source **out);

/* The signature of source_open. */
typedef int source_opener(const char *url, const struct source_options *options, struct source **out);

/* address: the part of url after "tar:". `open` opens the source that holds the shards; it is a parameter so that tar/
 * does not depend on source_open, which depends on tar/. */
GR_MUST_CHECK int source_tar_open(const char *url, const char *address, const struct source_options *options,
                                  source_opener *open, struct source **out);

/* url: http://host/path or https://host/path. */
GR_MUST_CHECK int source_http_open(const char *url, const struct source_options *options, struct source **out);

/* ---- shared by the kinds ---- */

/* Visit a regular file of which only path and version are known, for source_ops.look. Mode is 0644, owner and group
 * are 0. Returns what visit returns. */
GR_MUST_CHECK int source_tell(const struct source_ask *ask, const struct source_version *now, source_visit *visit,
                              void *arg);

/* Count a path that vanished. Return whether to warn of it: true for the first SOURCE_VANISHED_NAMED. */
bool source_counts_vanished(struct source_counts *c, const char *path, size_t len);
/* Log the warning. Not to be called under a lock. */
void source_warn_vanished(const char *path, size_t len);
/* Add one source's counts to another's. */
void source_counts_add(struct source_counts *to, const struct source_counts *from);

/* A buffer that receives an answer of known length. */
struct source_target {
    uint8_t *dst;
    size_t len, done; /* bytes: of dst, received so far */
};

/* An http_sink for a struct source_target. -EBADMSG: the server sent more bytes than were requested. */
GR_MUST_CHECK int source_take(void *arg, const void *data, size_t len);

/* ---- retries (source.c) ---- */

/* Retries of requests to a server, shared by the sources that have one. A failed operation is repeated with growing
 * pauses until timeout_ms have passed since its first failure. After 3 s of trouble a warning is logged. Pauses end
 * when the build is cancelled.
 *
 *   struct source_try t = {0};
 *   while ((rc = request()) && !(rc = source_retry_wait(&s->retry, &t, rc)))
 *       ;
 *
 * Any thread may use a struct source_retry; a struct source_try belongs to one operation of one thread.
 */

/* The retries of one source. */
struct source_retry {
    const char *url; /* for messages; the source's string */
    uint64_t timeout_ms;
    const volatile int *interrupted; /* source_options.cancel; may be NULL */
    pthread_mutex_t lock;            /* guards cancelled; never held across a request */
    pthread_cond_t cancelling;       /* signalled when cancelled is set */
    bool cancelled;
    _Atomic uint64_t warned_ms; /* of retry_warn */
};

/* Consecutive failures of one operation; {0} before the first one and after a success. */
struct source_try {
    uint64_t until_ms; /* when to give up (clock_now_ms); 0: no failure yet */
    unsigned pause_ms; /* before the next try, without jitter */
};

/* url is not copied. It, and what options->cancel points to, must outlive r. */
void source_retry_init(struct source_retry *r, const char *url, const struct source_options *options);
void source_retry_release(struct source_retry *r);

/* After the failure rc: wait and return 0 if the operation may be tried again. Otherwise return at once: rc, if it is
 * neither -EAGAIN nor -ETIMEDOUT, or if the next try would come too late; -ECANCELED, if the build ends. The pause
 * respects a Retry-After of the server, up to 60 s. */
GR_MUST_CHECK int source_retry_wait(struct source_retry *r, struct source_try *t, int rc);
/* End all waits with -ECANCELED, now and later. */
void source_retry_cancel(struct source_retry *r);

/* ---- walks with several threads (walk.c) ---- */

/* A parallel walk over a tree, shared by all kinds of sources. The tree is cut into places: a directory, one page of
 * it, or a range of keys. The source supplies a function that lists one place. Threads pop places from a stack, list
 * them and push the places that they find; the calling thread visits the entries.
 *
 *   walk_push -> stack of places -> threads: list() -> walk_emit -> batches -> calling thread: visit()
 *                      ^                       |
 *                      +------ walk_push ------+
 *
 * The stack is last in, first out: the walk goes deep before it goes wide, so few places wait at a time.
 *
 * The walk ends when no place is left, or with the first error of list, share or visit. After an error no further
 * place is begun, and walk_run returns once the places in progress have ended. A place below the root that is gone
 * (-ENOENT) is counted and skipped.
 */

/* A part of the tree that is listed in one go. */
struct walk_place {
    const char *path; /* with a final NUL; "" is the root */
    size_t path_len;
    const char *after; /* with a final NUL: list only what follows this name; NULL: everything */
    int kind;          /* for the source's own use */
    bool alone;        /* nothing else may be listed at the same time */
};

struct walker; /* one thread of the walk */

struct walk {
    const char *url;  /* for messages */
    unsigned threads; /* at most 64 are started */
    /* List one place: call walk_emit, walk_push and walk_vanished, in any order and number. Called by several threads
     * at the same time. */
    int (*list)(void *arg, struct walker *w, const struct walk_place *place);
    /* Called by a thread that has nothing to list while others have: take over a part of their work. Return 1 if there
     * may be more to take over now, 0 if not before another place is listed. NULL: places cannot be shared. */
    int (*share)(void *arg, struct walker *w);
    void *arg;
    source_visit *visit; /* called by the thread of walk_run; non-zero ends the walk with that value */
    void *visit_arg;
    struct source_counts *counts; /* counts places that are gone; NULL: list returns no -ENOENT below the root */
};

/* Walk the tree from the root. Blocks. Memory: 192 KiB a thread for entries in transit; for each waiting place its
 * path and about 60 bytes, 1 GiB at most (-ENOMEM). Returns the first error. */
GR_MUST_CHECK int walk_run(const struct walk *config);

/* Pass a copy of an entry on to the visitor; waits while the visitor is behind. `walker` is a struct walker: the type
 * is void, so that the function is a source_visit. -ECANCELED: the walk has failed. -ENOMEM. */
GR_MUST_CHECK int walk_emit(void *walker, const struct source_entry *e);
/* Add a copy of a place to list; its path needs no final NUL. -ENOMEM: also if too many places wait. */
GR_MUST_CHECK int walk_push(struct walker *w, const struct walk_place *place);
/* Count a path that is gone, and log a warning for the first ones. */
void walk_vanished(struct walker *w, const char *path, size_t len);

/* ---- listing a bucket (s3_walk.c) ---- */

/* List all objects under a prefix of a bucket with several threads. The range of keys that is left to list is split
 * again and again, so this works whatever the keys look like. */

enum { S3_WALK_THREADS_MAX = 8 };

struct s3_walk_config {
    struct s3 *s3;
    const char *prefix;
    struct source_retry *retry;
    const struct rules *rules; /* keys in directories that these leave out may be skipped; NULL: none are */
    unsigned threads;          /* limit; 0: S3_WALK_THREADS_MAX */
    /* Pass one object on with walk_emit. Called once for each key that is not skipped, in no order, by any of the
     * threads. */
    int (*emit)(void *arg, struct walker *walker, const struct s3_object *o);
    void *arg;
};

/* List the bucket; the calling thread visits what `emit` emits. Failed requests are retried by config->retry. -EIO: the
 * server lists keys out of order, or its listing does not end. Others come from the server, emit and visit. */
GR_MUST_CHECK int s3_walk(const struct s3_walk_config *config, source_visit *visit, void *arg);

/* Compare two keys by their bytes, as memcmp does. Of two that are equal up to the end of one, the shorter is less. */
int key_order(const void *a, size_t a_len, const void *b, size_t b_len);

/* Replace *out by a key after `after` and before `end`, about half way between them. It has the bytes that both share,
 * then printable ASCII, so it is valid UTF-8 if they are. Both begin with the same prefix_len bytes. end NULL: up to
 * the last key with this prefix.
 *
 * Return 1; 0: no key was found between them; -EMSGSIZE, -ENOMEM. */
GR_MUST_CHECK int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
                            struct bytes *out);

/* ---- extended attributes of this machine's files (local_xattrs.c) ---- */

/* Most bytes of extended attributes of one path, in the form of source_entry.xattrs. The kernel limits the list of
 * their names to 64 KiB. */
enum { LOCAL_XATTRS_MAX = 256 << 10 };

/* Return 0, or -ENOENT with a sentence: /proc is not mounted, so attributes cannot be read. */
GR_MUST_CHECK int local_xattrs_possible(void);

/* Read the extended attributes of `name` in the directory dir ("." is the directory itself), without opening it or
 * following a link. *out is replaced by them, in the form of source_entry.xattrs; it is empty where the filesystem has
 * none. -ENOENT: the name is gone; -EMSGSIZE: over LOCAL_XATTRS_MAX; -ERANGE: they kept changing; -ENOMEM. */
GR_MUST_CHECK int local_xattrs_read(int dir, const char *name, struct bytes *out);

/* ---- owners (source_hdfs.c) ---- */

/* Ids for the user and group names of a source: those given by options, else those of this host's databases, else 0.
 * Any thread. */

struct owner_map;

/* Make a map from "NAME=ID" texts; NAME may contain '='. Of two with the same name the first counts. -EINVAL: a text
 * is malformed; the sentence names the option. -ENOMEM. */
GR_MUST_CHECK int owner_map_new(const char *const *users, size_t user_count, const char *const *groups,
                                size_t group_count, struct owner_map **out);
void owner_map_free(struct owner_map *m);
DEFINE_CLEANUP(owner_map, struct owner_map *, owner_map_free)

/* Return the id of a name; 0 if neither the options nor the host know it. May block: the host's databases can be
 * on a server. */
uint32_t owner_map_user(struct owner_map *m, const char *name);
uint32_t owner_map_group(struct owner_map *m, const char *name);

/* Return the number of different names without an id so far. */
size_t owner_map_unknown(struct owner_map *m);
/* Log a warning each for users and for groups with the number of names without an id and the first of them. */
void owner_map_report(struct owner_map *m, const char *source);

#endif

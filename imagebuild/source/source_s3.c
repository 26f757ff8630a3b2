/* A bucket, or the keys under a prefix of it, as a source. s3_walk.c lists it. Keys become paths unchanged, except
 * for objects that stand for a directory: they have no bytes, and a key that ends in "/" or in Hadoop's "_$folder$".
 * These become directories here, and nowhere else.
 *
 * The version of an object is its ETag. Every answer's ETag is compared with the listed one. If-Match would let the
 * server compare them, but a caching proxy may drop that header, and the request's signature covers it.
 *
 * A failed request is repeated with growing pauses (source_retry_wait). The time limit counts from the first failure of
 * a page of a listing, or of a whole read.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/source/source_internal.h"
#include "net/aws/s3.h"

/* Immutable while it is open, except for retry and has_keys, so any thread may read. */
struct source_s3 {
    struct source base;
    struct s3 *s3;
    char *url;
    char *prefix; /* of all keys: empty, or with a slash at its end */
    size_t prefix_len;
    unsigned connections;
    const struct rules *rules;
    struct source_retry retry;
    _Atomic bool has_keys; /* the last listing found a key */
};

static struct source_s3 *s3_of(struct source *s)
{
    return (struct source_s3 *)s;
}

static void s3_source_cancel(struct source *base)
{
    source_retry_cancel(&s3_of(base)->retry);
}

/* ------------------------------------------------------------------ listing */

/* Return the length of the directory's path that a key without bytes stands for, or -1 if it is an ordinary file. */
static ssize_t directory_length(const char *path, size_t len)
{
    static const char hadoop[] = "_$folder$";
    size_t suffix = sizeof hadoop - 1;
    if (!len)
        return 0; /* the prefix itself */
    if (path[len - 1] == '/')
        return (ssize_t)len - 1;
    if (len > suffix && !memcmp(path + len - suffix, hadoop, suffix) && path[len - suffix - 1] != '/')
        return (ssize_t)(len - suffix);
    return -1;
}

/* Emit one object as a file or a directory. Called by several threads. */
static int emit_object(void *arg, struct walker *walker, const struct s3_object *o)
{
    struct source_s3 *s = arg;
    if (o->key_len < s->prefix_len)
        return error_set(-EBADMSG, "source: %s: the listing holds '%s', which is not under the prefix", s->url, o->key);
    struct source_entry e = {.path = o->key + s->prefix_len,
                             .path_len = o->key_len - s->prefix_len,
                             .mode = S_IFREG | 0644,
                             .size = o->size,
                             .mtime = o->mtime,
                             .mtime_nsec = o->mtime_nsec};
    /* an object with bytes is a file even if its key ends in a slash */
    ssize_t directory = o->size ? -1 : directory_length(e.path, e.path_len);
    if (directory >= 0) {
        e.path_len = (size_t)directory;
        e.mode = S_IFDIR | 0755;
    } else if (o->etag && strlen(o->etag) <= SOURCE_VALIDATOR_MAX) {
        e.validator = o->etag;
        e.validator_len = strlen(o->etag);
    }
    atomic_store(&s->has_keys, true);
    return walk_emit(walker, &e);
}

static int s3_source_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_s3 *s = s3_of(base);
    const struct s3_walk_config config = {.s3 = s->s3,
                                          .prefix = s->prefix,
                                          .retry = &s->retry,
                                          .rules = s->rules,
                                          .threads = s->connections,
                                          .emit = emit_object,
                                          .arg = s};
    atomic_store(&s->has_keys, false);
    int rc = s3_walk(&config, visit, arg);
    /* S3 lists a wrong prefix as empty, without an error */
    if (!rc && !atomic_load(&s->has_keys))
        return error_set(-ENOENT, "source: there is nothing under %s; check bucket and prefix", base->url);
    return rc;
}

/* ------------------------------------------------------------------ reading */

/* Make the key of a path. The server checks its length. */
static int source_s3_make_key(const struct source_s3 *s, const char *path, size_t len, struct bytes *out)
{
    int rc = bytes_append(out, s->prefix, s->prefix_len);
    return rc ? rc : bytes_append(out, path, len);
}

/* Read until all bytes have come from one answer of the wanted version. A cut answer is requested again as a whole.
 * An object without a listed ETag is read unchecked. */
static int s3_source_read(struct source *base, const struct source_read *r)
{
    struct source_s3 *s = s3_of(base);
    CLEANUP_BYTES key = BYTES_INIT(S3_KEY_ROOM);
    char etag[SOURCE_VALIDATOR_MAX + 1] = {0};
    struct source_try try = {0};
    int rc = source_s3_make_key(s, r->path, r->path_len, &key);
    if (rc)
        return rc;
    memcpy(etag, r->validator_len ? r->validator : "", r->validator_len);
    for (;;) {
        struct source_target target = {.dst = r->dst, .len = r->len};
        struct s3_meta meta = {0};
        const struct http_part part = {.off = r->offset, .len = r->len};
        rc = s3_get(s->s3, (const char *)key.data, key.len, &part, source_take, &target, &meta);
        /* -EBADMSG: the object does not have this range any more */
        if (*etag && (rc == -EBADMSG || (!rc && *meta.etag && strcmp(meta.etag, etag))))
            return error_set(-ESTALE, "source: %s: '%.*s' changed", base->url, (int)r->path_len, r->path);
        if (!rc && *etag && !*meta.etag)
            return error_set(-EIO,
                             "source: %s: the answer for '%.*s' has no ETag, so nobody can tell whether it changed; a "
                             "proxy on the way must pass ETag on",
                             base->url, (int)r->path_len, r->path);
        if (!rc && target.done < target.len)
            rc = error_set(-EAGAIN, "source: %s: the answer for '%.*s' was cut short", base->url, (int)r->path_len,
                           r->path);
        rc = rc ? source_retry_wait(&s->retry, &try, rc) : 0;
        if (rc || target.done == target.len)
            return rc;
    }
}

static int s3_source_stat(struct source *base, const char *path, size_t path_len, struct source_version *out)
{
    struct source_s3 *s = s3_of(base);
    CLEANUP_BYTES key = BYTES_INIT(S3_KEY_ROOM);
    struct s3_meta meta = {0};
    struct source_try try = {0};
    int rc = source_s3_make_key(s, path, path_len, &key);
    while (!rc) {
        rc = s3_head(s->s3, (const char *)key.data, key.len, &meta);
        if (!rc)
            break;
        rc = source_retry_wait(&s->retry, &try, rc);
    }
    if (rc)
        return rc;
    *out = (struct source_version){.size = meta.size, .mtime = meta.mtime};
    if (strlen(meta.etag) <= SOURCE_VALIDATOR_MAX) {
        out->validator_len = strlen(meta.etag);
        memcpy(out->validator, meta.etag, out->validator_len + 1);
    }
    return 0;
}

static int s3_source_look(struct source *base, const struct source_ask *ask, source_visit *visit, void *arg)
{
    struct source_version now;
    int rc = s3_source_stat(base, ask->path, ask->path_len, &now);
    return rc ? rc : source_tell(ask, &now, visit, arg);
}

/* ------------------------------------------------------------------ life */

static void s3_source_close(struct source *base)
{
    struct source_s3 *s = s3_of(base);
    if (s->s3)
        s3_free(s->s3);
    source_retry_release(&s->retry);
    free(s->prefix);
    free(s->url);
    free(s);
}

static void cleanup_source_s3(struct source_s3 **s)
{
    if (*s)
        s3_source_close(&(*s)->base);
}

/* Return the prefix with a slash at its end, unless it is empty: "a/b" and "a/b/" both mean the keys under "a/b/". */
static char *prefix_of(const char *text)
{
    size_t len = strlen(text);
    char *prefix = malloc(len + 2);
    if (!prefix)
        return NULL;
    memcpy(prefix, text, len + 1);
    if (len && text[len - 1] != '/')
        memcpy(prefix + len, "/", 2);
    return prefix;
}

int source_s3_open(const char *url, const char *bucket_and_prefix, const struct source_options *options,
                   struct source **out)
{
    static const struct source_ops ops = {.list = s3_source_list,
                                          .look = s3_source_look,
                                          .read = s3_source_read,
                                          .stat = s3_source_stat,
                                          .cancel = s3_source_cancel,
                                          .close = s3_source_close};
    const char *slash = strchrnul(bucket_and_prefix, '/');
    CLEANUP_FREE char *bucket = strndup(bucket_and_prefix, (size_t)(slash - bucket_and_prefix));
    CLEANUP(cleanup_source_s3) struct source_s3 *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    source_retry_init(&s->retry, url, options);
    s->url = strdup(url);
    if (!bucket || !s->url)
        return error_no_memory();
    s->retry.url = s->url; /* the caller's string may be gone later */
    if (!*bucket)
        return error_set(-EINVAL, "source: '%s' names no bucket; write s3://bucket/prefix", url);
    s->prefix = prefix_of(*slash ? slash + 1 : slash);
    if (!s->prefix)
        return error_no_memory();
    s->prefix_len = strlen(s->prefix);
    s->connections = options->connections;
    s->rules = options->rules;
    struct s3_config config = {
        .bucket = bucket,
        .endpoint = options->endpoint,
        .http = {.connections = options->connections, .rate = options->rate, .cancel = options->cancel}};
    int rc = s3_new(&config, &s->s3);
    if (rc)
        return rc;
    s->base.ops = &ops;
    s->base.url = s->url;
    *out = &s->base;
    s = NULL;
    return 0;
}

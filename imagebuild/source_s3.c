/* A bucket, or what lies under a prefix of it, as a source. Keys become paths as they are; a key that
 * means a directory (no bytes, and a "/" at its end or Hadoop's "_$folder$") becomes one here and
 * nowhere else.
 *
 * The version of an object is its ETag: reads are conditional on it. A failed request is repeated
 * with growing pauses until timeout_ms have passed since the last success (a page of a listing, or
 * the whole read); a listing goes on behind the last key it saw.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "imagebuild/source_kinds.h"
#include "net/s3.h"

enum { PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 5000, LOOK_MS = 200, TIMEOUT_DEFAULT_MS = 300000 };

struct source_s3 {
    struct source base;
    struct s3 *s3;
    char *url;
    char *prefix; /* empty, or with a slash at its end */
    size_t prefix_len;
    uint64_t timeout_ms;
    pthread_mutex_t lock; /* guards cancelled; never held across a request */
    pthread_cond_t cancelling;
    bool cancelled;
    const volatile int *interrupted;
};

static struct source_s3 *s3_of(struct source *s)
{
    return (struct source_s3 *)s;
}

/* ------------------------------------------------------------------ retries */

struct retry {
    uint64_t until_ms; /* 0: no failure yet */
    unsigned pause_ms;
};

/* 0 after so many milliseconds, or -ECANCELED as soon as the build is to end. */
static int pause_for(struct source_s3 *s, unsigned ms)
{
    uint64_t until = clock_now_ms() + ms, now;
    SCOPED_LOCK(&s->lock);
    while (!s->cancelled && !(s->interrupted && *s->interrupted) && (now = clock_now_ms()) < until) {
        uint64_t slice = GR_MIN(until - now, (uint64_t)LOOK_MS);
        struct timespec at;
        clock_gettime(CLOCK_MONOTONIC, &at);
        uint64_t nsec = (uint64_t)at.tv_nsec + slice * 1000000;
        at.tv_sec += (time_t)(nsec / 1000000000);
        at.tv_nsec = (long)(nsec % 1000000000);
        pthread_cond_timedwait(&s->cancelling, &s->lock, &at);
    }
    if (s->cancelled || (s->interrupted && *s->interrupted))
        return error_set(-ECANCELED, "source: %s: the build was stopped while it waited for the server", s->url);
    return 0;
}

/* Wait before the next try. 0, or rc when it is of no use or it has taken too long, or -ECANCELED. */
static int retry_wait(struct source_s3 *s, struct retry *r, int rc)
{
    if (rc != -EAGAIN && rc != -ETIMEDOUT)
        return rc;
    uint64_t now = clock_now_ms();
    if (!r->until_ms) {
        r->until_ms = now + s->timeout_ms;
        r->pause_ms = PAUSE_FIRST_MS;
    }
    if (now + r->pause_ms > r->until_ms)
        return error_prefix(rc, "source: no success for %llu s of retries", (unsigned long long)s->timeout_ms / 1000);
    /* Readers that failed together must not come back together. */
    unsigned pause = r->pause_ms / 2 + (unsigned)((uintptr_t)r >> 4 ^ now) % (r->pause_ms / 2 + 1);
    r->pause_ms = GR_MIN(r->pause_ms * 2, (unsigned)PAUSE_MAX_MS);
    return pause_for(s, pause);
}

static void s3_source_cancel(struct source *base)
{
    struct source_s3 *s = s3_of(base);
    SCOPED_LOCK(&s->lock);
    s->cancelled = true;
    pthread_cond_broadcast(&s->cancelling);
}

/* ------------------------------------------------------------------ listing */

struct s3_listing {
    struct source_s3 *s;
    source_visit *visit;
    void *arg;
    struct bytes last; /* where to go on after a failure */
    uint64_t seen;
    bool progress;     /* since the last failure */
    bool visit_failed; /* rc is the visitor's: not to be retried */
};

/* The length of the directory's path that a key without bytes means, or -1. */
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

static int list_visit(void *arg, const struct s3_object *o)
{
    struct s3_listing *l = arg;
    if (o->key_len < l->s->prefix_len)
        return error_set(-EBADMSG, "source: %s: the listing holds '%s', which is not under the prefix", l->s->url,
                         o->key);
    struct source_entry e = {.path = o->key + l->s->prefix_len,
                             .path_len = o->key_len - l->s->prefix_len,
                             .mode = S_IFREG | 0644,
                             .size = o->size,
                             .mtime = o->mtime,
                             .mtime_nsec = o->mtime_nsec};
    ssize_t directory = o->size ? -1 : directory_length(e.path, e.path_len);
    if (directory >= 0) {
        e.path_len = (size_t)directory;
        e.mode = S_IFDIR | 0755;
    } else if (o->etag && strlen(o->etag) <= SOURCE_VALIDATOR_MAX) {
        e.validator = o->etag;
        e.validator_len = strlen(o->etag);
    }
    int rc = l->visit(l->arg, &e);
    if (rc == -EINVAL)
        (void)error_prefix(rc, "source: %s", l->s->url);
    l->visit_failed = rc != 0;
    l->progress = true;
    l->seen++;
    if (!rc && !memchr(o->key, 0, o->key_len)) {
        bytes_clear(&l->last);
        rc = bytes_append(&l->last, o->key, o->key_len);
    }
    return rc;
}

static int s3_source_list(struct source *base, source_visit *visit, void *arg)
{
    struct s3_listing l = {.s = s3_of(base), .visit = visit, .arg = arg, .last = BYTES_INIT(HTTP_ERROR_BODY_MAX)};
    struct retry retry = {0};
    int rc;
    for (;;) {
        const char *after = l.last.len ? bytes_string(&l.last) : NULL;
        rc = s3_list(l.s->s3, l.s->prefix, after, list_visit, &l);
        if (!rc || l.visit_failed)
            break;
        if (l.progress)
            retry = (struct retry){0};
        l.progress = false;
        rc = retry_wait(l.s, &retry, rc);
        if (rc)
            break;
    }
    bytes_release(&l.last);
    if (!rc && !l.seen)
        return error_set(-ENOENT, "source: there is nothing under %s", base->url);
    return rc;
}

/* ------------------------------------------------------------------ reading */

struct target {
    uint8_t *dst;
    size_t len, done;
};

static int take_bytes(void *arg, const void *data, size_t len)
{
    struct target *t = arg;
    if (len > t->len - t->done)
        return error_set(-EBADMSG, "source: the server sent more bytes than were asked for");
    memcpy(t->dst + t->done, data, len);
    t->done += len;
    return 0;
}

/* prefix + path; the key's length is checked by the server. */
static int make_key(const struct source_s3 *s, const char *path, size_t len, struct bytes *out)
{
    int rc = bytes_append(out, s->prefix, s->prefix_len);
    return rc ? rc : bytes_append(out, path, len);
}

static int s3_source_read(struct source *base, const struct source_read *r)
{
    struct source_s3 *s = s3_of(base);
    CLEANUP_BYTES key = BYTES_INIT(HTTP_ERROR_BODY_MAX);
    char etag[SOURCE_VALIDATOR_MAX + 1] = {0};
    struct retry retry = {0};
    int rc = make_key(s, r->path, r->path_len, &key);
    if (rc)
        return rc;
    memcpy(etag, r->validator_len ? r->validator : "", GR_MIN(r->validator_len, (size_t)SOURCE_VALIDATOR_MAX));
    for (;;) {
        struct target target = {.dst = r->dst, .len = r->len};
        struct s3_meta meta = {0};
        rc = s3_get(s->s3, (const char *)key.data, key.len, r->offset, r->len, *etag ? etag : NULL, take_bytes, &target,
                    &meta);
        if (!rc && *etag && *meta.etag && strcmp(meta.etag, etag)) /* a server that ignores If-Match */
            return error_set(-ESTALE, "source: %s: '%.*s' changed", base->url, (int)r->path_len, r->path);
        if (!rc && target.done < target.len)
            rc = error_set(-EAGAIN, "source: %s: the answer for '%.*s' was cut short", base->url, (int)r->path_len,
                           r->path);
        rc = rc ? retry_wait(s, &retry, rc) : 0;
        if (rc || target.done == target.len)
            return rc;
    }
}

static int s3_source_stat(struct source *base, const char *path, size_t path_len, struct source_version *out)
{
    struct source_s3 *s = s3_of(base);
    CLEANUP_BYTES key = BYTES_INIT(HTTP_ERROR_BODY_MAX);
    struct s3_meta meta = {0};
    struct retry retry = {0};
    int rc = make_key(s, path, path_len, &key);
    while (!rc) {
        rc = s3_head(s->s3, (const char *)key.data, key.len, &meta);
        if (!rc)
            break;
        rc = retry_wait(s, &retry, rc);
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

/* ------------------------------------------------------------------ life */

static void s3_source_close(struct source *base)
{
    struct source_s3 *s = s3_of(base);
    if (s->s3)
        s3_free(s->s3);
    pthread_cond_destroy(&s->cancelling);
    pthread_mutex_destroy(&s->lock);
    free(s->prefix);
    free(s->url);
    free(s);
}

static void cleanup_source_s3(struct source_s3 **s)
{
    if (*s)
        s3_source_close(&(*s)->base);
}

static struct source_s3 *allocate(const char *url)
{
    struct source_s3 *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->cancelling, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&s->lock, NULL);
    s->url = strdup(url);
    return s;
}

/* "a/b" and "a/b/" both mean the keys under "a/b/". */
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
                                          .read = s3_source_read,
                                          .stat = s3_source_stat,
                                          .cancel = s3_source_cancel,
                                          .close = s3_source_close};
    const char *slash = strchrnul(bucket_and_prefix, '/');
    CLEANUP_FREE char *bucket = strndup(bucket_and_prefix, (size_t)(slash - bucket_and_prefix));
    CLEANUP(cleanup_source_s3) struct source_s3 *s = allocate(url);
    if (!bucket || !s || !s->url)
        return error_set(-ENOMEM, "source: out of memory");
    if (!*bucket)
        return error_set(-EINVAL, "source: '%s' names no bucket; write s3://bucket/prefix", url);
    s->prefix = prefix_of(*slash ? slash + 1 : slash);
    if (!s->prefix)
        return error_set(-ENOMEM, "source: out of memory");
    s->prefix_len = strlen(s->prefix);
    s->timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_DEFAULT_MS;
    s->interrupted = options->cancel;
    struct s3_config config = {
        .bucket = bucket, .endpoint = options->endpoint, .http = {.connections = options->connections}};
    int rc = s3_new(&config, &s->s3);
    if (rc)
        return rc;
    s->base.ops = &ops;
    s->base.url = s->url;
    *out = &s->base;
    s = NULL;
    return 0;
}

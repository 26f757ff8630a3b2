/* A store under a prefix of a bucket, over the S3 API (net/aws/s3.h).
 *
 * A put of S3 is atomic, so no temporary names are needed. Versions are ETags. Conditional puts use If-None-Match and
 * If-Match. Some servers ignore these headers, some answer 501, and some compare If-Match with the ETag without its
 * quotes. probe_conditional tries it out with an object below probe/ and remembers the result:
 *
 *   UNKNOWN -> IGNORED          a second put with If-None-Match: * was accepted, or If-Match does not work
 *           -> HONOURED         If-Match works with the quoted ETag (RFC 9110)
 *           -> HONOURED_BARE    it works with the bare one (Ceph)
 */
#include "store/store_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "net/aws/s3.h"

enum { FULL_KEY_MAX = 2 * STORE_KEY_MAX + 2 };
/* What the server does with conditional puts; see the top. */
enum conditional { UNKNOWN, IGNORED, HONOURED, HONOURED_BARE };

/* A store in a bucket. Constant after opening, except conditional. */
struct store_s3 {
    struct store base;
    struct s3 *s3;
    char *prefix;            /* "" or ends in '/' */
    _Atomic int conditional; /* enum conditional; threads that probe at the same time get the same result */
};

static struct store_s3 *s3_of(struct store *s)
{
    return (struct store_s3 *)s;
}

/* Write the bucket's key for a key of the store; return its length. */
static size_t full_key(struct store *s, const char *key, char out[FULL_KEY_MAX])
{
    return (size_t)snprintf(out, FULL_KEY_MAX, "%s%s", s3_of(s)->prefix, key);
}

static int s3_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                        store_sink *sink, void *arg)
{
    char full[FULL_KEY_MAX];
    size_t full_len = full_key(s, key, full);
    const struct http_part part = {.off = off, .len = len, .fresh = context->fresh};
    store_note_try(s, context);
    return s3_get(s3_of(s)->s3, full, full_len, &part, sink, arg, NULL);
}

static int s3_store_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    _Static_assert((int)HTTP_ETAG_MAX <= (int)STORE_VERSION_MAX, "a version holds an ETag");
    char full[FULL_KEY_MAX];
    struct s3_meta meta;
    size_t full_len = full_key(s, key, full);
    int rc = s3_get(s3_of(s)->s3, full, full_len, &(struct http_part){0}, store_append, out, &meta);
    if (!rc && version)
        snprintf(version, STORE_VERSION_MAX, "%s", meta.etag);
    return rc;
}

enum { CONDITION_MAX = STORE_VERSION_MAX + 16 };

/* Write the If-Match header. Most servers expect the ETag with its quotes, as in RFC 9110; Ceph compares it without. */
static void if_match_header(const char *etag, enum conditional form, char out[CONDITION_MAX])
{
    size_t len = strlen(etag), quoted = form == HONOURED_BARE && len >= 2 && etag[0] == '"' && etag[len - 1] == '"';
    snprintf(out, CONDITION_MAX, "If-Match: %.*s", (int)(len - 2 * quoted), etag + quoted);
}

/* Make one put with a condition header (may be NULL); out_etag may be NULL. */
static int put_full(struct store *s, const char *full, const struct store_put *put, const char *condition,
                    char out_etag[HTTP_ETAG_MAX])
{
    int rc = s3_put(s3_of(s)->s3, full, put->data, put->len, put->sha256, condition, out_etag);
    if (condition && rc == -ENOTSUP)
        return error_set(rc, "store %s: the server does not support conditional puts", s->url);
    return rc;
}

/* Set *out to whether the server accepts a put under this condition or refuses it; errors are returned. */
static int accepts(struct store *s, const char *full, const char *condition, bool *out)
{
    struct store_put put = {.key = full, .data = "probe", .len = 5};
    int rc = put_full(s, full, &put, condition, NULL);
    *out = rc == 0;
    return rc == -EEXIST || rc == -ENOTSUP ? 0 : rc;
}

/* Set *out to whether If-Match in this form refuses a wrong version and accepts the right one. */
static int match_works(struct store *s, const char *full, enum conditional form, const char *etag, bool *out)
{
    char condition[CONDITION_MAX];
    bool wrong = false, right = false;
    if_match_header("\"00000000000000000000000000000000\"", form, condition);
    int rc = accepts(s, full, condition, &wrong);
    if_match_header(etag, form, condition);
    if (!rc && !wrong)
        rc = accepts(s, full, condition, &right);
    *out = !wrong && right;
    return rc;
}

/* Find out what the server does with conditions, by puts to the key `full`. */
static int try_conditions(struct store *s, const char *full, enum conditional *out)
{
    struct store_put put = {.key = full, .data = "probe", .len = 5};
    char etag[HTTP_ETAG_MAX];
    bool second_put = true, works = false;
    *out = IGNORED;
    int rc = put_full(s, full, &put, NULL, etag);
    if (!rc)
        rc = accepts(s, full, "If-None-Match: *", &second_put);
    if (rc || second_put || !etag[0])
        return rc;
    for (enum conditional form = HONOURED; !rc && !works && form <= HONOURED_BARE; form++) {
        rc = match_works(s, full, form, etag, &works);
        if (works)
            *out = form;
    }
    return rc;
}

/* Probe once, with a random key, so that probes of several processes do not meet. */
static int s3_store_probe_conditional(struct store *s, bool *out)
{
    struct store_s3 *t = s3_of(s);
    enum conditional known = atomic_load(&t->conditional);
    int rc = 0;
    if (known == UNKNOWN) {
        char key[64], full[FULL_KEY_MAX];
        uint64_t random = 0;
        rc = io_random(&random, sizeof random);
        if (rc)
            return rc;
        snprintf(key, sizeof key, "probe/%016llx", (unsigned long long)random);
        full_key(s, key, full);
        rc = try_conditions(s, full, &known);
        int removed = s3_delete(t->s3, full);
        if (!rc)
            rc = removed;
        if (!rc)
            atomic_store(&t->conditional, known);
    }
    *out = !rc && known != IGNORED;
    return rc;
}

/* An object that was removed meanwhile makes some servers answer 404; to the caller that is a changed version. */
static int put_if_match(struct store *s, const char *full, const struct store_put *put)
{
    char condition[CONDITION_MAX];
    bool honoured;
    int rc = s3_store_probe_conditional(s, &honoured); /* also finds the header's form */
    if (rc)
        return rc;
    if (!honoured || !put->version || !*put->version)
        return error_set(-ENOTSUP, "store %s: the server does not support conditional puts", s->url);
    if_match_header(put->version, atomic_load(&s3_of(s)->conditional), condition);
    rc = put_full(s, full, put, condition, NULL);
    return rc == -ENOENT ? error_set(-EEXIST, "store %s: %s was removed by somebody else", s->url, put->key) : rc;
}

static int put_if_absent(struct store *s, const char *full, const struct store_put *put)
{
    int rc = put_full(s, full, put, "If-None-Match: *", NULL);
    if (rc != -ENOTSUP)
        return rc;
    struct s3_meta there; /* a server without conditions: look first, which leaves a race that cannot be closed */
    rc = s3_head(s3_of(s)->s3, full, strlen(full), &there);
    if (rc == 0)
        return error_set(-EEXIST, "store %s: %s exists already", s->url, put->key);
    return rc == -ENOENT ? put_full(s, full, put, NULL, NULL) : rc;
}

static int s3_store_put(struct store *s, const struct store_put *put)
{
    char full[FULL_KEY_MAX];
    full_key(s, put->key, full);
    if (put->mode == STORE_PUT_IF_MATCH)
        return put_if_match(s, full, put);
    if (put->mode == STORE_PUT_IF_ABSENT)
        return put_if_absent(s, full, put);
    return put_full(s, full, put, NULL, NULL);
}

/* Take the MD5 from a quoted ETag that has the form of one. The ETag of a multipart upload has a dash and is left
 * out. */
static void take_md5(const char *etag, char out[MD5_HEX_SIZE])
{
    static const size_t len = MD5_HEX_SIZE - 1;
    bool is = strspn(etag, "\"") == 1 && strspn(etag + 1, "0123456789abcdef") == len && !strcmp(etag + 1 + len, "\"");
    snprintf(out, MD5_HEX_SIZE, "%.*s", is ? (int)len : 0, etag + is);
}

static int s3_store_stat(struct store *s, const char *key, struct store_item *out)
{
    char full[FULL_KEY_MAX];
    struct s3_meta meta;
    int rc = s3_head(s3_of(s)->s3, full, full_key(s, key, full), &meta);
    if (rc)
        return rc;
    *out = (struct store_item){.key = key, .size = meta.size, .mtime = meta.mtime, .now = meta.now};
    take_md5(meta.etag, out->md5);
    return 0;
}

/* A caller's visitor. */
struct listing {
    size_t prefix_len; /* length of the store's prefix, removed from every key */
    store_visit *visit;
    void *arg;
};

static int visit_object(void *arg, const struct s3_object *object)
{
    struct listing *l = arg;
    /* skip what no put of ours made: directory markers, keys with NUL, overlong ones */
    if (object->key_len <= l->prefix_len || object->key_len - l->prefix_len > STORE_KEY_MAX ||
        strlen(object->key) != object->key_len || object->key[object->key_len - 1] == '/')
        return 0;
    struct store_item item = {.key = object->key + l->prefix_len, .size = object->size, .mtime = object->mtime};
    return l->visit(l->arg, &item);
}

static int s3_store_list_after(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg)
{
    struct store_s3 *t = s3_of(s);
    char full_prefix[FULL_KEY_MAX], full_after[FULL_KEY_MAX];
    snprintf(full_prefix, sizeof full_prefix, "%s%s", t->prefix, prefix);
    snprintf(full_after, sizeof full_after, "%s%s", t->prefix, after ? after : "");
    struct listing l = {.prefix_len = strlen(t->prefix), .visit = visit, .arg = arg};
    return s3_list(t->s3, full_prefix, after ? full_after : NULL, visit_object, &l);
}

static int s3_store_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return s3_store_list_after(s, prefix, NULL, visit, arg);
}

static int s3_store_remove(struct store *s, const char *key)
{
    char full[FULL_KEY_MAX];
    full_key(s, key, full);
    return s3_delete(s3_of(s)->s3, full);
}

static void s3_store_close(struct store *s)
{
    struct store_s3 *t = s3_of(s);
    s3_free(t->s3);
    free(t->prefix);
    free((char *)t->base.url);
    free(t);
}

/* Split a URL: "s3://bucket/a/b/" -> "bucket", "a/b/". -EINVAL: the prefix is too long. */
static int split_url(const char *url, char **out_bucket, char **out_prefix)
{
    const char *bucket = url + strlen("s3://"), *prefix = bucket + strcspn(bucket, "/");
    *out_bucket = strndup(bucket, (size_t)(prefix - bucket));
    prefix += *prefix == '/';
    size_t len = strlen(prefix);
    while (len && prefix[len - 1] == '/')
        len--;
    int n = asprintf(out_prefix, "%.*s%s", (int)len, prefix, len ? "/" : "");
    if (n < 0)
        *out_prefix = NULL;
    if (!*out_bucket || !*out_prefix)
        return error_no_memory();
    if (n > STORE_KEY_MAX)
        return error_set(-EINVAL, "store %.100s...: the prefix is longer than %d bytes", url, STORE_KEY_MAX);
    return 0;
}

static int connect_s3(const char *bucket, const struct store_options *options, struct s3 **out)
{
    struct s3_config config = {.bucket = bucket};
    if (options) {
        config.endpoint = options->endpoint;
        config.keys = options->keys;
        store_http_config(options, &config.http);
    }
    return s3_new(&config, out);
}

int store_s3_open(const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_ops ops = {
        .get = s3_store_get,
        .get_small = s3_store_get_small,
        .put = s3_store_put,
        .stat = s3_store_stat,
        .list = s3_store_list,
        .remove = s3_store_remove,
        .probe_conditional = s3_store_probe_conditional,
        .close = s3_store_close,
        .list_after = s3_store_list_after,
    };
    CLEANUP_FREE char *bucket = NULL, *prefix = NULL, *copy = strdup(url);
    CLEANUP_FREE struct store_s3 *t = calloc(1, sizeof *t);
    if (!t || !copy)
        return error_no_memory();
    int rc = split_url(url, &bucket, &prefix);
    if (!rc)
        rc = connect_s3(bucket, options, &t->s3);
    if (rc)
        return rc;
    t->base = (struct store){.ops = &ops, .url = steal_ptr(&copy)};
    t->prefix = steal_ptr(&prefix);
    *out = &steal_ptr(&t)->base;
    return 0;
}

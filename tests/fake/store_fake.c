/* The store's operations. Listings go backwards, so that nobody comes to rely on an order the contract does not
 * promise. */
#include "fake/store_fake_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static struct store_fake *fake_of(struct store *s)
{
    return (struct store_fake *)s;
}

static int absent(struct store_fake *f, const char *key)
{
    return error_set(-ENOENT, "%s: %s does not exist", f->store.url, key);
}

/* A copy of bytes [off, off+len) of an object (len UINT64_MAX: to its end). */
static int snapshot(struct store_fake *f, const char *key, uint64_t off, uint64_t *len, uint8_t **out,
                    uint64_t *version)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    if (!o)
        return absent(f, key);
    if (*len == UINT64_MAX)
        *len = o->len - off;
    if (off > o->len || *len > o->len - off)
        return error_set(-EBADMSG, "%s: %s ends before the range asked for", f->store.url, key);
    *out = fake_copy(o->data + off, *len);
    if (version)
        *version = o->version;
    return 0;
}

static int hand_on(struct store_fake *f, const uint8_t *data, uint64_t len, store_sink *sink, void *arg)
{
    pthread_mutex_lock(&f->lock);
    size_t piece = f->piece ? f->piece : SIZE_MAX;
    pthread_mutex_unlock(&f->lock);
    int rc = 0;
    for (uint64_t at = 0; !rc && at < len;) {
        size_t n = GR_MIN((uint64_t)piece, len - at);
        pthread_mutex_lock(&f->lock);
        f->bytes_got += n;
        pthread_mutex_unlock(&f->lock);
        rc = sink(arg, data + at, n);
        at += n;
    }
    return rc;
}

static int get_inside(struct store_fake *f, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg,
                      const struct verdict *v)
{
    CLEANUP_FREE uint8_t *data = NULL;
    int rc = snapshot(f, key, off, &len, &data, NULL);
    if (rc)
        return rc;
    if (v->hit && v->kind == FAKE_FLIP && v->bytes < len)
        data[v->bytes] ^= 1;
    if (!v->hit || v->kind != FAKE_CUT)
        return hand_on(f, data, len, sink, arg);
    rc = hand_on(f, data, GR_MIN(len, v->bytes), sink, arg);
    return rc ? rc : fake_fail(f, v->code, FAKE_GET, key);
}

static int fake_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    store_note_try(s, context);
    int rc = fake_enter(f, FAKE_GET, key, &v);
    if (!rc)
        rc = get_inside(f, key, off, len, sink, arg, &v);
    return fake_leave(f, FAKE_GET, key, &v, rc);
}

static int fake_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    CLEANUP_FREE uint8_t *data = NULL;
    uint64_t len = UINT64_MAX, number;
    int rc = fake_enter(f, FAKE_GET_SMALL, key, &v);
    if (!rc)
        rc = snapshot(f, key, 0, &len, &data, &number);
    if (!rc && out->len + len > out->max)
        rc = error_set(-EMSGSIZE, "%s: %s is larger than %zu bytes", f->store.url, key, out->max);
    if (!rc && v.hit && v.kind == FAKE_FLIP && v.bytes < len)
        data[v.bytes] ^= 1;
    if (!rc)
        rc = hand_on(f, data, len, store_append, out);
    if (!rc && version)
        snprintf(version, STORE_VERSION_MAX, "v%llu", (unsigned long long)number);
    return fake_leave(f, FAKE_GET_SMALL, key, &v, rc);
}

static int put_inside(struct store_fake *f, const struct store_put *put)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, put->key);
    if (f->conditional && put->mode != STORE_PUT_ALWAYS) {
        char version[STORE_VERSION_MAX] = "";
        if (o)
            snprintf(version, sizeof version, "v%llu", (unsigned long long)o->version);
        bool holds = put->mode == STORE_PUT_IF_ABSENT ? !o : o && !strcmp(version, put->version);
        if (!holds)
            return error_set(-EEXIST, "%s: %s: the put's condition does not hold", f->store.url, put->key);
    }
    fake_put_locked(f, put->key, put->data, put->len);
    f->bytes_put += put->len;
    return 0;
}

static int fake_put(struct store *s, const struct store_put *put)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = fake_enter(f, FAKE_PUT, put->key, &v);
    if (!rc)
        rc = put_inside(f, put);
    return fake_leave(f, FAKE_PUT, put->key, &v, rc);
}

static int stat_inside(struct store_fake *f, const char *key, struct store_item *out)
{
    SCOPED_LOCK(&f->lock);
    struct object *o = fake_object_locked(f, key);
    if (!o)
        return absent(f, key);
    *out = (struct store_item){.key = key, .size = o->len, .mtime = o->mtime};
    if (f->md5 != FAKE_MD5_NONE)
        md5_hex(f->md5 == FAKE_MD5_TRUE ? o->data : (const void *)"secret", f->md5 == FAKE_MD5_TRUE ? o->len : 6,
                out->md5);
    return 0;
}

static int fake_stat(struct store *s, const char *key, struct store_item *out)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = fake_enter(f, FAKE_STAT, key, &v);
    if (!rc)
        rc = stat_inside(f, key, out);
    return fake_leave(f, FAKE_STAT, key, &v, rc);
}

static int list_inside(struct store_fake *f, const char *prefix, store_visit *visit, void *arg)
{
    VEC(struct store_item) items = {0};
    size_t prefix_len = strlen(prefix);
    pthread_mutex_lock(&f->lock);
    for (size_t i = f->objects.len; i-- > 0;) {
        struct object *o = &f->objects.items[i];
        if (strncmp(o->key, prefix, prefix_len) != 0)
            continue;
        struct store_item item = {.key = strdup(o->key), .size = o->len, .mtime = o->mtime};
        if (vec_push(&items, item))
            abort();
    }
    pthread_mutex_unlock(&f->lock);
    int rc = 0;
    for (size_t i = 0; i < items.len && !rc; i++)
        rc = visit(arg, &items.items[i]);
    for (size_t i = 0; i < items.len; i++)
        free((char *)items.items[i].key);
    vec_release(&items);
    return rc;
}

static int fake_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = fake_enter(f, FAKE_LIST, prefix, &v);
    if (!rc)
        rc = list_inside(f, prefix, visit, arg);
    return fake_leave(f, FAKE_LIST, prefix, &v, rc);
}

static int fake_remove(struct store *s, const char *key)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = fake_enter(f, FAKE_REMOVE, key, &v);
    if (!rc)
        store_fake_remove(f, key);
    return fake_leave(f, FAKE_REMOVE, key, &v, rc);
}

static int fake_probe(struct store *s, bool *out)
{
    struct store_fake *f = fake_of(s);
    struct verdict v;
    int rc = fake_enter(f, FAKE_PROBE, "", &v);
    if (!rc) {
        SCOPED_LOCK(&f->lock);
        *out = f->conditional;
    }
    return fake_leave(f, FAKE_PROBE, "", &v, rc);
}

static void fake_close(struct store *s)
{
}

static const struct store_ops fake_ops = {
    .get = fake_get,
    .get_small = fake_get_small,
    .put = fake_put,
    .stat = fake_stat,
    .list = fake_list,
    .remove = fake_remove,
    .probe_conditional = fake_probe,
    .close = fake_close,
};

struct store_fake *store_fake_new(void)
{
    struct store_fake *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->store = (struct store){.ops = &fake_ops, .url = "fake://store"};
    f->random = 1;
    f->conditional = true;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    return f;
}

struct store *store_fake_store(struct store_fake *f)
{
    return &f->store;
}

void store_fake_free(struct store_fake *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->objects.len; i++) {
        free(f->objects.items[i].key);
        free(f->objects.items[i].data);
    }
    free(f->store.id);
    vec_release(&f->objects);
    vec_release(&f->faults);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
    free(f);
}

void store_fake_set_md5(struct store_fake *f, enum store_fake_md5 how)
{
    SCOPED_LOCK(&f->lock);
    f->md5 = how;
}

void store_fake_set_conditional(struct store_fake *f, bool honoured)
{
    SCOPED_LOCK(&f->lock);
    f->conditional = honoured;
}

void store_fake_set_piece(struct store_fake *f, size_t bytes)
{
    SCOPED_LOCK(&f->lock);
    f->piece = bytes;
}

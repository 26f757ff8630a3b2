/* A directory of a store as a store: every key gets the directory in front on the way down, and loses it on the way up
 * in listings. It does not own the outer store. unnest uses it for a store that was made inside another one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/store_impl.h"

/* The view. Immutable after opening, so any thread may use it. */
struct store_below {
    struct store base;
    struct store *outer;
    size_t len; /* length of dir with its slash */
    char *dir;  /* with its slash, owned */
    char *url;  /* owned */
};

/* A key of the outer store. */
struct below_key {
    char text[STORE_KEY_MAX + 1];
};

/* Write the outer store's key; -EINVAL if it is too long. */
static int store_below_make_key(const struct store_below *b, const char *key, struct below_key *out)
{
    if (snprintf(out->text, sizeof out->text, "%s%s", b->dir, key) < (int)sizeof out->text)
        return 0;
    return error_set(-EINVAL, "store %s: the key '%.100s...' is too long", b->url, key);
}

static int below_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    const struct store_below *b = (const struct store_below *)s;
    struct below_key k;
    int rc = store_below_make_key(b, key, &k);
    return rc ? rc : store_get(b->outer, k.text, off, len, sink, arg);
}

static int below_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    const struct store_below *b = (const struct store_below *)s;
    struct below_key k;
    int rc = store_below_make_key(b, key, &k);
    return rc ? rc : store_get_small(b->outer, k.text, out, version);
}

static int below_put(struct store *s, const struct store_put *put)
{
    const struct store_below *b = (const struct store_below *)s;
    struct store_put inner = *put;
    struct below_key k;
    inner.key = k.text;
    int rc = store_below_make_key(b, put->key, &k);
    return rc ? rc : store_put(b->outer, &inner);
}

static int below_stat(struct store *s, const char *key, struct store_item *out)
{
    const struct store_below *b = (const struct store_below *)s;
    struct below_key k;
    int rc = store_below_make_key(b, key, &k);
    if (!rc)
        rc = store_stat(b->outer, k.text, out);
    /* The outer stat set this to the outer key, which lives on this stack frame. */
    out->key = key;
    return rc;
}

/* A caller's visitor while the outer store is listed. */
struct listing {
    const struct store_below *b;
    store_visit *visit;
    void *arg;
};

static int pass_item(void *arg, const struct store_item *item)
{
    const struct listing *l = arg;
    struct store_item inner = *item;
    inner.key += l->b->len;
    return l->visit(l->arg, &inner);
}

static int below_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    const struct store_below *b = (const struct store_below *)s;
    struct listing l = {.b = b, .visit = visit, .arg = arg};
    struct below_key k;
    int rc = store_below_make_key(b, prefix, &k);
    return rc ? rc : store_list(b->outer, k.text, pass_item, &l);
}

static int below_remove(struct store *s, const char *key)
{
    const struct store_below *b = (const struct store_below *)s;
    struct below_key k;
    int rc = store_below_make_key(b, key, &k);
    return rc ? rc : store_remove(b->outer, k.text);
}

static int below_probe_conditional(struct store *s, bool *out)
{
    return store_probe_conditional(((struct store_below *)s)->outer, out);
}

static void below_close(struct store *s)
{
    struct store_below *b = (struct store_below *)s;
    free(b->dir);
    free(b->url);
    free(b);
}

int store_below_open(struct store *outer, const char *dir, struct store **out)
{
    static const struct store_ops ops = {
        .get = below_get,
        .get_small = below_get_small,
        .put = below_put,
        .stat = below_stat,
        .list = below_list,
        .remove = below_remove,
        .probe_conditional = below_probe_conditional,
        .close = below_close,
    };
    struct store_below *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    b->base.ops = &ops;
    b->outer = outer;
    int made = asprintf(&b->dir, "%s/", dir);
    if (made < 0)
        b->dir = NULL;
    if (made < 0 || asprintf(&b->url, "%s/%s", outer->url, dir) < 0) {
        free(b->dir);
        free(b);
        return error_no_memory();
    }
    b->len = (size_t)made;
    b->base.url = b->url;
    *out = &b->base;
    return 0;
}

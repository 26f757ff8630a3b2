/* The one entrance to every store, whatever implementation stands behind the vtable. Each operation checks its key or
 * prefix here, so that implementations can rely on it, and builds with GRANARY_CHECK assert that a failure left a
 * sentence. Optional operations get their defaults here. No other file calls through store_ops.
 *
 * Two views of a store are here too, since they only pass operations on: all gets with one context, and the part below
 * a directory. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/store_internal.h"

/* ---- keys ---- */

static bool component_ok(const char *p, size_t len)
{
    return len && !(len == 1 && p[0] == '.') && !(len == 2 && p[0] == '.' && p[1] == '.');
}

/* Check every component up to the last slash; the last component only if last_is_whole (a prefix may end anywhere). */
static bool path_ok(const char *path, bool last_is_whole)
{
    if (strlen(path) > STORE_KEY_MAX)
        return false;
    for (const char *p = path;;) {
        const char *slash = strchr(p, '/');
        if (!slash)
            return (!last_is_whole && !*p) || component_ok(p, strlen(p));
        if (!component_ok(p, (size_t)(slash - p)))
            return false;
        p = slash + 1;
    }
}

static int check_key(const struct store *s, const char *key)
{
    if (path_ok(key, true))
        return 0;
    return error_set(-EINVAL, "store %s: '%.200s' is not a valid key", s->url, key);
}

static int check_prefix(const struct store *s, const char *prefix)
{
    if (path_ok(prefix, false))
        return 0;
    return error_set(-EINVAL, "store %s: '%.200s' is not a valid prefix of keys", s->url, prefix);
}

/* ---- operations ---- */

/* Return rc; assert that a failure has set a new sentence since `said`. Gets and listings are exempt, because their rc
 * may be the caller's own, from its sink or visitor. */
static int says_why(int rc, unsigned said)
{
#ifdef GRANARY_CHECK
    assert(rc == 0 || error_count() != said);
#endif
    return rc;
}

/* The get of an empty range, which HTTP cannot express: the object must be there, and reach up to off. */
static int check_reaches(struct store *s, const char *key, uint64_t off)
{
    struct store_item item;
    int rc = s->ops->stat(s, key, &item);
    return rc || item.size >= off ? rc : store_shorter(s, key);
}

int store_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    int rc = check_key(s, key);
    if (rc)
        return rc;
    return len ? s->ops->get(s, key, off, len, context, sink, arg) : check_reaches(s, key, off);
}

int store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct request_context context = {.deadline_ms = UINT64_MAX};
    return store_get_until(s, key, off, len, &context, sink, arg);
}

int store_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    unsigned said = error_count();
    size_t before = out->len;
    int rc = check_key(s, key);
    if (!rc)
        rc = s->ops->get_small(s, key, out, version);
    if (rc)
        out->len = before;
    if (rc == -EMSGSIZE)
        rc = error_set(rc, "store %s: %s is larger than the %zu bytes it may have", s->url, key, out->max);
    return says_why(rc, said);
}

int store_put(struct store *s, const struct store_put *put)
{
    unsigned said = error_count();
    int rc = check_key(s, put->key);
    return says_why(rc ? rc : s->ops->put(s, put), said);
}

int store_stat(struct store *s, const char *key, struct store_item *out)
{
    unsigned said = error_count();
    int rc = check_key(s, key);
    return says_why(rc ? rc : s->ops->stat(s, key, out), said);
}

int store_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    int rc = check_prefix(s, prefix);
    return rc ? rc : s->ops->list(s, prefix, visit, arg);
}

bool store_lists_after(const struct store *s)
{
    return s->ops->list_after;
}

int store_list_after(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg)
{
    int rc = check_prefix(s, prefix);
    return rc ? rc : s->ops->list_after(s, prefix, after, visit, arg);
}

int store_remove(struct store *s, const char *key)
{
    unsigned said = error_count();
    int rc = check_key(s, key);
    return says_why(rc ? rc : s->ops->remove(s, key), said);
}

int store_probe_conditional(struct store *s, bool *out)
{
    unsigned said = error_count();
    *out = false;
    return s->ops->probe_conditional ? says_why(s->ops->probe_conditional(s, out), said) : 0;
}

void store_counters(struct store *s, counter_visit *visit, void *arg)
{
    if (s->ops->counters)
        s->ops->counters(s, visit, arg);
}

void store_health(struct store *s, struct store_health *out)
{
    /* A store without a breaker counts as healthy. */
    *out = (struct store_health){0};
    if (s->ops->health)
        s->ops->health(s, out);
}

struct store *store_origin(struct store *s)
{
    return s->ops->origin ? s->ops->origin(s) : s;
}

void store_report_bad(struct store *s, unsigned proxy, const char *key)
{
    if (s->ops->report_bad)
        s->ops->report_bad(s, proxy, key);
}

bool store_is_own(struct store *s, const char *key, uint64_t off)
{
    return !s->ops->is_own || s->ops->is_own(s, key, off);
}

/* ---- for implementations ---- */

int store_shorter(const struct store *s, const char *key)
{
    return error_set(-EBADMSG, "store %s: %s is shorter than it should be", s->url, key);
}

int store_append(void *arg, const void *data, size_t len)
{
    return bytes_append(arg, data, len);
}

int store_pass_on(void *arg, const void *data, size_t len)
{
    struct store_resume *resume = arg;
    resume->stopped = resume->sink(resume->arg, data, len);
    if (!resume->stopped)
        resume->done += len;
    return resume->stopped;
}

/* ---- the view with one context ---- */

/* The caller's context is that of store_get, empty; the view's own is used. */
static int with_context_get(struct store *s, const char *key, uint64_t off, uint64_t len,
                            struct request_context *context, store_sink *sink, void *arg)
{
    struct store_with_context *e = (struct store_with_context *)s;
    return store_get_until(e->inner, key, off, len, e->context, sink, arg);
}

void store_with_context_init(struct store_with_context *e, struct store *s, struct request_context *context)
{
    static const struct store_ops ops = {.get = with_context_get};
    *e = (struct store_with_context){.base = {.ops = &ops, .url = s->url}, .inner = s, .context = context};
}

/* ---- the view below a directory ----
 *
 * Every key gets the directory in front on the way down, and loses it on the way up in listings. unnest uses it for a
 * store that was made inside another one. */

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

static int below_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                     store_sink *sink, void *arg)
{
    const struct store_below *b = (const struct store_below *)s;
    struct below_key k;
    int rc = store_below_make_key(b, key, &k);
    return rc ? rc : store_get_until(b->outer, k.text, off, len, context, sink, arg);
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

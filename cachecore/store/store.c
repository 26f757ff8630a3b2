/* The one entrance to every store, whatever implementation stands behind the vtable. Each operation checks its key or
 * prefix here, so that implementations can rely on it, and builds with GRANARY_CHECK assert that a failure left a
 * sentence. Optional operations get their defaults here. No other file calls through store_ops. */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "store/store_impl.h"

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

int store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    int rc = check_key(s, key);
    return rc ? rc : s->ops->get(s, key, off, len, sink, arg);
}

int store_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    unsigned said = error_count();
    int rc = check_key(s, key);
    return says_why(rc ? rc : s->ops->get_small(s, key, out, version), said);
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
    return says_why(s->ops->probe_conditional(s, out), said);
}

int store_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    int rc = check_key(s, key);
    if (rc)
        return rc;
    if (s->ops->get_until)
        return s->ops->get_until(s, key, off, len, context, sink, arg);
    /* A store without get_until makes one try; its layer above decides about others. */
    context->tries++;
    context->from = s->url;
    return (context->fresh && s->ops->get_fresh ? s->ops->get_fresh : s->ops->get)(s, key, off, len, sink, arg);
}

/* The get of a store_with_context: its caller passes no context, so the view's own is used. */
static int with_context_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct store_with_context *e = (struct store_with_context *)s;
    return store_get_until(e->inner, key, off, len, e->context, sink, arg);
}

void store_with_context_init(struct store_with_context *e, struct store *s, struct request_context *context)
{
    static const struct store_ops ops = {.get = with_context_get};
    *e = (struct store_with_context){.base = {.ops = &ops, .url = s->url}, .inner = s, .context = context};
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

void store_report_bad(struct store *s, const char *key)
{
    if (s->ops->report_bad)
        s->ops->report_bad(s, key);
}

/* ---- for implementations ---- */

int store_pass_on(void *arg, const void *data, size_t len)
{
    struct store_resume *resume = arg;
    resume->stopped = resume->sink(resume->arg, data, len);
    if (!resume->stopped)
        resume->done += len;
    return resume->stopped;
}

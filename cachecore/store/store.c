/* From a URL to a store. Only this file knows which schemes there are. */
#include "store/store_impl.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "net/hdfs/hdfs_address.h"

enum { RETRY_TIMEOUT_MS = 5 * 60 * 1000 };

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static int open_plain(const char *url, const struct store_options *options, struct store **out)
{
    if (url[0] == '/' || begins_with(url, "file://"))
        return store_file_open(url, options, out);
    if (begins_with(url, "s3://"))
        return store_s3_open(url, options, out);
    if (hdfs_address_known(url))
        return store_hdfs_open(url, options, out);
    if (begins_with(url, "http://") || begins_with(url, "https://"))
        return store_http_open(url, options, out);
    return error_set(-EINVAL,
                     "store %s: unknown kind of address; known are file:///DIR, s3://BUCKET/PREFIX, "
                     "hdfs://NAMENODE:9870/PATH and http(s)://HOST/PATH",
                     url);
}

int store_open(const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_options defaults = {0};
    if (!options)
        options = &defaults;
    struct store *plain = NULL;
    int rc = open_plain(url, options, &plain);
    if (rc)
        return rc;
    return store_retry_open(plain, options->timeout_ms ? options->timeout_ms : RETRY_TIMEOUT_MS, options->cancel, out);
}

int store_pass_on(void *arg, const void *data, size_t len)
{
    struct store_resume *resume = arg;
    resume->stopped = resume->sink(resume->arg, data, len);
    if (!resume->stopped)
        resume->done += len;
    return resume->stopped;
}

void store_http_config(const struct store_options *options, struct http_config *out)
{
    out->connections = options->connections;
    out->places = options->places;
    out->connect_timeout_ms = options->connect_ms ? options->connect_ms : options->request_s * 1000;
    out->stall_timeout_s = options->request_s;
    out->rate = options->rate;
    out->cancel = options->cancel;
}

int store_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct store_errand *errand,
                    store_sink *sink, void *arg)
{
    if (s->ops->get_until)
        return s->ops->get_until(s, key, off, len, errand, sink, arg);
    errand->tries++;
    errand->from = s->url;
    return (errand->fresh && s->ops->get_fresh ? s->ops->get_fresh : s->ops->get)(s, key, off, len, sink, arg);
}

static int errand_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct store_on_errand *e = (struct store_on_errand *)s;
    return store_get_until(e->inner, key, off, len, e->errand, sink, arg);
}

void store_on_errand_init(struct store_on_errand *e, struct store *s, struct store_errand *errand)
{
    static const struct store_ops ops = {.get = errand_get};
    *e = (struct store_on_errand){.base = {.ops = &ops, .url = s->url}, .inner = s, .errand = errand};
}

void store_counters(struct store *s, counter_visit *visit, void *arg)
{
    if (s->ops->counters)
        s->ops->counters(s, visit, arg);
}

void store_health(struct store *s, struct store_health *out)
{
    *out = (struct store_health){0};
    if (s->ops->health)
        s->ops->health(s, out);
}

struct store *store_origin(struct store *s)
{
    return s->ops->origin ? s->ops->origin(s) : s;
}

void store_blame(struct store *s, const char *key)
{
    if (s->ops->blame)
        s->ops->blame(s, key);
}

static bool component_ok(const char *p, size_t len)
{
    return len && !(len == 1 && p[0] == '.') && !(len == 2 && p[0] == '.' && p[1] == '.');
}

/* All components up to the last; the last only when it is whole. */
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

int store_key_check(const struct store *s, const char *key)
{
    if (path_ok(key, true))
        return 0;
    return error_set(-EINVAL, "store %s: '%.200s' is not a valid key", s->url, key);
}

int store_prefix_check(const struct store *s, const char *prefix)
{
    if (path_ok(prefix, false))
        return 0;
    return error_set(-EINVAL, "store %s: '%.200s' is not a valid prefix of keys", s->url, prefix);
}

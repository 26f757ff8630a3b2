/* Shared cache proxies in front of a store.
 *
 * Which proxy has a key is a function of the URLs and the key alone: each proxy gets a score by hashing its URL and the
 * key (rendezvous hashing), and the highest score among the available proxies wins. No thread probes the proxies; their
 * health follows from the requests that readers make anyway.
 *
 * A proxy's health is one number, its demerits. A failure adds FAILURE, a good answer takes one away. About a fifth of
 * bad answers, or three in a row, bring it to LIMIT:
 *
 *        +----+   LIMIT reached    +------+   pause over: one request   +-------+
 *   ---> | up | -----------------> | down | --------------------------> | trial |
 *        +----+                    +------+                             +-------+
 *          ^                          ^      failed: the pause doubles      |
 *          |                          +-------------------------------------+
 *          |                                 good answer                    |
 *          +----------------------------------------------------------------+
 *
 * While a proxy is down or on trial, its keys belong to the proxy with the next score. A proxy that goes down again
 * soon after it came up also has its pause doubled. So a dead proxy costs one short timeout every PAUSE_MOST_MS, and
 * one that sends wrong bytes in every answer costs little more.
 *
 * A missing or short object may be the proxy's fault or the truth. Such an answer counts against the proxy only if the
 * store does have the object. A get that breaks off continues from the store, after the bytes already passed on. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/store_internal.h"

/* Demerits: 4 for each failure balances at one bad answer in five; 12 is three failures in a row. */
enum { FAILURE = 4, LIMIT = 12 };
/* How long a proxy that is down is skipped. */
enum { PAUSE_FIRST_MS = 1000, PAUSE_MOST_MS = 60000 };
/* Short, since the store is always there to fall back on. */
enum { CONNECT_MS = 2000, REQUEST_S = 5 };

/* One proxy. store is constant, the counters are atomic, and store_l2.lock guards the rest. */
struct proxy {
    struct store *store;
    /* Guarded by store_l2.lock, up to the counters. */
    bool down, on_trial;
    unsigned demerits;                           /* below LIMIT while up */
    uint64_t up_since_ms, trial_at_ms, pause_ms; /* on clock_now_ms; pause_ms 0: was never down */
    counter requests, bytes, failures, wrong;
};

/* The store with its proxies; `origin` and the proxies' stores are owned. */
struct store_l2 {
    struct store base;
    struct store *origin;
    pthread_mutex_t lock; /* innermost; never held across a request */
    struct proxy proxies[STORE_L2_MAX];
    size_t n;
    counter fallen_through; /* gets of packs and index nodes that went to origin */
};

static struct store_l2 *self(struct store *s)
{
    return (struct store_l2 *)s;
}

/* ---- whose key it is ---- */

static uint64_t fnv1a(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
    return hash;
}

/* Hash the URL and the key, with the finalizer of MurmurHash3. All nodes must agree on the score, also those that run
 * other versions: never change it. */
static uint64_t score(const struct proxy *proxy, const char *key)
{
    uint64_t x = fnv1a(fnv1a(0xcbf29ce484222325u, proxy->store->url) * 0x9e3779b97f4a7c15u, key);
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

/* A proxy that is down gets one trial request when its pause is over. */
static bool may_be_asked(const struct proxy *proxy, uint64_t now)
{
    return !proxy->down || (!proxy->on_trial && now >= proxy->trial_at_ms);
}

/* Return the available proxy with the highest score, or NULL. */
static struct proxy *best_locked(struct store_l2 *t, const char *key, uint64_t now)
{
    struct proxy *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint64_t s = score(&t->proxies[i], key);
        if (may_be_asked(&t->proxies[i], now) && (!best || s > most)) {
            best = &t->proxies[i];
            most = s;
        }
    }
    return best;
}

/* Choose the proxy for a get, or NULL if all are down. *trial: the proxy is down and this request is its trial, so that
 * complete() or call_off() must follow. */
static struct proxy *store_l2_choose(struct store_l2 *t, const char *key, bool *trial)
{
    SCOPED_LOCK(&t->lock);
    struct proxy *proxy = best_locked(t, key, clock_now_ms());
    *trial = proxy && proxy->down;
    if (*trial)
        proxy->on_trial = true;
    return proxy;
}

/* ---- health ---- */

/* Take a proxy down. The pause doubles when a trial failed or the proxy came up only a short while ago. */
static void go_down_locked(struct proxy *proxy, uint64_t now)
{
    bool again = proxy->pause_ms && (proxy->down || now - proxy->up_since_ms < PAUSE_MOST_MS);
    proxy->pause_ms = again ? GR_MIN(2 * proxy->pause_ms, (uint64_t)PAUSE_MOST_MS) : PAUSE_FIRST_MS;
    proxy->trial_at_ms = now + proxy->pause_ms;
    proxy->down = true;
}

/* Count a good answer. Only a trial brings a proxy up: other requests that are still running when it goes down do
 * not. */
static void good_locked(struct proxy *proxy, bool trial, uint64_t now)
{
    if (trial) {
        proxy->down = false;
        proxy->demerits = 0;
        proxy->up_since_ms = now;
    } else if (proxy->demerits) {
        proxy->demerits--;
    }
}

/* Count a failure; return whether it took the proxy down. */
static bool bad_locked(struct proxy *proxy, bool trial, uint64_t now)
{
    bool was_up = !proxy->down;
    if (was_up)
        proxy->demerits += FAILURE;
    if (trial || (was_up && proxy->demerits >= LIMIT))
        go_down_locked(proxy, now);
    return was_up && proxy->down;
}

/* Record a request's outcome. For a failure the thread's error holds its sentence, which the log then quotes. */
static void complete(struct store_l2 *t, struct proxy *proxy, bool good, bool trial)
{
    bool went_down = false;
    {
        SCOPED_LOCK(&t->lock);
        uint64_t now = clock_now_ms();
        if (trial)
            proxy->on_trial = false;
        if (good)
            good_locked(proxy, trial, now);
        else
            went_down = bad_locked(proxy, trial, now);
    }
    if (good && trial)
        log_info("shared cache proxy %s answers again", proxy->store->url);
    if (went_down)
        log_warning("shared cache proxy %s is skipped until it answers again: %.300s", proxy->store->url, error_text());
}

/* End a trial that decides nothing, because the reader stopped or the store failed too: another request may try. */
static void call_off(struct store_l2 *t, struct proxy *proxy, bool trial)
{
    SCOPED_LOCK(&t->lock);
    if (trial)
        proxy->on_trial = false;
}

/* ---- get ---- */

/* Only immutable objects that clients verify go through proxies. Tags and manifests must be current. */
static bool through_l2(const char *key)
{
    return !strncmp(key, "packs/", 6) || !strncmp(key, "indexes/", 8);
}

/* Would the store itself perhaps return rc? */
static bool perhaps_true(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG;
}

/* Fetch the rest from the store after the proxy failed with rc. The failure's sentence is set aside so that a get which
 * succeeds does not end with it; complete() gets it back for the log. */
static int fall_through(struct store_l2 *t, struct proxy *proxy, bool trial, int rc, const char *key, uint64_t off,
                        uint64_t len, struct request_context *context, struct store_resume *resume)
{
    struct error failure;
    error_take(&failure, rc);
    counter_add(&proxy->failures, 1);
    counter_add(&t->fallen_through, 1);
    if (!perhaps_true(rc))
        complete(t, proxy, false, trial);
    uint64_t done = resume->done;
    rc = store_get_until(t->origin, key, off + done, len - done, context, store_pass_on, resume);
    if (!perhaps_true(failure.code))
        return rc;
    if (rc) { /* both failed: the answer may have been true */
        call_off(t, proxy, trial);
        return rc;
    }
    (void)error_restore(&failure);
    complete(t, proxy, false, trial);
    return 0;
}

/* Get from the key's proxy, and what it fails to send from the store. Every return after the choice ends a trial, by
 * complete() or call_off(). */
static int l2_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                  store_sink *sink, void *arg)
{
    struct store_l2 *t = self(s);
    bool trial = false;
    if (!through_l2(key))
        return store_get_until(t->origin, key, off, len, context, sink, arg);
    struct proxy *proxy = store_l2_choose(t, key, &trial);
    if (!proxy) {
        counter_add(&t->fallen_through, 1);
        return store_get_until(t->origin, key, off, len, context, sink, arg);
    }
    struct store_resume resume = {.sink = sink, .arg = arg};
    counter_add(&proxy->requests, 1);
    int rc = store_get_until(proxy->store, key, off, len, context, store_pass_on, &resume);
    counter_add(&proxy->bytes, resume.done);
    if (resume.stopped) {
        call_off(t, proxy, trial);
        return rc;
    }
    if (!rc && resume.done < len)
        rc = error_set(-EIO, "%s: %s: fewer bytes arrived than the range asked for", proxy->store->url, key);
    /* A failure after the last byte does not matter. */
    if (rc && resume.done < len)
        return fall_through(t, proxy, trial, rc, key, off, len, context, &resume);
    complete(t, proxy, true, trial);
    return 0;
}

static struct store *l2_origin(struct store *s)
{
    return self(s)->origin;
}

/* Count a demerit against the proxy that would be asked now. That is the proxy which sent the bytes, unless the health
 * of a proxy has changed in between; then an innocent one gets a demerit, which is harmless. */
static void l2_report_bad(struct store *s, const char *key)
{
    struct store_l2 *t = self(s);
    struct proxy *proxy;
    {
        SCOPED_LOCK(&t->lock);
        proxy = best_locked(t, key, clock_now_ms());
    }
    if (!proxy || !through_l2(key))
        return;
    counter_add(&proxy->wrong, 1);
    (void)error_set(-EBADMSG, "it gave wrong bytes of %s", key);
    complete(t, proxy, false, false);
}

/* ---- everything else is the store's ---- */

static int l2_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    return store_get_small(self(s)->origin, key, out, version);
}

static int l2_put(struct store *s, const struct store_put *put)
{
    return store_put(self(s)->origin, put);
}

static int l2_stat(struct store *s, const char *key, struct store_item *out)
{
    return store_stat(self(s)->origin, key, out);
}

static int l2_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return store_list(self(s)->origin, prefix, visit, arg);
}

static int l2_remove(struct store *s, const char *key)
{
    return store_remove(self(s)->origin, key);
}

static int l2_probe(struct store *s, bool *out)
{
    return store_probe_conditional(self(s)->origin, out);
}

static void l2_close(struct store *s)
{
    struct store_l2 *t = self(s);
    for (size_t i = 0; i < t->n; i++)
        store_close(t->proxies[i].store);
    store_close(t->origin);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- reports ---- */

size_t store_l2_reports(struct store *s, struct store_l2_report out[STORE_L2_MAX])
{
    struct store_l2 *t = self(s);
    SCOPED_LOCK(&t->lock);
    for (size_t i = 0; i < t->n; i++) {
        struct proxy *proxy = &t->proxies[i];
        out[i] = (struct store_l2_report){.url = proxy->store->url,
                                          .down = proxy->down,
                                          .requests = counter_get(&proxy->requests),
                                          .bytes = counter_get(&proxy->bytes),
                                          .failures = counter_get(&proxy->failures),
                                          .wrong = counter_get(&proxy->wrong)};
    }
    return t->n;
}

/* Metrics are sums over all proxies; store_l2_reports gives them one by one. */
static void l2_counters(struct store *s, counter_visit *visit, void *arg)
{
    struct store_l2_report reports[STORE_L2_MAX], sum = {0};
    size_t n = store_l2_reports(s, reports);
    uint64_t down = 0;
    for (size_t i = 0; i < n; i++) {
        sum.requests += reports[i].requests;
        sum.bytes += reports[i].bytes;
        sum.failures += reports[i].failures;
        sum.wrong += reports[i].wrong;
        down += reports[i].down;
    }
    const struct counter_row rows[] = {
        {"granary_l2_proxies", "Shared cache proxies in front of the store", n},
        {"granary_l2_down", "Shared cache proxies that are skipped now", down},
        {"granary_l2_requests_total", "GETs sent to shared cache proxies", sum.requests},
        {"granary_l2_bytes_total", "Bytes received from shared cache proxies", sum.bytes},
        {"granary_l2_failures_total", "GETs that a shared cache proxy did not answer in full", sum.failures},
        {"granary_l2_fallthroughs_total", "GETs of packs and index nodes that went to the store after all",
         counter_get(&self(s)->fallen_through)},
        {"granary_l2_wrong_total",
         "Chunks whose bytes from a shared cache proxy were wrong, and right when requested again", sum.wrong},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        visit(arg, &rows[i]);
    store_counters(self(s)->origin, visit, arg);
}

static void l2_health(struct store *s, struct store_health *out)
{
    store_health(self(s)->origin, out);
}

/* ---- life ---- */

/* Two proxies of one URL would get equal scores for every key. */
static int check_names(struct store *const *proxies, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(proxies[i]->url, proxies[k]->url))
                return error_set(-EINVAL, "the shared cache proxy %s is given twice", proxies[i]->url);
    return 0;
}

int store_l2_open(struct store *origin, struct store *const *proxies, size_t n, struct store **out)
{
    static const struct store_ops ops = {
        .get = l2_get,
        .get_small = l2_get_small,
        .put = l2_put,
        .stat = l2_stat,
        .list = l2_list,
        .remove = l2_remove,
        .probe_conditional = l2_probe,
        .close = l2_close,
        .counters = l2_counters,
        .health = l2_health,
        .origin = l2_origin,
        .report_bad = l2_report_bad,
    };
    assert(n && n <= STORE_L2_MAX);
    int rc = check_names(proxies, n);
    struct store_l2 *t = rc ? NULL : calloc(1, sizeof *t);
    if (!t) {
        for (size_t i = 0; i < n; i++)
            store_close(proxies[i]);
        store_close(origin);
        return rc ? rc : error_no_memory();
    }
    t->base = (struct store){.ops = &ops, .url = origin->url};
    t->origin = origin;
    pthread_mutex_init(&t->lock, NULL);
    for (t->n = 0; t->n < n; t->n++) {
        t->proxies[t->n].store = proxies[t->n];
        proxies[t->n]->l2 = true;
    }
    *out = &t->base;
    return 0;
}

int store_l2_open_urls(struct store *origin, const char *const *urls, size_t n, const struct store_options *of_store,
                       struct store **out)
{
    const struct store_options options = {.connections = of_store->connections,
                                          .slots = of_store->slots,
                                          .rate = of_store->rate,
                                          .cancel = of_store->cancel,
                                          .connect_ms = CONNECT_MS,
                                          .request_s = REQUEST_S};
    struct store *proxies[STORE_L2_MAX];
    assert(n <= STORE_L2_MAX);
    for (size_t i = 0; i < n; i++) {
        int rc = store_http_open(urls[i], &options, &proxies[i]);
        if (rc) {
            while (i)
                store_close(proxies[--i]);
            store_close(origin);
            return error_prefix(rc, "shared cache proxy");
        }
    }
    return store_l2_open(origin, proxies, n, out);
}

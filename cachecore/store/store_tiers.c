/* Shared tiers in front of a store.
 *
 * Which tier has a key is a function of the URLs and the key alone: each tier gets a score by hashing its URL and the
 * key (rendezvous hashing), and the highest score among the available tiers wins. No thread probes the tiers; their
 * health follows from the requests that readers make anyway.
 *
 * A tier's health is one number, its demerits. A failure adds FAILURE, a good answer takes one away. About a fifth of
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
 * While a tier is down or on trial, its keys belong to the tier with the next score. A tier that goes down again soon
 * after it came up also has its pause doubled. So a dead tier costs one short timeout every PAUSE_MOST_MS, and one
 * that sends wrong bytes in every answer costs little more.
 *
 * A missing or short object may be the tier's fault or the truth. Such an answer counts against the tier only if the
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
/* How long a tier that is down is skipped. */
enum { PAUSE_FIRST_MS = 1000, PAUSE_MOST_MS = 60000 };
/* Short, since the store is always there to fall back on. */
enum { CONNECT_MS = 2000, REQUEST_S = 5 };

/* One tier. store is constant, the counters are atomic, and store_tiers.lock guards the rest. */
struct tier {
    struct store *store;
    /* Guarded by store_tiers.lock, up to the counters. */
    bool down, on_trial;
    unsigned demerits;                           /* below LIMIT while up */
    uint64_t up_since_ms, trial_at_ms, pause_ms; /* on clock_now_ms; pause_ms 0: was never down */
    counter requests, bytes, failures, wrong;
};

/* The store with its tiers; `origin` and the tiers' stores are owned. */
struct store_tiers {
    struct store base;
    struct store *origin;
    pthread_mutex_t lock; /* innermost; never held across a request */
    struct tier tiers[STORE_TIERS_MAX];
    size_t n;
    counter fallen_through; /* gets of packs and index nodes that went to origin */
};

static struct store_tiers *self(struct store *s)
{
    return (struct store_tiers *)s;
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
static uint64_t score(const struct tier *tier, const char *key)
{
    uint64_t x = fnv1a(fnv1a(0xcbf29ce484222325u, tier->store->url) * 0x9e3779b97f4a7c15u, key);
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

/* A tier that is down gets one trial request when its pause is over. */
static bool may_be_asked(const struct tier *tier, uint64_t now)
{
    return !tier->down || (!tier->on_trial && now >= tier->trial_at_ms);
}

/* Return the available tier with the highest score, or NULL. */
static struct tier *best_locked(struct store_tiers *t, const char *key, uint64_t now)
{
    struct tier *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < t->n; i++) {
        uint64_t s = score(&t->tiers[i], key);
        if (may_be_asked(&t->tiers[i], now) && (!best || s > most)) {
            best = &t->tiers[i];
            most = s;
        }
    }
    return best;
}

/* Choose the tier for a get, or NULL if all are down. *trial: the tier is down and this request is its trial, so that
 * complete() or call_off() must follow. */
static struct tier *store_tiers_choose(struct store_tiers *t, const char *key, bool *trial)
{
    SCOPED_LOCK(&t->lock);
    struct tier *tier = best_locked(t, key, clock_now_ms());
    *trial = tier && tier->down;
    if (*trial)
        tier->on_trial = true;
    return tier;
}

/* ---- health ---- */

/* Take a tier down. The pause doubles when a trial failed or the tier came up only a short while ago. */
static void go_down_locked(struct tier *tier, uint64_t now)
{
    bool again = tier->pause_ms && (tier->down || now - tier->up_since_ms < PAUSE_MOST_MS);
    tier->pause_ms = again ? GR_MIN(2 * tier->pause_ms, (uint64_t)PAUSE_MOST_MS) : PAUSE_FIRST_MS;
    tier->trial_at_ms = now + tier->pause_ms;
    tier->down = true;
}

/* Count a good answer. Only a trial brings a tier up: other requests that are still running when it goes down do
 * not. */
static void good_locked(struct tier *tier, bool trial, uint64_t now)
{
    if (trial) {
        tier->down = false;
        tier->demerits = 0;
        tier->up_since_ms = now;
    } else if (tier->demerits) {
        tier->demerits--;
    }
}

/* Count a failure; return whether it took the tier down. */
static bool bad_locked(struct tier *tier, bool trial, uint64_t now)
{
    bool was_up = !tier->down;
    if (was_up)
        tier->demerits += FAILURE;
    if (trial || (was_up && tier->demerits >= LIMIT))
        go_down_locked(tier, now);
    return was_up && tier->down;
}

/* Record a request's outcome. For a failure the thread's error holds its sentence, which the log then quotes. */
static void complete(struct store_tiers *t, struct tier *tier, bool good, bool trial)
{
    bool went_down = false;
    {
        SCOPED_LOCK(&t->lock);
        uint64_t now = clock_now_ms();
        if (trial)
            tier->on_trial = false;
        if (good)
            good_locked(tier, trial, now);
        else
            went_down = bad_locked(tier, trial, now);
    }
    if (good && trial)
        log_info("shared cache proxy %s answers again", tier->store->url);
    if (went_down)
        log_warning("shared cache proxy %s is skipped until it answers again: %.300s", tier->store->url, error_text());
}

/* End a trial that decides nothing, because the reader stopped or the store failed too: another request may try. */
static void call_off(struct store_tiers *t, struct tier *tier, bool trial)
{
    SCOPED_LOCK(&t->lock);
    if (trial)
        tier->on_trial = false;
}

/* ---- get ---- */

/* Only immutable objects that clients verify go through tiers. Tags and manifests must be current. */
static bool through_tiers(const char *key)
{
    return !strncmp(key, "packs/", 6) || !strncmp(key, "indexes/", 8);
}

/* Would the store itself perhaps return rc? */
static bool perhaps_true(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG;
}

/* Fetch the rest from the store after the tier failed with rc. The failure's sentence is set aside so that a get which
 * succeeds does not end with it; complete() gets it back for the log. */
static int fall_through(struct store_tiers *t, struct tier *tier, bool trial, int rc, const char *key, uint64_t off,
                        uint64_t len, struct request_context *context, struct store_resume *resume)
{
    struct error failure;
    error_take(&failure, rc);
    counter_add(&tier->failures, 1);
    counter_add(&t->fallen_through, 1);
    if (!perhaps_true(rc))
        complete(t, tier, false, trial);
    uint64_t done = resume->done;
    rc = store_get_until(t->origin, key, off + done, len - done, context, store_pass_on, resume);
    if (!perhaps_true(failure.code))
        return rc;
    if (rc) { /* both failed: the answer may have been true */
        call_off(t, tier, trial);
        return rc;
    }
    (void)error_restore(&failure);
    complete(t, tier, false, trial);
    return 0;
}

/* Get from the key's tier, and what it fails to send from the store. Every return after the choice ends a trial, by
 * complete() or call_off(). */
static int tiers_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                     store_sink *sink, void *arg)
{
    struct store_tiers *t = self(s);
    bool trial = false;
    if (!through_tiers(key))
        return store_get_until(t->origin, key, off, len, context, sink, arg);
    struct tier *tier = store_tiers_choose(t, key, &trial);
    if (!tier) {
        counter_add(&t->fallen_through, 1);
        return store_get_until(t->origin, key, off, len, context, sink, arg);
    }
    struct store_resume resume = {.sink = sink, .arg = arg};
    counter_add(&tier->requests, 1);
    int rc = store_get_until(tier->store, key, off, len, context, store_pass_on, &resume);
    counter_add(&tier->bytes, resume.done);
    if (resume.stopped) {
        call_off(t, tier, trial);
        return rc;
    }
    if (!rc && resume.done < len)
        rc = error_set(-EIO, "%s: %s: fewer bytes arrived than the range asked for", tier->store->url, key);
    /* A failure after the last byte does not matter. */
    if (rc && resume.done < len)
        return fall_through(t, tier, trial, rc, key, off, len, context, &resume);
    complete(t, tier, true, trial);
    return 0;
}

static struct store *tiers_origin(struct store *s)
{
    return self(s)->origin;
}

/* Count a demerit against the tier that would be asked now. That is the tier which sent the bytes, unless the health
 * of a tier has changed in between; then an innocent one gets a demerit, which is harmless. */
static void tiers_report_bad(struct store *s, const char *key)
{
    struct store_tiers *t = self(s);
    struct tier *tier;
    {
        SCOPED_LOCK(&t->lock);
        tier = best_locked(t, key, clock_now_ms());
    }
    if (!tier || !through_tiers(key))
        return;
    counter_add(&tier->wrong, 1);
    (void)error_set(-EBADMSG, "it gave wrong bytes of %s", key);
    complete(t, tier, false, false);
}

/* ---- everything else is the store's ---- */

static int tiers_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    return store_get_small(self(s)->origin, key, out, version);
}

static int tiers_put(struct store *s, const struct store_put *put)
{
    return store_put(self(s)->origin, put);
}

static int tiers_stat(struct store *s, const char *key, struct store_item *out)
{
    return store_stat(self(s)->origin, key, out);
}

static int tiers_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return store_list(self(s)->origin, prefix, visit, arg);
}

static int tiers_remove(struct store *s, const char *key)
{
    return store_remove(self(s)->origin, key);
}

static int tiers_probe(struct store *s, bool *out)
{
    return store_probe_conditional(self(s)->origin, out);
}

static void tiers_close(struct store *s)
{
    struct store_tiers *t = self(s);
    for (size_t i = 0; i < t->n; i++)
        store_close(t->tiers[i].store);
    store_close(t->origin);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* ---- reports ---- */

size_t store_tiers_reports(struct store *s, struct store_tier_report out[STORE_TIERS_MAX])
{
    struct store_tiers *t = self(s);
    SCOPED_LOCK(&t->lock);
    for (size_t i = 0; i < t->n; i++) {
        struct tier *tier = &t->tiers[i];
        out[i] = (struct store_tier_report){.url = tier->store->url,
                                            .down = tier->down,
                                            .requests = counter_get(&tier->requests),
                                            .bytes = counter_get(&tier->bytes),
                                            .failures = counter_get(&tier->failures),
                                            .wrong = counter_get(&tier->wrong)};
    }
    return t->n;
}

/* Metrics are sums over all tiers; store_tiers_reports gives them one by one. */
static void tiers_counters(struct store *s, counter_visit *visit, void *arg)
{
    struct store_tier_report reports[STORE_TIERS_MAX], sum = {0};
    size_t n = store_tiers_reports(s, reports);
    uint64_t down = 0;
    for (size_t i = 0; i < n; i++) {
        sum.requests += reports[i].requests;
        sum.bytes += reports[i].bytes;
        sum.failures += reports[i].failures;
        sum.wrong += reports[i].wrong;
        down += reports[i].down;
    }
    const struct counter_row rows[] = {
        {"granary_tiers", "Shared cache proxies in front of the store", n},
        {"granary_tiers_down", "Shared cache proxies that are skipped now", down},
        {"granary_tier_requests_total", "GETs sent to shared cache proxies", sum.requests},
        {"granary_tier_bytes_total", "Bytes received from shared cache proxies", sum.bytes},
        {"granary_tier_failures_total", "GETs that a shared cache proxy did not answer in full", sum.failures},
        {"granary_tier_fallthroughs_total", "GETs of packs and index nodes that went to the store after all",
         counter_get(&self(s)->fallen_through)},
        {"granary_tier_wrong_total",
         "Chunks whose bytes from a shared cache proxy were wrong, and right when requested again", sum.wrong},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        visit(arg, &rows[i]);
    store_counters(self(s)->origin, visit, arg);
}

static void tiers_health(struct store *s, struct store_health *out)
{
    store_health(self(s)->origin, out);
}

/* ---- life ---- */

/* Two tiers of one URL would get equal scores for every key. */
static int check_names(struct store *const *tiers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (!strcmp(tiers[i]->url, tiers[k]->url))
                return error_set(-EINVAL, "the shared cache proxy %s is given twice", tiers[i]->url);
    return 0;
}

int store_tiers_open(struct store *origin, struct store *const *tiers, size_t n, struct store **out)
{
    static const struct store_ops ops = {
        .get = tiers_get,
        .get_small = tiers_get_small,
        .put = tiers_put,
        .stat = tiers_stat,
        .list = tiers_list,
        .remove = tiers_remove,
        .probe_conditional = tiers_probe,
        .close = tiers_close,
        .counters = tiers_counters,
        .health = tiers_health,
        .origin = tiers_origin,
        .report_bad = tiers_report_bad,
    };
    assert(n && n <= STORE_TIERS_MAX);
    int rc = check_names(tiers, n);
    struct store_tiers *t = rc ? NULL : calloc(1, sizeof *t);
    if (!t) {
        for (size_t i = 0; i < n; i++)
            store_close(tiers[i]);
        store_close(origin);
        return rc ? rc : error_no_memory();
    }
    t->base = (struct store){.ops = &ops, .url = origin->url};
    t->origin = origin;
    pthread_mutex_init(&t->lock, NULL);
    for (t->n = 0; t->n < n; t->n++)
        t->tiers[t->n].store = tiers[t->n];
    *out = &t->base;
    return 0;
}

int store_tiers_open_urls(struct store *origin, const char *const *urls, size_t n, const struct store_options *of_store,
                          struct store **out)
{
    const struct store_options options = {.connections = of_store->connections,
                                          .slots = of_store->slots,
                                          .rate = of_store->rate,
                                          .cancel = of_store->cancel,
                                          .connect_ms = CONNECT_MS,
                                          .request_s = REQUEST_S};
    struct store *tiers[STORE_TIERS_MAX];
    assert(n <= STORE_TIERS_MAX);
    for (size_t i = 0; i < n; i++) {
        int rc = store_http_open(urls[i], &options, &tiers[i]);
        if (rc) {
            while (i)
                store_close(tiers[--i]);
            store_close(origin);
            return error_prefix(rc, "shared cache proxy");
        }
    }
    return store_tiers_open(origin, tiers, n, out);
}

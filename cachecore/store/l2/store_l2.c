/* A store behind shared cache proxies: a get asks the key's proxy (proxies.c), and the store for what the proxy does
 * not send. A missing or short object may be the proxy's fault or the truth. Such an answer counts against the proxy
 * only if the store does have the object. A get that breaks off continues from the store, after the bytes already
 * passed on. While the store does not answer, a node is asked again now and then: it may have been busy, and alone have
 * the range. */
#include "store/l2/l2_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* The store with its proxies. */
struct store_l2 {
    struct store base;
    struct store *origin;          /* owned */
    struct store_proxies *proxies; /* a reference */
    struct store_again {
        struct store base;
        struct store_l2 *of;
    } again;                /* request_context.meanwhile of gets from origin */
    counter fallen_through; /* gets of packs and index nodes that went to origin because no proxy was available */
    counter own;            /* those that went there because this node is the proxy */
    counter not_here;       /* those that went there because the node that owns it did not have it */
};

static struct store_l2 *self(struct store *s)
{
    return (struct store_l2 *)s;
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

static bool are_nodes(const struct store_l2 *t)
{
    return atomic_load_explicit(&t->proxies->nodes, memory_order_relaxed);
}

/* Get from the store what no proxy has sent yet, and from the key's node if that answers sooner after all:
 * context->from_l2 says which of them did. A get that was sent in part is the store's alone, since nodes answer whole
 * lists of chunks. Proxies that are no nodes would ask the same store, and fail with it. */
static int get_from_origin(struct store_l2 *t, const char *key, uint64_t off, uint64_t len,
                           struct request_context *context, struct store_resume *resume)
{
    context->meanwhile = resume->done || !are_nodes(t) ? NULL : &t->again.base;
    int rc = store_get_until(t->origin, key, off + resume->done, len - resume->done, context, store_pass_on, resume);
    context->meanwhile = NULL;
    return rc;
}

/* Fetch the rest from the store after the proxy failed with rc. The failure's sentence is set aside so that a get which
 * succeeds does not end with it; proxies_complete() gets it back for the log. */
static int fall_through(struct store_l2 *t, struct proxy *proxy, bool trial, int rc, const char *key, uint64_t off,
                        uint64_t len, struct request_context *context, struct store_resume *resume)
{
    struct error failure;
    error_take(&failure, rc);
    if (context->not_here) {
        trial = proxies_answered(t->proxies, proxy, trial);
        context->owner_lacks = true;
        counter_add(&t->not_here, 1);
        rc = get_from_origin(t, key, off, len, context, resume);
        if (rc || context->from_l2) /* the store has not answered */
            proxies_call_off(t->proxies, proxy, trial);
        else
            proxies_lacks(t->proxies, proxy, trial);
        return rc;
    }
    counter_add(&proxy->counts.failures, 1);
    counter_add(&t->proxies->totals.failures, 1);
    counter_add(&t->fallen_through, 1);
    if (!perhaps_true(rc))
        proxies_complete(t->proxies, proxy, false, trial);
    rc = get_from_origin(t, key, off, len, context, resume);
    if (!perhaps_true(failure.code))
        return rc;
    if (rc || context->from_l2) { /* the store has not shown that it was false */
        proxies_call_off(t->proxies, proxy, trial);
        return rc;
    }
    (void)error_restore(&failure);
    proxies_complete(t->proxies, proxy, false, trial);
    return 0;
}

enum { PROOF_MAX = sizeof PEER_PROOF_HEADER + 1 + PEER_PROOF_MAX };

/* Let the request say that this node has the nodes' key. */
static void prove(const struct store_l2 *t, const char *key, uint64_t off, uint64_t len,
                  struct request_context *context, char out[PROOF_MAX])
{
    struct peer_key *k = t->proxies->node.key;
    const char *value = context->header ? strchr(context->header, ' ') : NULL;
    char proof[PEER_PROOF_MAX];
    context->proof = NULL;
    if (!k || !value)
        return;
    const struct peer_get get = {.key = key, .off = off, .len = len, .chunks = value + 1};
    snprintf(out, PROOF_MAX, PEER_PROOF_HEADER ": %s", peer_key_prove(k, &get, time(NULL), proof));
    context->proof = out;
}

/* One request of ask. The list of chunks is for nodes alone: other servers would pass its 8 KiB on to the store, and
 * some stores refuse that. */
static int ask_once(struct store_l2 *t, struct proxy *proxy, const char *key, uint64_t off, uint64_t len,
                    struct request_context *context, struct store_resume *resume)
{
    char proof[PROOF_MAX];
    const char *header = context->header;
    counter_add(&proxy->counts.requests, 1);
    counter_add(&t->proxies->totals.requests, 1);
    context->not_here = false;
    context->node_weight = -1;
    if (!are_nodes(t))
        context->header = NULL;
    prove(t, key, off, len, context, proof);
    int rc = store_get_until(proxy->store, key, off, len, context, store_pass_on, resume);
    context->header = header;
    context->proof = NULL;
    proxies_heard(t->proxies, proxy, context->node_weight);
    if (are_nodes(t) && !t->base.striped)
        atomic_store_explicit(&t->base.striped, true, memory_order_relaxed);
    return rc;
}

/* One get from a proxy, counted. *resume has what was passed on before. A server that is no node learns from the first
 * answer of a node that its proxies are nodes; then it repeats the request with the list of chunks. */
static int ask(struct store_l2 *t, struct proxy *proxy, const char *key, uint64_t off, uint64_t len,
               struct request_context *context, struct store_resume *resume)
{
    const bool known = are_nodes(t);
    int rc = ask_once(t, proxy, key, off, len, context, resume);
    if (rc && !known && are_nodes(t) && context->node_weight >= 0 && !resume->done && !resume->stopped)
        rc = ask_once(t, proxy, key, off, len, context, resume);
    counter_add(&proxy->counts.bytes, resume->done);
    counter_add(&t->proxies->totals.bytes, resume->done);
    return rc;
}

/* Get from the key's proxy, and what it fails to send from the store. Every return ends a trial, by proxies_complete()
 * or proxies_call_off(). */
static int l2_get_from(struct store_l2 *t, struct proxy *proxy, bool trial, const char *key, uint64_t off, uint64_t len,
                       struct request_context *context, store_sink *sink, void *arg)
{
    struct store_resume resume = {.sink = sink, .arg = arg};
    int rc = ask(t, proxy, key, off, len, context, &resume);
    if (resume.stopped) {
        proxies_call_off(t->proxies, proxy, trial);
        return rc;
    }
    if (!rc && resume.done < len)
        rc = error_set(-EIO, "%s: %s: fewer bytes arrived than the range asked for", proxy->store->url, key);
    /* A failure after the last byte does not matter. */
    if (rc && resume.done < len)
        return fall_through(t, proxy, trial, rc, key, off, len, context, &resume);
    proxies_complete(t->proxies, proxy, true, trial);
    return 0;
}

/* Ask the leaving node that had the key. 1: it is not here, and nothing was passed on; else the result of the get, with
 * what it failed to send from the store, if there is one. */
static int get_from_leaving(struct store_l2 *t, const char *key, uint64_t off, uint64_t len,
                            struct request_context *context, store_sink *sink, void *arg)
{
    struct store_resume resume = {.sink = sink, .arg = arg};
    bool trial;
    struct proxy *proxy = proxies_choose_leaving(t->proxies, key, off, &trial);
    if (!proxy)
        return 1;
    int rc = ask(t, proxy, key, off, len, context, &resume);
    bool whole = resume.done == len, failed = !whole && !resume.stopped && !context->not_here;
    counter_add(&proxy->counts.failures, failed);
    counter_add(&t->proxies->totals.failures, failed);
    if (resume.stopped)
        proxies_call_off(t->proxies, proxy, trial);
    else
        proxies_complete(t->proxies, proxy, !failed, trial);
    proxy_unref(proxy);
    if (whole || resume.stopped)
        return whole ? 0 : rc;
    struct error aside; /* a get that succeeds after all does not end with this sentence */
    error_take(&aside, rc);
    if (!resume.done)
        return 1;
    if (!t->origin)
        return error_restore(&aside);
    return store_get_until(t->origin, key, off + resume.done, len - resume.done, context, store_pass_on, &resume);
}

static int l2_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                  store_sink *sink, void *arg)
{
    struct store_l2 *t = self(s);
    bool trial = false;
    context->owner_lacks = false;
    if (!through_l2(key))
        return store_get_until(t->origin, key, off, len, context, sink, arg);
    int rc = get_from_leaving(t, key, off, len, context, sink, arg);
    if (rc != 1)
        return rc;
    struct proxy *proxy = proxies_choose(t->proxies, key, off, &trial);
    if (!proxy || proxy->self) { /* this node owns it, perhaps for one that is down: others ask here */
        struct store_resume resume = {.sink = sink, .arg = arg};
        counter_add(proxy ? &t->own : &t->fallen_through, 1);
        if (proxy)
            proxy_unref(proxy);
        return get_from_origin(t, key, off, len, context, &resume);
    }
    rc = l2_get_from(t, proxy, trial, key, off, len, context, sink, arg);
    proxy_unref(proxy);
    return rc;
}

/* The get of store_again, while the store does not answer, so that nothing shows whether a missing range exists. A
 * failure counts against a node only at the end of a trial: one that is up stays up, however many reads wait here. */
static int again_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                     store_sink *sink, void *arg)
{
    struct store_l2 *t = ((struct store_again *)s)->of;
    struct store_resume resume = {.sink = sink, .arg = arg};
    bool trial;
    struct proxy *proxy = proxies_choose(t->proxies, key, off, &trial);
    if (!proxy || proxy->self) {
        if (proxy)
            proxy_unref(proxy);
        return error_set(-ENOENT, "%s: no proxy has %s now", t->base.url, key);
    }
    int rc = ask(t, proxy, key, off, len, context, &resume);
    const bool whole = resume.done == len, failed = !whole && !resume.stopped && !perhaps_true(rc);
    counter_add(&proxy->counts.failures, failed);
    counter_add(&t->proxies->totals.failures, failed);
    if (whole || (failed && trial))
        proxies_complete(t->proxies, proxy, whole, trial);
    else
        proxies_call_off(t->proxies, proxy, trial);
    proxy_unref(proxy);
    if (whole)
        context->owner_lacks = false;
    return whole ? 0 : rc ? rc : error_set(-EIO, "%s: too few bytes of %s arrived", t->base.url, key);
}

static struct store *l2_origin(struct store *s)
{
    return self(s)->origin;
}

static void l2_report_bad(struct store *s, unsigned proxy, const char *key)
{
    proxies_report_bad(self(s)->proxies, proxy, key);
}

static bool l2_is_own(struct store *s, const char *key, uint64_t off)
{
    return !through_l2(key) || proxies_own(self(s)->proxies, key, off);
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
    proxies_unref(t->proxies);
    store_close(t->origin);
    free(t);
}

static void l2_counters(struct store *s, counter_visit *visit, void *arg)
{
    struct store_l2 *t = self(s);
    const struct counter_row rows[] = {
        {"granary_l2_fallthroughs_total", "GETs of packs and index nodes that went to the store after all",
         counter_get(&t->fallen_through)},
        {"granary_l2_own_total", "GETs of packs and index nodes from the store that other nodes would ask this one for",
         counter_get(&t->own)},
        {"granary_l2_not_here_total", "GETs that went to the store because another node did not have the range",
         counter_get(&t->not_here)},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
    store_counters(t->origin, visit, arg);
}

static void l2_health(struct store *s, struct store_health *out)
{
    store_health(self(s)->origin, out);
}

int store_l2_open(struct store *origin, struct store_proxies *proxies, struct store **out)
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
        .is_own = l2_is_own,
    };
    struct store_l2 *t = calloc(1, sizeof *t);
    if (!t) {
        store_close(origin);
        return error_no_memory();
    }
    static const struct store_ops again_ops = {.get = again_get};
    t->base = (struct store){.ops = &ops, .url = origin->url, .striped = proxies->nodes};
    t->again = (struct store_again){.base = {.ops = &again_ops, .url = origin->url}, .of = t};
    t->origin = origin;
    t->proxies = proxies_ref(proxies);
    *out = &t->base;
    return 0;
}

/* ---- what leaving nodes have ---- */

static int leaving_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                       store_sink *sink, void *arg)
{
    int rc = get_from_leaving(self(s), key, off, len, context, sink, arg);
    return rc == 1 ? error_set(-ENOENT, "%s: no node that leaves has it", key) : rc;
}

static void leaving_close(struct store *s)
{
    proxies_unref(self(s)->proxies);
    free(s);
}

int store_leaving_open(struct store_proxies *proxies, struct store **out)
{
    static const struct store_ops ops = {.get = leaving_get, .close = leaving_close, .report_bad = l2_report_bad};
    struct store_l2 *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
    t->base = (struct store){.ops = &ops, .url = "nodes that leave", .striped = true};
    t->proxies = proxies_ref(proxies);
    *out = &t->base;
    return 0;
}

/* Which shared cache proxies there are, which of them has a key, and how each is.
 *
 * Which proxy has a key is a function of the URLs, the weights and the key alone: each proxy gets a score by hashing
 * its URL and the key (rendezvous hashing), and the best score among the available proxies wins. Scores of equal
 * weights are compared as they are. Between weights w, -ln(u)/w is, where u is the score as a number between 0 and 1,
 * and the smallest wins: then a proxy's share of the keys is in proportion to its weight (the logarithmic method;
 * Schindelhauer and Schomaker, Weighted Distributed Hash Tables, SPAA 2005).
 *
 * The list of proxies is never changed but replaced by another one. A get takes the list of its moment, computes the
 * scores without a lock, and keeps the proxy by a reference until its request has ended:
 *
 *   store_proxies ---> list ---> proxy <--- a get that runs      a proxy is in the list of today, in one that a get
 *                      (a get takes one) -> proxy                still looks through, or only a get has it */
#include "store/l2/l2_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

/* How often a node may change what it says of itself. */
enum { HEARD_MS = 5000 };

/* The proxies of a moment, in ascending order of weight; constant but for refs. */
struct proxy_list {
    _Atomic unsigned refs;
    size_t n;
    struct ranked {
        struct proxy *proxy; /* a reference */
        uint64_t seed;       /* the hash of its URL, from which that of URL and key goes on */
        unsigned weight;     /* at least 1 */
        bool given;          /* a list gives the weight */
    } ranked[];
};

/* ---- whose key it is ---- */

/* The scores of up to SCORE_LANES proxies. */
static void scores(const struct ranked *ranked, size_t n, const char *name, uint64_t out[SCORE_LANES])
{
    uint64_t seeds[SCORE_LANES];
    for (size_t i = 0; i < SCORE_LANES; i++)
        seeds[i] = ranked[i < n ? i : 0].seed;
    score_of(seeds, name, out);
}

static bool is_leaving(const struct proxy *proxy)
{
    return atomic_load_explicit(&proxy->leaving, memory_order_relaxed);
}

/* What is hashed: the key; of nodes, behind it the number of the stripe, unless that is 0. */
struct place {
    char text[STORE_KEY_MAX + 32];
};

static struct place place_of(const struct store_proxies *p, const char *key, uint64_t off)
{
    struct place place;
    uint64_t stripe = atomic_load_explicit(&p->nodes, memory_order_relaxed) ? off / STORE_STRIPE : 0;
    snprintf(place.text, sizeof place.text, stripe ? "%s/%llu" : "%s", key, (unsigned long long)stripe);
    return place;
}

/* The best proxy of one weight, or of all; proxy NULL: none is available. */
struct candidate {
    struct proxy *proxy;
    uint64_t score;
    unsigned weight;
};

static void keep_better(struct candidate *best, const struct candidate *other)
{
    if (other->proxy &&
        (!best->proxy || score_cost(other->score, other->weight) < score_cost(best->score, best->weight)))
        *best = *other;
}

/* Return the available proxy with the best score, or NULL. leaving: nodes that leave count, too. Compares within each
 * weight first, so that rounding plays no part where all weights are equal. */
static struct proxy *best_of(const struct proxy_list *list, const struct place *place, uint64_t now, bool leaving)
{
    struct candidate best = {0}, first = {0};
    uint64_t s[SCORE_LANES];
    for (size_t i = 0; i < list->n; i++) {
        const struct ranked *r = &list->ranked[i];
        if (i % SCORE_LANES == 0)
            scores(r, list->n - i, place->text, s);
        if (first.weight != r->weight) {
            keep_better(&best, &first);
            first = (struct candidate){.weight = r->weight};
        }
        if ((!first.proxy || s[i % SCORE_LANES] > first.score) && proxy_may_be_asked(r->proxy, now) &&
            (leaving || !is_leaving(r->proxy))) {
            first.proxy = r->proxy;
            first.score = s[i % SCORE_LANES];
        }
    }
    keep_better(&best, &first);
    return best.proxy;
}

/* ---- references ---- */

void proxy_unref(struct proxy *proxy)
{
    if (atomic_fetch_sub(&proxy->refs, 1) > 1)
        return;
    store_close(proxy->store);
    free(proxy);
}

static void list_unref(struct proxy_list *list)
{
    if (atomic_fetch_sub(&list->refs, 1) > 1)
        return;
    for (size_t i = 0; i < list->n; i++)
        proxy_unref(list->ranked[i].proxy);
    free(list);
}
DEFINE_CLEANUP(list, struct proxy_list *, list_unref)

static struct proxy_list *list_now(struct store_proxies *p)
{
    SCOPED_LOCK(&p->lock);
    atomic_fetch_add(&p->list->refs, 1);
    return p->list;
}

/* ---- a get's proxy ---- */

struct proxy *proxies_choose(struct store_proxies *p, const char *key, uint64_t off, bool *trial)
{
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    const struct place place = place_of(p, key, off);
    uint64_t now = clock_now_ms();
    struct proxy *proxy;
    *trial = false;
    do
        proxy = best_of(list, &place, now, false);
    while (proxy && !proxy_take(p, proxy, now, trial));
    return proxy;
}

struct proxy *proxies_choose_leaving(struct store_proxies *p, const char *key, uint64_t off, bool *trial)
{
    if (!store_proxies_departures(p))
        return NULL;
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    const struct place place = place_of(p, key, off);
    uint64_t now = clock_now_ms();
    struct proxy *proxy = best_of(list, &place, now, true);
    *trial = false;
    return proxy && is_leaving(proxy) && !proxy->self && proxy_take(p, proxy, now, trial) ? proxy : NULL;
}

bool proxies_own(struct store_proxies *p, const char *key, uint64_t off)
{
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    const struct place place = place_of(p, key, off);
    const struct proxy *proxy = best_of(list, &place, clock_now_ms(), false);
    return !proxy || proxy->self;
}

bool store_proxies_inherits(struct store_proxies *p, const char *key, uint64_t off)
{
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    const struct place place = place_of(p, key, off);
    uint64_t now = clock_now_ms();
    const struct proxy *had = best_of(list, &place, now, true), *has = best_of(list, &place, now, false);
    return has && has->self && had != has;
}

void proxies_report_bad(struct store_proxies *p, unsigned number, const char *key)
{
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    counter_add(&p->totals.wrong, 1);
    for (size_t i = 0; i < list->n; i++) {
        struct proxy *proxy = list->ranked[i].proxy;
        if (proxy->store->l2 != number)
            continue;
        counter_add(&proxy->counts.wrong, 1);
        (void)error_set(-EBADMSG, "it gave wrong bytes of %s", key);
        proxies_complete(p, proxy, false, false);
    }
}

/* ---- who they are ---- */

/* Return the list's proxy of this URL, or NULL. */
static struct proxy *list_find(const struct proxy_list *list, const char *url)
{
    uint64_t seed = score_seed(url);
    for (size_t i = 0; i < list->n; i++) {
        struct proxy *proxy = list->ranked[i].proxy;
        if (list->ranked[i].seed == seed && !strcmp(proxy->store->url, url))
            return proxy;
    }
    return NULL;
}

static int proxy_new(struct store_proxies *p, const char *url, struct proxy **out)
{
    CLEANUP_FREE struct proxy *proxy = calloc(1, sizeof *proxy);
    if (!proxy)
        return error_no_memory();
    int rc = p->open(p->open_arg, url, &p->options, &proxy->store);
    if (rc)
        return error_prefix(rc, "shared cache proxy");
    proxy->refs = 1;
    proxy->store->l2 = ++p->numbered;
    proxy->store->node = p->nodes;
    proxy->weight = p->weight;
    *out = steal_ptr(&proxy);
    return 0;
}

/* This machine's addresses may have changed since the list did last. */
static void find_self(const struct store_proxies *p, struct proxy *proxy)
{
    proxy->self = p->node.address && member_is_self(proxy->store->url, p->node.address);
    if (proxy->self)
        proxy->leaving = store_proxies_left(p);
}

/* Add a proxy to a list that is being made, which has room. given: its weight in the list of members; 0: none. Equal
 * weights stay in the order in which they were given, which status shows. */
static void list_insert(const struct store_proxies *p, struct proxy_list *list, struct proxy *proxy, unsigned given)
{
    unsigned weight = given ? given : proxy->weight;
    size_t at = list->n++;
    for (; at && list->ranked[at - 1].weight > weight; at--)
        list->ranked[at] = list->ranked[at - 1];
    list->ranked[at] =
        (struct ranked){.proxy = proxy, .seed = score_seed(proxy->store->url), .weight = weight, .given = given};
}

static int list_new(size_t n, struct proxy_list **out)
{
    *out = calloc(1, sizeof **out + n * sizeof(struct ranked));
    if (!*out)
        return error_no_memory();
    (*out)->refs = 1;
    return 0;
}

/* Make the list the one that gets look at, and return the old one. */
static struct proxy_list *list_swap(struct store_proxies *p, struct proxy_list *fresh)
{
    SCOPED_LOCK(&p->lock);
    struct proxy_list *old = p->list;
    p->list = fresh;
    return old;
}

/* A node that is in no list asks others and keeps nothing for them. */
static void warn_if_absent(const struct store_proxies *p, const struct proxy_list *list)
{
    bool here = false;
    for (size_t i = 0; i < list->n; i++)
        here |= list->ranked[i].proxy->self;
    if (p->node.address && list->n && !here)
        log_warning(
            "peer-listen: none of the %zu nodes that l2 lists is this one, which listens at %s: nothing belongs to it; "
            "write its address and port into the list",
            list->n, p->node.address);
}

/* Opens and closes outside the lock. */
int proxies_set(struct store_proxies *p, const struct members *members)
{
    CLEANUP(cleanup_list) struct proxy_list *fresh = NULL;
    assert(members->len <= STORE_L2_MAX);
    int rc = list_new(members->len, &fresh);
    SCOPED_LOCK(&p->changing);
    for (size_t i = 0; !rc && i < members->len; i++) {
        struct proxy *proxy = list_find(p->list, members->items[i].url);
        if (proxy)
            atomic_fetch_add(&proxy->refs, 1);
        else
            rc = proxy_new(p, members->items[i].url, &proxy);
        if (rc)
            break;
        find_self(p, proxy);
        list_insert(p, fresh, proxy, members->items[i].weight);
    }
    if (rc)
        return rc;
    warn_if_absent(p, fresh);
    fresh = list_swap(p, fresh); /* the old one is dropped at the end, after the lock */
    return 0;
}

/* ---- weights ---- */

/* Make the list anew, with the weights of now. Without memory they stay as they are until the next change. */
static void reweigh_locked(struct store_proxies *p)
{
    const struct proxy_list *old = p->list;
    struct proxy_list *fresh;
    if (list_new(old->n, &fresh))
        return;
    for (size_t i = 0; i < old->n; i++) {
        const struct ranked *r = &old->ranked[i];
        atomic_fetch_add(&r->proxy->refs, 1);
        list_insert(p, fresh, r->proxy, r->given ? r->weight : 0);
    }
    list_unref(list_swap(p, fresh));
}

void store_proxies_weigh(struct store_proxies *p, unsigned weight)
{
    atomic_store(&p->weighed, true);
    SCOPED_LOCK(&p->changing);
    p->weight = weight;
    for (size_t i = 0; i < p->list->n; i++)
        p->list->ranked[i].proxy->weight = weight;
    reweigh_locked(p);
}

/* A node that stays after all says its weight again. */
static void note_leaving(struct store_proxies *p, struct proxy *proxy, bool leaving)
{
    if (atomic_exchange(&proxy->leaving, leaving) == leaving)
        return;
    if (leaving)
        atomic_fetch_add(&p->departures, 1);
    log_info("node %s %s", proxy->store->url, leaving ? "leaves: others take over what it keeps" : "stays");
}

/* Whether a node says something else than before. It is believed once in HEARD_MS: one that changes its mind in each
 * answer must not keep the others at work. */
static bool is_news(struct proxy *proxy, int64_t weight)
{
    const bool leaves = atomic_load(&proxy->leaving);
    if (leaves == !weight && (!weight || atomic_load(&proxy->weight) == (unsigned)weight))
        return false;
    uint64_t now = clock_now_ms(), last = atomic_load(&proxy->heard_ms);
    return (!last || now - last >= HEARD_MS) && atomic_compare_exchange_strong(&proxy->heard_ms, &last, now);
}

/* A list of another node, or a lie, may say anything: what is no weight changes nothing. A server that is no node gives
 * all proxies the first weight that it hears, until each says its own. */
void proxies_heard(struct store_proxies *p, struct proxy *proxy, int64_t weight)
{
    if (weight < 0 || weight > STORE_WEIGHT_MAX)
        return;
    atomic_store_explicit(&p->nodes, true, memory_order_relaxed);
    if (weight && !atomic_load(&p->weighed) && !atomic_exchange(&p->weighed, true))
        store_proxies_weigh(p, (unsigned)weight);
    atomic_store_explicit(&proxy->store->node, true, memory_order_relaxed);
    if (!is_news(proxy, weight))
        return;
    note_leaving(p, proxy, !weight);
    if (!weight || atomic_exchange_explicit(&proxy->weight, (unsigned)weight, memory_order_relaxed) == (unsigned)weight)
        return;
    log_info("node %s has the weight %u", proxy->store->url, (unsigned)weight);
    SCOPED_LOCK(&p->changing);
    reweigh_locked(p);
}

/* ---- leaving ---- */

void store_proxies_leave(struct store_proxies *p)
{
    atomic_store(&p->left, true);
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    for (size_t i = 0; i < list->n; i++)
        if (list->ranked[i].proxy->self)
            atomic_store(&list->ranked[i].proxy->leaving, true);
}

bool store_proxies_left(const struct store_proxies *p)
{
    return atomic_load_explicit(&p->left, memory_order_relaxed);
}

unsigned store_proxies_departures(const struct store_proxies *p)
{
    return atomic_load_explicit(&p->departures, memory_order_relaxed);
}

/* ---- reports ---- */

/* `out` keeps the list, and with it the URLs. */
void proxies_reports(struct store_proxies *p, struct store_l2_reports *out)
{
    out->list = list_now(p);
    struct store_l2_report *items = calloc(out->list->n + 1, sizeof *items);
    size_t n = items ? out->list->n : 0;
    uint64_t now = clock_now_ms();
    SCOPED_LOCK(&p->lock);
    for (size_t i = 0; i < n; i++) {
        struct proxy *proxy = out->list->ranked[i].proxy;
        items[i] = (struct store_l2_report){.url = proxy->store->url,
                                            .weight = out->list->ranked[i].weight,
                                            .self = proxy->self,
                                            .leaving = is_leaving(proxy),
                                            .down = proxy->down,
                                            .untried = proxy->down && proxy_may_be_asked(proxy, now),
                                            .requests = counter_get(&proxy->counts.requests),
                                            .bytes = counter_get(&proxy->counts.bytes),
                                            .failures = counter_get(&proxy->counts.failures),
                                            .wrong = counter_get(&proxy->counts.wrong)};
    }
    out->items = items;
    out->len = n;
}

void store_l2_reports_release(struct store_l2_reports *r)
{
    free(r->items);
    if (r->list)
        list_unref(r->list);
    *r = (struct store_l2_reports){0};
}

static uint64_t count_down(struct store_proxies *p, const struct proxy_list *list)
{
    uint64_t down = 0;
    SCOPED_LOCK(&p->lock);
    for (size_t i = 0; i < list->n; i++)
        down += list->ranked[i].proxy->down;
    return down;
}

void store_proxies_counters(struct store_proxies *p, counter_visit *visit, void *arg)
{
    CLEANUP(cleanup_list) struct proxy_list *list = list_now(p);
    struct proxy_counts *sum = &p->totals;
    const struct counter_row rows[] = {
        {"granary_l2_proxies", "Shared cache proxies in front of the store", list->n},
        {"granary_l2_down", "Shared cache proxies that are skipped, but for trial requests", count_down(p, list)},
        {"granary_l2_requests_total", "GETs sent to shared cache proxies", counter_get(&sum->requests)},
        {"granary_l2_bytes_total", "Bytes received from shared cache proxies", counter_get(&sum->bytes)},
        {"granary_l2_failures_total", "GETs that a shared cache proxy did not answer in full",
         counter_get(&sum->failures)},
        {"granary_l2_wrong_total",
         "Answers of shared cache proxies with wrong bytes, which were right when requested again",
         counter_get(&sum->wrong)},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
}

/* ---- life ---- */

int proxies_new(proxy_open *open, void *open_arg, const struct store_options *options, const struct store_node *node,
                struct store_proxies **out)
{
    CLEANUP_FREE struct store_proxies *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    p->refs = 1;
    p->open = open;
    p->open_arg = open_arg;
    p->options = *options;
    p->node = *node;
    p->nodes = node->address || node->key || node->tls;
    p->weighed = node->address;
    p->weight = 1;
    int rc = list_new(0, &p->list);
    if (rc)
        return rc;
    pthread_mutex_init(&p->changing, NULL);
    pthread_mutex_init(&p->lock, NULL);
    *out = steal_ptr(&p);
    return 0;
}

struct store_proxies *proxies_ref(struct store_proxies *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void proxies_unref(struct store_proxies *p)
{
    if (atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    list_unref(p->list);
    pthread_mutex_destroy(&p->changing);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

/* What a stack reports: the health of its stores, its cache directories, counters and histograms. Totals never fall:
 * the counters of removed images are kept (stack_sums_add). */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "stack_internal.h"

/* Get the i-th store. Return false after the last. The copy stays valid, because stores are only added. */
static bool store_at(struct stack *s, size_t i, struct stack_store *out)
{
    SCOPED_LOCK(&s->lock);
    if (i >= s->stores.len)
        return false;
    *out = s->stores.items[i];
    return true;
}

/* The same of the stores in use. of: as stack_store_health has it. */
static bool store_in_use_at(struct stack *s, size_t i, char of[STACK_EXPORT_NAME_MAX + 1], struct stack_store *out)
{
    SCOPED_LOCK(&s->lock);
    for (size_t k = 0; k < s->stores.len; k++) {
        *out = s->stores.items[k];
        if ((!out->keys || out->of) && !i--) {
            snprintf(of, STACK_EXPORT_NAME_MAX + 1, "%s", out->of ? out->of : "");
            return true;
        }
    }
    return false;
}

const char *stack_store_health(struct stack *s, size_t i, char of[STACK_EXPORT_NAME_MAX + 1], struct store_health *out)
{
    struct stack_store at;
    if (!store_in_use_at(s, i, of, &at))
        return NULL;
    store_health(at.store, out);
    /* The breaker knows the store's failures; only the fetch queue knows how long reads have been waiting. */
    out->read_waits_ms = cache_longest_wait_us(s->cache, at.store) / 1000;
    return at.url;
}

/* ---- counters ---- */

/* Add a counter to the sums, by position. */
static void add_row(void *arg, const struct counter_row *row)
{
    struct stack_sums *sums = arg;
    size_t i = sums->at++;
    assert(i < STACK_ROWS_MAX);
    if (i < sums->count) {
        sums->rows[i].value += row->value;
    } else {
        sums->rows[i] = *row;
        sums->count = i + 1;
    }
}

void stack_sums_add(struct stack_sums *sums, struct image *img)
{
    sums->at = 0;
    image_counters(img, add_row, sums);
}

size_t stack_cache_dirs(struct stack *s, struct cache_dir_report out[CACHE_DIRS_MAX])
{
    return cache_dir_reports(s->cache, out);
}

size_t stack_slow_reads(struct stack *s, struct slow_read out[SLOW_READS_KEPT])
{
    return slow_reads_last(&s->slow, out);
}

void stack_l2(struct stack *s, struct store_l2_reports *out)
{
    *out = (struct store_l2_reports){0};
    if (s->proxies)
        store_proxies_reports(s->proxies, out);
}

uint64_t stack_age_ms(const struct stack *s)
{
    return clock_now_ms() - s->opened_ms;
}

/* Sum up all images. Under one lock, so that an export which is removed meanwhile is counted once. */
static struct stack_sums sum_images(struct stack *s)
{
    SCOPED_LOCK(&s->lock);
    struct stack_sums sums = s->removed;
    for (size_t i = 0; i < s->exports.len; i++)
        stack_sums_add(&sums, s->exports.items[i]->image);
    return sums;
}

void stack_set_front_end(struct stack *s, void (*ask)(void *arg, struct stack_front_end *out), void *arg)
{
    SCOPED_LOCK(&s->front_end_lock);
    s->front_end = ask;
    s->front_end_arg = arg;
}

/* Show the front end's counters. The lock is held while it is asked, so that stack_set_front_end can wait for it. */
static void show_front_end(struct stack *s, counter_visit *visit, void *arg)
{
    struct stack_front_end f;
    {
        SCOPED_LOCK(&s->front_end_lock);
        if (!s->front_end)
            return;
        s->front_end(s->front_end_arg, &f);
    }
    const struct counter_row rows[] = {
        {"granary_front_connections", "Client connections now", f.connections},
        {"granary_front_connections_limit", "Client connections at most", f.connections_max},
        {"granary_front_threads", "Threads that read for clients now, busy or idle", f.threads},
        {"granary_front_threads_limit", "Threads that read for clients at most", f.threads_max},
        {"granary_front_reply_bytes", "Memory that replies hold now", f.reply_bytes},
        {"granary_front_reply_bytes_limit", "Memory that replies may hold", f.reply_bytes_max},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
}

void stack_counters(struct stack *s, counter_visit *visit, void *arg)
{
    cache_counters(s->cache, visit, arg);
    /* Metrics have no label for the store, so stores are summed up too. */
    struct stack_sums images = sum_images(s), stores = {0};
    struct stack_store at;
    for (size_t i = 0; store_at(s, i, &at); i++) {
        stores.at = 0;
        store_counters(at.store, add_row, &stores);
    }
    counter_show(images.rows, images.count, visit, arg);
    visit(arg, &(struct counter_row){"granary_slow_reads_total",
                                     "Reads that took at least as long as slow-read=", counter_get(&s->slow.total)});
    if (s->proxies)
        store_proxies_counters(s->proxies, visit, arg);
    counter_show(stores.rows, stores.count, visit, arg);
    visit(arg,
          &(struct counter_row){"granary_store_connections_waiting",
                                "Requests that wait for a free connection to a store", http_slots_waiting(&s->slots)});
    const struct counter_row peers[] = {
        {"granary_peer_served_total", "GETs of other nodes that were answered with the range",
         counter_get(&s->peers.served)},
        {"granary_peer_served_bytes_total", "Bytes of these answers", counter_get(&s->peers.bytes)},
        {"granary_peer_fetched_bytes_total", "Bytes of chunks fetched from the store for other nodes",
         counter_get(&s->peers.fetched)},
        {"granary_peer_taken_total", "Chunks taken over from nodes that leave", counter_get(&s->peers.taken)},
        {"granary_peer_refused_total", "GETs of other nodes that were refused because a chunk or capacity was missing",
         counter_get(&s->peers.refused)},
        {"granary_peer_strangers_total", "GETs on the port for other nodes without a valid key or certificate",
         counter_get(&s->peers.strangers)},
    };
    counter_show(peers, GR_ARRAY_SIZE(peers), visit, arg);
    show_front_end(s, visit, arg);
}

void stack_histograms(struct stack *s, histogram_visit *visit, void *arg)
{
    const struct histogram_row reads = {"granary_read_seconds", "How long reads took, failed ones too", {0}, 0};
    histogram_show(&s->reads, reads, visit, arg);
    cache_histograms(s->cache, visit, arg);
}

/* The scheduler as a whole: creation, shutdown, counters. fetch_queue.c has what waits, fetch_run.c what is running.
 *
 * Shutdown: stopping is set, queued fetches fail, workers finish their GETs and exit. A second pass over the queues
 * fails what was started in between.
 */
#include "fetch/fetch.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "fetch/fetch_internal.h"

enum {
    WORKERS_DEFAULT = 64,
    GAP_DEFAULT = 64 << 10,
    RUN_DEFAULT = 4 << 20,
    QUEUE_DEFAULT = 4096,
    TIMEOUT_DEFAULT_MS = 5 * 60 * 1000,
    SILENT_DEFAULT_MS = 2000,
};

int fetch_new(const struct fetch_config *config, struct fetch **out)
{
    struct fetch *f = calloc(1, sizeof *f);
    if (!f)
        return error_no_memory();
    f->config = *config;
    struct fetch_config *c = &f->config;
    c->workers = c->workers ? c->workers : WORKERS_DEFAULT;
    c->gap_max = c->gap_max ? c->gap_max : GAP_DEFAULT;
    c->run_max = c->run_max ? c->run_max : RUN_DEFAULT;
    c->timeout_ms = c->timeout_ms ? c->timeout_ms : TIMEOUT_DEFAULT_MS;
    c->silent_ms = c->silent_ms ? c->silent_ms : SILENT_DEFAULT_MS;
    c->queue_max = c->queue_max ? c->queue_max : QUEUE_DEFAULT;
    concurrency_init(&f->concurrency, c->workers, clock_now_us());
    window_init(&f->window);
    pthread_mutex_init(&f->lock, NULL);
    thread_cond_init(&f->work);
    f->watched_us = UINT64_MAX;
    f->healed = (struct log_limit)LOG_LIMIT_INIT;
    f->hedge.percent = config->hedge_percent;
    *out = f;
    return 0;
}

int fetch_start_threads(struct fetch *f)
{
    f->threads = calloc(f->config.workers, sizeof *f->threads);
    if (!f->threads)
        return error_no_memory();
    int rc = 0;
    while (!rc && f->thread_count < f->config.workers) {
        rc = thread_start(&f->threads[f->thread_count], fetch_worker, f);
        f->thread_count += !rc;
    }
    return rc ? error_prefix(rc, "fetch: %u of %u", f->thread_count + 1, f->config.workers) : 0;
}

void fetch_free(struct fetch *f)
{
    if (!f)
        return;
    {
        SCOPED_LOCK(&f->lock);
        f->stopping = true;
        pthread_cond_broadcast(&f->work);
    }
    fetch_cancel_queued(f);
    for (unsigned i = 0; i < f->thread_count; i++)
        pthread_join(f->threads[i], NULL);
    fetch_cancel_queued(f);      /* what was started meanwhile */
    assert(!f->inflights.count); /* else a landed fetch was not retired: the owner's bug */
    pthread_cond_destroy(&f->work);
    pthread_mutex_destroy(&f->lock);
    map_release(&f->inflights);
    fetch_free_stores(f);
    free(f->threads);
    free(f);
}

uint64_t fetch_warm_window(struct fetch *f)
{
    SCOPED_LOCK(&f->lock);
    return window_alone(&f->window, f->concurrency.base_us);
}

void fetch_count_object(struct fetch *f, uint64_t bytes)
{
    struct fetch_counts *c = &f->counters;
    counter_add(&c->chunks[PRIORITY_WARM], 1);
    counter_add(&c->requests, 1);
    counter_add(&c->chunk_bytes, bytes);
    counter_add(&c->bytes, bytes);
    counter_add(&c->warm_bytes, bytes);
}

void fetch_counters(struct fetch *f, counter_visit *visit, void *arg)
{
    uint64_t inflights, queued, queues[PRIORITIES], busy, limit, phase, warm, window, ahead, ahead_window;
    {
        SCOPED_LOCK(&f->lock);
        inflights = f->inflights.count;
        queued = f->queued;
        for (int priority = 0; priority < PRIORITIES; priority++)
            queues[priority] = f->queues[priority].len;
        busy = f->busy;
        limit = f->concurrency.limit;
        phase = f->concurrency.phase;
        warm = f->in_flight[PRIORITY_WARM];
        window = f->window.beside.bytes;
        ahead = f->in_flight[PRIORITY_READAHEAD];
        ahead_window = f->window.ahead.bytes;
    }
    struct fetch_counts *c = &f->counters;
    const struct counter_row rows[] = {
        {"granary_fetch_demand_chunks_total", "Chunks whose fetch a reader started",
         counter_get(&c->chunks[PRIORITY_DEMAND])},
        {"granary_fetch_readahead_chunks_total", "Chunks whose fetch readahead started",
         counter_get(&c->chunks[PRIORITY_READAHEAD])},
        {"granary_fetch_warm_chunks_total", "Chunks whose fetch a warm request started",
         counter_get(&c->chunks[PRIORITY_WARM])},
        {"granary_fetch_joins_total", "Reads that joined an in-flight fetch of the same chunk", counter_get(&c->joins)},
        {"granary_fetch_raised_total", "Queued chunks raised to a higher priority", counter_get(&c->raised)},
        {"granary_fetch_merged_total", "Chunks added to a GET that other requests had queued", counter_get(&c->merged)},
        {"granary_fetch_dropped_total", "Chunks without a waiting reader, dropped because the queue was full",
         counter_get(&c->dropped)},
        {"granary_fetch_requests_total", "Ranged GETs sent to stores, retries not counted", counter_get(&c->requests)},
        {"granary_fetch_chunk_bytes_total", "Stored bytes of the chunks requested from stores",
         counter_get(&c->chunk_bytes)},
        {"granary_fetch_bytes_total", "Bytes requested from stores, gaps between chunks included",
         counter_get(&c->bytes)},
        {"granary_fetch_warm_bytes_total", "Bytes requested from stores for warming, part of granary_fetch_bytes_total",
         counter_get(&c->warm_bytes)},
        {"granary_fetch_refetches_total",
         "Chunks requested again, over another connection, after wrong bytes or a broken GET",
         counter_get(&c->refetches)},
        {"granary_fetch_origin_refetches_total",
         "Chunks requested from the store itself, because a shared cache proxy gave wrong bytes twice",
         counter_get(&c->origin_refetches)},
        {"granary_fetch_healed_total", "Chunks that were right when they were requested again",
         counter_get(&c->healed)},
        {"granary_fetch_verify_failures_total", "Times a chunk arrived short or did not match its checksums",
         counter_get(&c->verify_failures)},
        {"granary_fetch_hedges_total", "Hedged requests: second GETs sent because the first was slow",
         counter_get(&c->hedges)},
        {"granary_fetch_hedge_wins_total", "Hedged requests that delivered a chunk before the first GET",
         counter_get(&c->hedge_wins)},
        {"granary_fetch_errors_total", "Chunks whose fetch failed and was given up", counter_get(&c->errors)},
        {"granary_fetch_in_flight", "In-flight fetches now, and fetched chunks that are being written to the cache",
         inflights},
        {"granary_fetch_queued", "Chunks waiting for a worker now", queued},
        {"granary_fetch_demand_queued", "Chunks queued with the priority of demand reads, before all others",
         queues[PRIORITY_DEMAND]},
        {"granary_fetch_readahead_queued", "Chunks queued with the priority of readahead", queues[PRIORITY_READAHEAD]},
        {"granary_fetch_warm_queued", "Chunks queued with the priority of warming, behind all others",
         queues[PRIORITY_WARM]},
        {"granary_fetch_busy_workers", "Workers with a GET in flight now", busy},
        {"granary_fetch_limit", "GETs that may be in flight now", limit},
        {"granary_fetch_limit_phase", "Phase of adjusting granary_fetch_limit: 0 rise, 1 rest, 2 up, 3 down", phase},
        {"granary_fetch_warm_inflight_bytes", "Bytes in flight for warming", warm},
        {"granary_fetch_readahead_inflight_bytes", "Bytes in flight for readahead", ahead},
        {"granary_fetch_readahead_window_bytes", "Bytes that may be in flight for readahead", ahead_window},
        {"granary_fetch_warm_beside_bytes", "Bytes that may be in flight for warming while clients read", window},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
}

void fetch_histograms(struct fetch *f, histogram_visit *visit, void *arg)
{
    const struct histogram_row queue = {
        "granary_fetch_queue_seconds", "How long chunks that a read waits for were queued before their GET", {0}, 0};
    const struct histogram_row gets = {
        "granary_store_get_seconds", "How long ranged GETs from stores took, retries and decoding included", {0}, 0};
    const struct histogram_row l2_gets = {
        "granary_l2_get_seconds",
        "How long ranged GETs took that a shared cache proxy answered, decoding included",
        {0},
        0};
    histogram_show(&f->queue, queue, visit, arg);
    histogram_show(&f->gets, gets, visit, arg);
    histogram_show(&f->l2_gets, l2_gets, visit, arg);
}

/* A ring of samples, written by one thread. A sample is made outside the lock and then swapped with the oldest one, so
 * the lock is held for a moment only: a request for /status never waits while another thread walks the exports. Rows
 * ascend by the exports' numbers, as the stack's table does, and are found by bisection. */
#include "server/control_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

const char *const history_names[HISTORY_SUMS] = {
    [HISTORY_READS] = "reads",
    [HISTORY_READ_BYTES] = "read_bytes",
    [HISTORY_MEMORY_BYTES] = "memory_bytes",
    [HISTORY_DISK_BYTES] = "disk_bytes",
    [HISTORY_PEER_BYTES] = "peer_bytes",
    [HISTORY_L2_BYTES] = "l2_bytes",
    [HISTORY_STORE_BYTES] = "store_bytes",
};

/* The ring of samples and its thread. */
struct history {
    struct stack *stack;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t ends;
    bool stopping;
    struct history_sample samples[HISTORY_SAMPLES];
    size_t next, count; /* index of the next sample, which is the oldest once the ring is full; samples taken */
};

void history_sample_release(struct history_sample *sample)
{
    vec_release(&sample->rows);
}

void history_sums(const struct image_traffic *traffic, uint64_t out[HISTORY_SUMS])
{
    out[HISTORY_READS] = traffic->reads;
    out[HISTORY_READ_BYTES] = traffic->read_bytes;
    out[HISTORY_MEMORY_BYTES] = traffic->served.bytes[CACHE_FROM_MEMORY];
    out[HISTORY_DISK_BYTES] = traffic->served.bytes[CACHE_FROM_DISK];
    out[HISTORY_PEER_BYTES] = traffic->served.bytes[CACHE_FROM_PEER];
    out[HISTORY_L2_BYTES] = traffic->served.bytes[CACHE_FROM_L2];
    out[HISTORY_STORE_BYTES] = traffic->served.bytes[CACHE_FROM_STORE];
}

static int by_number(const void *key, const void *row)
{
    uint64_t a = *(const uint64_t *)key, b = ((const struct history_row *)row)->number;
    return a < b ? -1 : a > b;
}

void history_rates(const struct history_sample *then, uint64_t number, const uint64_t now[HISTORY_SUMS],
                   uint64_t now_us, double out[HISTORY_SUMS])
{
    static const struct history_row none = {0};
    const struct history_row *row =
        then->rows.len ? bsearch(&number, then->rows.items, then->rows.len, sizeof *row, by_number) : NULL;
    double seconds = now_us > then->at_us ? (double)(now_us - then->at_us) / 1e6 : 0;
    row = row ? row : &none;
    for (size_t i = 0; i < HISTORY_SUMS; i++)
        out[i] = seconds > 0 && now[i] > row->sums[i] ? (double)(now[i] - row->sums[i]) / seconds : 0;
}

int history_take(struct stack *stack, struct history_sample *out)
{
    *out = (struct history_sample){.at_us = clock_now_us()};
    for (struct stack_export *e = NULL; (e = stack_next(stack, e));) {
        struct history_row row = {.number = stack_export_number(e)};
        struct image_traffic traffic;
        image_traffic(stack_export_image(e), &traffic);
        history_sums(&traffic, row.sums);
        if (vec_push(&out->rows, row)) {
            stack_put(e);
            history_sample_release(out);
            return error_no_memory();
        }
    }
    return 0;
}

/* Put a sample in the place of the oldest, whose rows are freed outside the lock. */
static void put_sample(struct history *h, const struct history_sample *sample)
{
    struct history_sample old;
    {
        SCOPED_LOCK(&h->lock);
        old = h->samples[h->next];
        h->samples[h->next] = *sample;
        h->next = (h->next + 1) % HISTORY_SAMPLES;
        h->count = GR_MIN(h->count + 1, (size_t)HISTORY_SAMPLES);
    }
    history_sample_release(&old);
}

/* Wait until when_ms (clock_now_ms). Returns true when the history ends. */
static bool pause_until(struct history *h, uint64_t when_ms)
{
    struct timespec at = clock_at_ms(when_ms);
    SCOPED_LOCK(&h->lock);
    while (!h->stopping && clock_now_ms() < when_ms)
        pthread_cond_timedwait(&h->ends, &h->lock, &at);
    return h->stopping;
}

/* The thread. A sample that memory is too short for is skipped; the rates then cover a longer time. */
static void *take_samples(void *arg)
{
    struct history *h = arg;
    struct history_sample sample;
    while (!pause_until(h, clock_now_ms() + HISTORY_EVERY_MS))
        if (!history_take(h->stack, &sample))
            put_sample(h, &sample);
    return NULL;
}

/* The first sample is taken here, so that history_oldest always finds one. */
int history_new(struct stack *stack, struct history **out)
{
    struct history_sample first;
    struct history *h = calloc(1, sizeof *h);
    if (!h)
        return error_no_memory();
    h->stack = stack;
    pthread_mutex_init(&h->lock, NULL);
    thread_cond_init(&h->ends);
    int rc = history_take(stack, &first);
    if (rc) {
        history_free(h);
        return rc;
    }
    put_sample(h, &first);
    *out = h;
    return 0;
}

int history_start(struct history *h)
{
    int rc = thread_start(&h->thread, take_samples, h);
    h->running = !rc;
    return rc;
}

/* Until the ring is full, the oldest sample is the first; then it is the one to be replaced next. */
int history_oldest(struct history *h, struct history_sample *out)
{
    SCOPED_LOCK(&h->lock);
    const struct history_sample *oldest = &h->samples[h->count < HISTORY_SAMPLES ? 0 : h->next];
    out->at_us = oldest->at_us;
    for (size_t i = 0; i < oldest->rows.len; i++)
        if (vec_push(&out->rows, oldest->rows.items[i]))
            return -ENOMEM;
    return 0;
}

void history_free(struct history *h)
{
    if (!h)
        return;
    {
        SCOPED_LOCK(&h->lock);
        h->stopping = true;
        pthread_cond_broadcast(&h->ends);
    }
    if (h->running)
        pthread_join(h->thread, NULL);
    for (size_t i = 0; i < HISTORY_SAMPLES; i++)
        history_sample_release(&h->samples[i]);
    pthread_cond_destroy(&h->ends);
    pthread_mutex_destroy(&h->lock);
    free(h);
}

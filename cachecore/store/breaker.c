/* A circuit breaker that keeps the requests of many threads off a store that is down, without a prober thread.
 *
 *   closed   all operations ask. Failures in a row are counted; any answer ends the row
 *   open     after OPEN_FAILURES failures from at least OPEN_OPERATIONS operations. One operation asks, the others
 *            wait. A pause lies between two probes: PAUSE_FIRST_MS, doubling up to PAUSE_MOST_MS, half of it random
 *   closed   after the first answer, or its first bytes: all operations continue
 *
 * The numbers. 8 failures in a row: if three requests of ten fail by chance, that happens once in 15,000; if a store
 * is gone, the first 8 of 16 connections notice. 3 operations: an object that alone makes its server fail does not
 * open the breaker. 100 ms with jitter: about the pause of an operation that retries by itself. 5 s: the longest delay
 * until a store that is back is noticed.
 *
 * An operation that has not failed yet skips a grown pause and waits for the first one only: its object may be in a
 * part of the store that works. There are at most as many of these as connections, and none once all of them wait.
 *
 * Retry-After concerns only the operation that received it (store_retry): the others still ask a throttled store, one
 * at a time, and the first request that it accepts closes the breaker.
 *
 * Rows are numbered so that late results do no harm: a probe that ends after another answer has closed the breaker
 * belongs to an old row and changes nothing. */
#include "store/store_internal.h"

#include <errno.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/retry.h"
#include "base/thread.h"

/* See "The numbers" above. */
enum { OPEN_FAILURES = 8, OPEN_OPERATIONS = 3 };
enum { PAUSE_FIRST_MS = 100, PAUSE_MOST_MS = 5000 };
/* A waiting thread checks its cancel flag every STEP_MS. */
enum { STEP_MS = 200, TELL_EVERY_MS = 30000 };

void breaker_init(struct breaker *b, const char *name)
{
    *b = (struct breaker){.name = name, .row = 1};
    pthread_mutex_init(&b->lock, NULL);
    thread_cond_init(&b->changed);
}

void breaker_release(struct breaker *b)
{
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
}

/* Return when t's operation may probe, unless another one probes then. An operation that has not failed yet may probe
 * at its deadline at the latest; otherwise operations with short deadlines would all end without asking. */
static uint64_t turn_at_locked(const struct breaker *b, const struct breaker_turn *t, uint64_t deadline_ms)
{
    if (t->row == b->row)
        return b->probed_ms + b->pause_ms;
    return GR_MIN(b->probed_ms + GR_MIN(b->pause_ms, (uint64_t)PAUSE_FIRST_MS), deadline_ms);
}

/* Wait until something may have changed for t. In steps, because a cancel flag wakes no thread. */
static void wait_locked(struct breaker *b, const struct breaker_turn *t, uint64_t now, uint64_t deadline_ms)
{
    uint64_t until = GR_MIN(deadline_ms, now + STEP_MS);
    if (!b->probing)
        until = GR_MIN(until, turn_at_locked(b, t, deadline_ms));
    struct timespec at = clock_at_ms(GR_MAX(until, now + 1));
    b->waiting++;
    pthread_cond_timedwait(&b->changed, &b->lock, &at);
    b->waiting--;
}

/* Return rc with the sentence of the store's last failure. */
static int give_up_locked(const struct breaker *b, int rc)
{
    (void)error_restore(&b->last);
    return rc;
}

/* The check without the lock may miss a failure that was just counted. That costs one more request. */
int breaker_wait(struct breaker *b, struct breaker_turn *t, uint64_t deadline_ms, const volatile int *cancel)
{
    if (!atomic_load(&b->troubled))
        return 0;
    SCOPED_LOCK(&b->lock);
    while (b->open) {
        uint64_t now = clock_now_ms();
        if (cancel_asked(cancel))
            return give_up_locked(b, -ECANCELED);
        if (!b->probing && now >= turn_at_locked(b, t, deadline_ms)) {
            b->probing = true;
            t->probe = b->row;
            counter_add(&b->probes, 1);
            return 0;
        }
        if (now >= deadline_ms)
            return give_up_locked(b, -ETIMEDOUT);
        wait_locked(b, t, now, deadline_ms);
    }
    return 0;
}

/* End t's probe. Return whether t was the current row's probe; it is not if another answer has ended the row. */
static bool end_probe_locked(struct breaker *b, struct breaker_turn *t)
{
    bool probed = t->probe == b->row;
    t->probe = 0;
    if (probed)
        b->probing = false;
    return probed;
}

/* Any answer closes the breaker, not only the probe's: it shows that the store works. The log is written without the
 * lock. */
void breaker_answered(struct breaker *b, struct breaker_turn *t)
{
    bool tell;
    double seconds;
    if (!atomic_load(&b->troubled))
        return;
    {
        SCOPED_LOCK(&b->lock);
        t->probe = 0;
        tell = b->open && b->reported;
        seconds = (double)(clock_now_ms() - b->since_ms) / 1000;
        b->open = b->reported = b->probing = false;
        b->failures = b->operations = 0;
        b->row++;
        atomic_store(&b->troubled, false);
        pthread_cond_broadcast(&b->changed);
    }
    if (tell)
        log_warning("store %s answers again, after %.1f s", b->name, seconds);
}

void breaker_withdraw(struct breaker *b, struct breaker_turn *t)
{
    if (!atomic_load(&b->troubled))
        return;
    SCOPED_LOCK(&b->lock);
    if (end_probe_locked(b, t))
        pthread_cond_broadcast(&b->changed);
}

/* Open the breaker. Return whether to log it: a store that fails on and off must not fill the log. */
static bool open_locked(struct breaker *b, uint64_t now)
{
    b->open = true;
    b->pause_ms = PAUSE_FIRST_MS / 2 + retry_jitter(PAUSE_FIRST_MS / 2);
    b->probed_ms = now;
    counter_add(&b->opens, 1);
    b->reported = !b->reported_ms || now - b->reported_ms >= TELL_EVERY_MS;
    if (b->reported)
        b->reported_ms = now;
    return b->reported;
}

/* Add a failure to the row; an operation counts once in each row. */
static void count_failure_locked(struct breaker *b, struct breaker_turn *t, int code, uint64_t now)
{
    if (!b->failures)
        b->since_ms = now;
    b->failed_ms = now;
    b->failures++;
    b->operations += t->row != b->row;
    t->row = b->row;
    error_take(&b->last, code);
    atomic_store(&b->troubled, true);
}

bool breaker_failed(struct breaker *b, struct breaker_turn *t, int code)
{
    bool open, tell = false;
    {
        SCOPED_LOCK(&b->lock);
        uint64_t now = clock_now_ms();
        count_failure_locked(b, t, code, now);
        /* While open, only the probe moves the pause: requests sent before the opening may still fail late. */
        if (!b->open && b->failures >= OPEN_FAILURES && b->operations >= OPEN_OPERATIONS) {
            tell = open_locked(b, now);
        } else if (end_probe_locked(b, t)) {
            /* The probe failed: half of the doubled pause is certain, half random. */
            uint64_t half = GR_MIN(2 * b->pause_ms, (uint64_t)PAUSE_MOST_MS) / 2;
            b->pause_ms = half + retry_jitter(half);
            b->probed_ms = now;
        }
        open = b->open;
        pthread_cond_broadcast(&b->changed);
    }
    if (tell)
        log_warning("%.400s; until store %s answers, one request at a time probes it", error_text(), b->name);
    return open;
}

/* Count a refused object, unless it has been counted. */
static void count_refused_locked(struct breaker *b, uint32_t object)
{
    for (unsigned i = 0; i < b->refusals; i++)
        if (b->refused[i] == object)
            return;
    if (b->refusals < STORE_REFUSED_MAX)
        b->refused[b->refusals++] = object;
}

void breaker_refused(struct breaker *b, const char *key, int code)
{
    SCOPED_LOCK(&b->lock);
    b->refused_ms = clock_now_ms();
    if (!b->refusals)
        b->refused_since_ms = b->refused_ms;
    count_refused_locked(b, crc32c(key, strlen(key)));
    error_take(&b->refusal, code);
    atomic_store(&b->refusing, true);
}

void breaker_accepted(struct breaker *b)
{
    if (!atomic_load(&b->refusing))
        return;
    SCOPED_LOCK(&b->lock);
    b->refusals = 0;
    atomic_store(&b->refusing, false);
}

void breaker_look(struct breaker *b, struct store_health *out)
{
    SCOPED_LOCK(&b->lock);
    *out = (struct store_health){
        .silent = b->open, .failures = b->failures, .refusals = b->refusals, .waiting = b->waiting};
    uint64_t now = clock_now_ms();
    if (b->failures) {
        out->failing_ms = now - b->since_ms;
        out->failed_ms = now - b->failed_ms;
        memcpy(out->last, b->last.text, sizeof out->last);
    }
    if (b->refusals) {
        out->refusing_ms = now - b->refused_since_ms;
        out->refused_ms = now - b->refused_ms;
        out->refusal_code = b->refusal.code;
        memcpy(out->refusal, b->refusal.text, sizeof out->refusal);
    }
}

void breaker_counters(struct breaker *b, counter_visit *visit, void *arg)
{
    struct store_health now;
    breaker_look(b, &now);
    const struct counter_row rows[] = {
        {"granary_store_breaker_open", "Stores that do not answer now: one request at a time probes each", now.silent},
        {"granary_store_breaker_waiting", "Operations that wait while another one probes their store", now.waiting},
        {"granary_store_breaker_opens_total", "Times a store was found not to answer", counter_get(&b->opens)},
        {"granary_store_breaker_probes_total", "Probes of a store that did not answer", counter_get(&b->probes)},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
}

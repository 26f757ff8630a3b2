/* The states:
 *
 *   closed   everybody asks. Failures in a row are counted; any answer ends the row
 *   open     OPEN_FAILURES failures of OPEN_OPERATIONS operations: one asks, the others wait. Between two probes lies
 *            a pause, at first PAUSE_FIRST_MS, doubling up to PAUSE_MOST_MS, of which a random half is taken
 *   closed   by the first answer, or its first bytes: all go on
 *
 * The numbers. 8 in a row: where three requests of ten fail by chance that happens once in 15,000, where a store is
 * gone the first 8 of 16 connections tell. 3 operations: an object that alone makes its server fail stops nobody. 100
 * ms and the jitter: about what an operation waits that retries for itself. 5 s: how late a store is noticed that is
 * back.
 *
 * An operation that has not failed yet need not wait out a grown pause, only the first one: its object may be elsewhere
 * in the store, where all is well. There are no more such operations than connections, and none while those all wait.
 *
 * Retry-After stays the operation's own (store_retry): a throttled store is asked by the others, one at a time, and the
 * first request that it takes ends the waiting.
 */
#include "store/breaker.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"

enum { OPEN_FAILURES = 8, OPEN_OPERATIONS = 3 };
enum { PAUSE_FIRST_MS = 100, PAUSE_MOST_MS = 5000 };
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

uint64_t breaker_jitter(uint64_t most)
{
    uint32_t random = 0;
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint32_t)clock_now_us() * 2654435761u;
    return random % (most + 1);
}

/* When t's operation may probe, if nobody else does then: an operation that has not failed at its deadline at the
 * latest, so that short deadlines do not keep all of them from asking. */
static uint64_t turn_at_locked(const struct breaker *b, const struct breaker_turn *t, uint64_t deadline_ms)
{
    if (t->row == b->row)
        return b->probed_ms + b->pause_ms;
    return GR_MIN(b->probed_ms + GR_MIN(b->pause_ms, (uint64_t)PAUSE_FIRST_MS), deadline_ms);
}

/* Until something may have changed for t: in steps, since cancel tells nobody. */
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

static int give_up_locked(const struct breaker *b, int rc)
{
    (void)error_restore(&b->last);
    return rc;
}

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

/* Returns whether t probed: not when another's answer has ended the row meanwhile. */
static bool end_probe_locked(struct breaker *b, struct breaker_turn *t)
{
    bool probed = t->probe == b->row;
    t->probe = 0;
    if (probed)
        b->probing = false;
    return probed;
}

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

/* Returns whether to log the opening: a store that comes and goes fills no log. */
static bool open_locked(struct breaker *b, uint64_t now)
{
    b->open = true;
    b->pause_ms = PAUSE_FIRST_MS / 2 + breaker_jitter(PAUSE_FIRST_MS / 2);
    b->probed_ms = now;
    counter_add(&b->opens, 1);
    b->reported = !b->reported_ms || now - b->reported_ms >= TELL_EVERY_MS;
    if (b->reported)
        b->reported_ms = now;
    return b->reported;
}

static void count_failure_locked(struct breaker *b, struct breaker_turn *t, int code, uint64_t now)
{
    if (!b->failures)
        b->since_ms = now;
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
        if (!b->open && b->failures >= OPEN_FAILURES && b->operations >= OPEN_OPERATIONS) {
            tell = open_locked(b, now);
        } else if (end_probe_locked(b, t)) {
            uint64_t half = GR_MIN(2 * b->pause_ms, (uint64_t)PAUSE_MOST_MS) / 2;
            b->pause_ms = half + breaker_jitter(half);
            b->probed_ms = now;
        }
        open = b->open;
        pthread_cond_broadcast(&b->changed);
    }
    if (tell)
        log_warning("%.400s; until store %s answers, it is asked by one request at a time", error_text(), b->name);
    return open;
}

void breaker_look(struct breaker *b, struct store_health *out)
{
    SCOPED_LOCK(&b->lock);
    *out = (struct store_health){.silent = b->open, .failures = b->failures, .waiting = b->waiting};
    if (!b->failures)
        return;
    out->failing_ms = clock_now_ms() - b->since_ms;
    memcpy(out->last, b->last.text, sizeof out->last);
}

void breaker_counters(struct breaker *b, counter_visit *visit, void *arg)
{
    struct store_health now;
    breaker_look(b, &now);
    const struct counter_row rows[] = {
        {"granary_store_breaker_open", "Stores that do not answer now: one request at a time asks them", now.silent},
        {"granary_store_breaker_waiting", "Operations that wait for a store to answer another one", now.waiting},
        {"granary_store_breaker_opens_total", "Times a store was found not to answer", counter_get(&b->opens)},
        {"granary_store_breaker_probes_total", "Tries that asked a store that did not answer", counter_get(&b->probes)},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        visit(arg, &rows[i]);
}

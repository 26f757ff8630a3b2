/* A store that repeats what failed with -EAGAIN or -ETIMEDOUT.
 *
 * Every operation runs in one `struct attempt`: try, and while the failure is of the retryable kind
 * and the deadline is ahead, sleep a random time between 0 and a bound that doubles (full jitter:
 * many clients that failed together do not come back together) and try again. A server that says for how long it wants
 * to be left alone (Retry-After) is left alone for so long, and the random time. What the caller's own sink or visitor
 * returns is never taken for a failure of the store.
 *
 * That is what an operation does by itself. When the store answers nobody, the breaker lets one at a time ask it, and
 * the others wait in attempt_next until it is answered, or for their own deadline (breaker.c).
 *
 * Operations with side effects towards the caller go on where they stopped: a get behind the bytes
 * already handed on, a listing behind the last key visited. No state is shared between operations
 * but the breaker and the counters.
 */
#include "store/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "store/breaker.h"

enum {
    BACKOFF_FIRST_MS = 50,
    BACKOFF_MOST_MS = 10000,
    RETRY_AFTER_MOST_S = 60,
    WARN_AFTER_MS = 3000,
    WARN_EVERY_MS = 30000
};

struct store_retry {
    struct store base;
    struct store *inner;
    uint64_t timeout_ms;
    const volatile int *cancel;
    struct breaker breaker;
    counter gets, got_bytes;    /* tries of gets, and what they brought */
    counter retries;            /* tries behind the first one */
    counter exhausted;          /* operations given up at the deadline */
    _Atomic uint64_t warned_ms; /* when the log last heard of trouble; 0: never */
};

struct attempt {
    struct store_retry *r;
    struct breaker_turn turn;
    uint64_t begin_ms, deadline_ms;
    unsigned tries; /* that failed */
    bool begun;     /* there was a try */
    bool answered;  /* this one has brought something */
    bool over;      /* whatever this one returns is final */
};

static struct attempt attempt_begin(struct store *s)
{
    struct store_retry *r = (struct store_retry *)s;
    uint64_t now = clock_now_ms();
    return (struct attempt){.r = r, .begin_ms = now, .deadline_ms = now + r->timeout_ms};
}

static uint64_t jittered(unsigned tries)
{
    uint64_t bound = BACKOFF_MOST_MS;
    if (tries < 8)
        bound = GR_MIN(bound, (uint64_t)BACKOFF_FIRST_MS << tries);
    return breaker_jitter(bound);
}

/* Somebody who waits for long is told why, at most one line for all operations in WARN_EVERY_MS. */
static void warn_of_trouble(struct attempt *a, uint64_t now)
{
    uint64_t last = atomic_load(&a->r->warned_ms);
    if (now - a->begin_ms < WARN_AFTER_MS || (last && now - last < WARN_EVERY_MS))
        return;
    if (atomic_compare_exchange_strong(&a->r->warned_ms, &last, now))
        log_warning("%.400s; trying again for up to %llu s", error_text(), (unsigned long long)a->r->timeout_ms / 1000);
}

/* At the deadline the thread's sentence gets the length of the trying. */
static int attempt_exhausted(struct attempt *a, int rc)
{
    counter_add(&a->r->exhausted, 1);
    return error_set(rc, "%.400s (gave up after %u tries in %.1f s)", error_text(), a->tries,
                     (double)(clock_now_ms() - a->begin_ms) / 1000);
}

static int attempt_interrupted(void)
{
    return error_set(-ECANCELED, "interrupted while waiting for the store: %.400s", error_text());
}

/* After a passing failure rc: the pause before the next try, which the breaker makes where it is open. False: *rc is
 * final. */
static bool attempt_pause(struct attempt *a, int *rc)
{
    if (cancel_asked(a->r->cancel)) { /* which may be all that has failed */
        breaker_withdraw(&a->r->breaker, &a->turn);
        *rc = attempt_interrupted();
        return false;
    }
    uint64_t asked_ms = 1000u * GR_MIN(error_retry_after_s(), (unsigned)RETRY_AFTER_MOST_S);
    uint64_t now = clock_now_ms(), deadline = a->deadline_ms;
    bool open = breaker_failed(&a->r->breaker, &a->turn, *rc);
    a->tries++;
    if (now >= deadline) {
        *rc = attempt_exhausted(a, *rc);
        return false;
    }
    warn_of_trouble(a, now);
    uint64_t again = now + asked_ms + (open ? 0 : jittered(a->tries - 1));
    again = GR_MIN(again, deadline);
    cancel_sleep_until(again * 1000, a->r->cancel);
    if (!cancel_asked(a->r->cancel))
        return true;
    *rc = attempt_interrupted();
    return false;
}

/* Wait for the breaker; false: not to be tried, *rc says why. The last failure is this operation's own where it has had
 * one, else that of whoever asked. */
static bool attempt_enter(struct attempt *a, int *rc)
{
    struct error own;
    error_take(&own, *rc);
    int turn = breaker_wait(&a->r->breaker, &a->turn, a->deadline_ms, a->r->cancel);
    if (!turn) {
        if (a->begun)
            counter_add(&a->r->retries, 1);
        a->begun = true;
        a->answered = false;
        return true;
    }
    int code = a->begun ? error_restore(&own) : -ETIMEDOUT;
    *rc = turn == -ECANCELED ? attempt_interrupted() : attempt_exhausted(a, code);
    return false;
}

/* The store has said something in this try, which may still break. */
static void attempt_answered(struct attempt *a)
{
    if (!a->answered)
        breaker_answered(&a->r->breaker, &a->turn);
    a->answered = true;
}

/* It failed for want of something here: the store has said nothing. */
static bool is_local(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* Before every try, the first one too: whether to make it. *rc: what the last one returned, or the result. */
static bool attempt_next(struct attempt *a, int *rc)
{
    bool passing = a->begun && !a->over && (*rc == -EAGAIN || *rc == -ETIMEDOUT);
    if (a->begun && !passing) {
        if (is_local(*rc) && !a->answered)
            breaker_withdraw(&a->r->breaker, &a->turn);
        else
            attempt_answered(a);
        return false;
    }
    if (passing && !attempt_pause(a, rc))
        return false;
    return attempt_enter(a, rc);
}

struct resuming_get {
    struct attempt *a;
    struct store_resume resume;
};

static int get_on(void *arg, const void *data, size_t len)
{
    struct resuming_get *g = arg;
    attempt_answered(g->a);
    counter_add(&g->a->r->got_bytes, len);
    return store_pass_on(&g->resume, data, len);
}

static int retry_get_until(struct store *s, const char *key, uint64_t off, uint64_t len, struct store_errand *errand,
                           store_sink *sink, void *arg)
{
    struct attempt a = attempt_begin(s);
    a.deadline_ms = GR_MIN(a.deadline_ms, errand->deadline_ms);
    struct resuming_get g = {.a = &a, .resume = {.sink = sink, .arg = arg}};
    struct store_resume *rs = &g.resume;
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        counter_add(&a.r->gets, 1);
        rc = store_get_until(a.r->inner, key, off + rs->done, len - rs->done, errand, get_on, &g);
        if (rc && rs->done == len && !rs->stopped && len)
            rc = 0; /* all bytes came; what broke afterwards is nobody's loss */
        a.over = rs->stopped;
    }
    return rc;
}

static int retry_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct store_errand errand = {.deadline_ms = UINT64_MAX};
    return retry_get_until(s, key, off, len, &errand, sink, arg);
}

static int retry_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct attempt a = attempt_begin(s);
    size_t before = out->len;
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        out->len = before;
        rc = store_get_small(a.r->inner, key, out, version);
    }
    return rc;
}

struct comparison {
    const uint8_t *expected;
    bool differs;
};

static int compare(void *arg, const void *data, size_t len)
{
    struct comparison *c = arg;
    c->differs = memcmp(c->expected, data, len) != 0;
    c->expected += len;
    return c->differs ? -ECANCELED : 0;
}

/* A condition failed on a later try: perhaps the first try's put arrived and only its answer was
 * lost. 0: these bytes stand there. */
static int settle_existing(struct store *inner, const struct store_put *put)
{
    struct store_item item;
    struct error refused;
    error_take(&refused, -EEXIST);
    int rc = store_stat(inner, put->key, &item);
    if (rc == -ENOENT || (!rc && item.size != put->len))
        return error_restore(&refused);
    struct comparison c = {.expected = put->data};
    if (!rc && put->len)
        rc = store_get(inner, put->key, 0, put->len, compare, &c);
    if (c.differs || rc == -ENOENT || rc == -EBADMSG)
        return error_restore(&refused);
    return rc;
}

static int retry_put(struct store *s, const struct store_put *put)
{
    struct attempt a = attempt_begin(s);
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        rc = store_put(a.r->inner, put);
        if (rc == -EEXIST && a.tries)
            rc = settle_existing(a.r->inner, put);
    }
    return rc;
}

static int retry_stat(struct store *s, const char *key, struct store_item *out)
{
    struct attempt a = attempt_begin(s);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_stat(a.r->inner, key, out);
    return rc;
}

struct resuming_visit {
    struct attempt *a;
    store_visit *visit;
    void *arg;
    char last[STORE_KEY_MAX + 1]; /* visited; empty: none yet */
    bool stopped;
};

static int visit_on(void *arg, const struct store_item *item)
{
    struct resuming_visit *rv = arg;
    attempt_answered(rv->a);
    int rc = rv->visit(rv->arg, item);
    rv->stopped = rc != 0;
    snprintf(rv->last, sizeof rv->last, "%s", item->key);
    return rc;
}

static int retry_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct attempt a = attempt_begin(s);
    struct resuming_visit rv = {.a = &a, .visit = visit, .arg = arg};
    const struct store_ops *ops = a.r->inner->ops;
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        rc = rv.last[0] && ops->list_after ? ops->list_after(a.r->inner, prefix, rv.last, visit_on, &rv)
                                           : ops->list(a.r->inner, prefix, visit_on, &rv);
        a.over = rv.stopped || (rv.last[0] && !ops->list_after);
    }
    return rc;
}

static int retry_remove(struct store *s, const char *key)
{
    struct attempt a = attempt_begin(s);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_remove(a.r->inner, key);
    return rc;
}

static int retry_probe(struct store *s, bool *out)
{
    struct attempt a = attempt_begin(s);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_probe_conditional(a.r->inner, out);
    return rc;
}

static void retry_close(struct store *s)
{
    struct store_retry *r = (struct store_retry *)s;
    store_close(r->inner);
    breaker_release(&r->breaker);
    free(r);
}

static void retry_health(struct store *s, struct store_health *out)
{
    breaker_look(&((struct store_retry *)s)->breaker, out);
}

static void retry_counters(struct store *s, counter_visit *visit, void *arg)
{
    struct store_retry *r = (struct store_retry *)s;
    visit(arg, &(struct counter_row){"granary_store_gets_total", "Ranged gets sent to stores themselves, retries too",
                                     counter_get(&r->gets)});
    visit(arg, &(struct counter_row){"granary_store_get_bytes_total", "Bytes that stores themselves gave for them",
                                     counter_get(&r->got_bytes)});
    visit(arg, &(struct counter_row){"granary_store_retries_total",
                                     "Store operations tried again after a passing failure", counter_get(&r->retries)});
    visit(arg, &(struct counter_row){"granary_store_retries_exhausted_total",
                                     "Store operations given up at their deadline", counter_get(&r->exhausted)});
    breaker_counters(&r->breaker, visit, arg);
    store_counters(r->inner, visit, arg);
}

int store_retry_open(struct store *inner, uint64_t timeout_ms, const volatile int *cancel, struct store **out)
{
    static const struct store_ops ops = {
        .get = retry_get,
        .get_until = retry_get_until,
        .get_small = retry_get_small,
        .put = retry_put,
        .stat = retry_stat,
        .list = retry_list,
        .remove = retry_remove,
        .probe_conditional = retry_probe,
        .close = retry_close,
        .counters = retry_counters,
        .health = retry_health,
    };
    struct store_retry *r = calloc(1, sizeof *r);
    if (!r) {
        store_close(inner);
        return error_no_memory();
    }
    r->base = (struct store){.ops = &ops, .url = inner->url};
    r->inner = inner;
    r->timeout_ms = timeout_ms;
    r->cancel = cancel;
    breaker_init(&r->breaker, inner->url);
    *out = &r->base;
    return 0;
}

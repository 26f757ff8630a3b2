/* The layer that retries what failed with -EAGAIN or -ETIMEDOUT.
 *
 * Every operation is one `struct attempt` and a loop:
 *
 *   while (attempt_next(&a, &rc))     pauses, waits for the breaker; false: rc is the result
 *       rc = one try of the operation
 *
 * After a passing failure, and before the deadline, the thread sleeps for a random time between 0 and a bound that
 * doubles. This is full jitter: clients that failed together do not return together
 * (https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/). A server that names a time to stay away
 * (Retry-After) is left alone for that time plus the random one. Errors that the caller's own sink or visitor returns
 * are final.
 *
 * That is how one operation behaves. When the store answers none of them, the breaker lets one operation at a time
 * ask, and the others wait in attempt_next until that one is answered or their own deadline passes (breaker.c).
 *
 * A get that another store may have as well (request_context.meanwhile) is asked of that one every ELSEWHERE_MS, while
 * this one does not answer, as long as nothing of it has arrived.
 *
 * Operations with effects on the caller continue where they stopped: a get after the bytes already passed on, a
 * listing after the last key visited. Operations share no state but the breaker and the counters. */
#include "store/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/retry.h"

enum {
    BACKOFF_FIRST_MS = 50, /* bound of the first sleep */
    BACKOFF_MOST_MS = 10000,
    ELSEWHERE_MS = 500,
};

/* The layer. inner (owned), timeout and cancel are constant; the breaker has its own lock; the rest is atomic. */
struct store_retry {
    struct store base;
    struct store *inner;
    uint64_t timeout_ms;
    const volatile int *cancel;
    struct breaker breaker;
    counter gets, got_bytes;    /* tries of gets, and the bytes that they brought */
    counter retries;            /* tries after an operation's first */
    counter exhausted;          /* operations that failed at their deadline */
    _Atomic uint64_t warned_ms; /* of retry_warn */
};

/* One operation, from its first try to its result; on the stack of its thread. */
struct attempt {
    struct store_retry *r;
    const char *key; /* the object, or a listing's prefix */
    struct breaker_turn turn;
    uint64_t begin_ms, deadline_ms; /* on clock_now_ms */
    unsigned tries;                 /* tries that failed */
    bool begun;                     /* at least one try was made */
    bool answered;                  /* the current try has received something from the store */
    bool over;                      /* whatever the current try returns is final */
    struct resuming_get *elsewhere; /* the get, if another store may have its range; else NULL */
    uint64_t elsewhere_ms;          /* when that one is asked next, on clock_now_ms */
};

/* A get that may take several tries. */
struct resuming_get {
    struct attempt *a;
    uint64_t off, len;
    struct request_context *context;
    struct store_resume resume;
};

static struct attempt attempt_begin(struct store *s, const char *key)
{
    struct store_retry *r = (struct store_retry *)s;
    uint64_t now = clock_now_ms();
    return (struct attempt){.r = r, .key = key, .begin_ms = now, .deadline_ms = now + r->timeout_ms};
}

/* Return a random pause after `tries` earlier failures: full jitter under a bound that doubles. */
static uint64_t jittered(unsigned tries)
{
    uint64_t bound = BACKOFF_MOST_MS;
    if (tries < 8)
        bound = GR_MIN(bound, (uint64_t)BACKOFF_FIRST_MS << tries);
    return retry_jitter(bound);
}

/* Return rc, and append the number of tries and their time to the thread's sentence. */
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

/* When the other store is asked, or UINT64_MAX: not at all. Shortly before the deadline it is not: the time left is for
 * this store's last try. */
static uint64_t elsewhere_at(const struct attempt *a)
{
    bool may = a->elsewhere && !a->elsewhere->resume.done && a->elsewhere_ms + ELSEWHERE_MS <= a->deadline_ms;
    return may ? a->elsewhere_ms : UINT64_MAX;
}

/* Ask the other store. True: *rc is the operation's result. The sentence of this store's failure stays otherwise. */
static bool ask_elsewhere(struct attempt *a, int *rc)
{
    struct resuming_get *g = a->elsewhere;
    struct error own;
    error_take(&own, *rc);
    int other = store_get_until(g->context->meanwhile, a->key, g->off, g->len, g->context, store_pass_on, &g->resume);
    a->elsewhere_ms = clock_now_ms() + ELSEWHERE_MS;
    if (!other || g->resume.stopped) {
        *rc = other;
        return true;
    }
    (void)error_restore(&own);
    return false;
}

/* Sleep until until_ms, or until the other store has answered. False: it has, and *rc is the operation's result. */
static bool attempt_sleep(struct attempt *a, uint64_t until_ms, int *rc)
{
    for (uint64_t at; (at = elsewhere_at(a)) < until_ms;) {
        cancel_sleep_until(at * 1000, a->r->cancel);
        if (cancel_asked(a->r->cancel))
            return true;
        if (ask_elsewhere(a, rc))
            return false;
    }
    cancel_sleep_until(until_ms * 1000, a->r->cancel);
    return true;
}

/* Pause after the passing failure *rc. While the breaker is open it times the tries instead, so the jitter is left
 * out. Return false if no further try may follow; *rc is then the result. */
static bool attempt_pause(struct attempt *a, int *rc)
{
    /* The interrupt itself may have failed the try, so the try says nothing about the store. */
    if (cancel_asked(a->r->cancel)) {
        breaker_withdraw(&a->r->breaker, &a->turn);
        *rc = attempt_interrupted();
        return false;
    }
    uint64_t asked_ms = retry_asked_ms();
    uint64_t now = clock_now_ms(), deadline = a->deadline_ms;
    bool open = breaker_failed(&a->r->breaker, &a->turn, *rc);
    a->tries++;
    if (now >= deadline) {
        *rc = attempt_exhausted(a, *rc);
        return false;
    }
    retry_warn(&a->r->warned_ms, a->begin_ms, a->r->timeout_ms, "");
    uint64_t again = now + asked_ms + (open ? 0 : jittered(a->tries - 1));
    /* Sleep no longer than the deadline: the last try happens there. */
    again = GR_MIN(again, deadline);
    if (!attempt_sleep(a, again, rc))
        return false;
    if (!cancel_asked(a->r->cancel))
        return true;
    *rc = attempt_interrupted();
    return false;
}

/* Wait for the breaker, and ask the other store meanwhile. As breaker_wait; 1: *rc is the operation's result. */
static int attempt_wait(struct attempt *a, int *rc)
{
    for (;;) {
        uint64_t at = elsewhere_at(a);
        int turn = breaker_wait(&a->r->breaker, &a->turn, GR_MIN(at, a->deadline_ms), a->r->cancel);
        if (turn != -ETIMEDOUT || at >= a->deadline_ms)
            return turn;
        if (ask_elsewhere(a, rc))
            return 1;
    }
}

/* Wait until the breaker admits a try. Return false if it did not; *rc is then the result, with the sentence of this
 * operation's own last failure, or if there was none, with that of the operation that asked last. */
static bool attempt_enter(struct attempt *a, int *rc)
{
    struct error own;
    error_take(&own, *rc);
    int turn = attempt_wait(a, rc);
    if (turn > 0)
        return false;
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

/* Tell the breaker, once for each try, that the store has answered something. The try itself may still fail. */
static void attempt_answered(struct attempt *a)
{
    if (!a->answered)
        breaker_answered(&a->r->breaker, &a->turn);
    a->answered = true;
}

/* Did the try fail for lack of a local resource, before the store could answer? */
static bool is_local(int rc)
{
    return rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

/* Would this failure likely hit the next operation as well? The conditions of a put (-EEXIST, -ESTALE), a document that
 * is too long and an interrupt would not. */
static bool is_refusal(int rc)
{
    return rc && !error_of_one_thing(rc) && rc != -EEXIST && rc != -ESTALE && rc != -EMSGSIZE && rc != -ECANCELED;
}

/* Tell the breaker an operation's final result, which counts as an answer of the store, except for a local failure:
 * -ENOENT shows that a store works. What the caller's sink said about bytes (a->over) is no refusal of the store. */
static void attempt_ended(struct attempt *a, int rc)
{
    if (is_local(rc)) {
        if (!a->answered)
            breaker_withdraw(&a->r->breaker, &a->turn);
        return;
    }
    attempt_answered(a);
    if (is_refusal(rc) && !a->over)
        breaker_refused(&a->r->breaker, a->key, rc);
    else
        breaker_accepted(&a->r->breaker);
}

/* Called before every try, the first included: return whether to make it. *rc is the last try's result on entry, and
 * the operation's result when this returns false. */
static bool attempt_next(struct attempt *a, int *rc)
{
    bool passing = a->begun && !a->over && (*rc == -EAGAIN || *rc == -ETIMEDOUT);
    if (a->begun && !passing) {
        attempt_ended(a, *rc);
        return false;
    }
    if (passing && !attempt_pause(a, rc))
        return false;
    return attempt_enter(a, rc);
}

/* The sink for the lower store: the first bytes already show the breaker that the store answers. */
static int get_on(void *arg, const void *data, size_t len)
{
    struct resuming_get *g = arg;
    attempt_answered(g->a);
    counter_add(&g->a->r->got_bytes, len);
    return store_pass_on(&g->resume, data, len);
}

static int retry_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                     store_sink *sink, void *arg)
{
    struct attempt a = attempt_begin(s, key);
    a.deadline_ms = GR_MIN(a.deadline_ms, context->deadline_ms);
    struct resuming_get g = {.a = &a, .off = off, .len = len, .context = context, .resume = {.sink = sink, .arg = arg}};
    struct store_resume *rs = &g.resume;
    a.elsewhere = context->meanwhile ? &g : NULL;
    a.elsewhere_ms = a.begin_ms + ELSEWHERE_MS;
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        counter_add(&a.r->gets, 1);
        rc = store_get_until(a.r->inner, key, off + rs->done, len - rs->done, context, get_on, &g);
        if (rc && rs->done == len && !rs->stopped)
            rc = 0; /* all bytes arrived; a failure after them does not matter */
        a.over = rs->stopped;
    }
    return rc;
}

static int retry_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct attempt a = attempt_begin(s, key);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_get_small(a.r->inner, key, out, version);
    return rc;
}

/* An object's bytes on their way past the expected ones. */
struct comparison {
    const uint8_t *expected;
    bool differs;
};

static int compare_piece(void *arg, const void *data, size_t len)
{
    struct comparison *c = arg;
    c->differs = memcmp(c->expected, data, len) != 0;
    c->expected += len;
    return c->differs ? -ECANCELED : 0;
}

/* Decide about a condition that failed on a later try: the first try's put may have arrived, and only its answer was
 * lost. Return 0 if the object holds exactly these bytes, -EEXIST if it does not, or the error of looking. */
static int complete_existing(struct store *inner, const struct store_put *put)
{
    struct store_item item;
    struct error refused;
    error_take(&refused, -EEXIST);
    int rc = store_stat(inner, put->key, &item);
    if (rc == -ENOENT || (!rc && item.size != put->len))
        return error_restore(&refused);
    struct comparison c = {.expected = put->data};
    if (!rc && put->len)
        rc = store_get(inner, put->key, 0, put->len, compare_piece, &c);
    if (c.differs || rc == -ENOENT || rc == -EBADMSG)
        return error_restore(&refused);
    return rc;
}

static int retry_put(struct store *s, const struct store_put *put)
{
    struct attempt a = attempt_begin(s, put->key);
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        rc = store_put(a.r->inner, put);
        /* On the first try the refusal is true. */
        if (rc == -EEXIST && a.tries)
            rc = complete_existing(a.r->inner, put);
    }
    return rc;
}

static int retry_stat(struct store *s, const char *key, struct store_item *out)
{
    struct attempt a = attempt_begin(s, key);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_stat(a.r->inner, key, out);
    return rc;
}

/* A listing that may take several tries. */
struct resuming_visit {
    struct attempt *a;
    store_visit *visit;
    void *arg;
    char last[STORE_KEY_MAX + 1]; /* the last key visited; empty: none yet */
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
    struct attempt a = attempt_begin(s, prefix);
    struct resuming_visit rv = {.a = &a, .visit = visit, .arg = arg};
    bool resumes = store_lists_after(a.r->inner);
    int rc = 0;
    while (attempt_next(&a, &rc)) {
        rc = rv.last[0] && resumes ? store_list_after(a.r->inner, prefix, rv.last, visit_on, &rv)
                                   : store_list(a.r->inner, prefix, visit_on, &rv);
        /* A store that cannot resume would visit keys again, so a failure after the first key is final. */
        a.over = rv.stopped || (rv.last[0] && !resumes);
    }
    return rc;
}

static int retry_remove(struct store *s, const char *key)
{
    struct attempt a = attempt_begin(s, key);
    int rc = 0;
    while (attempt_next(&a, &rc))
        rc = store_remove(a.r->inner, key);
    return rc;
}

static int retry_probe(struct store *s, bool *out)
{
    struct attempt a = attempt_begin(s, "probe/");
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

/* Counted below the shared cache proxies, so these are the requests that reach the store itself. */
static void retry_counters(struct store *s, counter_visit *visit, void *arg)
{
    struct store_retry *r = (struct store_retry *)s;
    visit(arg,
          &(struct counter_row){"granary_store_gets_total",
                                "Ranged GETs sent to the stores themselves, retries included", counter_get(&r->gets)});
    visit(arg, &(struct counter_row){"granary_store_get_bytes_total",
                                     "Bytes received from the stores themselves for ranged GETs",
                                     counter_get(&r->got_bytes)});
    visit(arg,
          &(struct counter_row){"granary_store_retries_total", "Store operations tried again after a transient failure",
                                counter_get(&r->retries)});
    visit(arg, &(struct counter_row){"granary_store_retries_exhausted_total",
                                     "Store operations given up at their deadline", counter_get(&r->exhausted)});
    breaker_counters(&r->breaker, visit, arg);
    store_counters(r->inner, visit, arg);
}

int store_retry_open(struct store *inner, uint64_t timeout_ms, const volatile int *cancel, struct store **out)
{
    static const struct store_ops ops = {
        .get = retry_get,
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

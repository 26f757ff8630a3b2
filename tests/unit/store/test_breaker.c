/* A store that answers nobody is asked by one operation at a time, and by all again once it has answered something. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake/store_fake.h"
#include "store/store_internal.h"
#include "unit/counters.h"

enum { OPERATIONS = 16, LONG_MS = 120000, OPENING = 8 };

struct world {
    struct store_fake *fake;
    struct store *store;
    volatile int cancel;
    pthread_t threads[OPERATIONS];
    int results[OPERATIONS];
    char texts[OPERATIONS][ERROR_TEXT_MAX];
};

static void world_open(struct world *w, uint64_t timeout_ms)
{
    *w = (struct world){.fake = store_fake_new()};
    assert_int_equal(store_retry_open(store_fake_store(w->fake), timeout_ms, &w->cancel, &w->store), 0);
    store_fake_put(w->fake, "k", "0123", 4);
}

static void world_release(struct world *w)
{
    store_close(w->store);
    store_fake_free(w->fake);
}

#define WORLD(timeout_ms)                                                                                              \
    CLEANUP(world_release) struct world w;                                                                             \
    world_open(&w, timeout_ms)

static struct store_health health(struct world *w)
{
    struct store_health h;
    store_health(w->store, &h);
    return h;
}

static void wait_for_waiting(struct world *w, unsigned n)
{
    for (uint64_t since_ms = 0; health(w).waiting < n;)
        counter_pause(&since_ms, "operations that wait");
}

struct one {
    struct world *w;
    size_t i;
};

static int ignore(void *arg, const void *data, size_t len)
{
    return 0;
}

/* Reads and writes in turn: a build is no different. */
static int operate(struct world *w, size_t i)
{
    struct store_item item;
    char key[16];
    snprintf(key, sizeof key, "put%zu", i);
    switch (i % 3) {
    case 0:
        return store_stat(w->store, "k", &item);
    case 1:
        return store_put(w->store, &(struct store_put){.key = key, .data = "x", .len = 1});
    default:
        return store_get(w->store, "k", 0, 4, ignore, NULL);
    }
}

static void *run(void *arg)
{
    struct one one = *(struct one *)arg;
    free(arg);
    one.w->results[one.i] = operate(one.w, one.i);
    snprintf(one.w->texts[one.i], sizeof one.w->texts[0], "%s", error_text());
    return NULL;
}

static void start(struct world *w, size_t i)
{
    struct one *one = malloc(sizeof *one);
    assert_non_null(one);
    *one = (struct one){w, i};
    assert_int_equal(pthread_create(&w->threads[i], NULL, run, one), 0);
}

static void join(struct world *w, size_t i)
{
    assert_int_equal(pthread_join(w->threads[i], NULL), 0);
}

/* All of them fail at once; afterwards every one waits, and between their waits they probe. None is in the store still:
 * at one moment all of them wait. */
static void open_by_all(struct world *w)
{
    store_fake_set_dead(w->fake, -EAGAIN);
    store_fake_hold(w->fake, FAKE_ANY);
    for (size_t i = 0; i < OPERATIONS; i++)
        start(w, i);
    store_fake_wait_held(w->fake, OPERATIONS);
    store_fake_release(w->fake);
    wait_for_waiting(w, OPERATIONS);
}

static void test_breaker__one_at_a_time_asks_and_an_answer_lets_all_go_on(void **state)
{
    WORLD(LONG_MS);
    open_by_all(&w);
    struct store_health now = health(&w);
    assert_true(now.silent && now.failed_ms <= now.failing_ms);
    assert_non_null(strstr(now.last, "injected fault"));
    assert_int_equal(counter_value(store_counters, w.store, "granary_store_breaker_open"), 1);
    store_fake_reset_counters(w.fake);
    for (uint64_t since_ms = 0; store_fake_calls(w.fake, FAKE_ANY) < 3;)
        counter_pause(&since_ms, "three probes");
    assert_int_equal(store_fake_peak(w.fake), 1);
    store_fake_set_dead(w.fake, 0);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_int_equal(w.results[i], 0);
    }
    assert_int_equal(store_fake_count(w.fake, "put"), OPERATIONS / 3);
    assert_false(health(&w).silent);
    assert_int_equal(health(&w).failures, 0);
    assert_int_equal(counter_value(store_counters, w.store, "granary_store_breaker_open"), 0);
    assert_int_equal(counter_value(store_counters, w.store, "granary_store_breaker_opens_total"), 1);
    assert_true(counter_value(store_counters, w.store, "granary_store_breaker_probes_total") >= 3);
}

static void test_breaker__everybody_gives_up_at_his_own_deadline(void **state)
{
    WORLD(100);
    store_fake_set_dead(w.fake, -EAGAIN);
    for (size_t i = 0; i < OPERATIONS; i++)
        start(&w, i);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_true(w.results[i] == -EAGAIN || w.results[i] == -ETIMEDOUT);
        assert_non_null(strstr(w.texts[i], "injected fault"));
        assert_non_null(strstr(w.texts[i], "(gave up after "));
    }
    assert_int_equal(counter_value(store_counters, w.store, "granary_store_retries_exhausted_total"), OPERATIONS);
}

static void test_breaker__who_waits_ends_when_cancelled(void **state)
{
    WORLD(LONG_MS);
    open_by_all(&w);
    __atomic_store_n(&w.cancel, 1, __ATOMIC_RELAXED);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_int_equal(w.results[i], -ECANCELED);
        assert_non_null(strstr(w.texts[i], "interrupted while waiting for the store: "));
    }
}

static void test_breaker__a_refusal_is_an_answer(void **state)
{
    WORLD(LONG_MS);
    open_by_all(&w);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_ANY, .code = -ENOENT});
    store_fake_set_dead(w.fake, 0);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_int_equal(w.results[i], -ENOENT);
    }
    assert_false(health(&w).silent);
}

/* The first bytes of a long answer are enough: the others do not wait for its end. */
struct slow_sink {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool entered, leave;
};

static int take_slowly(void *arg, const void *data, size_t len)
{
    struct slow_sink *s = arg;
    SCOPED_LOCK(&s->lock);
    s->entered = true;
    pthread_cond_broadcast(&s->changed);
    while (!s->leave)
        pthread_cond_wait(&s->changed, &s->lock);
    return 0;
}

struct slow_get {
    struct world *w;
    struct slow_sink sink;
    int rc;
};

static void *get_slowly(void *arg)
{
    struct slow_get *g = arg;
    g->rc = store_get(g->w->store, "slow", 0, 4, take_slowly, &g->sink);
    return NULL;
}

static void test_breaker__the_first_bytes_of_a_probe_let_the_others_go_on(void **state)
{
    WORLD(LONG_MS);
    struct slow_get g = {.w = &w, .sink = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false}};
    pthread_t thread;
    store_fake_put(w.fake, "slow", "0123", 4);
    open_by_all(&w);
    /* only "slow" is there, so it is the slow get that ends it */
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_ANY, .key_prefix = "k", .code = -EAGAIN});
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_ANY, .key_prefix = "put", .code = -EAGAIN});
    store_fake_set_dead(w.fake, 0);
    assert_int_equal(pthread_create(&thread, NULL, get_slowly, &g), 0);
    {
        SCOPED_LOCK(&g.sink.lock);
        while (!g.sink.entered)
            pthread_cond_wait(&g.sink.changed, &g.sink.lock);
    }
    for (uint64_t since_ms = 0; counter_value(store_counters, w.store, "granary_store_breaker_opens_total") -
                                    counter_value(store_counters, w.store, "granary_store_breaker_open") !=
                                1;) /* the others go on and open it again: perhaps between the two looks */
        counter_pause(&since_ms, "the first bytes of a probe");
    store_fake_clear_faults(w.fake);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_int_equal(w.results[i], 0);
    }
    {
        SCOPED_LOCK(&g.sink.lock);
        g.sink.leave = true;
        pthread_cond_broadcast(&g.sink.changed);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(g.rc, 0);
}

/* A want of memory here says nothing of the store: what waits goes on waiting, and another operation asks. */
static void test_breaker__what_fails_here_is_no_answer(void **state)
{
    WORLD(LONG_MS);
    struct store_item item;
    open_by_all(&w);
    store_fake_put(w.fake, "here", "x", 1);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_STAT, .key_prefix = "here", .code = -ENOMEM});
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_ANY, .code = -EAGAIN});
    store_fake_set_dead(w.fake, 0);
    assert_int_equal(store_stat(w.store, "here", &item), -ENOMEM);
    assert_true(health(&w).silent);
    store_fake_reset_counters(w.fake);
    for (uint64_t since_ms = 0; store_fake_calls(w.fake, FAKE_ANY) < 2;)
        counter_pause(&since_ms, "two probes");
    store_fake_clear_faults(w.fake);
    for (size_t i = 0; i < OPERATIONS; i++) {
        join(&w, i);
        assert_int_equal(w.results[i], 0);
    }
}

/* ---- the breaker alone ---- */

static void fail_by(struct breaker *b, struct breaker_turn *t)
{
    (void)breaker_failed(b, t, error_set(-EAGAIN, "the store is away"));
}

static bool is_open(struct breaker *b)
{
    struct store_health h;
    breaker_look(b, &h);
    return h.silent;
}

static void test_breaker__an_object_that_fails_alone_stops_nobody(void **state)
{
    CLEANUP(breaker_release) struct breaker b;
    struct breaker_turn bad[2] = {0}, other = {0};
    breaker_init(&b, "s");
    for (int i = 0; i < 100; i++)
        fail_by(&b, &bad[i & 1]);
    assert_false(is_open(&b));
    fail_by(&b, &other); /* a third operation */
    assert_true(is_open(&b));
}

static void test_breaker__answers_in_between_keep_it_closed(void **state)
{
    CLEANUP(breaker_release) struct breaker b;
    breaker_init(&b, "s");
    for (int i = 0; i < 20; i++) {
        struct breaker_turn turns[OPENING] = {0};
        for (int k = 0; k < OPENING - 1; k++)
            fail_by(&b, &turns[k]);
        breaker_answered(&b, &turns[OPENING - 1]);
    }
    assert_false(is_open(&b));
}

static void test_breaker__while_one_probes_others_wait_to_their_deadline(void **state)
{
    CLEANUP(breaker_release) struct breaker b;
    struct breaker_turn turns[OPENING] = {0}, first = {0}, second = {0};
    breaker_init(&b, "s");
    for (int k = 0; k < OPENING; k++)
        fail_by(&b, &turns[k]);
    /* a deadline that has passed, and still a look: with deadlines as short as a pause nobody would ever ask */
    assert_int_equal(breaker_wait(&b, &first, 0, NULL), 0);
    (void)error_set(-EIO, "another sentence");
    assert_int_equal(breaker_wait(&b, &second, clock_now_ms() + 20, NULL), -ETIMEDOUT);
    assert_string_equal(error_text(), "the store is away");
    fail_by(&b, &first);
    assert_int_equal(breaker_wait(&b, &second, 0, NULL), 0);
}

static void open_alone(struct breaker *b)
{
    struct breaker_turn turns[OPENING] = {0};
    breaker_init(b, "s");
    for (int k = 0; k < OPENING; k++)
        fail_by(b, &turns[k]);
    assert_true(is_open(b));
}

static void test_breaker__the_pause_between_probes_grows_to_five_seconds(void **state)
{
    enum { PROBES = 60 }; /* each multiplies the pause by 1 to 2 */
    CLEANUP(breaker_release) struct breaker b;
    open_alone(&b);
    assert_in_range(b.pause_ms, 50, 100);
    for (int i = 0; i < PROBES; i++) {
        struct breaker_turn probe = {0};
        assert_int_equal(breaker_wait(&b, &probe, 0, NULL), 0);
        fail_by(&b, &probe);
        assert_in_range(b.pause_ms, 50, 5000);
    }
    assert_in_range(b.pause_ms, 2500, 5000);
}

static void test_breaker__a_grown_pause_is_for_those_that_have_failed(void **state)
{
    CLEANUP(breaker_release) struct breaker b;
    struct breaker_turn probe = {0}, fresh = {0};
    open_alone(&b);
    assert_int_equal(breaker_wait(&b, &probe, 0, NULL), 0);
    fail_by(&b, &probe);
    b.pause_ms = 60000;
    uint64_t began_ms = clock_now_ms();
    assert_int_equal(breaker_wait(&b, &probe, began_ms + 20, NULL), -ETIMEDOUT);
    assert_int_equal(breaker_wait(&b, &fresh, began_ms + 30000, NULL), 0);
    assert_true(clock_now_ms() - began_ms < 15000);
}

/* A probe that is still on its way when another answer closes the breaker must not be in the way of later ones. */
static void test_breaker__a_late_probe_is_forgotten(void **state)
{
    CLEANUP(breaker_release) struct breaker b;
    struct breaker_turn turns[OPENING] = {0}, late = {0}, next = {0};
    breaker_init(&b, "s");
    for (int round = 0; round < 2; round++) {
        for (int k = 0; k < OPENING; k++)
            fail_by(&b, &turns[k]);
        assert_true(is_open(&b));
        assert_int_equal(breaker_wait(&b, round ? &next : &late, UINT64_MAX, NULL), 0);
        if (!round)
            breaker_answered(&b, &turns[0]);
    }
    const volatile int now = 1;
    fail_by(&b, &late); /* of the first opening: the second one's probe is still under way */
    struct breaker_turn third = {0};
    assert_int_equal(breaker_wait(&b, &third, UINT64_MAX, &now), -ECANCELED);
    fail_by(&b, &next);
    assert_int_equal(breaker_wait(&b, &third, UINT64_MAX, NULL), 0);
    breaker_answered(&b, &third);
    assert_false(is_open(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breaker__one_at_a_time_asks_and_an_answer_lets_all_go_on),
        cmocka_unit_test(test_breaker__everybody_gives_up_at_his_own_deadline),
        cmocka_unit_test(test_breaker__who_waits_ends_when_cancelled),
        cmocka_unit_test(test_breaker__a_refusal_is_an_answer),
        cmocka_unit_test(test_breaker__what_fails_here_is_no_answer),
        cmocka_unit_test(test_breaker__the_first_bytes_of_a_probe_let_the_others_go_on),
        cmocka_unit_test(test_breaker__an_object_that_fails_alone_stops_nobody),
        cmocka_unit_test(test_breaker__answers_in_between_keep_it_closed),
        cmocka_unit_test(test_breaker__while_one_probes_others_wait_to_their_deadline),
        cmocka_unit_test(test_breaker__the_pause_between_probes_grows_to_five_seconds),
        cmocka_unit_test(test_breaker__a_grown_pause_is_for_those_that_have_failed),
        cmocka_unit_test(test_breaker__a_late_probe_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

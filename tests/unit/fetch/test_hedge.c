/* Second gets: when one is worth sending, and that the first of two to bring a chunk is the one that counts. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "fetch/fetch_internal.h"
#include "unit/counters.h"

/* ---- the logic ---- */

static const struct store *const near = (const struct store *)"near", *const far = (const struct store *)"far";

/* n gets of so many chunks of a store, each heard of after so long. */
static void hear_long(struct hedge *h, const struct store *store, size_t chunks, unsigned n, uint64_t ms)
{
    for (unsigned i = 0; i < n; i++) {
        struct hedge_get get = {0};
        hedge_begin(h, &get, store, store, chunks, 1000);
        hedge_end(h, &get, true, 1000 + ms);
    }
}

static void hear(struct hedge *h, const struct store *store, unsigned n, uint64_t ms)
{
    hear_long(h, store, 1, n, ms);
}

/* How long a get of so many chunks of the store that begins now is waited for, before another goes to `second`; 0: it
 * is not hedged. */
static uint64_t delay_before(struct hedge *h, const struct store *store, const struct store *second, size_t chunks)
{
    struct hedge_get get = {0};
    uint64_t due_ms;
    hedge_begin(h, &get, store, second, chunks, 5000);
    struct hedge_get *next = hedge_next(h, &due_ms);
    assert_true(!next || next == &get);
    hedge_end(h, &get, false, 6000);
    return next ? due_ms - 5000 : 0;
}

static uint64_t delay_of_long(struct hedge *h, const struct store *store, size_t chunks)
{
    return delay_before(h, store, store, chunks);
}

static uint64_t delay_of(struct hedge *h, const struct store *store)
{
    return delay_of_long(h, store, 1);
}

static void test_hedge__nothing_is_late_before_the_store_is_known(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, HEDGE_SAMPLES_MIN - 1, 50);
    assert_int_equal(delay_of(&h, near), 0);
    hear(&h, near, 1, 50);
    assert_true(delay_of(&h, near) > 0);
    assert_int_equal(delay_of(&h, far), 0);
}

static void test_hedge__the_delay_is_the_95th_percentile_of_that_store(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, 900, 40);
    hear(&h, near, 60, 200);
    hear(&h, near, 40, 3000);
    hear(&h, far, 900, 40);
    hear(&h, far, 100, 3000);
    assert_in_range(delay_of(&h, near), 200, 250); /* up to a quarter more */
    assert_in_range(delay_of(&h, far), 3000, 3750);
}

/* As on a link that is full: none of them is late, and a second request would only lengthen the queue. */
static void test_hedge__the_delay_is_at_least_twice_the_median(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, 900, 40);
    hear(&h, near, 100, 60);
    assert_in_range(delay_of(&h, near), 80, 100);
}

static void test_hedge__gets_are_compared_with_those_of_their_length(void **state)
{
    struct hedge h = {.percent = 5};
    hear_long(&h, near, 1, 900, 20);
    hear_long(&h, near, 8, 100, 200);
    assert_in_range(delay_of_long(&h, near, 1), 40, 50);
    assert_in_range(delay_of_long(&h, near, 3), 160, 200); /* too few are known: by those of one chunk */
    assert_in_range(delay_of_long(&h, near, 8), 160, 200); /* the first bytes do not take as much longer */
    hear_long(&h, near, 5, 100, 200);
    assert_in_range(delay_of_long(&h, near, 8), 400, 500); /* 5 to 8 chunks are alike */
    hear_long(&h, far, 100, 500, 200);
    assert_in_range(delay_of_long(&h, far, 2), 400, 500); /* by longer ones, where no others are known */
    hear(&h, far, 500, 2000);
    assert_in_range(delay_of_long(&h, far, 2), 400, 500); /* and where longer ones take less */
}

static void test_hedge__the_delay_has_a_least_and_no_most(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, 500, 0);
    hear(&h, far, 500, 86400000);
    assert_int_equal(delay_of(&h, near), HEDGE_DELAY_MIN_MS);
    assert_true(delay_of(&h, far) > 5 * 60 * 1000);
}

/* As nodes that fetch what they do not have. */
static void test_hedge__a_second_get_goes_to_another_store_only_if_that_one_is_faster(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, 1000, 20);
    assert_in_range(delay_before(&h, near, far, 1), 40, 50); /* of which nothing is known */
    hear(&h, far, 1000, 300);
    assert_in_range(delay_before(&h, near, far, 1), 600, 750);
    assert_in_range(delay_before(&h, far, near, 1), 600, 750);
    assert_int_equal(delay_before(&h, (const struct store *)"unknown", near, 1), 0);
}

static void test_hedge__what_was_long_ago_is_forgotten(void **state)
{
    struct hedge h = {.percent = 5};
    hear(&h, near, 5000, 1000);
    hear(&h, near, 40000, 20);
    assert_in_range(delay_of(&h, near), 40, 50);
}

static void test_hedge__second_gets_are_a_share_of_all(void **state)
{
    enum { GETS = 10000 };
    struct hedge h = {.percent = 5};
    unsigned sent = 0;
    uint64_t due_ms;
    hear(&h, near, 1000, 20);
    for (unsigned i = 0; i < GETS; i++) {
        struct hedge_get get = {0};
        hedge_begin(&h, &get, near, near, 1, 1000);
        struct hedge_get *next = hedge_next(&h, &due_ms); /* each is late */
        if (next)
            hedge_send(&h, next);
        sent += next != NULL;
        assert_null(hedge_next(&h, &due_ms)); /* not twice, and not beyond the credit */
        hedge_end(&h, &get, true, 1020);
    }
    assert_in_range(sent, GETS / 20, GETS / 20 + 10);
}

static void test_hedge__none_are_sent_at_0_percent(void **state)
{
    struct hedge h = {0};
    hear(&h, near, 1000, 20);
    assert_int_equal(delay_of(&h, near), 0);
}

static void test_hedge__the_one_that_is_late_first_comes_first(void **state)
{
    struct hedge h = {.percent = 50};
    struct hedge_get gets[3] = {0};
    uint64_t due_ms;
    hear(&h, near, 1000, 20);
    for (unsigned i = 0; i < 3; i++)
        hedge_begin(&h, &gets[i], near, near, 1, 1000 + i);
    assert_ptr_equal(hedge_next(&h, &due_ms), &gets[0]);
    hedge_send(&h, &gets[0]);
    assert_ptr_equal(hedge_next(&h, &due_ms), &gets[1]);
    hedge_end(&h, &gets[1], true, 1010);
    assert_ptr_equal(hedge_next(&h, &due_ms), &gets[2]);
    hedge_end(&h, &gets[2], true, 1010);
    hedge_end(&h, &gets[2], true, 1010); /* it is known already */
    assert_null(hedge_next(&h, &due_ms));
    hedge_end(&h, &gets[0], true, 1010);
}

/* ---- in the fetch ---- */

enum { CHUNK = 64 << 10, CHUNKS = 16 };

struct world {
    struct store_fake *fake;
    struct image_fake img;
    struct fetch *fetch;
    /* Gets that are held inside the store, by the order of their coming since `armed`. */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool armed, open;
    unsigned came;
    _Atomic unsigned landed;
};

#define count_of(w, name) counter_value(fetch_counters, (w)->fetch, "granary_fetch_" name)
#define wait_for(w, name, least) counter_wait(fetch_counters, (w)->fetch, "granary_fetch_" name, least)

/* The first get since `armed` waits until the store is `open`. */
static void hold_the_first(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct world *w = arg;
    SCOPED_LOCK(&w->lock);
    if (!w->armed || w->came++)
        return;
    while (!w->open)
        pthread_cond_wait(&w->changed, &w->lock);
}

static void let_go(struct world *w)
{
    SCOPED_LOCK(&w->lock);
    w->open = true;
    pthread_cond_broadcast(&w->changed);
}

static void on_landed(void *arg, struct inflight *inflight, bool warm)
{
    struct world *w = arg;
    w->landed++;
    fetch_retire(w->fetch, inflight);
}

static struct inflight *start(struct world *w, unsigned first, size_t n, struct inflight **inflights)
{
    const struct chunk_ref *refs[CHUNKS];
    for (size_t i = 0; i < n; i++)
        refs[i] = &w->img.refs[first + i];
    assert_int_equal(fetch_start(w->fetch, store_fake_store(w->fake), refs, n, n, PRIORITY_DEMAND, 0, inflights), 0);
    return inflights[0];
}

static void expect_bytes(struct world *w, struct inflight *inflight, unsigned chunk)
{
    CLEANUP_BUF struct buf *plain = NULL;
    CLEANUP_FREE uint8_t *expected = malloc(CHUNK);
    assert_int_equal(inflight_wait(inflight, &plain), 0);
    image_fake_bytes(&w->img, (uint64_t)chunk * CHUNK, expected, CHUNK);
    assert_memory_equal(plain->data, expected, CHUNK);
    inflight_unref(inflight);
}

static void read_one(struct world *w, unsigned chunk)
{
    struct inflight *inflight;
    start(w, chunk, 1, &inflight);
    expect_bytes(w, inflight, chunk);
}

/* A fetch that knows its store; the next get of all will be held. At 50 percent credit is there whatever was late so
 * far. */
static void world_init(struct world *w, unsigned percent)
{
    *w = (struct world){.fake = store_fake_new()};
    w->img = (struct image_fake){.seed = 7, .size = CHUNKS * CHUNK, .chunk_size = CHUNK, .pack_chunks = CHUNKS};
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    image_fake_put(&w->img, w->fake, NULL);
    const struct fetch_config config = {.workers = 4, .hedge_percent = percent, .on_landed = on_landed, .arg = w};
    assert_int_equal(fetch_new(&config, &w->fetch), 0);
    assert_int_equal(fetch_start_threads(w->fetch), 0);
    for (unsigned i = 0; i < 2 * HEDGE_SAMPLES_MIN; i++)
        read_one(w, i % CHUNKS);
    counter_wait_zero(fetch_counters, w->fetch, "granary_fetch_busy_workers");
    w->landed = 0;
    store_fake_set_hook(w->fake, hold_the_first, w);
    w->armed = true;
}

static void world_release(struct world *w)
{
    fetch_free(w->fetch);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
}

static void test_hedge__a_silent_get_is_overtaken(void **state)
{
    struct world w;
    struct inflight *inflights[3];
    world_init(&w, 50);
    uint64_t wins = count_of(&w, "hedge_wins_total");
    start(&w, 4, 3, inflights);
    for (unsigned i = 0; i < 3; i++)
        expect_bytes(&w, inflights[i], 4 + i); /* the first get is inside the store still */
    assert_int_equal(count_of(&w, "hedge_wins_total"), wins + 1);
    assert_int_equal(count_of(&w, "busy_workers") >= 1, true);
    let_go(&w);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_busy_workers");
    assert_int_equal(w.landed, 3); /* what the first one brought afterwards counts for nothing */
    assert_int_equal(count_of(&w, "in_flight"), 0);
    world_release(&w);
}

static void test_hedge__the_chunk_may_be_asked_for_again_while_the_first_get_is_silent(void **state)
{
    struct world w;
    world_init(&w, 50);
    read_one(&w, 4);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_in_flight"); /* else the next one joins what has landed */
    read_one(&w, 4);
    let_go(&w);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_busy_workers");
    assert_int_equal(w.landed, 2);
    world_release(&w);
}

/* Wait until the second get has been sent and has ended; the first is held. */
static void wait_for_the_second(struct world *w, uint64_t hedges)
{
    wait_for(w, "hedges_total", hedges + 1);
    for (uint64_t since_ms = 0; count_of(w, "busy_workers") > 1;)
        counter_pause(&since_ms, "the second get to end");
}

static void fail_the_next(struct world *w, unsigned count)
{
    store_fake_add_fault(
        w->fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FAIL, .count = count, .code = -ENOENT});
}

static void test_hedge__a_second_get_that_fails_leaves_it_to_the_first(void **state)
{
    struct world w;
    struct inflight *inflight;
    world_init(&w, 50);
    uint64_t hedges = count_of(&w, "hedges_total"), wins = count_of(&w, "hedge_wins_total");
    fail_the_next(&w, 1);
    start(&w, 4, 1, &inflight);
    wait_for_the_second(&w, hedges);
    assert_int_equal(w.landed, 0);
    let_go(&w);
    expect_bytes(&w, inflight, 4);
    assert_int_equal(count_of(&w, "hedge_wins_total"), wins);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    world_release(&w);
}

static void test_hedge__when_both_fail_the_chunk_does_once(void **state)
{
    struct world w;
    struct inflight *inflight;
    struct buf *plain;
    world_init(&w, 50);
    uint64_t hedges = count_of(&w, "hedges_total");
    fail_the_next(&w, 2);
    start(&w, 4, 1, &inflight);
    wait_for_the_second(&w, hedges);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    let_go(&w);
    assert_int_equal(inflight_wait(inflight, &plain), -ENOENT);
    inflight_unref(inflight);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_busy_workers");
    assert_int_equal(count_of(&w, "errors_total"), 1);
    assert_int_equal(count_of(&w, "in_flight"), 0);
    world_release(&w);
}

static void test_hedge__without_a_share_there_are_none(void **state)
{
    struct world w;
    struct inflight *inflight;
    world_init(&w, 0);
    start(&w, 4, 1, &inflight);
    let_go(&w);
    expect_bytes(&w, inflight, 4);
    assert_int_equal(count_of(&w, "hedges_total"), 0);
    world_release(&w);
}

static void *read_many(void *arg)
{
    for (unsigned i = 0; i < 300; i++)
        read_one(arg, i * 7 % CHUNKS);
    return NULL;
}

/* Delays, breaks and wrong bytes, with second gets for half of all: each read has its bytes, each in-flight fetch lands
 * once. */
static void test_hedge__readers_under_faults_get_right_bytes(void **state)
{
    enum { READERS = 6 };
    struct world w;
    pthread_t threads[READERS];
    world_init(&w, 50);
    w.open = true; /* nobody is held */
    store_fake_add_fault(w.fake,
                         &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .permille = 100, .bytes = 30});
    store_fake_add_fault(
        w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FLIP, .skip = 700, .count = 1, .bytes = 9});
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, &w), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_busy_workers");
    assert_int_equal(count_of(&w, "in_flight"), 0);
    assert_int_equal(count_of(&w, "errors_total"), 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hedge__nothing_is_late_before_the_store_is_known),
        cmocka_unit_test(test_hedge__the_delay_is_the_95th_percentile_of_that_store),
        cmocka_unit_test(test_hedge__the_delay_is_at_least_twice_the_median),
        cmocka_unit_test(test_hedge__gets_are_compared_with_those_of_their_length),
        cmocka_unit_test(test_hedge__the_delay_has_a_least_and_no_most),
        cmocka_unit_test(test_hedge__a_second_get_goes_to_another_store_only_if_that_one_is_faster),
        cmocka_unit_test(test_hedge__what_was_long_ago_is_forgotten),
        cmocka_unit_test(test_hedge__second_gets_are_a_share_of_all),
        cmocka_unit_test(test_hedge__none_are_sent_at_0_percent),
        cmocka_unit_test(test_hedge__the_one_that_is_late_first_comes_first),
        cmocka_unit_test(test_hedge__a_silent_get_is_overtaken),
        cmocka_unit_test(test_hedge__the_chunk_may_be_asked_for_again_while_the_first_get_is_silent),
        cmocka_unit_test(test_hedge__a_second_get_that_fails_leaves_it_to_the_first),
        cmocka_unit_test(test_hedge__when_both_fail_the_chunk_does_once),
        cmocka_unit_test(test_hedge__without_a_share_there_are_none),
        cmocka_unit_test(test_hedge__readers_under_faults_get_right_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

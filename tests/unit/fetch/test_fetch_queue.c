/* In which order the fetch scheduler works, over the fake store: priorities, how many gets at a time, and what comes by
 * one.
 */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <time.h>

#include "base/vec.h"
#include "fetch/fetch_internal.h"
#include "unit/fetch_world.h"
#include "unit/threads.h"

struct order {
    pthread_mutex_t lock;
    VEC(char *) keys;
};

static void note_key(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    struct order *order = arg;
    SCOPED_LOCK(&order->lock);
    must(vec_push(&order->keys, strdup(key)) == 0, "out of memory");
}

static bool was_asked(struct order *order, const struct chunk_ref *ref)
{
    char key[OBJECT_KEY_MAX];
    bool found = false;
    object_key(OBJECT_PACK, &ref->object, key);
    SCOPED_LOCK(&order->lock);
    for (size_t i = 0; i < order->keys.len; i++)
        found |= !strcmp(order->keys.items[i], key);
    return found;
}

static void order_release(struct order *order)
{
    for (size_t i = 0; i < order->keys.len; i++)
        free(order->keys.items[i]);
    vec_release(&order->keys);
}

/* The packs asked for were those of these chunks, in this order; releases both. */
static void end_and_expect_order(struct world *w, struct order *order, const unsigned *chunks, size_t n)
{
    fetch_free(w->fetch); /* no get after this */
    assert_int_equal(order->keys.len, n);
    for (size_t i = 0; i < n; i++) {
        char key[OBJECT_KEY_MAX];
        assert_string_equal(order->keys.items[i], object_key(OBJECT_PACK, &w->img.refs[chunks[i]].object, key));
    }
    order_release(order);
    assert_int_equal(fetch_new(&(struct fetch_config){0}, &w->fetch), 0);
    world_release(w);
}

static void test_fetch_queue__background_leaves_a_quarter_of_the_workers(void **state)
{
    struct world w;
    struct order order = {.lock = PTHREAD_MUTEX_INITIALIZER};
    unsigned chunks[10];
    struct inflight *inflights[10];
    for (unsigned i = 0; i < 10; i++)
        chunks[i] = i;
    world_init(&w, &(struct fetch_config){.workers = 5}, 1); /* a pack a chunk: no runs */
    store_fake_set_hook(w.fake, note_key, &order);
    store_fake_hold(w.fake, FAKE_GET);
    start(&w, chunks, 6, PRIORITY_WARM, inflights);
    start(&w, chunks + 6, 4, PRIORITY_READAHEAD, inflights + 6);
    store_fake_wait_held(w.fake, 3);
    /* Though ten were before them, these two get a worker each. */
    struct inflight *demand = start_one(&w, 20, PRIORITY_DEMAND), *second = start_one(&w, 21, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 5);
    assert_true(was_asked(&order, &w.img.refs[20]));
    assert_true(was_asked(&order, &w.img.refs[21]));
    assert_int_equal(count_of(&w, "busy_workers"), 5);
    assert_int_equal(count_of(&w, "queued"), 7);
    store_fake_release(w.fake);
    expect_bytes(&w, demand, 20);
    expect_bytes(&w, second, 21);
    for (unsigned i = 0; i < 10; i++)
        expect_bytes(&w, inflights[i], i);
    assert_true(store_fake_peak(w.fake) <= 5);
    world_release(&w);
    order_release(&order);
}

/* The gets by which a window of bytes is filled from chunk 0 on, each a quarter of it at most; in *out_end after the
 * last chunk that they bring, in *out_bytes what they bring. */
static unsigned gets_of_window(const struct world *w, uint64_t window, unsigned *out_end, uint64_t *out_bytes)
{
    unsigned gets = 0, i = 0;
    for (*out_bytes = 0; *out_bytes < window; gets++) {
        uint64_t begin = w->img.refs[i].offset, end = begin;
        while (w->img.refs[i].offset + w->img.refs[i].stored_len - begin <= window / 4) {
            end = w->img.refs[i].offset + w->img.refs[i].stored_len;
            i++;
            assert_in_range(i, 1, CHUNKS - 4);
        }
        *out_bytes += end - begin;
    }
    *out_end = i;
    return gets;
}

/* While a reader waits there are no more bytes on their way than are allowed beside him, by short gets; all the others
 * follow when he has his. Readahead finds places. */
static void test_fetch_queue__warming_has_few_bytes_in_the_air_beside_demand(void **state)
{
    struct world w;
    unsigned chunks[CHUNKS];
    struct inflight *inflights[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    world_init(&w, &(struct fetch_config){.workers = 64}, CHUNKS); /* one pack */
    unsigned end;
    uint64_t bytes;
    unsigned gets = gets_of_window(&w, count_of(&w, "warm_beside_bytes"), &end, &bytes);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *demand = start_one(&w, CHUNKS - 1, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    start(&w, chunks, CHUNKS - 4, PRIORITY_WARM, inflights);
    store_fake_wait_held(w.fake, 1 + gets);
    assert_int_equal(count_of(&w, "warm_inflight_bytes"), bytes);
    assert_int_equal(count_of(&w, "queued"), CHUNKS - 4 - end);
    start(&w, chunks + CHUNKS - 4, 2, PRIORITY_READAHEAD, inflights + CHUNKS - 4);
    store_fake_wait_held(w.fake, 2 + gets);
    assert_int_equal(count_of(&w, "busy_workers"), 2 + gets);
    store_fake_release(w.fake);
    expect_bytes(&w, demand, CHUNKS - 1);
    for (unsigned i = 0; i < CHUNKS - 2; i++)
        expect_bytes(&w, inflights[i], i);
    world_release(&w);
}

/* Alone, all that was asked for goes at once, by long gets; failed gets leave nothing behind in the account. */
static void test_fetch_queue__warming_alone_goes_by_long_gets(void **state)
{
    struct world w;
    unsigned chunks[CHUNKS];
    struct inflight *inflights[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    world_init(&w, &(struct fetch_config){.workers = 8}, CHUNKS);
    store_fake_hold(w.fake, FAKE_GET);
    start(&w, chunks, CHUNKS, PRIORITY_WARM, inflights);
    store_fake_wait_held(w.fake, CHUNKS * CHUNK / WINDOW_GET_ALONE);
    assert_int_equal(count_of(&w, "queued"), 0);
    const struct chunk_ref *last = &w.img.refs[CHUNKS - 1];
    assert_int_equal(count_of(&w, "warm_inflight_bytes"), last->offset + last->stored_len - w.img.refs[0].offset);
    store_fake_set_dead(w.fake, -EACCES);
    store_fake_release(w.fake);
    for (unsigned i = 0; i < CHUNKS; i++)
        expect_error(inflights[i], -EACCES, "");
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_busy_workers");
    assert_int_equal(count_of(&w, "warm_inflight_bytes"), 0);
    world_release(&w);
}

/* Neighbours, but who waits for the second has come a second later, and has that longer. */
static void test_fetch_queue__who_comes_late_does_not_fail_with_the_first(void **state)
{
    struct world w;
    struct inflight *early[2];
    world_init(&w, &(struct fetch_config){.workers = 1, .timeout_ms = 64000}, 4);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *held = start_one(&w, 8, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    start(&w, (const unsigned[]){0, 1}, 2, PRIORITY_DEMAND, early);
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL);
    struct inflight *late = start_one(&w, 2, PRIORITY_DEMAND);
    store_fake_release(w.fake);
    expect_bytes(&w, held, 8);
    expect_bytes(&w, early[0], 0);
    expect_bytes(&w, early[1], 1);
    expect_bytes(&w, late, 2);
    assert_int_equal(count_of(&w, "requests_total"), 3);
    world_release(&w);
}

static void test_fetch_queue__no_more_gets_are_in_the_air_than_fill_the_link(void **state)
{
    struct world w;
    unsigned chunks[CHUNKS];
    struct inflight *inflights[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    world_init(&w, &(struct fetch_config){.workers = CHUNKS}, 1); /* a pack a chunk: no runs */
    unsigned first = (unsigned)count_of(&w, "limit");
    assert_in_range(first, 1, CHUNKS - 1);
    store_fake_hold(w.fake, FAKE_GET);
    start(&w, chunks, CHUNKS, PRIORITY_DEMAND, inflights);
    store_fake_wait_held(w.fake, first);
    assert_int_equal(count_of(&w, "busy_workers"), first);
    assert_int_equal(count_of(&w, "queued"), CHUNKS - first);
    store_fake_release(w.fake);
    for (unsigned i = 0; i < CHUNKS; i++)
        expect_bytes(&w, inflights[i], i);
    /* Bursts that wait, though gets answer promptly: more are sent at a time. */
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = 20});
    for (unsigned bursts = 0; store_fake_peak(w.fake) <= first; bursts++) {
        assert_true(bursts < 1000);
        start(&w, chunks, CHUNKS, PRIORITY_DEMAND, inflights);
        for (unsigned i = 0; i < CHUNKS; i++)
            expect_bytes(&w, inflights[i], i);
    }
    world_release(&w);
}

/* Two stores leave all that is asked of them without an answer: who reads from a third one is served. */
static void test_fetch_queue__stores_that_are_silent_leave_places_to_another(void **state)
{
    struct world w, silent[2];
    unsigned chunks[CHUNKS];
    struct inflight *inflights[2][CHUNKS], *inflight;
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    world_init(&w, &(struct fetch_config){.workers = CHUNKS}, 1); /* a pack a chunk: no runs */
    expect_bytes(&w, start_one(&w, 0, PRIORITY_DEMAND), 0);
    for (unsigned i = 0; i < 2; i++) {
        world_init(&silent[i], &(struct fetch_config){.workers = 1}, 1);
        fetch_free(silent[i].fetch);
        silent[i].fetch = w.fetch;
        store_fake_hold(silent[i].fake, FAKE_GET);
        start(&silent[i], chunks, CHUNKS, PRIORITY_DEMAND, inflights[i]);
    }
    uint64_t limit = 0; /* the highest so far */
    for (unsigned i = 0; i < CHUNKS; i++) {
        inflight = start_one(&w, i, PRIORITY_DEMAND);
        expect_bytes(&w, inflight, i);
        limit = GR_MAX(limit, count_of(&w, "limit"));
    }
    assert_true(count_of(&w, "queued") > 0);
    for (unsigned i = 0; i < 2; i++) /* an eighth of the limit for a store that has not answered yet */
        assert_in_range(store_fake_calls(silent[i].fake, FAKE_GET), 0, GR_MAX(limit / 8, 1u));
    for (unsigned i = 0; i < 2; i++) {
        store_fake_release(silent[i].fake);
        for (unsigned k = 0; k < CHUNKS; k++)
            expect_bytes(&silent[i], inflights[i][k], k);
        image_fake_release(&silent[i].img);
    }
    world_release(&w);
    store_fake_free(silent[0].fake);
    store_fake_free(silent[1].fake);
}

static void test_fetch_queue__one_worker_serves_background_too(void **state)
{
    struct world w;
    world_init(&w, &(struct fetch_config){.workers = 1}, 1);
    expect_bytes(&w, start_one(&w, 3, PRIORITY_WARM), 3);
    world_release(&w);
}

static void test_fetch_queue__demand_raises_what_waits_on_a_lower_lane(void **state)
{
    static const unsigned expected[] = {0, 3, 4, 1, 2};
    struct world w;
    struct order order = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const unsigned warm[] = {1, 2, 3};
    struct inflight *inflights[5];
    world_init(&w, &(struct fetch_config){.workers = 1}, 1);
    store_fake_set_hook(w.fake, note_key, &order);
    store_fake_hold(w.fake, FAKE_GET);
    inflights[0] = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    start(&w, warm, 3, PRIORITY_WARM, NULL);
    assert_int_equal(count_of(&w, "warm_queued"), 3);
    struct inflight *ahead = start_one(&w, 4, PRIORITY_READAHEAD);
    inflights[3] = start_one(&w, 3, PRIORITY_DEMAND);
    assert_int_equal(count_of(&w, "raised_total"), 1);
    store_fake_release(w.fake);
    expect_bytes(&w, inflights[0], 0);
    expect_bytes(&w, inflights[3], 3);
    expect_bytes(&w, ahead, 4);
    wait_for(&w, "requests_total", 5);
    assert_int_equal(count_of(&w, "warm_queued"), 0);
    end_and_expect_order(&w, &order, expected, GR_ARRAY_SIZE(expected));
}

/* Chunk `wanted` for its in-flight fetch, n neighbours for nobody. */
static struct inflight *start_with_neighbours(struct world *w, unsigned wanted, const unsigned *neighbours, size_t n)
{
    const struct chunk_ref *refs[CHUNKS] = {&w->img.refs[wanted]};
    struct inflight *inflight = NULL;
    for (size_t i = 0; i < n; i++)
        refs[1 + i] = &w->img.refs[neighbours[i]];
    assert_int_equal(fetch_start(w->fetch, w->store, refs, 1 + n, 1, PRIORITY_DEMAND, 0, &inflight), 0);
    return inflight;
}

static void test_fetch_queue__neighbours_ride_along_or_wait_behind_demand(void **state)
{
    static const unsigned expected[] = {0, 16, 20, 19, 24}; /* one chunk of each get, in their order */
    static const unsigned near_and_far[] = {17, 19}, of_a_joined_one[] = {24};
    struct world w;
    struct order order = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct inflight *inflights[4];
    world_init(&w, &(struct fetch_config){.workers = 1, .gap_max = 1}, 4);
    store_fake_set_hook(w.fake, note_key, &order);
    store_fake_hold(w.fake, FAKE_GET);
    inflights[0] = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    inflights[1] = start_with_neighbours(&w, 16, near_and_far, 2);
    inflights[2] = start_with_neighbours(&w, 16, of_a_joined_one, 1);
    inflights[3] = start_one(&w, 20, PRIORITY_DEMAND);
    store_fake_release(w.fake);
    expect_bytes(&w, inflights[0], 0);
    expect_bytes(&w, inflights[1], 16);
    expect_bytes(&w, inflights[2], 16);
    expect_bytes(&w, inflights[3], 20);
    wait_for(&w, "requests_total", 5);
    assert_int_equal(count_of(&w, "joins_total"), 1);
    assert_int_equal(count_of(&w, "demand_chunks_total"), 3);
    assert_int_equal(count_of(&w, "readahead_chunks_total"), 3);
    end_and_expect_order(&w, &order, expected, GR_ARRAY_SIZE(expected));
}

static void test_fetch_queue__neighbours_that_others_ask_for_join_a_queued_get(void **state)
{
    static const unsigned chunks[] = {20, 3, 19, 22, 21, 30};
    struct world w;
    struct inflight *inflights[GR_ARRAY_SIZE(chunks)];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *busy = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    for (size_t i = 0; i < GR_ARRAY_SIZE(chunks); i++)
        inflights[i] = start_one(&w, chunks[i], PRIORITY_DEMAND);
    assert_int_equal(count_of(&w, "merged_total"), 3);
    store_fake_release(w.fake);
    expect_bytes(&w, busy, 0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(chunks); i++)
        expect_bytes(&w, inflights[i], chunks[i]);
    assert_int_equal(count_of(&w, "requests_total"), 4); /* 0; 19 to 22; 3; 30 */
    assert_int_equal(count_of(&w, "bytes_total"), count_of(&w, "chunk_bytes_total"));
    world_release(&w);
}

static void test_fetch_queue__no_run_grows_beyond_run_max_by_what_others_ask_for(void **state)
{
    static const unsigned up[] = {16, 17, 18, 19, 20}, down[] = {20, 19, 18, 17, 16};
    for (size_t k = 0; k < 2; k++) {
        struct world w;
        struct order order = {.lock = PTHREAD_MUTEX_INITIALIZER};
        const unsigned *chunks = k ? down : up;
        struct inflight *inflights[6];
        world_init(&w, &(struct fetch_config){.workers = 1}, 16);
        uint32_t stored = w.img.refs[16].stored_len;
        fetch_free(w.fetch);
        const struct fetch_config config = {.workers = 1, .run_max = 3 * stored + stored / 2};
        assert_int_equal(fetch_new(&config, &w.fetch), 0);
        assert_int_equal(fetch_start_threads(w.fetch), 0);
        store_fake_set_hook(w.fake, note_key, &order);
        store_fake_hold(w.fake, FAKE_GET);
        struct inflight *busy = start_one(&w, 0, PRIORITY_DEMAND);
        store_fake_wait_held(w.fake, 1);
        for (unsigned i = 0; i < 3; i++)
            inflights[i] = start_one(&w, chunks[i], PRIORITY_DEMAND);
        inflights[5] = start_one(&w, 4, PRIORITY_DEMAND); /* of the other pack: it does not wait for the next two */
        for (unsigned i = 3; i < 5; i++)
            inflights[i] = start_one(&w, chunks[i], PRIORITY_DEMAND);
        assert_int_equal(count_of(&w, "merged_total"), 3);
        store_fake_release(w.fake);
        expect_bytes(&w, busy, 0);
        for (unsigned i = 0; i < 5; i++)
            expect_bytes(&w, inflights[i], chunks[i]);
        expect_bytes(&w, inflights[5], 4);
        end_and_expect_order(&w, &order, (const unsigned[]){0, 16, 4, 16}, 4);
    }
}

static void test_fetch_queue__what_is_raised_takes_its_run_along(void **state)
{
    struct world w;
    const unsigned chunks[] = {16, 17, 18, 19};
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *busy = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    start(&w, chunks, 4, PRIORITY_READAHEAD, NULL);
    assert_int_equal(count_of(&w, "readahead_queued"), 4);
    struct inflight *wanted = start_one(&w, 17, PRIORITY_DEMAND);
    assert_int_equal(count_of(&w, "raised_total"), 3);
    assert_int_equal(count_of(&w, "queued"), 4);
    assert_int_equal(count_of(&w, "demand_queued"), 3);
    assert_int_equal(count_of(&w, "readahead_queued"), 1);
    store_fake_release(w.fake);
    expect_bytes(&w, busy, 0);
    expect_bytes(&w, wanted, 17);
    wait_for(&w, "requests_total", 3); /* 0; 17 to 19; 16 */
    expect_bytes(&w, start_one(&w, 16, PRIORITY_DEMAND), 16);
    world_release(&w);
}

static void test_fetch_queue__readahead_beyond_the_queue_is_dropped_and_counted(void **state)
{
    struct world w;
    const unsigned chunks[] = {1, 2, 3, 4, 5};
    world_init(&w, &(struct fetch_config){.workers = 1, .queue_max = 2}, 1);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *busy = start_one(&w, 0, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    start(&w, chunks, 5, PRIORITY_READAHEAD, NULL);
    assert_int_equal(count_of(&w, "dropped_total"), 3);
    assert_int_equal(count_of(&w, "queued"), 2);
    /* One that is asked for has a waiter now and makes room for another. */
    struct inflight *wanted = start_one(&w, 1, PRIORITY_DEMAND);
    start(&w, chunks + 2, 3, PRIORITY_READAHEAD, NULL);
    assert_int_equal(count_of(&w, "dropped_total"), 5);
    assert_int_equal(count_of(&w, "queued"), 3);
    /* Who waits is never dropped. */
    struct inflight *inflights[5];
    start(&w, chunks, 5, PRIORITY_WARM, inflights);
    store_fake_release(w.fake);
    expect_bytes(&w, busy, 0);
    expect_bytes(&w, wanted, 1);
    for (unsigned i = 0; i < 5; i++)
        expect_bytes(&w, inflights[i], chunks[i]);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_queue__background_leaves_a_quarter_of_the_workers),
        cmocka_unit_test(test_fetch_queue__warming_has_few_bytes_in_the_air_beside_demand),
        cmocka_unit_test(test_fetch_queue__warming_alone_goes_by_long_gets),
        cmocka_unit_test(test_fetch_queue__who_comes_late_does_not_fail_with_the_first),
        cmocka_unit_test(test_fetch_queue__no_more_gets_are_in_the_air_than_fill_the_link),
        cmocka_unit_test(test_fetch_queue__stores_that_are_silent_leave_places_to_another),
        cmocka_unit_test(test_fetch_queue__one_worker_serves_background_too),
        cmocka_unit_test(test_fetch_queue__demand_raises_what_waits_on_a_lower_lane),
        cmocka_unit_test(test_fetch_queue__neighbours_ride_along_or_wait_behind_demand),
        cmocka_unit_test(test_fetch_queue__neighbours_that_others_ask_for_join_a_queued_get),
        cmocka_unit_test(test_fetch_queue__no_run_grows_beyond_run_max_by_what_others_ask_for),
        cmocka_unit_test(test_fetch_queue__what_is_raised_takes_its_run_along),
        cmocka_unit_test(test_fetch_queue__readahead_beyond_the_queue_is_dropped_and_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Readahead priority: how many bytes it has in flight, and what comes by one get. */
#include "unit/cmocka_all.h"

#include "unit/fetch_world.h"

enum { ALL = 3 * CHUNKS };

/* The others go when those have come. */
static void test_fetch_ahead__no_more_than_the_window_is_in_the_air(void **state)
{
    struct world w;
    unsigned chunks[ALL], gets = 0;
    struct inflight *inflights[ALL];
    uint64_t bytes = 0;
    world_init_of(&w, &(struct fetch_config){.workers = 64}, ALL + 1, 4); /* gets of four chunks */
    for (uint64_t window = count_of(&w, "readahead_window_bytes"); bytes < window; gets++) {
        const struct chunk_ref *pack = &w.img.refs[4 * gets];
        assert_in_range(gets, 0, ALL / 4 - 2);
        bytes += pack[3].offset + pack[3].stored_len - pack[0].offset;
    }
    store_fake_hold(w.fake, FAKE_GET);
    for (unsigned i = 0; i < ALL; i++) {
        chunks[i] = i;
        if (i % CHUNKS == CHUNKS - 1)
            start(&w, chunks + i + 1 - CHUNKS, CHUNKS, PRIORITY_READAHEAD, inflights + i + 1 - CHUNKS);
    }
    store_fake_wait_held(w.fake, gets);
    struct inflight *demand = start_one(&w, ALL, PRIORITY_DEMAND); /* finds a place */
    store_fake_wait_held(w.fake, gets + 1);
    assert_int_equal(count_of(&w, "readahead_inflight_bytes"), bytes);
    assert_int_equal(count_of(&w, "readahead_queued"), ALL - 4 * gets);
    assert_int_equal(count_of(&w, "busy_workers"), gets + 1);
    store_fake_release(w.fake);
    expect_bytes(&w, demand, ALL);
    for (unsigned i = 0; i < ALL; i++)
        expect_bytes(&w, inflights[i], i);
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_readahead_inflight_bytes");
    world_release(&w);
}

/* Gets that failed leave nothing behind in the account. */
static void test_fetch_ahead__what_failed_is_not_in_the_air_any_more(void **state)
{
    struct world w;
    unsigned chunks[] = {2, 3};
    struct inflight *inflights[2];
    world_init(&w, &(struct fetch_config){.workers = 1}, 2);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FAIL, .code = -ENOENT});
    start(&w, chunks, 2, PRIORITY_READAHEAD, inflights);
    expect_error(inflights[0], -ENOENT, "");
    expect_error(inflights[1], -ENOENT, "");
    counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_readahead_inflight_bytes");
    world_release(&w);
}

/* Chunk 17 lies between them. Requests and bytes of a get that brings 16 and 18 at that priority. */
static void read_around(enum fetch_priority priority, uint64_t *requests, uint64_t *skipped)
{
    struct world w;
    unsigned chunks[] = {16, 18};
    struct inflight *inflights[2];
    world_init(&w, &(struct fetch_config){.workers = 1}, 16);
    start(&w, chunks, 2, priority, inflights);
    expect_bytes(&w, inflights[0], 16);
    expect_bytes(&w, inflights[1], 18);
    *requests = count_of(&w, "requests_total");
    *skipped = count_of(&w, "bytes_total") - count_of(&w, "chunk_bytes_total");
    if (priority == PRIORITY_DEMAND)
        assert_int_equal(*skipped, w.img.refs[17].stored_len);
    world_release(&w);
}

static void test_fetch_ahead__nothing_comes_for_nothing(void **state)
{
    uint64_t requests, skipped;
    read_around(PRIORITY_DEMAND, &requests, &skipped);
    assert_int_equal(requests, 1);
    read_around(PRIORITY_READAHEAD, &requests, &skipped);
    assert_int_equal(requests, 2);
    assert_int_equal(skipped, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_ahead__no_more_than_the_window_is_in_the_air),
        cmocka_unit_test(test_fetch_ahead__what_failed_is_not_in_the_air_any_more),
        cmocka_unit_test(test_fetch_ahead__nothing_comes_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

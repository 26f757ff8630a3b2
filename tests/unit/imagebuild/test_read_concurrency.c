/* The number of jobs against links of our own making. */
#include "unit/cmocka_all.h"

#include "base/compiler.h"
#include "imagebuild/content/content_internal.h"

/* A link: a request takes latency_ms and carries `bytes`, `most` bytes a millisecond go through; beyond `breaks` jobs
 * the server refuses so much that a third is left. */
struct link {
    double latency_ms, bytes, most;
    unsigned breaks;
    uint64_t noise;  /* 0: none; state of a generator */
    double strength; /* of the noise: 0.2: a fifth more or less */
};

static double rate_of(struct link *l, unsigned jobs)
{
    double rate = jobs * l->bytes / l->latency_ms;
    rate = GR_MIN(rate, l->most);
    if (l->breaks && jobs > l->breaks)
        rate /= 3;
    if (l->noise) {
        l->noise = l->noise * 6364136223846793005u + 1442695040888963407u;
        rate *= 1 + l->strength * (2 * (double)(l->noise >> 40) / (double)(1 << 24) - 1);
    }
    return rate;
}

/* The share of what the link can carry that was delivered on average; *out_limit: the mean number of jobs. */
static double run(struct read_concurrency *j, struct link *l, unsigned intervals, bool held_up, double *out_limit)
{
    double delivered = 0, limits = 0;
    for (unsigned i = 0; i < intervals; i++) {
        delivered += GR_MIN(j->limit * l->bytes / l->latency_ms, l->most) / l->most;
        limits += j->limit;
        double bytes = rate_of(l, j->limit) * READ_CONCURRENCY_INTERVAL_MS;
        read_concurrency_interval(j, (uint64_t)bytes, (uint64_t)(bytes / l->bytes), READ_CONCURRENCY_INTERVAL_MS,
                                  held_up);
        assert_true(j->limit >= j->least && j->limit <= READ_CONCURRENCY_MOST);
    }
    if (out_limit)
        *out_limit = limits / intervals;
    return delivered / intervals;
}

static void test_read_concurrency__a_link_is_filled_soon_and_not_overfilled(void **state)
{
    /* jobs needed to fill it */
    static const unsigned needs[] = {1, 16, 40, 100, 200};
    for (size_t i = 0; i < GR_ARRAY_SIZE(needs); i++) {
        struct link l = {.latency_ms = 20, .bytes = 100000, .most = needs[i] * 100000 / 20.0};
        struct read_concurrency j;
        double limit;
        read_concurrency_init(&j);
        (void)run(&j, &l, 20, false, NULL);
        assert_true(run(&j, &l, 20, false, NULL) >= 0.85);
        assert_true(run(&j, &l, 400, false, &limit) >= 0.9);
        assert_true(limit <= GR_MAX(3 * needs[i], (unsigned)READ_CONCURRENCY_FIRST + 1));
    }
}

static void test_read_concurrency__noise_drives_it_nowhere(void **state)
{
    static const double strengths[] = {0.03, 0.1, 0.3};
    for (size_t i = 0; i < GR_ARRAY_SIZE(strengths); i++) {
        double delivered = 0, limits = 0;
        for (uint64_t seed = 1; seed <= 20; seed++) {
            struct link l = {
                .latency_ms = 20, .bytes = 100000, .most = 24 * 100000 / 20.0, .noise = seed, .strength = strengths[i]};
            struct read_concurrency j;
            double limit;
            read_concurrency_init(&j);
            delivered += run(&j, &l, 1000, false, &limit) / 20;
            limits += limit / 20;
        }
        assert_true(delivered > 0.9);
        assert_true(limits < 100);
    }
}

static void test_read_concurrency__a_server_that_breaks_under_many_is_left_alone(void **state)
{
    struct link l = {.latency_ms = 20, .bytes = 100000, .most = 1e9, .breaks = 50};
    struct read_concurrency j;
    read_concurrency_init(&j);
    unsigned above = 0;
    for (unsigned i = 0; i < 400; i++) {
        (void)run(&j, &l, 1, false, NULL);
        above += j.limit > 50;
    }
    assert_true(above < 100);
}

static void test_read_concurrency__a_slower_link_is_followed_down(void **state)
{
    struct link l = {.latency_ms = 20, .bytes = 100000, .most = 200 * 100000 / 20.0};
    struct read_concurrency j;
    double limit;
    read_concurrency_init(&j);
    (void)run(&j, &l, 50, false, NULL);
    assert_true(j.limit >= 128);
    l.most /= 20;
    (void)run(&j, &l, 400, false, NULL);
    assert_true(run(&j, &l, 100, false, &limit) >= 0.9);
    assert_true(limit <= 64);
}

static void test_read_concurrency__a_near_source_gets_few_until_more_bring_more(void **state)
{
    /* from memory: two deliver all there is */
    struct link l = {.latency_ms = 0.1, .bytes = 10000, .most = 2 * 10000 / 0.1};
    struct read_concurrency j;
    double limit;
    read_concurrency_init_near(&j, 2);
    assert_int_equal(j.limit, 2 * READ_CONCURRENCY_NEAR_PER_CPU);
    assert_true(run(&j, &l, 400, false, &limit) >= 0.95);
    assert_true(limit <= 2 * READ_CONCURRENCY_NEAR_PER_CPU);
    /* a slow disk, or a directory that is on a server after all */
    l = (struct link){.latency_ms = 20, .bytes = 100000, .most = 40 * 100000 / 20.0};
    read_concurrency_init_near(&j, 2);
    (void)run(&j, &l, 20, false, NULL);
    assert_true(run(&j, &l, 400, false, NULL) >= 0.9);
}

static void test_read_concurrency__a_near_source_begins_within_bounds(void **state)
{
    struct read_concurrency j;
    read_concurrency_init_near(&j, 0);
    assert_int_equal(j.limit, READ_CONCURRENCY_NEAR_LEAST);
    read_concurrency_init_near(&j, 1000);
    assert_int_equal(j.limit, READ_CONCURRENCY_FIRST);
}

static void test_read_concurrency__nothing_is_concluded_while_the_writer_is_behind(void **state)
{
    struct link l = {.latency_ms = 20, .bytes = 100000, .most = 1e9};
    struct read_concurrency j;
    read_concurrency_init(&j);
    (void)run(&j, &l, 100, true, NULL);
    assert_int_equal(j.limit, READ_CONCURRENCY_FIRST);
    l.most = 1e-9; /* nothing comes at all */
    (void)run(&j, &l, 100, false, NULL);
    assert_true(j.limit <= 2 * READ_CONCURRENCY_FIRST);
}

static void test_read_concurrency__an_interval_has_enough_answers_to_judge(void **state)
{
    struct read_concurrency j;
    read_concurrency_init(&j);
    assert_false(read_concurrency_interval_over(&j, READ_CONCURRENCY_INTERVAL_MS - 1, 100000));
    assert_false(read_concurrency_interval_over(&j, READ_CONCURRENCY_INTERVAL_MS, 2 * READ_CONCURRENCY_FIRST - 1));
    assert_true(read_concurrency_interval_over(&j, READ_CONCURRENCY_INTERVAL_MS, 2 * READ_CONCURRENCY_FIRST));
    assert_true(read_concurrency_interval_over(&j, READ_CONCURRENCY_INTERVAL_MAX_MS, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_concurrency__a_link_is_filled_soon_and_not_overfilled),
        cmocka_unit_test(test_read_concurrency__noise_drives_it_nowhere),
        cmocka_unit_test(test_read_concurrency__a_server_that_breaks_under_many_is_left_alone),
        cmocka_unit_test(test_read_concurrency__a_slower_link_is_followed_down),
        cmocka_unit_test(test_read_concurrency__a_near_source_gets_few_until_more_bring_more),
        cmocka_unit_test(test_read_concurrency__a_near_source_begins_within_bounds),
        cmocka_unit_test(test_read_concurrency__nothing_is_concluded_while_the_writer_is_behind),
        cmocka_unit_test(test_read_concurrency__an_interval_has_enough_answers_to_judge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

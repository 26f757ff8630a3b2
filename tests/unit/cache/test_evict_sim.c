/* Replayed traces: the optimum against an exhaustive search, the policies against the optimum. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "cache/policy/evict_sim.h"

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static struct evict_trace trace_of(uint64_t seed, unsigned asks, unsigned chunks)
{
    struct evict_trace t = {0};
    for (unsigned i = 0; i < asks; i++)
        assert_int_equal(evict_trace_ask(&t, mix(1000 + mix(seed * 100000 + i) % chunks), 100, 100), 0);
    return t;
}

static uint64_t optimum_of(const struct evict_trace *t, uint64_t size)
{
    struct evict_sim_result r;
    assert_int_equal(evict_sim_optimum(t, size, &r), 0);
    uint64_t hits = r.hits;
    evict_sim_release(&r);
    return hits;
}

/* The most hits from ask i on with these chunks (bits) in a cache of `slots`. */
static uint64_t best_of(const struct evict_trace *t, size_t i, unsigned in, unsigned slots)
{
    if (i == t->asks.len)
        return 0;
    unsigned mine = 1u << t->asks.items[i];
    if (in & mine)
        return 1 + best_of(t, i + 1, in, slots);
    uint64_t best = best_of(t, i + 1, in, slots); /* not kept */
    if ((unsigned)__builtin_popcount(in) < slots)
        return GR_MAX(best, best_of(t, i + 1, in | mine, slots));
    for (unsigned c = 0; c < t->chunks.len; c++)
        if (in & 1u << c) {
            uint64_t with = best_of(t, i + 1, (in & ~(1u << c)) | mine, slots);
            best = GR_MAX(best, with);
        }
    return best;
}

static void test_evict_sim__the_optimum_is_what_a_search_of_all_ways_finds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct evict_trace t = trace_of(seed, 12, 5);
        for (unsigned slots = 1; slots <= 3; slots++)
            assert_int_equal(optimum_of(&t, slots * 100), best_of(&t, 0, 0, slots));
        evict_trace_release(&t);
    }
}

static void test_evict_sim__no_policy_beats_the_optimum(void **state)
{
    (void)state;
    struct evict_trace t = trace_of(7, 20000, 500);
    for (uint64_t size = 100; size <= 60000; size = size * 3 / 2)
        for (unsigned policy = 0; policy < EVICT_POLICIES; policy++) {
            struct evict_sim_result r;
            assert_int_equal(evict_sim_policy(&t, size, policy, &r), 0);
            assert_true(r.hits <= optimum_of(&t, size));
            assert_true(r.asks == 20000 && r.ask_bytes == 2000000 && r.hit_bytes == r.hits * 100);
            uint64_t came = r.asks - r.hits - r.not_admitted;
            assert_true(came >= r.evictions && came - r.evictions <= size / 100);
            if (size >= 50000)
                assert_int_equal(r.hits, 20000 - t.chunks.len); /* it all fits */
            evict_sim_release(&r);
        }
    evict_trace_release(&t);
}

static void test_evict_sim__epochs_are_counted_apart(void **state)
{
    (void)state;
    struct evict_trace t = {0};
    assert_int_equal(evict_trace_epoch(&t), 0); /* nothing yet: none */
    for (unsigned epoch = 0; epoch < 3; epoch++) {
        for (uint64_t k = 0; k < 4; k++)
            assert_int_equal(evict_trace_ask(&t, mix(k), 10, 10), 0);
        if (epoch < 2)
            assert_int_equal(evict_trace_epoch(&t), 0);
    }
    assert_int_equal(evict_trace_epoch_count(&t), 3);
    struct evict_sim_result r;
    assert_int_equal(evict_sim_policy(&t, 40, EVICT_LRU, &r), 0);
    assert_int_equal(r.epochs.len, 3);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(r.epochs.items[i].asks, 4);
        assert_int_equal(r.epochs.items[i].hits, i ? 4 : 0);
    }
    evict_sim_release(&r);
    evict_trace_release(&t);
}

static void test_evict_sim__unequal_chunks_never_take_more_than_the_size(void **state)
{
    (void)state;
    struct evict_trace t = {0};
    for (unsigned i = 0; i < 20000; i++) {
        uint64_t k = mix(i) % 300;
        assert_int_equal(evict_trace_ask(&t, mix(k), (uint32_t)(1 + k * 7), 1), 0);
    }
    for (unsigned policy = 0; policy < EVICT_POLICIES; policy++) {
        struct evict_sim_result r;
        assert_int_equal(evict_sim_policy(&t, 1500, policy, &r), 0); /* some are larger than that */
        assert_true(r.hits > 0 && r.hit_bytes < r.ask_bytes);
        evict_sim_release(&r);
    }
    evict_trace_release(&t);
}

static void test_evict_sim__a_chunk_has_one_length(void **state)
{
    (void)state;
    struct evict_trace t = {0};
    assert_int_equal(evict_trace_ask(&t, 5, 10, 10), 0);
    assert_int_equal(evict_trace_ask(&t, 5, 11, 11), -EINVAL);
    assert_int_equal(t.asks.len, 1);
    evict_trace_release(&t);
}

static void test_evict_sim__an_empty_trace_has_no_hits(void **state)
{
    (void)state;
    struct evict_trace t = {0};
    struct evict_sim_result r;
    assert_int_equal(evict_sim_policy(&t, 100, EVICT_AUTO, &r), 0);
    assert_int_equal(r.asks + r.hits + r.epochs.len, 0);
    evict_sim_release(&r);
    assert_int_equal(optimum_of(&t, 100), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_evict_sim__the_optimum_is_what_a_search_of_all_ways_finds),
        cmocka_unit_test(test_evict_sim__no_policy_beats_the_optimum),
        cmocka_unit_test(test_evict_sim__epochs_are_counted_apart),
        cmocka_unit_test(test_evict_sim__unequal_chunks_never_take_more_than_the_size),
        cmocka_unit_test(test_evict_sim__a_chunk_has_one_length),
        cmocka_unit_test(test_evict_sim__an_empty_trace_has_no_hits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

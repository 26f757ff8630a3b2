/* What may be fetched ahead of whom: the rule by leaf, who claims a chunk, and what is forgotten. */
#include "unit/cmocka_all.h"

#include "image/image_internal.h"

enum { CHUNK = 64 << 10, PAGES = CHUNK / DEMAND_PAGE, LEAVES = 3 };

static void begin(struct demand *d, uint64_t chunks)
{
    assert_int_equal(demand_init(d, chunks, CHUNK), 0);
}

/* n chunks of a leaf, from `first` on, are missed and read. */
static struct demand_leaf *miss(struct demand *d, uint64_t leaf, uint32_t first, uint32_t n, uint32_t len)
{
    struct demand_leaf *l = NULL;
    for (uint32_t i = first; i < first + n; i++) {
        l = demand_missed(d, leaf, i);
        assert_non_null(l);
        assert_false(demand_read(d, l, i, len));
    }
    return l;
}

static void test_demand__a_leaf_is_known_from_its_first_miss_on(void **state)
{
    struct demand d = {0};
    begin(&d, LEAVES * INDEX_FANOUT);
    assert_null(demand_leaf(&d, 1));
    assert_int_equal(demand_credit(&d, 1), 0);
    miss(&d, 1, 5, 1, CHUNK);
    assert_non_null(demand_leaf(&d, 1));
    assert_null(demand_leaf(&d, 0));
    demand_release(&d);
}

static void test_demand__up_to_a_sixteenth_of_a_leaf_allows_nothing(void **state)
{
    struct demand d = {0};
    begin(&d, LEAVES * INDEX_FANOUT);
    struct demand_leaf *leaf = miss(&d, 0, 0, INDEX_FANOUT / 16, CHUNK);
    assert_int_equal(demand_credit(&d, 0), 0);
    miss(&d, 0, INDEX_FANOUT / 16, 1, CHUNK);
    assert_int_equal(demand_credit(&d, 0), 8);
    for (uint32_t i = 0; i < 8; i++)
        assert_true(demand_claim(leaf, 500 + i));
    assert_int_equal(demand_credit(&d, 0), 0);
    assert_true(demand_read(&d, leaf, 500, CHUNK)); /* one was of use: it is unread no more, and counts as asked */
    assert_int_equal(demand_credit(&d, 0), 9);
    demand_release(&d);
}

static void test_demand__three_sixteenths_of_a_leaf_allow_all_of_it_and_of_no_other(void **state)
{
    struct demand d = {0};
    begin(&d, LEAVES * INDEX_FANOUT);
    miss(&d, 2, 0, INDEX_FANOUT * 3 / 16, CHUNK);
    assert_int_equal(demand_credit(&d, 2), INDEX_FANOUT);
    miss(&d, 1, 7, 1, CHUNK);
    assert_int_equal(demand_credit(&d, 1), 0);
    demand_release(&d);
}

/* A sample of a twentieth of the files, of which one leaf got more by chance. */
static void test_demand__where_less_than_a_sixteenth_of_all_was_read_a_leaf_needs_an_eighth(void **state)
{
    struct demand d = {0};
    begin(&d, LEAVES * INDEX_FANOUT);
    miss(&d, 0, 0, INDEX_FANOUT / 20, CHUNK);
    miss(&d, 1, 0, INDEX_FANOUT / 20, CHUNK);
    miss(&d, 2, 0, INDEX_FANOUT / 12, CHUNK);
    assert_int_equal(demand_credit(&d, 2), 0);
    miss(&d, 2, INDEX_FANOUT / 12, 5, CHUNK); /* now it is a sixteenth of the three */
    assert_int_equal(demand_credit(&d, 2), 8 * (INDEX_FANOUT / 12 + 5 - INDEX_FANOUT / 16));
    assert_int_equal(demand_credit(&d, 1), 0);
    demand_release(&d);

    begin(&d, LEAVES * INDEX_FANOUT);
    miss(&d, 0, 0, 1, CHUNK);
    miss(&d, 1, 0, 1, CHUNK);
    miss(&d, 2, 0, INDEX_FANOUT / 8 + 1, CHUNK); /* the three have 192 chunks as a sixteenth, and less was read */
    assert_int_equal(demand_credit(&d, 2), 8);
    demand_release(&d);
}

/* What was read of a leaf whose chunks were evicted counts no more. */
static void test_demand__what_is_forgotten_of_a_leaf_is_forgotten_of_all(void **state)
{
    struct demand d = {0};
    begin(&d, LEAVES * INDEX_FANOUT);
    struct demand_leaf *leaf = miss(&d, 0, 0, INDEX_FANOUT, CHUNK);
    demand_exhausted(leaf, true);
    miss(&d, 1, 0, INDEX_FANOUT / 16 + 1, CHUNK);
    assert_int_equal(demand_credit(&d, 1), 8);
    miss(&d, 0, 0, 1, CHUNK);
    assert_int_equal(demand_credit(&d, 1), 0);
    demand_release(&d);
}

static void test_demand__the_same_chunk_again_is_no_more_demand(void **state)
{
    struct demand d = {0};
    begin(&d, INDEX_FANOUT);
    for (int i = 0; i < 1000; i++)
        miss(&d, 0, 3, 1, CHUNK);
    assert_int_equal(demand_credit(&d, 0), 0);
    demand_release(&d);
}

static void test_demand__a_short_last_leaf_has_its_own_measure(void **state)
{
    struct demand d = {0};
    begin(&d, INDEX_FANOUT + 16);
    miss(&d, 1, 0, 3, CHUNK);
    assert_int_equal(demand_credit(&d, 1), 16);
    demand_release(&d);
}

static void test_demand__a_chunk_is_claimed_once_until_it_is_read_or_given_up(void **state)
{
    struct demand d = {0};
    begin(&d, INDEX_FANOUT);
    struct demand_leaf *leaf = miss(&d, 0, 0, 1, CHUNK);
    assert_true(demand_claim(leaf, 9));
    assert_false(demand_claim(leaf, 9));
    demand_unclaim(leaf, 9);
    assert_true(demand_claim(leaf, 9));
    assert_true(demand_read(&d, leaf, 9, 1));
    assert_false(demand_read(&d, leaf, 9, 1));
    demand_unclaim(leaf, 9);
    assert_int_equal(leaf->unread_count, 0);
    demand_release(&d);
}

static void test_demand__a_complete_leaf_begins_anew_with_the_next_miss(void **state)
{
    struct demand d = {0};
    begin(&d, INDEX_FANOUT);
    struct demand_leaf *leaf = miss(&d, 0, 0, INDEX_FANOUT / 2, CHUNK);
    demand_exhausted(leaf, true);
    assert_true(demand_is_complete(leaf));
    assert_int_equal(demand_credit(&d, 0), 0);
    miss(&d, 0, 0, INDEX_FANOUT / 16 + 1, CHUNK);
    assert_false(demand_is_complete(leaf));
    assert_int_equal(demand_credit(&d, 0), 8);
    demand_release(&d);
}

static void test_demand__what_found_nothing_is_tried_again_when_more_was_asked(void **state)
{
    struct demand d = {0};
    begin(&d, INDEX_FANOUT);
    struct demand_leaf *leaf = miss(&d, 0, 0, INDEX_FANOUT / 2, CHUNK);
    demand_exhausted(leaf, false);
    assert_int_equal(demand_credit(&d, 0), 0);
    miss(&d, 0, INDEX_FANOUT / 2, 8, CHUNK);
    assert_int_equal(demand_credit(&d, 0), INDEX_FANOUT);
    demand_release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demand__a_leaf_is_known_from_its_first_miss_on),
        cmocka_unit_test(test_demand__up_to_a_sixteenth_of_a_leaf_allows_nothing),
        cmocka_unit_test(test_demand__three_sixteenths_of_a_leaf_allow_all_of_it_and_of_no_other),
        cmocka_unit_test(test_demand__where_less_than_a_sixteenth_of_all_was_read_a_leaf_needs_an_eighth),
        cmocka_unit_test(test_demand__what_is_forgotten_of_a_leaf_is_forgotten_of_all),
        cmocka_unit_test(test_demand__the_same_chunk_again_is_no_more_demand),
        cmocka_unit_test(test_demand__a_short_last_leaf_has_its_own_measure),
        cmocka_unit_test(test_demand__a_chunk_is_claimed_once_until_it_is_read_or_given_up),
        cmocka_unit_test(test_demand__a_complete_leaf_begins_anew_with_the_next_miss),
        cmocka_unit_test(test_demand__what_found_nothing_is_tried_again_when_more_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

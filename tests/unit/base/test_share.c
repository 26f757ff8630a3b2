/* What one user of a pool may take, and what is always left to the others. */
#include "base/share.h"
#include "unit/cmocka_all.h"

static void test_share__one_user_has_three_quarters_and_the_last_slot_is_for_others(void **state)
{
    enum { POOL = 64 };
    unsigned one = 0, more = 0;
    while (share_allows(one, POOL - one))
        one++;
    assert_int_equal(one, POOL * 3 / 4);
    while (share_allows(more, POOL - one - more))
        more++;
    assert_true(more > 0);
    unsigned free = POOL - one - more;
    assert_true(free >= 1);
    assert_true(share_allows(0, free)); /* a third one that has nothing */
    assert_false(share_allows(1, 1));
    assert_false(share_allows(0, 0));
}

static void test_share__one_user_has_two_thirds_of_parts_and_two_have_two_fifths_each(void **state)
{
    enum { POOL = 300 };
    size_t one = 0, a = 0, b = 0;
    while (share_allows_part(one, 1, one, POOL))
        one++;
    assert_int_equal(one, POOL * 2 / 3);
    for (bool took = true; took;) {
        took = false;
        if (share_allows_part(a, 1, a + b, POOL))
            a++, took = true;
        if (share_allows_part(b, 1, a + b, POOL))
            b++, took = true;
    }
    assert_in_range(a, POOL * 2 / 5 - 1, POOL * 2 / 5 + 1);
    assert_in_range(b, POOL * 2 / 5 - 1, POOL * 2 / 5 + 1);
}

static void test_share__who_has_nothing_may_take_all_that_is_left_and_no_more(void **state)
{
    assert_true(share_allows_part(0, 100, 200, 300));
    assert_false(share_allows_part(0, 101, 200, 300));
    assert_false(share_allows_part(0, 1, 301, 300));
    assert_false(share_allows_part(10, 200, 190, 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share__one_user_has_three_quarters_and_the_last_slot_is_for_others),
        cmocka_unit_test(test_share__one_user_has_two_thirds_of_parts_and_two_have_two_fifths_each),
        cmocka_unit_test(test_share__who_has_nothing_may_take_all_that_is_left_and_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

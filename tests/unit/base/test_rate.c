/* A bucket that fills at a rate. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/rate.h"

#define MS UINT64_C(1000000)

static void test_rate__bytes_take_their_time_behind_a_burst(void **state)
{
    CLEANUP(rate_release) struct rate r;
    rate_init(&r, 1000);
    const uint64_t now = 5000 * MS;
    assert_int_equal(rate_charge(&r, RATE_BURST_MS, now), now); /* 1 byte a millisecond: the burst */
    assert_int_equal(rate_charge(&r, 50, now), now + 50 * MS);
    assert_int_equal(rate_charge(&r, 50, now), now + 100 * MS); /* the next one waits behind */
    assert_int_equal(rate_charge(&r, 10, now + 105 * MS), now + 110 * MS);
    /* time that nobody used comes back as the burst alone */
    assert_int_equal(rate_charge(&r, RATE_BURST_MS + 7, 100 * now), 100 * now + 7 * MS);
}

static void test_rate__many_small_takes_and_one_large_are_the_same(void **state)
{
    CLEANUP(rate_release) struct rate small, large;
    const uint64_t now = 5000 * MS, rate = UINT64_C(3) << 30;
    uint64_t last = 0;
    rate_init(&small, rate);
    rate_init(&large, rate);
    for (int i = 0; i < 1000; i++)
        last = rate_charge(&small, 16 << 10, now);
    uint64_t at_once = rate_charge(&large, 1000 * (16 << 10), now);
    assert_true(last <= at_once && at_once - last < 1000); /* a nanosecond a take */
    assert_int_equal(rate_charge(&large, rate << 30, 1000000 * MS), (1000000 - RATE_BURST_MS) * MS + (1000 * MS << 30));
}

static void test_rate__taking_waits_and_is_cancelled(void **state)
{
    CLEANUP(rate_release) struct rate r;
    const volatile int cancel = 1;
    assert_true(rate_take(NULL, UINT64_MAX, &cancel));
    rate_init(&r, 1000);
    uint64_t begin = clock_now_ms();
    assert_true(rate_take(&r, RATE_BURST_MS + 50, NULL));
    assert_true(clock_now_ms() - begin >= 49);
    assert_false(rate_take(&r, 1000000, &cancel));
}

static void test_cancel__sleeping_ends_at_the_moment_or_by_the_flag(void **state)
{
    const volatile int set = 1, clear = 0;
    assert_true(cancel_asked(&set) && !cancel_asked(&clear) && !cancel_asked(NULL));
    assert_false(cancel_sleep_until(UINT64_MAX, &set));
    uint64_t until = clock_now_us() + 20000;
    assert_true(cancel_sleep_until(until, &clear));
    assert_true(clock_now_us() >= until);
    assert_true(cancel_sleep_until(until, &set)); /* the moment is there: nothing was waited for */
}

static void test_rate__texts(void **state)
{
    uint64_t v;
    assert_int_equal(rate_parse("bwlimit", "100M", &v), 0);
    assert_int_equal(v, 100 << 20);
    assert_int_equal(rate_parse("bwlimit", "1.5MiB/s", &v), 0);
    assert_int_equal(v, 3 << 19);
    assert_int_equal(rate_parse("bwlimit", "64K/s", &v), 0);
    static const char *const bad[] = {"", "/s", "M/s", "10M/m", "10M/s/s", "-1", "10 M/s", "0", "63K"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++)
        assert_int_equal(rate_parse("bwlimit", bad[i], &v), -EINVAL);
    assert_string_equal(error_text(), "bwlimit: 63K is less than the 64K a second it must be");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rate__bytes_take_their_time_behind_a_burst),
        cmocka_unit_test(test_rate__many_small_takes_and_one_large_are_the_same),
        cmocka_unit_test(test_rate__taking_waits_and_is_cancelled),
        cmocka_unit_test(test_cancel__sleeping_ends_at_the_moment_or_by_the_flag),
        cmocka_unit_test(test_rate__texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

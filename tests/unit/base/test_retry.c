/* Pauses, what the other side asked for, and when operations in trouble are logged. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/retry.h"

static unsigned lines;
static char last_line[1024];

static void collect_line(enum log_level level, const char *line)
{
    assert_int_equal(level, LOG_LEVEL_WARNING);
    lines++;
    snprintf(last_line, sizeof last_line, "%s", line);
}

static void test_retry__pauses_are_spread_over_all_that_is_allowed(void **state)
{
    bool seen[4] = {false};
    for (int i = 0; i < 1000; i++) {
        uint64_t n = retry_jitter(3);
        assert_in_range(n, 0, 3);
        seen[n] = true;
    }
    for (int i = 0; i < 4; i++)
        assert_true(seen[i]);
    assert_int_equal(retry_jitter(0), 0);
}

static void test_retry__a_long_retry_after_is_cut(void **state)
{
    (void)error_set(-EAGAIN, "busy");
    assert_int_equal(retry_asked_ms(), 0);
    (void)error_retry_after(-EAGAIN, 7);
    assert_int_equal(retry_asked_ms(), 7000);
    (void)error_retry_after(-EAGAIN, 86400);
    assert_int_equal(retry_asked_ms(), 60000);
}

static void test_retry__one_line_after_seconds_then_none_for_half_a_minute(void **state)
{
    _Atomic uint64_t warned_ms = 0;
    log_to(collect_line, LOG_LEVEL_INFO);
    (void)error_set(-EAGAIN, "the store is down");
    uint64_t now = clock_now_ms();
    retry_warn(&warned_ms, now, 9000, "");
    assert_int_equal(lines, 0);
    retry_warn(&warned_ms, now - 3000, 9000, "source: ");
    assert_int_equal(lines, 1);
    assert_string_equal(last_line, "source: the store is down; trying again for up to 9 s");
    retry_warn(&warned_ms, now - 9000, 9000, "");
    assert_int_equal(lines, 1);
    warned_ms -= 20000;
    retry_warn(&warned_ms, now - 9000, 9000, "");
    assert_int_equal(lines, 1);
    warned_ms -= 10000;
    retry_warn(&warned_ms, now - 9000, 9000, "");
    assert_int_equal(lines, 2);
    log_to(NULL, LOG_LEVEL_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retry__pauses_are_spread_over_all_that_is_allowed),
        cmocka_unit_test(test_retry__a_long_retry_after_is_cut),
        cmocka_unit_test(test_retry__one_line_after_seconds_then_none_for_half_a_minute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

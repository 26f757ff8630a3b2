/* The health of a directory: every cell of the table in cache_dir.h. */
#include "unit/cmocka_all.h"

#include "cache/disk/cache_dir.h"

enum { NOW = 1000000 };

static struct health in_state(enum health_state state)
{
    struct health h = {0};
    if (state != HEALTH_NORMAL)
        assert_true(health_note(&h, state == HEALTH_DOWN ? HEALTH_TIMEOUT : HEALTH_FAULT, NOW));
    assert_int_equal(h.state, state);
    return h;
}

static void expect(enum health_state from, enum health_event event, uint64_t after_ms, enum health_state to)
{
    struct health h = in_state(from);
    assert_int_equal(health_note(&h, event, NOW + after_ms), from != to);
    assert_int_equal(h.state, to);
}

static void test_health__normal_becomes_suspect_by_a_fault_and_down_by_silence(void **state)
{
    expect(HEALTH_NORMAL, HEALTH_GOOD, 0, HEALTH_NORMAL);
    expect(HEALTH_NORMAL, HEALTH_FAULT, 0, HEALTH_SUSPECT);
    expect(HEALTH_NORMAL, HEALTH_WRONG, 0, HEALTH_SUSPECT);
    expect(HEALTH_NORMAL, HEALTH_TIMEOUT, 0, HEALTH_DOWN);
}

static void test_health__suspect_becomes_normal_when_it_was_well_for_long_enough(void **state)
{
    expect(HEALTH_SUSPECT, HEALTH_GOOD, HEALTH_NORMAL_AFTER_MS - 1, HEALTH_SUSPECT);
    expect(HEALTH_SUSPECT, HEALTH_GOOD, HEALTH_NORMAL_AFTER_MS, HEALTH_NORMAL);
    expect(HEALTH_SUSPECT, HEALTH_PROBE_GOOD, HEALTH_NORMAL_AFTER_MS - 1, HEALTH_SUSPECT);
    expect(HEALTH_SUSPECT, HEALTH_PROBE_GOOD, HEALTH_NORMAL_AFTER_MS, HEALTH_NORMAL);
    struct health h = in_state(HEALTH_SUSPECT);
    assert_false(health_note(&h, HEALTH_WRONG, NOW + 9000)); /* the ten seconds begin anew */
    assert_false(health_note(&h, HEALTH_GOOD, NOW + HEALTH_NORMAL_AFTER_MS));
    assert_true(health_note(&h, HEALTH_GOOD, NOW + 9000 + HEALTH_NORMAL_AFTER_MS));
    assert_int_equal(h.probe_wait_ms, 0);
}

static void test_health__suspect_becomes_down_by_silence_or_a_bad_probe(void **state)
{
    expect(HEALTH_SUSPECT, HEALTH_TIMEOUT, 5, HEALTH_DOWN);
    expect(HEALTH_SUSPECT, HEALTH_PROBE_BAD, 5, HEALTH_DOWN);
    expect(HEALTH_SUSPECT, HEALTH_FAULT, 5, HEALTH_SUSPECT);
}

static void test_health__faults_in_a_row_are_down_and_faults_apart_are_not(void **state)
{
    struct health h = {0};
    for (int i = 1; i < HEALTH_FAULTS_MAX; i++)
        assert_int_equal(health_note(&h, HEALTH_FAULT, NOW + (uint64_t)i), i == 1);
    assert_true(health_note(&h, HEALTH_FAULT, NOW + 100));
    assert_int_equal(h.state, HEALTH_DOWN);

    h = (struct health){0};
    for (int i = 0; i < 100; i++) {
        health_note(&h, HEALTH_FAULT, NOW);
        health_note(&h, HEALTH_GOOD, NOW);
    }
    assert_int_equal(h.state, HEALTH_SUSPECT);
}

static void test_health__damaged_slots_alone_never_bring_it_down(void **state)
{
    struct health h = {0};
    for (int i = 0; i < 100; i++)
        health_note(&h, HEALTH_WRONG, NOW);
    assert_int_equal(h.state, HEALTH_SUSPECT);
}

static void test_health__down_is_left_by_a_good_probe_alone(void **state)
{
    for (enum health_event e = HEALTH_GOOD; e <= HEALTH_TIMEOUT; e++)
        expect(HEALTH_DOWN, e, 1000000, HEALTH_DOWN);
    expect(HEALTH_DOWN, HEALTH_PROBE_BAD, 1000, HEALTH_DOWN);
    expect(HEALTH_DOWN, HEALTH_PROBE_GOOD, 1000, HEALTH_SUSPECT);
}

static void test_health__probes_of_what_is_down_come_at_growing_intervals(void **state)
{
    struct health h = in_state(HEALTH_DOWN);
    uint64_t now = NOW;
    uint32_t wait = HEALTH_PROBE_MIN_MS;
    for (int i = 0; i < 8; i++) {
        assert_false(health_wants_probe(&h, now + wait - 1));
        assert_true(health_wants_probe(&h, now + wait));
        now += wait;
        health_note(&h, HEALTH_PROBE_BAD, now);
        wait = wait * 2 > HEALTH_PROBE_MAX_MS ? HEALTH_PROBE_MAX_MS : wait * 2;
    }
    assert_int_equal(wait, HEALTH_PROBE_MAX_MS);
}

static void test_health__one_that_relapses_is_left_alone_for_longer(void **state)
{
    struct health h = in_state(HEALTH_DOWN);
    health_note(&h, HEALTH_PROBE_GOOD, NOW + 1000);
    health_note(&h, HEALTH_TIMEOUT, NOW + 2000);
    assert_int_equal(h.state, HEALTH_DOWN);
    assert_false(health_wants_probe(&h, NOW + 2000 + HEALTH_PROBE_MIN_MS));
    assert_true(health_wants_probe(&h, NOW + 2000 + 2 * HEALTH_PROBE_MIN_MS));
    /* ... until it was normal */
    health_note(&h, HEALTH_PROBE_GOOD, NOW + 4000);
    assert_true(health_note(&h, HEALTH_GOOD, NOW + 4000 + HEALTH_NORMAL_AFTER_MS));
    health_note(&h, HEALTH_TIMEOUT, NOW + 20000);
    assert_true(health_wants_probe(&h, NOW + 20000 + HEALTH_PROBE_MIN_MS));
}

static void test_health__suspect_is_probed_every_second_and_normal_never(void **state)
{
    struct health h = in_state(HEALTH_SUSPECT);
    assert_false(health_wants_probe(&h, NOW + HEALTH_PROBE_MIN_MS - 1));
    assert_true(health_wants_probe(&h, NOW + HEALTH_PROBE_MIN_MS));
    health_note(&h, HEALTH_PROBE_GOOD, NOW + HEALTH_PROBE_MIN_MS);
    assert_false(health_wants_probe(&h, NOW + 2 * HEALTH_PROBE_MIN_MS - 1));
    assert_true(health_wants_probe(&h, NOW + 2 * HEALTH_PROBE_MIN_MS));
    h = in_state(HEALTH_NORMAL);
    assert_false(health_wants_probe(&h, UINT64_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_health__normal_becomes_suspect_by_a_fault_and_down_by_silence),
        cmocka_unit_test(test_health__suspect_becomes_normal_when_it_was_well_for_long_enough),
        cmocka_unit_test(test_health__suspect_becomes_down_by_silence_or_a_bad_probe),
        cmocka_unit_test(test_health__faults_in_a_row_are_down_and_faults_apart_are_not),
        cmocka_unit_test(test_health__damaged_slots_alone_never_bring_it_down),
        cmocka_unit_test(test_health__down_is_left_by_a_good_probe_alone),
        cmocka_unit_test(test_health__probes_of_what_is_down_come_at_growing_intervals),
        cmocka_unit_test(test_health__one_that_relapses_is_left_alone_for_longer),
        cmocka_unit_test(test_health__suspect_is_probed_every_second_and_normal_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a server's health is judged by, and its rates by its own history. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <jansson.h>

#include "server/control_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"
#include "unit/fetch_world.h"

static void assert_store(struct store_health h, enum server_health health, const char *word)
{
    struct server_store_state got;
    assert_int_equal(server_health_of_store(&h, &got), health);
    assert_string_equal(got.word, word);
}

static void test_server_health__a_store_is_what_its_readers_feel(void **state)
{
    assert_store((struct store_health){0}, SERVER_HEALTHY, "answering");
    assert_store((struct store_health){.read_waits_ms = SERVER_READ_SLOW_MS - 1}, SERVER_HEALTHY, "answering");
    assert_store((struct store_health){.read_waits_ms = SERVER_READ_SLOW_MS}, SERVER_DEGRADED, "slow");
    assert_store((struct store_health){.read_waits_ms = SERVER_READ_STUCK_MS}, SERVER_FAILING, "stuck");
    assert_store((struct store_health){.failures = 1}, SERVER_DEGRADED, "failing");
    assert_store((struct store_health){.failures = 1, .read_waits_ms = SERVER_READ_STUCK_MS}, SERVER_FAILING, "stuck");
    assert_store((struct store_health){.failures = 8, .silent = true}, SERVER_FAILING, "silent");
    assert_store((struct store_health){.refusals = 1}, SERVER_DEGRADED, "refusing");
    assert_store((struct store_health){.refusals = SERVER_REFUSALS_FAILING - 1}, SERVER_DEGRADED, "refusing");
    assert_store((struct store_health){.refusals = SERVER_REFUSALS_FAILING}, SERVER_FAILING, "refusing");
}

/* Archived or forbidden packs are a few objects, wrong keys are all of them. */
static void test_server_health__what_is_refused_is_an_object_or_the_keys(void **state)
{
    struct store_health h = {.refusals = SERVER_FORBIDDEN_FAILING - 1, .refusal_code = -EACCES};
    assert_store(h, SERVER_DEGRADED, "refusing");
    h.refusals++;
    assert_store(h, SERVER_FAILING, "refusing");
    assert_store((struct store_health){.refusals = 1, .refusal_code = -ENOKEY}, SERVER_FAILING, "refusing");
}

/* Nobody reads, so nobody finds out that the store answers again. */
static void test_server_health__old_silence_degrades(void **state)
{
    struct store_health h = {.silent = true, .failures = 8, .failing_ms = 900000, .failed_ms = SERVER_OLD_MS - 1};
    assert_store(h, SERVER_FAILING, "silent");
    h.failed_ms++;
    assert_store(h, SERVER_DEGRADED, "silent");
    h.read_waits_ms = SERVER_READ_STUCK_MS;
    assert_store(h, SERVER_FAILING, "silent");
}

/* Nor that the keys are good again. */
static void test_server_health__old_refusals_degrade(void **state)
{
    struct store_health h = {.refusals = SERVER_REFUSALS_FAILING, .refused_ms = SERVER_OLD_MS - 1};
    assert_store(h, SERVER_FAILING, "refusing");
    h.refused_ms++;
    assert_store(h, SERVER_DEGRADED, "refusing");
    h.failures = 1;
    assert_store(h, SERVER_DEGRADED, "failing");
}

/* Word, time and sentence come from what the health comes from. */
static void test_server_health__refusals_explain_what_they_decide(void **state)
{
    struct server_store_state got;
    struct store_health h = {.refusals = SERVER_REFUSALS_FAILING,
                             .refusing_ms = 20000,
                             .refusal = "the keys are wrong",
                             .failures = 1,
                             .failing_ms = 1000,
                             .last = "reset"};
    assert_int_equal(server_health_of_store(&h, &got), SERVER_FAILING);
    assert_string_equal(got.word, "refusing");
    assert_int_equal(got.for_ms, 20000);
    assert_string_equal(got.error, "the keys are wrong");
    h.refusals = 1;
    assert_int_equal(server_health_of_store(&h, &got), SERVER_DEGRADED);
    assert_string_equal(got.word, "failing");
    assert_int_equal(got.for_ms, 1000);
    assert_string_equal(got.error, "reset");
}

static void test_server_health__a_directory_or_a_proxy_degrades(void **state)
{
    assert_int_equal(server_health_of_dir(&(struct cache_dir_report){.reading = "normal", .writing = "normal"}),
                     SERVER_HEALTHY);
    assert_int_equal(server_health_of_dir(&(struct cache_dir_report){.reading = "normal", .writing = "down"}),
                     SERVER_DEGRADED);
    assert_int_equal(
        server_health_of_dir(&(struct cache_dir_report){.reading = "normal", .writing = "normal", .deleted = true}),
        SERVER_DEGRADED);
    assert_int_equal(server_health_of_l2(&(struct store_l2_report){.down = false}), SERVER_HEALTHY);
    assert_int_equal(server_health_of_l2(&(struct store_l2_report){.down = true}), SERVER_DEGRADED);
    assert_int_equal(server_health_of_l2(&(struct store_l2_report){.down = true, .untried = true}), SERVER_HEALTHY);
}

static void test_server_health__a_get_is_waited_for_until_it_has_come(void **state)
{
    struct world w;
    world_init(&w, &(struct fetch_config){.workers = 1}, 4);
    assert_int_equal(fetch_longest_wait_us(w.fetch, w.store), 0);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *inflight = start_one(&w, 0, PRIORITY_DEMAND);
    for (uint64_t since = 0, before = 0; before < 2000; before = fetch_longest_wait_us(w.fetch, w.store))
        counter_pause(&since, "a reader that waits");
    assert_int_equal(fetch_longest_wait_us(w.fetch, NULL), 0); /* for another store nobody waits */
    store_fake_release(w.fake);
    expect_bytes(&w, inflight, 0);
    assert_int_equal(fetch_longest_wait_us(w.fetch, w.store), 0);

    store_fake_hold(w.fake, FAKE_GET); /* what nobody waits for keeps nobody waiting */
    start(&w, (const unsigned[]){8}, 1, PRIORITY_WARM, NULL);
    for (uint64_t since = 0; !count_of(&w, "busy_workers");)
        counter_pause(&since, "a get");
    assert_int_equal(fetch_longest_wait_us(w.fetch, w.store), 0);
    store_fake_release(w.fake);
    world_release(&w);
}

static void test_history__rates_are_what_came_since_the_sample(void **state)
{
    struct history_row rows[] = {{.number = 3, .sums = {10, 1000}}, {.number = 7, .sums = {5, 500}}};
    const struct history_sample then = {.at_us = 1000000, .rows = {.items = rows, .len = 2, .cap = 2}};
    double rates[HISTORY_SUMS];
    history_rates(&then, 7, (const uint64_t[HISTORY_SUMS]){9, 2500}, 3000000, rates);
    assert_int_equal(rates[HISTORY_READS], 2);
    assert_int_equal(rates[HISTORY_READ_BYTES], 1000);
    assert_int_equal(rates[HISTORY_STORE_BYTES], 0);
    history_rates(&then, 5, (const uint64_t[HISTORY_SUMS]){9, 2500}, 2000000, rates); /* added since */
    assert_int_equal(rates[HISTORY_READS], 9);
    history_rates(&then, 3, (const uint64_t[HISTORY_SUMS]){20, 2000}, 1000000, rates);
    assert_int_equal(rates[HISTORY_READS], 0);
}

/* The first sample is taken when the server starts: nobody waits a second for the second one. */
static void test_history__the_first_status_has_rates(void **state)
{
    static struct control_world w;
    static uint8_t got[CONTROL_CHUNK];
    struct history *h = NULL;
    CLEANUP_BYTES out = BYTES_INIT(1 << 16);
    control_world_init(&w);
    assert_int_equal(history_new(w.stack, &h), 0);
    assert_int_equal(image_read(image_at(w.stack, 0), got, 0, sizeof got), 0);
    assert_int_equal(control_status(w.stack, NULL, NULL, h, &out), 0);
    json_t *status = json_loadb((const char *)out.data, out.len, 0, NULL);
    json_t *export = json_array_get(json_object_get(status, "exports"), 0);
    assert_true(json_number_value(json_object_get(json_object_get(export, "rates"), "read_bytes")) > 0);
    assert_true(json_equal(json_object_get(export, "rates"), json_object_get(status, "rates")));
    assert_true(json_number_value(json_object_get(status, "rates_over_s")) > 0);
    json_decref(status);
    history_free(h);
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_health__a_store_is_what_its_readers_feel),
        cmocka_unit_test(test_server_health__what_is_refused_is_an_object_or_the_keys),
        cmocka_unit_test(test_server_health__old_silence_degrades),
        cmocka_unit_test(test_server_health__old_refusals_degrade),
        cmocka_unit_test(test_server_health__refusals_explain_what_they_decide),
        cmocka_unit_test(test_server_health__a_directory_or_a_proxy_degrades),
        cmocka_unit_test(test_server_health__a_get_is_waited_for_until_it_has_come),
        cmocka_unit_test(test_history__rates_are_what_came_since_the_sample),
        cmocka_unit_test(test_history__the_first_status_has_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

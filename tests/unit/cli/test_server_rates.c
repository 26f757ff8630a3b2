/* The rates of exports that come and go between two answers of a server. */
#include "unit/cmocka_all.h"

#include "cli/servers.h"

static json_t *answer(int pid, int uptime_ms, json_t *exports)
{
    return json_pack("{s:i,s:i,s:o}", "pid", pid, "uptime_ms", uptime_ms, "exports", exports);
}

static json_t *export(const char *name, int reads)
{
    return json_pack("{s:s,s:i}", "name", name, "reads", reads);
}

static double reads_of(json_t *status, const char *name)
{
    json_t *found = server_status_export(status, name);
    assert_non_null(found);
    return server_rate(found, "reads");
}

static void test_server_rates__an_export_is_compared_with_itself(void **state)
{
    json_t *before = answer(7, 1000, json_pack("[o,o,o]", export("gone", 5000), export("kept", 10), export("idle", 3)));
    json_t *now = answer(7, 3000, json_pack("[o,o,o]", export("new", 8), export("idle", 3), export("kept", 110)));
    server_rates_add(now, before);
    assert_true(reads_of(now, "kept") == 50);
    assert_true(reads_of(now, "idle") == 0);
    assert_true(reads_of(now, "new") == 4);
    assert_true(server_rate(now, "reads") == 54);
    assert_null(server_status_export(now, "gone"));
    json_decref(before);
    json_decref(now);
}

static void test_server_rates__after_a_restart_from_its_beginning(void **state)
{
    json_t *before = answer(7, 9000, json_pack("[o]", export("kept", 1000)));
    json_t *now = answer(8, 500, json_pack("[o]", export("kept", 20)));
    server_rates_add(now, before);
    assert_true(reads_of(now, "kept") == 40);
    json_decref(before);
    json_decref(now);
}

static json_t *latency(int pid, int fast, int middling, int beyond)
{
    return json_pack("{s:i,s:{s:[i,i],s:[i,i,i]}}", "pid", pid, "read_latency", "bounds_us", 50, 200, "counts", fast,
                     middling, beyond);
}

static uint64_t latency_between(json_t *before, json_t *now, unsigned percent)
{
    uint64_t us = server_latency_us(now, before, percent);
    json_decref(before);
    json_decref(now);
    return us;
}

static void test_server_rates__latency_is_of_the_reads_in_between(void **state)
{
    assert_int_equal(latency_between(latency(7, 0, 1000, 0), latency(7, 99, 1001, 0), 50), 50);
    assert_int_equal(latency_between(latency(7, 0, 1000, 0), latency(7, 99, 1001, 0), 99), 50);
    assert_int_equal(latency_between(latency(7, 0, 1000, 0), latency(7, 98, 1002, 0), 99), 200);
    assert_int_equal(latency_between(latency(7, 5, 5, 5), latency(7, 5, 5, 6), 50), UINT64_MAX);
    assert_int_equal(latency_between(latency(7, 5, 5, 5), latency(7, 5, 5, 5), 50), 0);
    assert_int_equal(latency_between(latency(7, 0, 1000, 0), latency(8, 3, 0, 0), 99), 50);
    assert_int_equal(latency_between(json_pack("{s:i}", "pid", 7), json_pack("{s:i}", "pid", 7), 50), 0);
}

static void test_server_rates__hits_are_the_share_of_bytes_from_this_machine(void **state)
{
    json_t *busy = json_pack("{s:{s:f,s:f,s:f,s:f}}", "rates", "memory_bytes", 10.0, "disk_bytes", 20.0, "l2_bytes",
                             30.0, "store_bytes", 40.0);
    json_t *idle = json_pack("{s:{}}", "rates");
    assert_true(server_hit_percent(busy) == 30);
    assert_true(server_hit_percent(idle) < 0);
    json_decref(busy);
    json_decref(idle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_rates__an_export_is_compared_with_itself),
        cmocka_unit_test(test_server_rates__after_a_restart_from_its_beginning),
        cmocka_unit_test(test_server_rates__latency_is_of_the_reads_in_between),
        cmocka_unit_test(test_server_rates__hits_are_the_share_of_bytes_from_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

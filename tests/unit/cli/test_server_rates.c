/* The rates of exports that come and go between two answers of a server. */
#include "unit/cmocka_all.h"

#include "cli/server_rates.h"
#include "cli/server_status.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_rates__an_export_is_compared_with_itself),
        cmocka_unit_test(test_server_rates__after_a_restart_from_its_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

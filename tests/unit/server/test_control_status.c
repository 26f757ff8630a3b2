/* What /status says of stores and shared cache proxies that fail, and of the server's health then. */
#include "unit/cmocka_all.h"

#include <jansson.h>
#include <sys/resource.h>

#include "server/control_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"

/* A second stack on the world's image, without a cache: every read asks. proxy: NULL: none. */
static struct stack *open_uncached(struct control_world *w, const char *proxy)
{
    char ref[SCRATCH_MAX + 16];
    struct stack *stack = NULL;
    snprintf(ref, sizeof ref, "%s/faces", w->dir);
    const struct stack_image image = {.ref = ref};
    const struct stack_config config = {.images = &image,
                                        .image_count = 1,
                                        .store = {.timeout_ms = 1},
                                        .l2 = {proxy},
                                        .l2_count = proxy ? 1 : 0,
                                        .cache = {.fetch = {.workers = 2}},
                                        .no_completion = true};
    assert_int_equal(stack_open(&config, &stack), 0);
    assert_int_equal(stack_start_threads(stack), 0);
    return stack;
}

static int read_chunk(struct stack *stack)
{
    static uint8_t got[CONTROL_CHUNK];
    return image_read(image_at(stack, 0), got, 0, sizeof got);
}

static json_t *status_of(struct stack *stack)
{
    CLEANUP_BYTES out = BYTES_INIT(1 << 16);
    assert_int_equal(control_status(stack, NULL, NULL, NULL, &out), 0);
    json_t *status = json_loadb((const char *)out.data, out.len, 0, NULL);
    assert_non_null(status);
    return status;
}

static void assert_text(json_t *object, const char *key, const char *value)
{
    assert_non_null(json_string_value(json_object_get(object, key)));
    assert_string_equal(json_string_value(json_object_get(object, key)), value);
}

/* No file can be opened until the limit that it returns is set again. */
static struct rlimit forbid_open(void)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    return before;
}

static void test_control_status__a_store_whose_last_tries_failed_is_failing(void **state)
{
    static struct control_world w;
    control_world_init(&w);
    struct stack *stack = open_uncached(&w, NULL);
    const struct rlimit before = forbid_open();
    int rc = read_chunk(stack);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_not_equal(rc, 0);

    json_t *status = status_of(stack), *store = json_array_get(json_object_get(status, "stores"), 0);
    assert_text(store, "state", "failing");
    assert_true(json_integer_value(json_object_get(store, "failures")) > 0);
    assert_non_null(strstr(json_string_value(json_object_get(store, "error")), "Too many open files"));
    assert_text(status, "health", "degraded");
    assert_non_null(strstr(json_string_value(json_object_get(status, "health_reason")), "Too many open files"));
    json_decref(status);

    assert_int_equal(read_chunk(stack), 0);
    status = status_of(stack);
    store = json_array_get(json_object_get(status, "stores"), 0);
    assert_text(store, "state", "answering");
    assert_text(status, "health", "healthy");
    assert_null(json_object_get(status, "health_reason"));
    assert_null(json_object_get(store, "error"));
    json_decref(status);
    stack_close(stack);
    control_world_release(&w);
}

static void test_control_status__a_shared_proxy_that_is_down_leaves_nobody_well(void **state)
{
    static struct control_world w;
    bool down = false;
    control_world_init(&w);
    struct stack *stack = open_uncached(&w, "http://127.0.0.1:1/a"); /* nobody listens there */
    while (!down) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports proxies;
        assert_int_equal(read_chunk(stack), 0);
        stack_l2(stack, &proxies);
        assert_int_equal(proxies.len, 1);
        down = proxies.items[0].down;
    }
    json_t *status = status_of(stack);
    assert_text(json_array_get(json_object_get(status, "l2"), 0), "state", "down");
    assert_text(status, "health", "degraded");
    json_decref(status);
    stack_close(stack);
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_control_status__a_store_whose_last_tries_failed_is_failing),
        cmocka_unit_test(test_control_status__a_shared_proxy_that_is_down_leaves_nobody_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

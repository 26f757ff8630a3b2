/* What of the plugin needs no nbdkit: its parameters, nbdkit's command line, the control socket. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/error.h"
#include "plugin/plugin_internal.h"
#include "server/server_internal.h"
#include "stack_options.h"
#include "unit/control_world.h"
#include "unit/exports.h"

/* ---- parameters ---- */

static void test_plugin__an_export_name_is_told_from_a_reference(void **state)
{
    struct stack_options o;
    stack_options_init(&o);
    assert_int_equal(stack_options_set(&o, "image", "s3://lake/images/faces:v1"), 0);
    assert_int_equal(stack_options_set(&o, "image", "old faces=/srv/a=b/faces"), 0);
    assert_int_equal(stack_options_set(&o, "image", "/srv/a=b/faces"), 0);
    assert_int_equal(stack_options_complete(&o), 0);
    assert_int_equal(o.stack.image_count, 3);
    assert_null(o.stack.images[0].export_name);
    assert_string_equal(o.stack.images[0].ref, "s3://lake/images/faces:v1");
    assert_string_equal(o.stack.images[1].export_name, "old faces");
    assert_string_equal(o.stack.images[1].ref, "/srv/a=b/faces");
    assert_null(o.stack.images[2].export_name);
    assert_string_equal(o.stack.images[2].ref, "/srv/a=b/faces");
    stack_options_release(&o);
}

static void test_plugin__every_parameter_reaches_the_stack(void **state)
{
    struct stack_options o;
    char here[PATH_MAX], expected[PATH_MAX + 16];
    stack_options_init(&o);
    static const char *const given[][2] = {
        {"image", "/s/i"},
        {"cache", "/ssd:1/c:2G"},
        {"cache", "rel:64M:hdd"},
        {"endpoint", "http://h:1"},
        {"index-memory", "128M"},
        {"readahead", "0"},
        {"fill", "off"},
        {"memory", "1G"},
        {"cache-compressed", "yes"},
        {"timeout", "2m"},
        {"slow-read", "0"},
        {"connections", "100"},
        {"control", "ctl.socket"},
        {"quota", "team/faces:1G"},
        {"eviction", "sticky"},
        {"l2", "http://c1:80/s"},
        {"l2", "https://c2/s"},
        {"hedge", "10"},
        {"metrics", "h:9"},
        {"console", "h:10"},
        {"console-token", "token"},
        {"console-admin-token", "/admin"},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(given); i++)
        assert_int_equal(stack_options_set(&o, given[i][0], given[i][1]), 0);
    assert_int_equal(stack_options_complete(&o), 0);
    assert_int_equal(o.stack.cache.dir_count, 2);
    assert_int_equal(o.stack.cache.memory, 1 << 30);
    assert_true(o.stack.cache.compressed);
    assert_int_equal(o.stack.cache.quota_count, 1);
    assert_string_equal(o.stack.cache.quotas[0].name, "team/faces");
    assert_int_equal(o.stack.cache.quotas[0].size, 1 << 30);
    assert_int_equal(o.stack.cache.eviction, EVICT_STICKY);
    assert_string_equal(o.stack.cache.dirs[0].path, "/ssd:1/c");
    assert_int_equal(o.stack.cache.dirs[0].size, 2ull << 30);
    assert_false(o.stack.cache.dirs[0].hdd);
    assert_int_equal(o.stack.cache.dirs[1].size, 64 << 20);
    assert_true(o.stack.cache.dirs[1].hdd);
    assert_non_null(getcwd(here, sizeof here));
    snprintf(expected, sizeof expected, "%s/rel", here);
    assert_string_equal(o.stack.cache.dirs[1].path, expected);
    snprintf(expected, sizeof expected, "%s/ctl.socket", here);
    assert_string_equal(o.control, expected);
    assert_string_equal(o.metrics, "h:9");
    assert_string_equal(o.console, "h:10");
    snprintf(expected, sizeof expected, "%s/token", here);
    assert_string_equal(o.console_token, expected);
    assert_string_equal(o.console_admin_token, "/admin");
    assert_string_equal(o.stack.store.endpoint, "http://h:1");
    assert_int_equal(o.stack.cache.fetch.hedge_percent, 10);
    assert_int_equal(o.stack.l2_count, 2);
    assert_string_equal(o.stack.l2[0], "http://c1:80/s");
    assert_string_equal(o.stack.l2[1], "https://c2/s");
    assert_int_equal(o.stack.index_memory, 128 << 20);
    assert_int_equal(o.stack.readahead, 0);
    assert_true(o.stack.no_completion);
    assert_int_equal(o.stack.store.timeout_ms, 120000);
    assert_int_equal(o.stack.cache.fetch.workers, 100);
    assert_int_equal(o.stack.store.connections, 100);
    stack_options_release(&o);
}

static void test_plugin__a_cache_may_be_a_share_of_its_filesystem(void **state)
{
    struct stack_options o;
    stack_options_init(&o);
    assert_int_equal(stack_options_set(&o, "cache", "/ssd:1/c:90%"), 0);
    assert_string_equal(o.stack.cache.dirs[0].path, "/ssd:1/c");
    assert_int_equal(o.stack.cache.dirs[0].size, 0);
    assert_int_equal(o.stack.cache.dirs[0].percent, 90);
    stack_options_release(&o);
}

static void test_plugin__watermarks_are_two_percentages(void **state)
{
    static const char *const wrong[] = {"95",     "95:",  ":90",    "90:95",   "90:90",
                                        "100:90", "95:0", "95:90%", "95:90:1", "x"};
    struct stack_options o;
    stack_options_init(&o);
    assert_int_equal(o.stack.cache.watermark.high, 0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++)
        assert_int_equal(stack_options_set(&o, "watermark", wrong[i]), -EINVAL);
    assert_int_equal(stack_options_set(&o, "watermark", "95:90"), 0);
    assert_int_equal(o.stack.cache.watermark.high, 95);
    assert_int_equal(o.stack.cache.watermark.low, 90);
    stack_options_release(&o);
}

static void test_plugin__the_disk_timeout_is_seconds_to_minutes(void **state)
{
    static const char *const wrong[] = {"0", "0s", "11m", "x", ""};
    struct stack_options o;
    stack_options_init(&o);
    assert_int_equal(o.stack.cache.disk_timeout_ms, 2000);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++)
        assert_int_equal(stack_options_set(&o, "disk-timeout", wrong[i]), -EINVAL);
    assert_int_equal(stack_options_set(&o, "disk-timeout", "10m"), 0);
    assert_int_equal(o.stack.cache.disk_timeout_ms, 600000);
    stack_options_release(&o);
}

static void test_plugin__wrong_parameters_are_refused_by_name(void **state)
{
    static const char *const wrong[][2] = {
        {"cache", "/dir"},          {"cache", ":1G"},
        {"cache", "/dir:"},         {"cache", "/dir:big"},
        {"cache", "/dir:0%"},       {"cache", "/dir:100%"},
        {"cache", "/dir:%"},        {"cache", "/dir:9x%"},
        {"cache", "/dir:hdd"},      {"cache", "/dir:1G:tape"},
        {"index-memory", "1K"},     {"readahead", "33M"},
        {"readahead", "x"},         {"fill", "on"},
        {"connections", "0"},       {"connections", "257"},
        {"timeout", "0"},           {"timeout", "8d"},
        {"timeout", "soon"},        {"cache-compressed", "maybe"},
        {"quota", "faces"},         {"quota", ":1G"},
        {"quota", "faces:15M"},     {"memory", "15M"},
        {"memory", "lots"},         {"colour", "red"},
        {"eviction", "fifo"},       {"hedge", "51"},
        {"hedge", "few"},           {"l2", "cache1:8080"},
        {"l2", "s3://lake/images"}, {"metrics", "9464"},
        {"metrics", "127.0.0.1:"},  {"metrics", "127.0.0.1:70000"},
        {"console", "9465"},
    };
    struct stack_options o;
    stack_options_init(&o);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        assert_int_equal(stack_options_set(&o, wrong[i][0], wrong[i][1]), -EINVAL);
        if (!strstr(error_text(), wrong[i][0]))
            fail_msg("'%s' does not name %s", error_text(), wrong[i][0]);
    }
    assert_int_equal(stack_options_complete(&o), -EINVAL);
    assert_non_null(strstr(error_text(), "no image"));
    assert_int_equal(stack_options_set(&o, "image", "/s/i"), 0);
    assert_int_equal(stack_options_set(&o, "console-token", "/token"), 0);
    assert_int_equal(stack_options_complete(&o), -EINVAL);
    assert_non_null(strstr(error_text(), "need console="));
    for (int i = 0; i < CACHE_DIRS_MAX; i++)
        assert_int_equal(stack_options_set(&o, "cache", "/d:1G"), 0);
    assert_int_equal(stack_options_set(&o, "cache", "/d:1G"), -EINVAL);
    for (int i = 0; i < CACHE_QUOTAS_MAX; i++)
        assert_int_equal(stack_options_set(&o, "quota", "faces:1G"), 0);
    assert_int_equal(stack_options_set(&o, "quota", "faces:1G"), -EINVAL);
    for (int i = 0; i < STORE_L2_LISTS_MAX; i++)
        assert_int_equal(stack_options_set(&o, "l2", "http://c/s"), 0);
    assert_int_equal(stack_options_set(&o, "l2", "http://c/s"), -EINVAL);
    stack_options_release(&o);
}

/* What a server needs to be a node, and what only a node may have; the last one is good. */
static void test_plugin__a_node_needs_a_list_a_cache_and_a_key(void **state)
{
    static const struct {
        const char *given[5][2], *said; /* said NULL: it is good */
    } cases[] = {
        {{{"peer-listen", "h:9"}}, "l2="},
        {{{"peer-listen", "h:9"}, {"l2", "/list"}}, "cache="},
        {{{"peer-listen", "h:9"}, {"l2", "/list"}, {"cache", "/d:1G"}}, "peer-key="},
        {{{"peer-key", "none"}, {"l2", "/list"}, {"cache", "/d:1G"}}, "peer-listen"},
        {{{"peer-key", "none"}, {"peer-keep", "none"}}, "peer-listen"},
        {{{"peer-keep", "none"}, {"l2", "/list"}, {"cache", "/d:1G"}}, "peer-listen"},
        {{{"peer-listen", "h:9"}, {"l2", "/list"}, {"cache", "/d:1G"}, {"peer-key", "none"}, {"peer-keep", "hot"}},
         NULL},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct stack_options o;
        stack_options_init(&o);
        assert_int_equal(stack_options_set(&o, "image", "/s/i"), 0);
        assert_int_equal(stack_options_set(&o, "peer-listen", "h:0"), -EINVAL); /* nobody could ask there */
        for (size_t k = 0; k < 5 && cases[i].given[k][0]; k++)
            assert_int_equal(stack_options_set(&o, cases[i].given[k][0], cases[i].given[k][1]), 0);
        assert_int_equal(stack_options_complete(&o), cases[i].said ? -EINVAL : 0);
        if (cases[i].said && !strstr(error_text(), cases[i].said))
            fail_msg("'%s' does not name %s", error_text(), cases[i].said);
        stack_options_release(&o);
    }
}

#define THREADS(line) server_threads_parse(line, sizeof(line))

static void test_plugin__threads_are_read_as_nbdkit_reads_them(void **state)
{
    assert_int_equal(THREADS("nbdkit\0-t\0"
                             "256\0granary"),
                     256);
    assert_int_equal(THREADS("nbdkit\0-t256\0granary"), 256);
    assert_int_equal(THREADS("nbdkit\0-fvt\0"
                             "32\0granary"),
                     32);
    assert_int_equal(THREADS("nbdkit\0-fvt32\0granary"), 32);
    assert_int_equal(THREADS("nbdkit\0--threads=99\0granary"), 99);
    assert_int_equal(THREADS("nbdkit\0--threads\0"
                             "98\0granary"),
                     98);
    assert_int_equal(THREADS("nbdkit\0-t\0"
                             "1\0-t\0"
                             "2\0granary"),
                     2);
    assert_int_equal(THREADS("nbdkit\0granary"), SERVER_THREADS_DEFAULT);
    /* Not every t is a -t. */
    assert_int_equal(THREADS("nbdkit\0-U/tmp/t5\0granary"), SERVER_THREADS_DEFAULT);
    assert_int_equal(THREADS("nbdkit\0-U\0-t7\0granary"), SERVER_THREADS_DEFAULT);
    assert_int_equal(THREADS("nbdkit\0--tls=off\0-t\0"
                             "77\0granary"),
                     77);
    assert_int_equal(THREADS("nbdkit\0--\0-t\0"
                             "77"),
                     SERVER_THREADS_DEFAULT);
    /* What nbdkit would refuse, and what cannot be. */
    assert_int_equal(THREADS("nbdkit\0-t\0many\0granary"), SERVER_THREADS_DEFAULT);
    assert_int_equal(THREADS("nbdkit\0-t"), SERVER_THREADS_DEFAULT);
    assert_int_equal(server_threads_parse("nbdkit\0-t9", 10), SERVER_THREADS_DEFAULT);
    assert_int_equal(server_threads_parse("", 0), SERVER_THREADS_DEFAULT);
    assert_int_equal(server_threads(), SERVER_THREADS_DEFAULT); /* of this test */
}

/* ---- control socket ---- */

static void test_plugin__control_answers_metrics_and_status(void **state)
{
    static struct control_world w;
    struct control *c = NULL;
    static char answer[1 << 16];
    control_world_init(&w);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &c), 0);
    struct stat st;
    assert_int_equal(stat(w.path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(control_start(c), 0);

    control_ask(w.path, "GET /metrics HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, "200 OK"));
    assert_non_null(strstr(answer, "# TYPE granary_fetch_requests_total counter\ngranary_fetch_requests_total 0\n"));
    assert_non_null(strstr(answer, "# TYPE granary_fetch_in_flight gauge\n"));

    static uint8_t got[CONTROL_CHUNK];
    assert_int_equal(image_prefetch(image_at(w.stack, 0), 0, CONTROL_CHUNK), 0);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(image_read(image_at(w.stack, 0), got, i * CONTROL_CHUNK, CONTROL_CHUNK), 0);
    control_ask(w.path, "GET /status HTTP/1.0\r\n\r\n", answer);
    json_t *status = json_loads(strstr(answer, "\r\n\r\n") + 4, 0, NULL);
    assert_non_null(status);
    json_t *export = json_array_get(json_object_get(status, "exports"), 0);
    assert_string_equal(json_string_value(json_object_get(export, "name")), "faces");
    assert_int_equal(json_integer_value(json_object_get(export, "size")), w.img.size);
    assert_int_equal(json_integer_value(json_object_get(export, "reads")), 2);
    assert_int_equal(json_integer_value(json_object_get(export, "read_bytes")), 2 * CONTROL_CHUNK);
    assert_int_equal(json_integer_value(json_object_get(export, "disk_bytes")), CONTROL_CHUNK);
    assert_int_equal(json_integer_value(json_object_get(export, "store_bytes")), CONTROL_CHUNK);
    assert_int_equal(json_integer_value(json_object_get(export, "memory_bytes")), 0);
    assert_true(json_real_value(json_object_get(export, "hit_ratio")) == 0.5);
    assert_string_equal(json_string_value(json_object_get(status, "health")), "healthy");
    char expected[80] = "sha256:";
    digest_hex(&w.img.digest, expected + 7);
    assert_string_equal(json_string_value(json_object_get(export, "digest")), expected);
    assert_int_equal(json_integer_value(json_object_get(status, "pid")), getpid());
    json_t *counters = json_object_get(status, "counters");
    uint64_t fetched = json_integer_value(json_object_get(counters, "granary_fetch_bytes_total"));
    uint64_t warmed = json_integer_value(json_object_get(counters, "granary_fetch_warm_bytes_total"));
    double amplification = json_real_value(json_object_get(status, "amplification"));
    assert_true(warmed > 0 && fetched > warmed);
    assert_true((uint64_t)(amplification * 2 * CONTROL_CHUNK + 0.5) / 16 == (fetched - warmed) / 16);
    json_decref(status);

    control_ask(w.path, "GET /quiesce HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 405 "));
    do
        control_ask(w.path, "POST /quiesce HTTP/1.0\r\n\r\n", answer);
    while (strstr(answer, " 202 "));
    assert_non_null(strstr(answer, " 200 OK"));
    assert_non_null(strstr(answer, "{\"unwritten_bytes\":0}"));

    control_ask(w.path, "GET /nothing HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 404 "));
    control_ask(w.path, "PUT /status HTTP/1.0\r\nContent-Length: 0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 405 "));
    control_ask(w.path, "\x01\x02 nonsense\r\n\r\n", answer);
    control_ask(w.path, "GET /status HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, "200 OK"));
    control_close(c);
    assert_int_equal(access(w.path, F_OK), -1);
    control_world_release(&w);
}

static void test_plugin__control_replaces_a_stale_socket_and_nothing_else(void **state)
{
    static struct control_world w;
    struct control *first = NULL, *second = NULL;
    control_world_init(&w);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &first), 0);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &second), -EADDRINUSE);
    assert_int_equal(access(w.path, F_OK), 0);
    control_close(first);

    /* A socket whose server died. */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", w.path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &first), 0);

    /* A server that takes the path over keeps it when the old server ends. */
    assert_int_equal(unlink(w.path), 0);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &second), 0);
    control_close(first);
    assert_int_equal(access(w.path, F_OK), 0);
    control_close(second);

    FILE *f = fopen(w.path, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(control_open(w.path, w.stack, NULL, NULL, &first), -EEXIST);
    assert_int_equal(access(w.path, F_OK), 0);
    char missing[SCRATCH_MAX + 32];
    snprintf(missing, sizeof missing, "%s/no/control", w.dir);
    assert_int_equal(control_open(missing, w.stack, NULL, NULL, &first), -ENOENT);
    assert_non_null(strstr(error_text(), missing));
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plugin__an_export_name_is_told_from_a_reference),
        cmocka_unit_test(test_plugin__every_parameter_reaches_the_stack),
        cmocka_unit_test(test_plugin__a_node_needs_a_list_a_cache_and_a_key),
        cmocka_unit_test(test_plugin__a_cache_may_be_a_share_of_its_filesystem),
        cmocka_unit_test(test_plugin__watermarks_are_two_percentages),
        cmocka_unit_test(test_plugin__the_disk_timeout_is_seconds_to_minutes),
        cmocka_unit_test(test_plugin__wrong_parameters_are_refused_by_name),
        cmocka_unit_test(test_plugin__threads_are_read_as_nbdkit_reads_them),
        cmocka_unit_test(test_plugin__control_answers_metrics_and_status),
        cmocka_unit_test(test_plugin__control_replaces_a_stale_socket_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The metrics document: what it says of exports and of time, and that any export's name can stand in it. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/error.h"
#include "server/server_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"
#include "unit/tcp_ask.h"

static void assert_has(const char *document, const char *line)
{
    const char *at = strstr(document, line);
    if (!at || (at != document && at[-1] != '\n') || at[strlen(line)] != '\n')
        fail_msg("no line '%s', but %.200s", line, at ? at : "nothing like it");
}

/* The document; free. */
static char *metrics_of(struct stack *stack)
{
    struct bytes out = BYTES_INIT(METRICS_DOCUMENT_MAX);
    assert_int_equal(metrics_write(stack, NULL, &out), 0);
    assert_non_null(bytes_string(&out));
    return (char *)out.data;
}

static void read_chunks(struct stack *stack, size_t image, unsigned first, unsigned count)
{
    static uint8_t got[CONTROL_CHUNKS * CONTROL_CHUNK];
    struct image *img = image_at(stack, image);
    assert_int_equal(image_read(img, got, (uint64_t)first * CONTROL_CHUNK, count * CONTROL_CHUNK), 0);
}

static void test_metrics__an_export_says_where_its_bytes_came_from(void **state)
{
    static struct control_world w;
    control_world_init(&w);
    struct image *img = image_at(w.stack, 0);
    assert_int_equal(image_prefetch(img, 0, 2 * CONTROL_CHUNK), 0);
    read_chunks(w.stack, 0, 0, 2);
    read_chunks(w.stack, 0, 2, 1);
    CLEANUP_FREE char *m = metrics_of(w.stack);
    assert_has(m, "granary_export_reads_total{export=\"faces\"} 2");
    assert_has(m, "granary_export_read_bytes_total{export=\"faces\"} 196608");
    assert_has(m, "granary_export_served_total{export=\"faces\",from=\"memory\"} 0");
    assert_has(m, "granary_export_served_total{export=\"faces\",from=\"disk\"} 2");
    assert_has(m, "granary_export_served_total{export=\"faces\",from=\"store\"} 1");
    assert_has(m, "granary_export_served_bytes_total{export=\"faces\",from=\"disk\"} 131072");
    assert_has(m, "granary_export_served_bytes_total{export=\"faces\",from=\"store\"} 65536");
    assert_has(m, "granary_export_served_bytes_total{export=\"faces\",from=\"hole\"} 0");
    assert_has(m, "granary_export_served_bytes_total{export=\"faces\",from=\"l2\"} 0");
    assert_has(m, "granary_export_prefetches_total{export=\"faces\"} 1");
    assert_has(m, "granary_export_prefetch_bytes_total{export=\"faces\"} 131072");
    assert_has(m, "granary_read_seconds_count 2");
    assert_has(m, "granary_read_seconds_bucket{le=\"+Inf\"} 2");
    assert_has(m, "# TYPE granary_read_seconds histogram");
    assert_has(m, "granary_cache_disk_read_seconds_count 2"); /* one of the index */
    assert_null(strstr(m, "granary_store_get_seconds_count 0\n"));
    assert_has(m, "granary_l2_get_seconds_count 0");
    control_world_release(&w);
}

static void test_metrics__a_name_is_escaped_and_memory_is_told_from_the_store(void **state)
{
    static struct control_world w;
    char ref[SCRATCH_MAX + 16];
    struct stack *stack;
    control_world_init(&w);
    snprintf(ref, sizeof ref, "%s/faces", w.dir);
    const struct stack_image images[] = {{.ref = ref, .export_name = "a\"b\\cd\xff\xc3\xa9"},
                                         {.ref = ref, .export_name = "other"}};
    const struct stack_config config = {
        .images = images, .image_count = 2, .cache = {.memory = 16 << 20, .fetch = {.workers = 2}}};
    assert_int_equal(stack_open(&config, &stack), 0);
    assert_int_equal(stack_start_threads(stack), 0);
    assert_int_equal(image_prefetch(image_at(stack, 1), 0, CONTROL_CHUNK), 0);
    read_chunks(stack, 1, 0, 1);
    read_chunks(stack, 0, 1, 1);
    CLEANUP_FREE char *m = metrics_of(stack);
    assert_has(m, "granary_export_served_total{export=\"other\",from=\"memory\"} 1");
    assert_has(m, "granary_export_served_total{export=\"other\",from=\"store\"} 0");
    assert_has(m, "granary_export_served_total{export=\"a\\\"b\\\\cd\\\\xff\xc3\xa9\",from=\"memory\"} 0");
    assert_has(m, "granary_export_served_total{export=\"a\\\"b\\\\cd\\\\xff\xc3\xa9\",from=\"store\"} 1");
    assert_has(m, "granary_read_seconds_count 2"); /* of both */
    stack_close(stack);
    control_world_release(&w);
}

/* ---- over TCP ---- */

static void test_metrics_server__answers_the_document_and_nothing_else(void **state)
{
    static struct control_world w;
    struct metrics_server *m = NULL, *second = NULL;
    char taken[32];
    control_world_init(&w);
    assert_int_equal(metrics_server_open("127.0.0.1:0", w.stack, NULL, &m), 0);
    unsigned port = metrics_server_port(m);
    snprintf(taken, sizeof taken, "127.0.0.1:%u", port);
    assert_int_equal(metrics_server_open(taken, w.stack, NULL, &second), -EADDRINUSE);
    assert_non_null(strstr(error_text(), "metrics: another program listens on"));
    assert_non_null(strstr(error_text(), taken));
    assert_int_equal(metrics_server_open("9464", w.stack, NULL, &second), -EINVAL);
    assert_int_equal(metrics_server_start(m), 0);

    const char *answer = tcp_ask(port, "GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n");
    assert_starts(answer, "HTTP/1.1 200 ");
    assert_non_null(strstr(answer, "granary_export_reads_total{export=\"faces\"} 0\n"));
    answer = tcp_ask(port, "HEAD /metrics HTTP/1.1\r\nHost: g\r\n\r\n"); /* what probes ask; no body comes */
    assert_starts(answer, "HTTP/1.1 200 ");
    assert_null(strstr(answer, "granary_"));
    assert_starts(tcp_ask(port, "POST /metrics HTTP/1.1\r\nHost: g\r\nContent-Length: 3\r\n\r\nabc"), "HTTP/1.1 405 ");
    assert_starts(tcp_ask(port, "GET /status HTTP/1.1\r\nHost: g\r\n\r\n"), "HTTP/1.1 404 ");
    assert_starts(tcp_ask(port, "GET / HTTP/1.1\r\nHost: g\r\n\r\n"), "HTTP/1.1 404 ");
    assert_starts(tcp_ask(port, "POST /cache/evict?all=1 HTTP/1.1\r\nHost: g\r\nContent-Length: 0\r\n\r\n"),
                  "HTTP/1.1 404 ");
    metrics_server_close(m);
    control_world_release(&w);
}

static void test_metrics_server__connections_are_bounded(void **state)
{
    enum { MANY = 48, KEPT = 16 };
    static struct control_world w;
    struct metrics_server *m = NULL;
    int fds[MANY];
    char byte;
    control_world_init(&w);
    assert_int_equal(metrics_server_open("127.0.0.1:0", w.stack, NULL, &m), 0);
    assert_int_equal(metrics_server_start(m), 0);
    unsigned port = metrics_server_port(m);
    for (unsigned i = 0; i < MANY; i++)
        fds[i] = tcp_connect(port);
    for (unsigned i = KEPT; i < MANY; i++)
        assert_true(recv(fds[i], &byte, 1, 0) == 0 || errno == ECONNRESET);
    assert_int_equal(recv(fds[0], &byte, 1, MSG_DONTWAIT), -1); /* those come to an end after the others */
    assert_int_equal(errno, EAGAIN);
    for (unsigned i = 0; i < MANY; i++)
        close(fds[i]);
    while (!strstr(tcp_ask(port, "GET /metrics HTTP/1.1\r\nHost: g\r\n\r\n"), "granary_build_info"))
        ; /* it has not yet seen all of them go */
    metrics_server_close(m);
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__an_export_says_where_its_bytes_came_from),
        cmocka_unit_test(test_metrics__a_name_is_escaped_and_memory_is_told_from_the_store),
        cmocka_unit_test(test_metrics_server__answers_the_document_and_nothing_else),
        cmocka_unit_test(test_metrics_server__connections_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

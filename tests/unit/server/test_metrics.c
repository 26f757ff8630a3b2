/* The metrics document: what it says of exports and of time, and that any export's name can stand in it. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/clock.h"
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

/* The document; free. reports: NULL for none. */
static char *metrics_with(struct stack *stack, struct reports *reports)
{
    struct bytes out = BYTES_INIT(METRICS_DOCUMENT_MAX);
    assert_int_equal(metrics_write(stack, NULL, reports, &out), 0);
    assert_non_null(bytes_string(&out));
    return (char *)out.data;
}
static char *metrics_of(struct stack *stack)
{
    return metrics_with(stack, NULL);
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

/* ---- what followers report ---- */

static unsigned long value_of(const char *document, const char *row)
{
    const char *at = strstr(document, row);
    assert_non_null(at);
    return strtoul(at + strlen(row), NULL, 10);
}

static void test_metrics__a_followed_directory_has_rows_until_it_is_gone(void **state)
{
    static const union report keeps_up = {.followed = {.versions = 2, .switches = 7}};
    static const union report behind = {.followed = {.versions = 3, .switches = 8, .behind_s = 5}};
    static struct control_world w;
    struct reports *r;
    control_world_init(&w);
    assert_int_equal(reports_new(&r), 0);
    uint64_t now = clock_now_ms();
    assert_int_equal(reports_put(r, REPORT_FOLLOWED, "/data/a\"b", &keeps_up, now - 100000), 0);
    assert_int_equal(reports_put(r, REPORT_FOLLOWED, "/data/faces", &keeps_up, now - 200000), 0);
    assert_int_equal(reports_put(r, REPORT_FOLLOWED, "/data/faces", &behind, now), 0);
    assert_int_equal(reports_put(r, REPORT_FOLLOWED, "/data/late", &behind, now - 100000), 0);
    CLEANUP_FREE char *m = metrics_with(w.stack, r);
    assert_has(m, "# TYPE granary_follow_switches_total counter");
    assert_has(m, "granary_follow_versions{dir=\"/data/faces\"} 3");
    assert_has(m, "granary_follow_switches_total{dir=\"/data/faces\"} 8");
    assert_has(m, "granary_follow_behind_seconds{dir=\"/data/a\\\"b\"} 0"); /* however old the report is */
    assert_true(value_of(m, "granary_follow_report_age_seconds{dir=\"/data/a\\\"b\"} ") >= 100);
    assert_true(value_of(m, "granary_follow_behind_seconds{dir=\"/data/late\"} ") >= 105);
    reports_remove(r, REPORT_FOLLOWED, "/data/faces");
    reports_remove(r, REPORT_FOLLOWED, "/data/faces");
    CLEANUP_FREE char *after = metrics_with(w.stack, r);
    assert_null(strstr(after, "/data/faces"));
    assert_non_null(strstr(after, "granary_follow_versions{dir=\"/data/a"));
    reports_free(r);
    control_world_release(&w);
}

/* What a visit finds. */
struct seen {
    size_t rows;
    uint64_t age_s;
    bool oldest;
};

static int see(void *arg, const char *name, const union report *report, uint64_t age_s)
{
    struct seen *s = arg;
    *s = (struct seen){s->rows + 1, age_s, s->oldest || !strcmp(name, "/255")};
    return 0;
}

static void test_reports__the_oldest_makes_room(void **state)
{
    static const union report report = {.followed = {.versions = 1}};
    struct reports *r;
    struct seen seen = {0};
    char name[16];
    assert_int_equal(reports_new(&r), 0);
    for (int i = 0; i < REPORTS_MAX; i++) {
        snprintf(name, sizeof name, "/%d", i);
        assert_int_equal(reports_put(r, REPORT_FOLLOWED, name, &report, 2000 - (uint64_t)i),
                         0); /* the last is oldest */
    }
    assert_int_equal(reports_each(r, REPORT_FOLLOWED, 32000, see, &seen), 0);
    assert_int_equal(seen.rows, REPORTS_MAX);
    assert_int_equal(seen.age_s, 30);
    assert_true(seen.oldest);
    assert_int_equal(reports_put(r, REPORT_FOLLOWED, "/another", &report, 2000), 0);
    seen = (struct seen){0};
    assert_int_equal(reports_each(r, REPORT_FOLLOWED, 2000, see, &seen), 0);
    assert_int_equal(seen.rows, REPORTS_MAX);
    assert_false(seen.oldest);
    reports_free(r);
}

static void test_reports__one_comes_over_the_control_socket(void **state)
{
    static const char *const refused[] = {"PUT /followed?versions=1&switches=0&behind=0",
                                          "PUT /followed?dir=data&versions=1&switches=0&behind=0",
                                          "PUT /followed?dir=/data&versions=1&switches=0",
                                          "PUT /followed?dir=/data&versions=-1&switches=0&behind=0",
                                          "PUT /followed?dir=/data&versions=1&switches=0&behind=soon",
                                          "DELETE /followed",
                                          "DELETE /followed?dir=/data&versions=1",
                                          "PUT /kept?device=nbd1&pid=1&reconnects=0&failed=0",
                                          "PUT /kept?device=/dev/nbd1&pid=1&reconnects=0",
                                          "DELETE /kept"};
    static struct control_served s;
    static char answer[1 << 16];
    char request[256];
    control_served_init(&s);
    for (size_t i = 0; i < GR_ARRAY_SIZE(refused); i++) {
        snprintf(request, sizeof request, "%s HTTP/1.0\r\nContent-Length: 0\r\n\r\n", refused[i]);
        control_ask(s.w.path, request, answer);
        assert_non_null(strstr(answer, " 400 "));
    }
    control_ask(s.w.path,
                "PUT /followed?dir=/data&versions=2&switches=3&behind=0 HTTP/1.0\r\nContent-Length: 0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 200 "));
    control_ask(s.w.path, "GET /metrics HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, "\ngranary_follow_switches_total{dir=\"/data\"} 3\n"));
    control_ask(s.w.path, "DELETE /followed?dir=/data HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 200 "));
    control_ask(s.w.path, "GET /metrics HTTP/1.0\r\n\r\n", answer);
    assert_null(strstr(answer, "dir=\"/data\""));
    control_ask(s.w.path,
                "PUT /kept?device=/dev/nbd1&pid=7&reconnects=4&failed=2&error=no%20server HTTP/1.0\r\n"
                "Content-Length: 0\r\n\r\n",
                answer);
    assert_non_null(strstr(answer, " 200 "));
    control_ask(s.w.path, "GET /status HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, "\"keepers\":[{\"device\":\"/dev/nbd1\",\"state\":\"keeping\",\"pid\":7,"));
    assert_non_null(strstr(answer, "\"error\":\"no server\"}]"));
    control_ask(s.w.path, "DELETE /kept?device=/dev/nbd1 HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, " 200 "));
    control_ask(s.w.path, "GET /status HTTP/1.0\r\n\r\n", answer);
    assert_non_null(strstr(answer, "\"keepers\":[]"));
    control_served_release(&s);
}

/* ---- over TCP ---- */

static void test_metrics_server__answers_the_document_and_nothing_else(void **state)
{
    static struct control_world w;
    struct metrics_server *m = NULL, *second = NULL;
    char taken[32];
    control_world_init(&w);
    assert_int_equal(metrics_server_open("127.0.0.1:0", w.stack, NULL, NULL, &m), 0);
    unsigned port = metrics_server_port(m);
    snprintf(taken, sizeof taken, "127.0.0.1:%u", port);
    assert_int_equal(metrics_server_open(taken, w.stack, NULL, NULL, &second), -EADDRINUSE);
    assert_non_null(strstr(error_text(), "metrics: another program listens on"));
    assert_non_null(strstr(error_text(), taken));
    assert_int_equal(metrics_server_open("9464", w.stack, NULL, NULL, &second), -EINVAL);
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
    assert_int_equal(metrics_server_open("127.0.0.1:0", w.stack, NULL, NULL, &m), 0);
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
        cmocka_unit_test(test_metrics__a_followed_directory_has_rows_until_it_is_gone),
        cmocka_unit_test(test_reports__the_oldest_makes_room),
        cmocka_unit_test(test_reports__one_comes_over_the_control_socket),
        cmocka_unit_test(test_metrics_server__answers_the_document_and_nothing_else),
        cmocka_unit_test(test_metrics_server__connections_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The console: who is answered what, whatever they send; tokens; what the strips and the figures say. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "server/console_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"
#include "unit/tcp_ask.h"

#define TOKEN "0123456789abcdef-to-look"
#define ADMIN_TOKEN "0123456789abcdef-to-act"
#define HOST "Host: 127.0.0.1:9465\r\nConnection: close\r\n"
#define BEARER(token) "Authorization: Bearer " token "\r\n"

/* A console over a small image, with the tokens that are asked for. */
struct console_served {
    struct control_world w;
    struct reports *reports;
    struct console *console;
    unsigned port;
};

static void write_file(const struct control_world *w, const char *name, const char *text, char path[SCRATCH_MAX + 16])
{
    snprintf(path, SCRATCH_MAX + 16, "%s/%s", w->dir, name);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
}

static void console_served_init(struct console_served *s, bool token, bool admin)
{
    char token_path[SCRATCH_MAX + 16], admin_path[SCRATCH_MAX + 16];
    control_world_init(&s->w);
    write_file(&s->w, "token", TOKEN "\n", token_path);
    write_file(&s->w, "admin", ADMIN_TOKEN "\n", admin_path);
    const struct console_config config = {.address = "127.0.0.1:0",
                                          .token_file = token ? token_path : NULL,
                                          .admin_token_file = admin ? admin_path : NULL};
    assert_int_equal(reports_new(&s->reports), 0);
    assert_int_equal(console_open(&config, s->w.stack, NULL, s->reports, &s->console), 0);
    assert_int_equal(console_start(s->console), 0);
    s->port = console_port(s->console);
}

static void console_served_release(struct console_served *s)
{
    console_close(s->console);
    reports_free(s->reports);
    control_world_release(&s->w);
}

/* The document of now; drop it. */
static json_t *document(unsigned port, const char *headers)
{
    char request[512];
    json_error_t error;
    snprintf(request, sizeof request, "GET /api/status HTTP/1.1\r\n" HOST "%s\r\n", headers);
    const char *answer = tcp_ask(port, request);
    assert_starts(answer, "HTTP/1.1 200 ");
    json_t *root = json_loads(strstr(answer, "\r\n\r\n") + 4, 0, &error);
    if (!root)
        fail_msg("no JSON: %s", error.text);
    return root;
}

/* ---- figures ---- */

static void test_console__a_cell_is_a_character(void **state)
{
    assert_int_equal(console_strip_cell(0, 0, 0, 0, false), '-');
    assert_int_equal(console_strip_cell(0, 0, 0, 0, true), '?');
    assert_int_equal(console_strip_cell(32, 0, 0, 0, false), '0');
    assert_int_equal(console_strip_cell(32, 1, 0, 0, false), '1'); /* a part, however small */
    assert_int_equal(console_strip_cell(32, 31, 0, 0, false), '8');
    assert_int_equal(console_strip_cell(32, 32, 15, 0, false), '9');
    assert_int_equal(console_strip_cell(32, 32, 16, 0, false), 'j');
    assert_int_equal(console_strip_cell(1, 0, 0, 1, false), 'A');
    assert_int_equal(console_strip_cell(32, 16, 16, 1, false), 'E');
}

static void test_console__a_quantile_is_a_bound(void **state)
{
    uint64_t counts[HISTOGRAM_BOUNDS + 1] = {0};
    assert_int_equal(console_quantile(counts, 50), 0);
    counts[2] = 99;
    counts[5] = 1;
    assert_int_equal(console_quantile(counts, 50), histogram_bounds_us[2]);
    assert_int_equal(console_quantile(counts, 99), histogram_bounds_us[2]);
    assert_int_equal(console_quantile(counts, 100), histogram_bounds_us[5]);
    counts[HISTOGRAM_BOUNDS] = 100;
    assert_true(console_quantile(counts, 99) == UINT64_MAX);
}

static void test_console__a_strip_says_where_chunks_are(void **state)
{
    static struct console_served s;
    char expected[CONTROL_CHUNKS + 1];
    console_served_init(&s, false, false);
    struct image *img = image_at(s.w.stack, 0);
    assert_int_equal(image_prefetch(img, 10 * CONTROL_CHUNK, 20 * CONTROL_CHUNK), 0);
    memset(expected, '0', sizeof expected - 1);
    memset(expected + 10, '9', 20);
    expected[CONTROL_CHUNKS] = 0;
    for (bool same = false; !same;) { /* the thread comes to it */
        CLEANUP_JSON json_t *root = document(s.port, "");
        json_t *export = json_array_get(json_object_get(root, "exports"), 0);
        const char *strip = json_string_value(json_object_get(export, "strip"));
        assert_true(!*strip || strlen(strip) == CONTROL_CHUNKS);
        same = !strcmp(strip, expected);
        if (same)
            assert_true(json_real_value(json_object_get(export, "cached_share")) == 0.5);
    }
    console_served_release(&s);
}

static void test_console__the_document_is_that_of_status_and_more(void **state)
{
    static struct console_served s;
    static uint8_t got[4 * CONTROL_CHUNK];
    console_served_init(&s, false, false);
    assert_int_equal(image_read(image_at(s.w.stack, 0), got, 0, sizeof got), 0);
    CLEANUP_JSON json_t *root = document(s.port, "");
    static const char *const members[] = {
        "version", "node",     "uptime_ms", "exports", "exports_total", "stores",  "health",   "cache_directories",
        "l2",      "counters", "hops",      "saved",   "acts",          "keepers", "following"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(members); i++)
        if (!json_object_get(root, members[i]))
            fail_msg("no member %s", members[i]);
    assert_true(json_is_false(json_object_get(root, "acts")));
    assert_int_equal(json_integer_value(json_object_get(root, "exports_total")), 1);
    json_t *reads = json_array_get(json_object_get(root, "hops"), 0);
    assert_string_equal(json_string_value(json_object_get(reads, "hop")), "reads");
    assert_int_equal(json_integer_value(json_object_get(reads, "bytes")), sizeof got);
    assert_int_equal(json_integer_value(json_object_get(reads, "requests")), 1);
    console_served_release(&s);
}

/* One keeps a device and has failed, the other has not said so for 90 s. */
static void test_console__a_keeper_that_is_silent_is_missing(void **state)
{
    static const union report keeps = {
        .kept = {.pid = 7, .reconnects = 4, .failed_s = 3, .error = "no server listens on \xff"}};
    static const union report silent = {.kept = {.pid = 8}};
    static struct console_served s;
    console_served_init(&s, false, false);
    uint64_t now_ms = clock_now_ms();
    assert_int_equal(reports_put(s.reports, REPORT_KEPT, "/dev/nbd1", &keeps, now_ms - 60000), 0);
    assert_int_equal(reports_put(s.reports, REPORT_KEPT, "/dev/nbd2", &silent, now_ms - 90000), 0);
    CLEANUP_JSON json_t *root = document(s.port, "");
    json_t *keepers = json_object_get(root, "keepers");
    json_t *kept = json_array_get(keepers, 0), *missing = json_array_get(keepers, 1);
    assert_string_equal(json_string_value(json_object_get(kept, "device")), "/dev/nbd1");
    assert_string_equal(json_string_value(json_object_get(kept, "state")), "keeping");
    assert_int_equal(json_integer_value(json_object_get(kept, "pid")), 7);
    assert_int_equal(json_integer_value(json_object_get(kept, "reconnects")), 4);
    assert_true(json_integer_value(json_object_get(kept, "failed_s")) >= 63);
    assert_string_equal(json_string_value(json_object_get(kept, "error")), "no server listens on \xef\xbf\xbd");
    assert_string_equal(json_string_value(json_object_get(missing, "state")), "missing");
    assert_true(json_integer_value(json_object_get(missing, "report_age_s")) >= 90);
    assert_null(json_object_get(missing, "error"));
    console_served_release(&s);
}

/* A directory says how far behind it is; an export also what it shows, and why. */
static void test_console__what_follows_a_tag_is_listed(void **state)
{
    static const union report dir = {.followed = {.versions = 2, .switches = 5}};
    static const union report export = {
        .followed = {.versions = 1, .behind_s = 4, .image = "file:///s/faces:daily", .reason = "no answer \xff"}};
    static struct console_served s;
    console_served_init(&s, false, false);
    uint64_t now_ms = clock_now_ms();
    assert_int_equal(reports_put(s.reports, REPORT_FOLLOWED, "/data", &dir, now_ms), 0);
    assert_int_equal(reports_put(s.reports, REPORT_FOLLOWED, "faces", &export, now_ms - 60000), 0);
    CLEANUP_JSON json_t *root = document(s.port, "");
    json_t *following = json_object_get(root, "following");
    json_t *shown = json_array_get(following, 0), *behind = json_array_get(following, 1);
    assert_string_equal(json_string_value(json_object_get(shown, "name")), "/data");
    assert_int_equal(json_integer_value(json_object_get(shown, "switches")), 5);
    assert_int_equal(json_integer_value(json_object_get(shown, "behind_s")), 0);
    assert_null(json_object_get(shown, "image"));
    assert_string_equal(json_string_value(json_object_get(behind, "name")), "faces");
    assert_string_equal(json_string_value(json_object_get(behind, "image")), "file:///s/faces:daily");
    assert_true(json_is_null(json_object_get(behind, "digest")));
    assert_true(json_integer_value(json_object_get(behind, "behind_s")) >= 64);
    assert_true(json_integer_value(json_object_get(behind, "report_age_s")) >= 60);
    assert_string_equal(json_string_value(json_object_get(behind, "reason")), "no answer \xef\xbf\xbd");
    console_served_release(&s);
}

/* Of all reads, and of the export's; whoever asks more rarely than the page sees rates, too. */
static void test_console__what_is_read_has_a_rate(void **state)
{
    static struct console_served s;
    static uint8_t got[CONTROL_CHUNK];
    console_served_init(&s, false, false);
    for (bool seen = false; !seen;) {
        assert_int_equal(image_read(image_at(s.w.stack, 0), got, 0, sizeof got), 0);
        CLEANUP_JSON json_t *root = document(s.port, "");
        json_t *reads = json_array_get(json_object_get(root, "hops"), 0);
        json_t *export = json_array_get(json_object_get(root, "exports"), 0);
        json_t *rates = json_object_get(export, "rates");
        seen = json_real_value(json_object_get(reads, "bytes_s")) > 0 &&
               json_real_value(json_object_get(reads, "requests_s")) > 0 &&
               json_is_integer(json_object_get(reads, "p99_us")) &&
               json_number_value(json_object_get(rates, "read_bytes")) > 0;
    }
    console_served_release(&s);
}

/* Two who ask within a second get the same bytes: pid and counters say nothing, but the age does. */
static void test_console__a_document_is_for_all_of_its_second(void **state)
{
    static struct console_served s;
    console_served_init(&s, false, false);
    uint64_t began_ms = clock_now_ms();
    CLEANUP_JSON json_t *first = document(s.port, "");
    CLEANUP_JSON json_t *second = document(s.port, "");
    bool in_time = clock_now_ms() - began_ms < CONSOLE_EVERY_MS;
    assert_true(!in_time || json_equal(first, second));
    console_served_release(&s);
}

/* ---- the page ---- */

static void test_console__the_page_is_sent_with_its_policy_and_once(void **state)
{
    static struct console_served s;
    console_served_init(&s, true, false); /* the page is for everybody */
    char request[256], etag[64];
    size_t all = 0;
    for (size_t i = 0; i < console_file_count; i++) {
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "\r\n", console_files[i].path);
        const char *answer = tcp_ask(s.port, request);
        assert_starts(answer, "HTTP/1.1 200 ");
        assert_non_null(strstr(answer, "Content-Security-Policy: default-src 'none'; script-src 'self';"));
        assert_non_null(strstr(answer, "X-Content-Type-Options: nosniff"));
        assert_non_null(strstr(answer, console_files[i].type));
        assert_memory_equal(strstr(answer, "\r\n\r\n") + 4, console_files[i].data, console_files[i].len);
        all += console_files[i].len;
        const char *at = strstr(answer, "ETag: ");
        assert_non_null(at);
        snprintf(etag, sizeof etag, "%.*s", (int)strcspn(at + 6, "\r"), at + 6);
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" HOST "If-None-Match: %s\r\n\r\n", console_files[i].path,
                 etag);
        answer = tcp_ask(s.port, request);
        assert_starts(answer, "HTTP/1.1 304 ");
        assert_string_equal(strstr(answer, "\r\n\r\n"), "\r\n\r\n");
    }
    assert_true(all < 100 << 10); /* what it costs a browser */
    assert_starts(tcp_ask(s.port, "HEAD / HTTP/1.1\r\n" HOST "\r\n"), "HTTP/1.1 200 ");
    console_served_release(&s);
}

/* ---- hostile requests ---- */

static void test_console__what_is_not_there_is_refused(void **state)
{
    static struct console_served s;
    console_served_init(&s, false, true);
    static const struct {
        const char *line, *status;
    } requests[] = {
        {"GET /index.html", "404"},
        {"GET //", "404"},
        {"GET /../etc/passwd", "404"},
        {"GET /%2e%2e/%2e%2e/etc/passwd", "404"},
        {"GET /console.js/", "404"},
        {"GET /api", "404"},
        {"GET /api/", "404"},
        {"GET /api/status/", "404"},
        {"GET /api/metrics", "404"},
        {"GET /metrics", "404"},
        {"GET /api/cache", "404"},
        {"GET /api/trace", "404"},
        {"PUT /api/exports/x", "404"},
        {"DELETE /api/exports/faces", "404"},
        {"GET /%00", "400"},
        {"GET /api/status%00", "400"},
        {"POST /", "405"},
        {"DELETE /api/status", "405"},
        {"GET /api/cache/evict", "405"},
        {"PUT /api/warm", "405"},
        {"OPTIONS /api/cache/evict", "405"},
        {"POST /api/status", "405"},
    };
    char request[256], start[32];
    for (size_t i = 0; i < GR_ARRAY_SIZE(requests); i++) {
        snprintf(request, sizeof request, "%s HTTP/1.1\r\n" HOST "\r\n", requests[i].line);
        snprintf(start, sizeof start, "HTTP/1.1 %s ", requests[i].status);
        const char *answer = tcp_ask(s.port, request);
        if (strncmp(answer, start, strlen(start)) != 0)
            fail_msg("%s: not %s, but '%.60s'", requests[i].line, requests[i].status, answer);
    }
    console_served_release(&s);
}

static void test_console__a_head_without_end_is_refused(void **state)
{
    static struct console_served s;
    static char request[64 << 10];
    console_served_init(&s, false, false);
    size_t len = (size_t)snprintf(request, sizeof request, "GET / HTTP/1.1\r\n" HOST "X: ");
    memset(request + len, 'a', sizeof request - 1 - len);
    const char *answer = tcp_ask(s.port, request);
    /* It closes the connection while the rest comes, so the answer may be lost. */
    assert_true(!*answer || strstr(answer, " 431 ") || strstr(answer, " 414 ") || strstr(answer, " 413 "));
    assert_starts(tcp_ask(s.port, "GET / HTTP/1.1\r\n" HOST "\r\n"), "HTTP/1.1 200 ");
    console_served_release(&s);
}

static void test_console__without_a_token_another_name_is_refused(void **state)
{
    static struct console_served s;
    static const struct {
        const char *host;
        bool own;
    } hosts[] = {
        {"Host: 127.0.0.1", true},
        {"Host: 127.0.0.1:9465", true},
        {"Host: localhost:9465", true},
        {"Host: LOCALHOST", true},
        {"Host: [::1]:9465", true},
        {"Host: localhost\r\nVia: 1.1 proxy", false},
        {"Host: localhost\r\nX-Forwarded-For: 10.0.0.1", false},
        {"Host: localhost\r\nForwarded: for=10.0.0.1", false},
        {"Host: evil.example", false},
        {"Host: 127.0.0.1.evil", false},
        {"Host: localhost.evil", false},
        {"Host: ", false},
        {"X-Forwarded-Host: localhost", false},
    };
    char request[256];
    console_served_init(&s, false, false);
    for (size_t i = 0; i < GR_ARRAY_SIZE(hosts); i++) {
        snprintf(request, sizeof request, "GET /api/status HTTP/1.%d\r\n%s\r\nConnection: close\r\n\r\n",
                 *hosts[i].host != 'X', hosts[i].host);
        const char *answer = tcp_ask(s.port, request);
        if (strncmp(answer + strlen("HTTP/1.x"), hosts[i].own ? " 200 " : " 421 ", 5) != 0)
            fail_msg("%s: '%.60s'", hosts[i].host, answer);
    }
    console_served_release(&s);
}

static void test_console__connections_are_bounded(void **state)
{
    enum { MANY = 48, KEPT = 16 };
    static struct console_served s;
    int fds[MANY];
    char byte;
    console_served_init(&s, false, false);
    for (unsigned i = 0; i < MANY; i++)
        fds[i] = tcp_connect(s.port);
    for (unsigned i = KEPT; i < MANY; i++)
        assert_true(recv(fds[i], &byte, 1, 0) == 0 || errno == ECONNRESET);
    for (unsigned i = 0; i < MANY; i++)
        close(fds[i]);
    while (!strstr(tcp_ask(s.port, "GET / HTTP/1.1\r\n" HOST "\r\n"), " 200 "))
        ; /* it has not yet seen all of them go */
    console_served_release(&s);
}

/* ---- tokens ---- */

static void test_console__a_token_file_has_one_fit_line(void **state)
{
    static struct control_world w;
    char path[SCRATCH_MAX + 16];
    struct digest got, expected = digest_of(TOKEN, strlen(TOKEN));
    static const char *const wrong[] = {
        "", "\n", "too-short-a-line\b", "0123456789abcde\n", "0123456789abcdef 0123456789", TOKEN "\n" TOKEN "\n"};
    control_world_init(&w);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        write_file(&w, "token", wrong[i], path);
        assert_int_equal(console_token_read("console-token", path, &got), -EINVAL);
        assert_non_null(strstr(error_text(), "openssl rand"));
        assert_null(strstr(error_text(), "0123456789"));
    }
    snprintf(path, sizeof path, "%s/token", w.dir);
    assert_int_equal(io_write_file_atomic(path, TOKEN "\0more", sizeof TOKEN + 4, false), 0);
    assert_int_equal(console_token_read("console-token", path, &got), -EINVAL);
    static char long_line[CONSOLE_TOKEN_FILE_MAX + 2];
    memset(long_line, 'a', sizeof long_line - 1);
    write_file(&w, "token", long_line, path);
    assert_true(console_token_read("console-token", path, &got) < 0);
    write_file(&w, "token", "  " TOKEN " \r\n", path);
    assert_int_equal(console_token_read("console-token", path, &got), 0);
    assert_true(digest_equal(&got, &expected));
    assert_int_equal(console_token_read("console-token", "/nowhere/token", &got), -ENOENT);
    assert_non_null(strstr(error_text(), "console-token: "));
    control_world_release(&w);
}

static void test_console__only_the_token_is_the_token(void **state)
{
    struct digest token = digest_of(TOKEN, strlen(TOKEN));
    assert_true(console_token_is(&token, "Bearer " TOKEN));
    assert_true(console_token_is(&token, "bearer " TOKEN));
    static const char *const wrong[] = {NULL,
                                        "",
                                        "Bearer",
                                        "Bearer ",
                                        TOKEN,
                                        "Basic " TOKEN,
                                        "Bearer " TOKEN "0",
                                        "Bearer  " TOKEN,
                                        "Bearer " ADMIN_TOKEN};
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++)
        assert_false(console_token_is(&token, wrong[i]));
}

static void test_console__where_others_reach_it_a_token_is_needed(void **state)
{
    static struct control_world w;
    char path[SCRATCH_MAX + 16];
    struct console *c = NULL;
    control_world_init(&w);
    write_file(&w, "token", TOKEN, path);
    assert_int_equal(console_open(&(struct console_config){.address = "0.0.0.0:0"}, w.stack, NULL, NULL, &c), -EINVAL);
    assert_non_null(strstr(error_text(), "needs a token"));
    const struct console_config same = {.address = "127.0.0.1:0", .token_file = path, .admin_token_file = path};
    assert_int_equal(console_open(&same, w.stack, NULL, NULL, &c), -EINVAL);
    assert_int_equal(console_check(&same), -EINVAL);
    assert_non_null(strstr(error_text(), "make another one"));
    const struct console_config wide = {.address = "0.0.0.0:0", .token_file = path};
    assert_int_equal(console_check(&wide), 0);
    assert_int_equal(console_open(&wide, w.stack, NULL, NULL, &c), 0);
    console_close(c); /* it was never started */
    control_world_release(&w);
}

static void test_console__who_looks_gives_the_token(void **state)
{
    static struct console_served s;
    console_served_init(&s, true, true);
    assert_starts(tcp_ask(s.port, "GET /api/status HTTP/1.1\r\n" HOST "\r\n"), "HTTP/1.1 401 ");
    assert_starts(tcp_ask(s.port, "GET /api/status HTTP/1.1\r\n" HOST BEARER("another-0123456789") "\r\n"),
                  "HTTP/1.1 401 ");
    assert_starts(tcp_ask(s.port, "GET /api/status?token=" TOKEN " HTTP/1.1\r\n" HOST "\r\n"), "HTTP/1.1 401 ");
    CLEANUP_JSON json_t *root = document(s.port, BEARER(TOKEN));
    assert_true(json_is_true(json_object_get(root, "acts")));
    /* and under any name, since only those who know the token come by it */
    assert_starts(
        tcp_ask(s.port, "GET /api/status HTTP/1.1\r\nHost: g.example\r\nConnection: close\r\n" BEARER(TOKEN) "\r\n"),
        "HTTP/1.1 200 ");
    console_served_release(&s);
}

#define EVICT "POST /api/cache/evict?export=faces HTTP/1.1\r\n" HOST "Content-Length: 0\r\n"

static void test_console__who_acts_gives_the_other_token(void **state)
{
    static struct console_served s;
    console_served_init(&s, true, true);
    struct image *img = image_at(s.w.stack, 0);
    assert_int_equal(image_prefetch(img, 0, CONTROL_CHUNK), 0);
    assert_starts(tcp_ask(s.port, EVICT BEARER(ADMIN_TOKEN) "\r\n"), "HTTP/1.1 403 "); /* another site's page */
    assert_starts(tcp_ask(s.port, EVICT "Granary-Console: 1\r\n\r\n"), "HTTP/1.1 401 ");
    assert_starts(tcp_ask(s.port, EVICT "Granary-Console: 1\r\n" BEARER(TOKEN) "\r\n"), "HTTP/1.1 401 ");
    assert_true(image_is_cached(img, 0, CONTROL_CHUNK));
    const char *answer = tcp_ask(s.port, EVICT "Granary-Console: 1\r\n" BEARER(ADMIN_TOKEN) "\r\n");
    assert_starts(answer, "HTTP/1.1 200 ");
    assert_non_null(strstr(answer, "\"changed_chunks\":1"));
    assert_non_null(strstr(answer, "{\"result\":{\"ok\":true}}"));
    assert_false(image_is_cached(img, 0, CONTROL_CHUNK));
    answer = tcp_ask(s.port, "POST /api/cache/evict?export=none HTTP/1.1\r\n" HOST
                             "Content-Length: 0\r\nGranary-Console: 1\r\n" BEARER(ADMIN_TOKEN) "\r\n");
    assert_starts(answer, "HTTP/1.1 404 ");
    console_served_release(&s);

    console_served_init(&s, true, false);
    answer = tcp_ask(s.port, EVICT "Granary-Console: 1\r\n" BEARER(TOKEN) "\r\n");
    assert_starts(answer, "HTTP/1.1 403 ");
    assert_non_null(strstr(answer, "--console-admin-token"));
    console_served_release(&s);
}

/* The answer comes though the body does not. */
static void test_console__a_body_without_a_token_is_not_awaited(void **state)
{
    static struct console_served s;
    console_served_init(&s, true, true);
    assert_starts(tcp_ask(s.port, "POST /api/warm?export=faces&what=files HTTP/1.1\r\nHost: g\r\n"
                                  "Content-Length: 1000000\r\nGranary-Console: 1\r\n" BEARER(TOKEN) "\r\n"),
                  "HTTP/1.1 401 ");
    console_served_release(&s);
}

/* A client that leaves in the middle of an action ends it; the console closes while another one runs. */
static void test_console__it_closes_while_an_action_runs(void **state)
{
    static struct console_served s;
    static const char warm[] = "POST /api/warm?export=faces&what=all HTTP/1.1\r\n" HOST
                               "Content-Length: 0\r\nGranary-Console: 1\r\n" BEARER(ADMIN_TOKEN) "\r\n";
    console_served_init(&s, false, true);
    for (unsigned i = 0; i < 3; i++) {
        int fd = tcp_connect(s.port);
        assert_int_equal(send(fd, warm, sizeof warm - 1, MSG_NOSIGNAL), sizeof warm - 1);
        if (i < 2)
            close(fd);
    }
    console_served_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_console__a_cell_is_a_character),
        cmocka_unit_test(test_console__a_quantile_is_a_bound),
        cmocka_unit_test(test_console__a_strip_says_where_chunks_are),
        cmocka_unit_test(test_console__the_document_is_that_of_status_and_more),
        cmocka_unit_test(test_console__a_keeper_that_is_silent_is_missing),
        cmocka_unit_test(test_console__what_follows_a_tag_is_listed),
        cmocka_unit_test(test_console__what_is_read_has_a_rate),
        cmocka_unit_test(test_console__a_document_is_for_all_of_its_second),
        cmocka_unit_test(test_console__the_page_is_sent_with_its_policy_and_once),
        cmocka_unit_test(test_console__what_is_not_there_is_refused),
        cmocka_unit_test(test_console__a_head_without_end_is_refused),
        cmocka_unit_test(test_console__without_a_token_another_name_is_refused),
        cmocka_unit_test(test_console__connections_are_bounded),
        cmocka_unit_test(test_console__a_token_file_has_one_fit_line),
        cmocka_unit_test(test_console__only_the_token_is_the_token),
        cmocka_unit_test(test_console__where_others_reach_it_a_token_is_needed),
        cmocka_unit_test(test_console__who_looks_gives_the_token),
        cmocka_unit_test(test_console__who_acts_gives_the_other_token),
        cmocka_unit_test(test_console__a_body_without_a_token_is_not_awaited),
        cmocka_unit_test(test_console__it_closes_while_an_action_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

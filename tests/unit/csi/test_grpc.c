/* The gRPC server over a socket: calls as clients make them, then bytes, limits and clients that no one wants; after
 * each, another client is still answered. */
#include "unit/cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/text.h"
#include "csi/grpc/grpc.h"
#include "csi/grpc/grpc_session.h"
#include "net/listen.h"
#include "unit/csi/grpc_client.h"

static struct {
    char path[64];
    int listen_fd;
    struct grpc_server *server;
    atomic_uint slow, ended; /* calls of /slow that began and that ended */
    atomic_bool go;          /* they may end */
} w;

/* The methods of the tests. */
static void answer_call(void *arg, const char *path, const uint8_t *request, size_t len, struct grpc_reply *reply)
{
    static const uint8_t block[4096];
    if (!strcmp(path, "/echo")) {
        assert_int_equal(bytes_append(&reply->message, request, len), 0);
    } else if (!strcmp(path, "/large")) {
        while (reply->message.len < GRPC_REPLY_MAX)
            must(!bytes_append(&reply->message, block, sizeof block), "memory");
    } else if (!strcmp(path, "/slow")) {
        w.slow++;
        while (!w.go)
            sleep_ms(1);
        w.ended++;
    } else {
        (void)grpc_fail(reply, GRPC_UNIMPLEMENTED, "no method '%s', 100%% \xc3\xa4\n", path);
    }
}

static void world_init(uint64_t idle_ms)
{
    snprintf(w.path, sizeof w.path, "/tmp/test_grpc.%d", (int)getpid());
    w.slow = w.ended = 0;
    w.go = false;
    assert_int_equal(listen_unix(w.path, &w.listen_fd), 0);
    struct grpc_config config = {.listen_fd = w.listen_fd, .answer = answer_call, .idle_ms = idle_ms};
    assert_int_equal(grpc_server_start(&config, &w.server), 0);
}

static void world_release(void)
{
    grpc_server_stop(w.server);
    close(w.listen_fd);
    unlink(w.path);
}

static void expect(struct client *c, const struct answer *a, const char *status)
{
    assert_true(client_wait(c, a, CLIENT_WAIT_MS));
    assert_true(a->ended);
    assert_string_equal(a->status, status);
}

/* Another client is answered. */
static void expect_service(void)
{
    struct client c;
    uint8_t body[8];
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/echo", NULL, body, client_message(body, "abc", 3));
    expect(&c, a, "0");
    assert_int_equal(a->len, 8);
    assert_memory_equal(a->message, body, 8);
    client_close(&c);
}

static void wait_for(atomic_uint *count, unsigned n)
{
    uint64_t until = clock_now_ms() + CLIENT_WAIT_MS;
    while (*count < n && clock_now_ms() < until)
        sleep_ms(1);
    assert_int_equal(*count, n);
}

/* Let the client send its calls, until so many slow ones run. */
static void run_slow(struct client *c, unsigned n)
{
    uint64_t until = clock_now_ms() + CLIENT_WAIT_MS;
    while (w.slow < n && clock_now_ms() < until)
        assert_true(client_wait(c, c->answers[0], 1));
    assert_int_equal(w.slow, n);
}

/* Send bytes and wait until the server ends the connection; false: it does not within wait_ms. */
static bool ends_connection(const struct raw *r, unsigned wait_ms)
{
    int fd = client_connect(w.path);
    uint8_t in[4096];
    uint64_t until = clock_now_ms() + wait_ms;
    bool ended = send(fd, r->data, r->len, MSG_NOSIGNAL) < 0;
    while (!ended && clock_now_ms() < until) {
        struct pollfd p = {fd, POLLIN, 0};
        ended = poll(&p, 1, 10) > 0 && recv(fd, in, sizeof in, 0) <= 0;
    }
    close(fd);
    return ended;
}

/* ---- calls ---- */

static void test_grpc__a_message_is_answered(void **state)
{
    world_init(0);
    expect_service();
    struct client c;
    uint8_t empty[5];
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/echo", "20S", empty, client_message(empty, NULL, 0));
    expect(&c, a, "0");
    assert_int_equal(a->len, 5);
    assert_string_equal(a->http_status, "200");
    client_close(&c);
    world_release();
}

static void test_grpc__a_failure_has_its_code_and_its_sentence_encoded(void **state)
{
    struct client c;
    uint8_t body[5];
    world_init(0);
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/none", NULL, body, client_message(body, NULL, 0));
    expect(&c, a, "12");
    assert_string_equal(a->sentence, "no method '/none', 100%25 %C3%A4%0A");
    assert_int_equal(a->len, 0);
    client_close(&c);
    world_release();
}

static void test_grpc__a_path_that_is_too_long_is_an_unknown_method(void **state)
{
    struct client c;
    uint8_t body[5];
    char path[5000];
    world_init(0);
    memset(path, 'a', sizeof path);
    memcpy(path, "/echo", 5);
    path[sizeof path - 1] = 0;
    client_open(&c, w.path);
    expect(&c, client_call(&c, path, NULL, body, client_message(body, NULL, 0)), "12");
    client_close(&c);
    world_release();
}

static void test_grpc__many_calls_run_beside_each_other(void **state)
{
    struct client c;
    uint8_t body[5];
    struct answer *a[GRPC_STREAMS_MAX];
    world_init(0);
    client_message(body, NULL, 0);
    client_open(&c, w.path);
    for (size_t i = 0; i < GRPC_STREAMS_MAX; i++)
        a[i] = client_call(&c, "/slow", NULL, body, sizeof body);
    run_slow(&c, GRPC_STREAMS_MAX);
    expect_service();
    w.go = true;
    for (size_t i = 0; i < GRPC_STREAMS_MAX; i++)
        expect(&c, a[i], "0");
    client_close(&c);
    world_release();
}

static void test_grpc__a_large_reply_waits_for_a_client_that_is_slow(void **state)
{
    struct client c;
    uint8_t body[5];
    world_init(0);
    client_open(&c, w.path);
    struct answer *a[8];
    for (size_t i = 0; i < GR_ARRAY_SIZE(a); i++)
        a[i] = client_call(&c, "/large", NULL, body, client_message(body, NULL, 0));
    const uint8_t *out;
    for (ssize_t n; (n = nghttp2_session_mem_send(c.http, &out)) > 0;)
        assert_int_equal(send(c.fd, out, (size_t)n, 0), n);
    sleep_ms(50); /* nothing is taken meanwhile */
    expect_service();
    for (size_t i = 0; i < GR_ARRAY_SIZE(a); i++) {
        expect(&c, a[i], "0");
        assert_int_equal(a[i]->len, GRPC_REPLY_MAX + 5);
    }
    client_close(&c);
    world_release();
}

/* ---- deadlines, cancelled calls ---- */

static void test_grpc__a_deadline_answers_and_the_call_goes_on(void **state)
{
    struct client c;
    uint8_t body[5];
    world_init(0);
    client_open(&c, w.path);
    client_message(body, NULL, 0);
    expect(&c, client_call(&c, "/slow", "20m", body, sizeof body), "4");
    assert_int_equal(w.ended, 0);
    w.go = true;
    wait_for(&w.ended, 1);
    expect(&c, client_call(&c, "/echo", "20000m", body, sizeof body), "0"); /* the same connection serves on */
    client_close(&c);
    world_release();
}

static void test_grpc__a_request_that_does_not_end_has_a_deadline_too(void **state)
{
    struct client c;
    world_init(0);
    client_open(&c, w.path);
    struct header headers[] = {{":method", "POST"},
                               {":scheme", "http"},
                               {":authority", "localhost"},
                               {":path", "/echo"},
                               {"content-type", "application/grpc"},
                               {"grpc-timeout", "20m"}};
    expect(&c, client_begin(&c, headers, 6, "\0\0", 2, true), "4");
    client_close(&c);
    world_release();
}

static void test_grpc__timeouts_are_parsed(void **state)
{
    static const char *const wrong[] = {"", "S", "1", "1s", "123456789S", "1SS", "-1S", " 1S", "1 S", "0x1S"};
    static const struct {
        const char *text;
        uint64_t ms;
    } right[] = {{"0S", 0},      {"1H", 3600000}, {"2M", 120000},
                 {"20S", 20000}, {"7m", 7},       {"1u", 1},
                 {"1001u", 2},   {"1n", 1},       {"99999999H", 99999999ULL * 3600000}};
    uint64_t ms;
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++)
        assert_false(grpc_timeout_parse(wrong[i], &ms));
    for (size_t i = 0; i < GR_ARRAY_SIZE(right); i++) {
        assert_true(grpc_timeout_parse(right[i].text, &ms));
        assert_int_equal(ms, right[i].ms);
    }
}

static void test_grpc__a_cancelled_call_runs_to_its_end(void **state)
{
    struct client c;
    uint8_t body[5];
    world_init(0);
    client_open(&c, w.path);
    client_message(body, NULL, 0);
    struct answer *a = client_call(&c, "/slow", NULL, body, sizeof body);
    run_slow(&c, 1);
    assert_int_equal(nghttp2_submit_rst_stream(c.http, 0, a->stream, NGHTTP2_CANCEL), 0);
    expect(&c, client_call(&c, "/echo", NULL, body, sizeof body), "0");
    assert_int_equal(w.ended, 0);
    client_close(&c); /* and once more with the connection gone */
    client_open(&c, w.path);
    (void)client_call(&c, "/slow", NULL, body, sizeof body);
    run_slow(&c, 2);
    client_close(&c);
    w.go = true;
    wait_for(&w.ended, 2);
    expect_service();
    world_release();
}

static void test_grpc__stop_waits_for_calls_that_run(void **state)
{
    struct client c;
    uint8_t body[5];
    world_init(0);
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/slow", NULL, body, client_message(body, NULL, 0));
    run_slow(&c, 1);
    w.go = true;
    world_release();
    assert_int_equal(w.ended, 1);
    (void)client_wait(&c, a, CLIENT_WAIT_MS);
    assert_true(!a->ended || !strcmp(a->status, "0")); /* the connection ended, perhaps after the answer */
    client_close(&c);
}

/* ---- requests that are none ---- */

static void test_grpc__a_request_that_is_not_one_message_is_refused(void **state)
{
    static const struct {
        const char *body;
        size_t len;
        const char *status;
    } bodies[] = {{"", 0, "3"},
                  {"\0\0\0\0", 4, "3"},
                  {"\0\0\0\0\5abc", 8, "3"}, /* cut */
                  {"\0\0\0\0\1abc", 8, "3"}, /* more than one */
                  {"\0\xff\xff\xff\xff"
                   "a",
                   6, "3"},                    /* 4 GiB, it says */
                  {"\1\0\0\0\3abc", 8, "12"}}; /* compressed */
    struct client c;
    world_init(0);
    client_open(&c, w.path);
    for (size_t i = 0; i < GR_ARRAY_SIZE(bodies); i++)
        expect(&c, client_call(&c, "/echo", NULL, bodies[i].body, bodies[i].len), bodies[i].status);
    expect(&c, client_call(&c, "/echo", "1x", "\0\0\0\0", 5), "3");
    client_close(&c);
    world_release();
}

static void test_grpc__what_is_not_grpc_is_refused(void **state)
{
    struct client c;
    struct header get[] = {{":method", "GET"}, {":scheme", "http"}, {":authority", "localhost"}, {":path", "/echo"}};
    struct header plain[] = {{":method", "POST"},
                             {":scheme", "http"},
                             {":authority", "localhost"},
                             {":path", "/echo"},
                             {"content-type", "text/html"}};
    world_init(0);
    client_open(&c, w.path);
    struct answer *a = client_begin(&c, get, 4, "", 0, false);
    expect(&c, a, "12");
    assert_string_equal(a->http_status, "405");
    a = client_begin(&c, plain, 5, "\0\0\0\0", 5, false);
    expect(&c, a, "12");
    assert_string_equal(a->http_status, "415");
    client_close(&c);
    world_release();
}

/* ---- limits ---- */

static void test_grpc__the_longest_request_is_taken_and_one_byte_more_refused(void **state)
{
    static uint8_t body[GRPC_REQUEST_MAX + 6], message[GRPC_REQUEST_MAX + 1];
    struct client c;
    world_init(0);
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/echo", NULL, body, client_message(body, message, GRPC_REQUEST_MAX));
    expect(&c, a, "0");
    assert_int_equal(a->len, GRPC_REQUEST_MAX + 5);
    client_message(body, message, GRPC_REQUEST_MAX + 1);
    expect(&c, client_call(&c, "/echo", NULL, body, sizeof body), "8");
    client_close(&c);
    world_release();
}

static void test_grpc__headers_without_end_reset_the_stream(void **state)
{
    static char long_value[GRPC_HEADERS_MAX];
    struct client c;
    world_init(0);
    memset(long_value, 'x', sizeof long_value - 1);
    struct header headers[] = {{":method", "POST"},
                               {":scheme", "http"},
                               {":authority", "localhost"},
                               {":path", "/echo"},
                               {"content-type", "application/grpc"},
                               {"x-long", long_value}};
    client_open(&c, w.path);
    struct answer *a = client_begin(&c, headers, 6, "\0\0\0\0", 5, false);
    assert_true(client_wait(&c, a, CLIENT_WAIT_MS));
    assert_true(a->ended && a->error && !*a->status);
    client_close(&c);
    expect_service();
    world_release();
}

static void test_grpc__streams_beyond_the_limit_are_refused(void **state)
{
    static struct raw r;
    world_init(0);
    raw_begin(&r);
    for (uint32_t i = 0; i < 60; i++) {
        raw_call(&r, 2 * i + 1, "/slow");
        raw_frame(&r, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 2 * i + 1, "\0\0\0\0", 5);
    }
    int fd = client_connect(w.path);
    assert_int_equal(send(fd, r.data, r.len, 0), r.len);
    expect_service();
    wait_for(&w.slow, GRPC_STREAMS_MAX);
    sleep_ms(20);
    assert_int_equal(w.slow, GRPC_STREAMS_MAX);
    close(fd);
    w.go = true;
    wait_for(&w.ended, GRPC_STREAMS_MAX);
    world_release();
}

static void test_grpc__calls_beyond_the_limit_are_refused(void **state)
{
    enum { CLIENTS = GRPC_CALLS_MAX / GRPC_STREAMS_MAX };
    static struct client c[CLIENTS + 1];
    uint8_t body[5];
    world_init(0);
    client_message(body, NULL, 0);
    for (unsigned i = 0; i < CLIENTS; i++) {
        client_open(&c[i], w.path);
        for (unsigned k = 0; k < GRPC_STREAMS_MAX; k++)
            (void)client_call(&c[i], "/slow", NULL, body, sizeof body);
        run_slow(&c[i], (i + 1) * GRPC_STREAMS_MAX);
    }
    client_open(&c[CLIENTS], w.path);
    expect(&c[CLIENTS], client_call(&c[CLIENTS], "/slow", NULL, body, sizeof body), "8");
    w.go = true;
    wait_for(&w.ended, GRPC_CALLS_MAX);
    for (unsigned i = 0; i <= CLIENTS; i++)
        client_close(&c[i]);
    expect_service();
    world_release();
}

static void test_grpc__a_new_client_takes_the_place_of_an_idle_one(void **state)
{
    int held[GRPC_CONNECTIONS_MAX + 20];
    world_init(0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(held); i++)
        held[i] = client_connect(w.path);
    expect_service();
    for (size_t i = 0; i < GR_ARRAY_SIZE(held); i++)
        close(held[i]);
    world_release();
}

static void test_grpc__an_idle_connection_ends_but_not_under_a_call(void **state)
{
    static struct raw r;
    struct client c;
    uint8_t body[5];
    world_init(30);
    client_open(&c, w.path);
    struct answer *a = client_call(&c, "/slow", NULL, body, client_message(body, NULL, 0));
    run_slow(&c, 1);
    r.len = 0;
    assert_true(ends_connection(&r, CLIENT_WAIT_MS)); /* nothing is sent */
    raw_begin(&r);
    raw_call(&r, 1, "/echo");
    assert_true(ends_connection(&r, CLIENT_WAIT_MS)); /* the request never ends */
    w.go = true;
    expect(&c, a, "0");
    client_close(&c);
    world_release();
}

/* ---- hostile bytes ---- */

static void test_grpc__bytes_that_are_no_http2_end_the_connection(void **state)
{
    static struct raw r;
    uint8_t noise[200];
    world_init(0);
    r.len = 0;
    raw_bytes(&r, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    assert_true(ends_connection(&r, CLIENT_WAIT_MS));
    raw_begin(&r);
    memset(noise, 0xff, sizeof noise);
    raw_bytes(&r, noise, sizeof noise);
    assert_true(ends_connection(&r, CLIENT_WAIT_MS));
    raw_begin(&r);
    raw_frame(&r, NGHTTP2_DATA, 0, 1, "abc", 3); /* of a stream that is none */
    assert_true(ends_connection(&r, CLIENT_WAIT_MS));
    raw_begin(&r);
    raw_frame(&r, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 1, "\xff\xff\xff\xff\xff\xff", 6); /* no header block */
    assert_true(ends_connection(&r, CLIENT_WAIT_MS));
    expect_service();
    world_release();
}

/* Whatever is cut off, and wherever: the connection stays, or ends; the server serves on. */
static void test_grpc__bytes_cut_anywhere_do_no_harm(void **state)
{
    static struct raw r;
    world_init(0);
    raw_begin(&r);
    raw_call(&r, 1, "/echo");
    raw_frame(&r, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, 1, "\0\0\0\0\3abc", 8);
    raw_frame(&r, NGHTTP2_RST_STREAM, 0, 1, "\0\0\0\x08", 4);
    for (size_t len = 0; len < r.len; len++) {
        int fd = client_connect(w.path);
        assert_int_equal(send(fd, r.data, len, 0), len);
        close(fd);
    }
    expect_service();
    world_release();
}

static void test_grpc__bytes_changed_anywhere_do_no_harm(void **state)
{
    static struct raw r;
    unsigned seed = 1;
    world_init(0);
    w.go = true;
    for (int i = 0; i < 500; i++) {
        raw_begin(&r);
        for (uint32_t s = 1; s < 8; s += 2) {
            raw_call(&r, s, s % 4 == 1 ? "/slow" : "/echo");
            raw_frame(&r, NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, s, "\0\0\0\0\3abc", 8);
            raw_frame(&r, NGHTTP2_RST_STREAM, 0, s, "\0\0\0\x08", 4);
        }
        for (int k = 0; k < 3; k++)
            r.data[24 + (size_t)rand_r(&seed) % (r.len - 24)] = (uint8_t)rand_r(&seed);
        int fd = client_connect(w.path);
        (void)!send(fd, r.data, r.len, MSG_NOSIGNAL);
        close(fd);
    }
    expect_service();
    world_release();
}

/* A client that asks and asks and takes nothing: the server keeps a bounded number of answers, and stops to listen. */
static void test_grpc__pings_without_end_are_not_kept(void **state)
{
    static struct raw r;
    world_init(0);
    raw_begin(&r);
    int fd = client_connect(w.path);
    assert_int_equal(send(fd, r.data, r.len, 0), r.len);
    r.len = 0;
    for (int i = 0; i < 1000; i++)
        raw_frame(&r, NGHTTP2_PING, 0, 0, "12345678", 8);
    uint64_t until = clock_now_ms() + CLIENT_WAIT_MS;
    bool stuck = false;
    while (!stuck && clock_now_ms() < until)
        stuck = send(fd, r.data, r.len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
    assert_true(stuck);
    expect_service();
    close(fd);
    expect_service();
    world_release();
}

static unsigned descriptors(void)
{
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        n++;
    closedir(dir);
    return n;
}

static void test_grpc__no_descriptor_is_left(void **state)
{
    unsigned before = descriptors();
    world_init(0);
    for (int i = 0; i < 100; i++)
        expect_service();
    world_release();
    assert_int_equal(descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grpc__a_message_is_answered),
        cmocka_unit_test(test_grpc__a_failure_has_its_code_and_its_sentence_encoded),
        cmocka_unit_test(test_grpc__a_path_that_is_too_long_is_an_unknown_method),
        cmocka_unit_test(test_grpc__many_calls_run_beside_each_other),
        cmocka_unit_test(test_grpc__a_large_reply_waits_for_a_client_that_is_slow),
        cmocka_unit_test(test_grpc__a_deadline_answers_and_the_call_goes_on),
        cmocka_unit_test(test_grpc__a_request_that_does_not_end_has_a_deadline_too),
        cmocka_unit_test(test_grpc__timeouts_are_parsed),
        cmocka_unit_test(test_grpc__a_cancelled_call_runs_to_its_end),
        cmocka_unit_test(test_grpc__stop_waits_for_calls_that_run),
        cmocka_unit_test(test_grpc__a_request_that_is_not_one_message_is_refused),
        cmocka_unit_test(test_grpc__what_is_not_grpc_is_refused),
        cmocka_unit_test(test_grpc__the_longest_request_is_taken_and_one_byte_more_refused),
        cmocka_unit_test(test_grpc__headers_without_end_reset_the_stream),
        cmocka_unit_test(test_grpc__streams_beyond_the_limit_are_refused),
        cmocka_unit_test(test_grpc__calls_beyond_the_limit_are_refused),
        cmocka_unit_test(test_grpc__a_new_client_takes_the_place_of_an_idle_one),
        cmocka_unit_test(test_grpc__an_idle_connection_ends_but_not_under_a_call),
        cmocka_unit_test(test_grpc__bytes_that_are_no_http2_end_the_connection),
        cmocka_unit_test(test_grpc__bytes_cut_anywhere_do_no_harm),
        cmocka_unit_test(test_grpc__bytes_changed_anywhere_do_no_harm),
        cmocka_unit_test(test_grpc__pings_without_end_are_not_kept),
        cmocka_unit_test(test_grpc__no_descriptor_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

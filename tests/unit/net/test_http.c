/* HTTP against a server that misbehaves. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "net/http.h"
#include "unit/http_world.h"

#define RESPONSE CLEANUP(http_response_release) struct http_response

static int get(struct fixture *f, const char *answer, enum http_fake_next next, uint64_t off, uint64_t len,
               struct bytes *body, struct http_response *resp)
{
    set_answer(f, answer);
    set_next(f, next);
    struct http_request q = {
        .method = "GET", .url = f->url, .range_off = off, .range_len = len, .sink = collect, .sink_arg = body};
    return http_do(f->http, &q, resp);
}

static void test_http__headers_and_body_arrive(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BYTES body = BYTES_INIT(100);
    RESPONSE r = {0};
    assert_int_equal(get(f,
                         "HTTP/1.1 206 Partial Content\r\nETag: \"abc\"\r\nContent-Length: 4\r\n"
                         "Content-Range: bytes 2-5/10\r\nLast-Modified: Fri, 20 Nov 2026 23:01:02 GMT\r\n"
                         "x-amz-bucket-region: eu-west-1\r\n\r\nbody",
                         HTTP_FAKE_KEEP, 2, 4, &body, &r),
                     0);
    assert_int_equal(r.status, 206);
    assert_string_equal(r.etag, "\"abc\"");
    assert_int_equal(r.range_total, 10);
    assert_int_equal(r.last_modified, 1795215662);
    assert_int_equal(r.retry_after_s, -1);
    assert_string_equal(r.bucket_region, "eu-west-1");
    assert_int_equal(body.len, 4);
    assert_memory_equal(body.data, "body", 4);
    assert_non_null(strstr(last_request(f), "\r\nRange: bytes=2-5\r\n"));
    assert_non_null(strstr(last_request(f), "User-Agent: granary/"));
}

/* Blocks that this thread freed while they had this text in them; NULL: they are not counted. */
static _Thread_local const char *watched;
static _Thread_local int freed_with_it;
void __real_free(void *p);
void __wrap_free(void *p);

void __wrap_free(void *p)
{
    if (p && watched && memmem(p, malloc_usable_size(p), watched, strlen(watched)))
        freed_with_it++;
    __real_free(p);
}

static void test_http__libcurl_leaves_no_key_in_freed_memory(void **state)
{
    struct fixture *f = *state;
    const struct http_signer signer = {
        .access_key = "AKID", .secret_key = "the-key", .session_token = "the-key", .region = "r", .service = "s3"};
    CLEANUP_BYTES body = BYTES_INIT(100);
    RESPONSE r = {0};
    const struct http_request q = {
        .method = "GET", .url = f->url, .signer = &signer, .sink = collect, .sink_arg = &body};
    set_answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nthe-key");
    watched = "the-key";
    assert_int_equal(http_do(f->http, &q, &r), 0);
    http_free(f->http);
    watched = NULL;
    f->http = NULL;
    assert_memory_equal(body.data, "the-key", 7);
    assert_non_null(strstr(last_request(f), "the-key"));
    assert_int_equal(freed_with_it, 0);
}

static void test_http__connections_are_kept(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 5; i++) {
        RESPONSE r = {0};
        assert_int_equal(get(f, "HTTP/1.1 204 No Content\r\n\r\n", HTTP_FAKE_KEEP, 0, 0, NULL, &r), 0);
    }
    assert_int_equal(http_fake_requests(f->server), 5);
    assert_int_equal(http_fake_connections(f->server), 1);
}

static void test_http__what_is_asked_afresh_goes_over_a_new_connection(void **state)
{
    struct fixture *f = *state;
    RESPONSE r = {0};
    struct http_request q = {.method = "GET", .url = f->url};
    set_answer(f, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_int_equal(http_do(f->http, &q, &r), 0);
    q.fresh = true;
    assert_int_equal(http_do(f->http, &q, &r), 0);
    assert_int_equal(http_fake_connections(f->server), 2);
    q.fresh = false;
    assert_int_equal(http_do(f->http, &q, &r), 0);
    assert_int_equal(http_fake_connections(f->server), 2);
}

static void test_http__a_connection_that_gave_a_short_answer_is_not_used_again(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BYTES body = BYTES_INIT(100);
    const char *cut = "HTTP/1.1 206 X\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 2\r\n\r\nbo";
    const char *whole = "HTTP/1.1 206 X\r\nContent-Range: bytes 2-5/10\r\nContent-Length: 4\r\n\r\nbody";
    RESPONSE r = {0};
    assert_int_equal(get(f, cut, HTTP_FAKE_KEEP, 2, 4, &body, &r), -EAGAIN);
    assert_int_equal(get(f, whole, HTTP_FAKE_KEEP, 2, 4, &body, &r), 0);
    assert_int_equal(http_fake_connections(f->server), 2);
}

static void test_http__a_kept_connection_that_died_is_replaced(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++) {
        RESPONSE r = {0};
        assert_int_equal(get(f, "HTTP/1.1 204 No Content\r\n\r\n", HTTP_FAKE_CLOSE, 0, 0, NULL, &r), 0);
    }
    assert_int_equal(http_fake_connections(f->server), 3);
}

/* What goes wrong on the way, and what it is called. */
static void test_http__transport_failures_are_worth_a_retry(void **state)
{
    static const struct {
        const char *answer;
        enum http_fake_next next;
        uint64_t len;
    } cases[] = {
        {"", HTTP_FAKE_CLOSE, 0},
        {"", HTTP_FAKE_RESET, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", HTTP_FAKE_CLOSE, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", HTTP_FAKE_RESET, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n", HTTP_FAKE_CLOSE, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 0-9/20\r\n\r\nshort", HTTP_FAKE_CLOSE, 10},
        {"SSH-2.0-OpenSSH_9.2\r\n", HTTP_FAKE_CLOSE, 0},
        {"<html>restarting</html>", HTTP_FAKE_CLOSE, 10},
        {"\x15\x03\x03", HTTP_FAKE_CLOSE, 10},
        {"HTTP/1.1 OK\r\n\r\n", HTTP_FAKE_CLOSE, 0},
        {"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\nshort", HTTP_FAKE_CLOSE, 0},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nshort\r\n", HTTP_FAKE_CLOSE, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 0-9/20\r\nContent-Length: 10\r\n\r\nshort", HTTP_FAKE_CLOSE, 10},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        CLEANUP_BYTES body = BYTES_INIT(100);
        RESPONSE r = {0};
        int rc = get(f, cases[i].answer, cases[i].next, 0, cases[i].len, &body, &r);
        if (rc != -EAGAIN)
            fail_msg("case %zu: %d %s", i, rc, rc ? error_text() : "");
        assert_non_null(strstr(error_text(), http_fake_url(f->server)));
    }
}

static void test_http__nobody_listens(void **state)
{
    struct fixture *f = *state;
    RESPONSE r = {0};
    http_fake_stop(f->server);
    struct http_request q = {.method = "GET", .url = f->url};
    assert_int_equal(http_do(f->http, &q, &r), -EAGAIN);
    assert_non_null(strstr(error_text(), "check the address, and that the server runs"));
    f->server = http_fake_start(answer_script, &f->script);
}

static void test_http__wrong_ranges_never_reach_the_sink(void **state)
{
    static const struct {
        const char *answer;
        int rc, status;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789", -ENOTSUP, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 3-6/10\r\nContent-Length: 4\r\n\r\n0123", -EIO, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 2-6/10\r\nContent-Length: 5\r\n\r\n01234", -EIO, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 2-4/10\r\nContent-Length: 3\r\n\r\n012", -EIO, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bits 2-5/10\r\nContent-Length: 4\r\n\r\n0123", -EIO, 0},
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 2-18446744073709551615/10\r\nContent-Length: 4\r\n\r\n0123", -EIO, 0},
        {"HTTP/1.1 206 X\r\nContent-Length: 4\r\n\r\n0123", -EIO, 0},
        /* the object ends inside the range: both spellings */
        {"HTTP/1.1 206 X\r\nContent-Range: bytes 2-4/5\r\nContent-Length: 3\r\n\r\n012", 0, 416},
        {"HTTP/1.1 416 X\r\nContent-Range: bytes */2\r\nContent-Length: 0\r\n\r\n", 0, 416},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        CLEANUP_BYTES body = BYTES_INIT(100);
        RESPONSE r = {0};
        int rc = get(f, cases[i].answer, HTTP_FAKE_CLOSE, 2, 4, &body, &r);
        if (rc != cases[i].rc)
            fail_msg("case %zu: %d %s", i, rc, error_text());
        assert_int_equal(body.len, 0);
        if (!rc)
            assert_int_equal(r.status, cases[i].status);
    }
}

static void test_http__a_whole_object_may_answer_a_whole_range(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BYTES body = BYTES_INIT(100);
    RESPONSE r = {0};
    assert_int_equal(get(f, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n0123", HTTP_FAKE_KEEP, 0, 4, &body, &r), 0);
    assert_int_equal(body.len, 4);
}

static void test_http__more_bytes_than_asked_for_are_refused(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BYTES body = BYTES_INIT(100);
    RESPONSE r = {0};
    assert_int_equal(
        get(f, "HTTP/1.1 206 X\r\nContent-Range: bytes 0-3/10\r\n\r\n0123456789", HTTP_FAKE_CLOSE, 0, 4, &body, &r),
        -EIO);
    assert_int_equal(body.len, 0);
}

static void test_http__redirects_are_not_followed(void **state)
{
    struct fixture *f = *state;
    RESPONSE r = {0};
    assert_int_equal(get(f, "HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\nContent-Length: 0\r\n\r\n",
                         HTTP_FAKE_KEEP, 0, 0, NULL, &r),
                     0);
    assert_int_equal(r.status, 302);
    assert_string_equal(r.location, "http://evil.example/");
    assert_int_equal(http_fake_requests(f->server), 1);
    char location[5000], answer[6000]; /* a data node's address with a long path in it */
    memset(location, 'x', sizeof location - 1);
    location[sizeof location - 1] = 0;
    snprintf(answer, sizeof answer, "HTTP/1.1 307 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", location);
    assert_int_equal(get(f, answer, HTTP_FAKE_KEEP, 0, 0, NULL, &r), 0);
    assert_string_equal(r.location, location);
}

static void test_http__error_bodies_are_kept_apart_and_bounded(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BYTES body = BYTES_INIT(100);
    RESPONSE r = {0};
    assert_int_equal(get(f, "HTTP/1.1 503 Slow Down\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nbusy", HTTP_FAKE_KEEP,
                         0, 4, &body, &r),
                     0);
    assert_int_equal(r.status, 503);
    assert_int_equal(r.retry_after_s, 7);
    assert_memory_equal(r.body.data, "busy", 4);
    assert_int_equal(body.len, 0);
}

static enum http_fake_next answer_endlessly(void *arg, const struct http_fake_request *r, int fd)
{
    static char block[100000];
    http_fake_text(fd, "HTTP/1.1 %s X\r\n\r\n", strstr(r->target, "ok") ? "200" : "500");
    for (int i = 0; i < 40; i++)
        http_fake_send(fd, block, sizeof block);
    return HTTP_FAKE_CLOSE;
}

static void test_http__endless_bodies_are_cut(void **state)
{
    struct http_fake *server = http_fake_start(answer_endlessly, NULL);
    struct http *h = new_http(1);
    char url[128];
    RESPONSE r = {0}, r2 = {.body.max = 1000};
    struct http_request q = {.method = "GET", .url = url};
    snprintf(url, sizeof url, "%s/fail", http_fake_url(server));
    assert_int_equal(http_do(h, &q, &r), 0);
    assert_int_equal(r.status, 500);
    assert_int_equal(r.body.len, HTTP_ERROR_BODY_MAX);
    snprintf(url, sizeof url, "%s/ok", http_fake_url(server));
    assert_int_equal(http_do(h, &q, &r2), -EMSGSIZE);
    assert_true(r2.body.len <= 1000);
    http_free(h);
    http_fake_stop(server);
}

static int refuse(void *arg, const void *data, size_t len)
{
    return error_set(-ECANCELED, "enough");
}

static void test_http__the_sinks_refusal_is_the_result(void **state)
{
    struct fixture *f = *state;
    RESPONSE r = {0};
    set_answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n0123");
    struct http_request q = {.method = "GET", .url = f->url, .sink = refuse};
    assert_int_equal(http_do(f->http, &q, &r), -ECANCELED);
    assert_string_equal(error_text(), "enough");
}

static void test_http__puts_send_their_body_and_headers(void **state)
{
    struct fixture *f = *state;
    RESPONSE r = {0};
    set_answer(f, "HTTP/1.1 200 OK\r\nETag: \"e\"\r\nContent-Length: 0\r\n\r\n");
    struct http_request q = {.method = "PUT", .url = f->url, .headers = {"X-One: 1"}, .body = "data", .body_len = 4};
    assert_int_equal(http_do(f->http, &q, &r), 0);
    assert_non_null(strstr(last_request(f), "PUT /x HTTP/1.1\r\n"));
    assert_non_null(strstr(last_request(f), "\r\nX-One: 1\r\n"));
    assert_non_null(strstr(last_request(f), "\r\nContent-Length: 4\r\n"));
    q = (struct http_request){.method = "HEAD", .url = f->url};
    set_answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
    assert_int_equal(http_do(f->http, &q, &r), 0);
    assert_int_equal(r.content_length, 12345);
    assert_string_equal(r.etag, "");
}

/* A byte now and then for ever, until the test lets go. */
static enum http_fake_next trickle(void *arg, const struct http_fake_request *r, int fd)
{
    atomic_bool *done = arg;
    http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
    while (!atomic_load(done)) {
        http_fake_send(fd, "x", 1);
        usleep(20000);
    }
    return HTTP_FAKE_CLOSE;
}

static void test_http__a_trickle_times_out(void **state)
{
    atomic_bool done = false;
    struct http_fake *server = http_fake_start(trickle, &done);
    struct http *h = NULL;
    assert_int_equal(http_new(&(struct http_config){.connections = 1, .stall_timeout_s = 1}, &h), 0);
    CLEANUP_BYTES body = BYTES_INIT(2000000);
    RESPONSE r = {0};
    struct http_request q = {.method = "GET", .url = http_fake_url(server), .sink = collect, .sink_arg = &body};
    assert_int_equal(http_do(h, &q, &r), -ETIMEDOUT); /* by stall_timeout_s */
    q.deadline_ms = clock_now_ms() + 100;
    assert_int_equal(http_do(h, &q, &r), -ETIMEDOUT); /* by the deadline */
    q.deadline_ms = clock_now_ms();
    assert_int_equal(http_do(h, &q, &r), -ETIMEDOUT); /* before it began */
    atomic_store(&done, true);
    http_free(h);
    http_fake_stop(server);
}

/* Counts who is inside at once. */
struct gauge {
    atomic_int inside, peak;
};

static enum http_fake_next gauge_answer(void *arg, const struct http_fake_request *r, int fd)
{
    struct gauge *g = arg;
    int inside = atomic_fetch_add(&g->inside, 1) + 1, peak = atomic_load(&g->peak);
    while (inside > peak && !atomic_compare_exchange_weak(&g->peak, &peak, inside))
        ;
    usleep(2000);
    atomic_fetch_sub(&g->inside, 1);
    http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    return HTTP_FAKE_KEEP;
}

struct crowd {
    struct http *http;
    const char *url;
};

static void *one_of_many(void *arg)
{
    struct crowd *c = arg;
    for (int i = 0; i < 10; i++) {
        RESPONSE r = {0};
        struct http_request q = {.method = "GET", .url = c->url};
        if (http_do(c->http, &q, &r) || r.status != 200 || r.body.len != 2)
            return c;
    }
    return NULL;
}

static void test_http__no_more_connections_than_allowed(void **state)
{
    enum { THREADS = 12, CONNECTIONS = 3 };
    struct gauge g = {0};
    struct http_fake *server = http_fake_start(gauge_answer, &g);
    struct crowd c = {.http = new_http(CONNECTIONS), .url = http_fake_url(server)};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, &c), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(g.peak <= CONNECTIONS);
    assert_true(http_fake_connections(server) <= CONNECTIONS);
    assert_int_equal(http_fake_requests(server), THREADS * 10);
    http_free(c.http);
    http_fake_stop(server);
}

/* ---- a limited rate ---- */

enum { LIMITED_BODY = 1000000, LIMITED_RATE = 4 << 20, LIMITED_LEAST_MS = 130 /* the burst is free */ };

static enum http_fake_next answer_body(void *arg, const struct http_fake_request *r, int fd)
{
    if (strcmp(r->method, "GET")) {
        *(size_t *)arg = r->body_len;
        http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    } else {
        http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", LIMITED_BODY);
        http_fake_send(fd, arg, LIMITED_BODY);
    }
    return HTTP_FAKE_KEEP;
}

/* One request of that rate; *took_ms: how long it took. */
static int do_limited(const char *method, uint64_t rate, const volatile int *cancel, uint64_t *took_ms)
{
    CLEANUP_FREE uint8_t *bytes = calloc(1, LIMITED_BODY);
    CLEANUP_BYTES body = BYTES_INIT(LIMITED_BODY);
    CLEANUP(rate_release) struct rate limit;
    RESPONSE r = {0};
    struct http *h = NULL;
    rate_init(&limit, rate);
    struct http_fake *server = http_fake_start(answer_body, bytes);
    const struct http_config config = {.rate = &limit, .cancel = cancel, HTTP_FAKE_TIMEOUTS};
    assert_int_equal(http_new(&config, &h), 0);
    bool puts = !strcmp(method, "PUT");
    struct http_request q = {.method = method,
                             .url = http_fake_url(server),
                             .body = puts ? bytes + sizeof(size_t) : NULL,
                             .body_len = puts ? LIMITED_BODY / 2 : 0,
                             .sink = collect,
                             .sink_arg = &body};
    uint64_t begin = clock_now_ms();
    int rc = http_do(h, &q, &r);
    *took_ms = clock_now_ms() - begin;
    if (!rc && puts)
        assert_int_equal(*(size_t *)(void *)bytes, LIMITED_BODY / 2);
    else if (!rc)
        assert_int_equal(body.len, LIMITED_BODY);
    http_free(h);
    http_fake_stop(server);
    return rc;
}

static void test_http__a_rate_holds_both_ways(void **state)
{
    uint64_t took_ms;
    assert_int_equal(do_limited("GET", LIMITED_RATE, NULL, &took_ms), 0);
    assert_true(took_ms >= LIMITED_LEAST_MS);
    assert_int_equal(do_limited("PUT", LIMITED_RATE / 2, NULL, &took_ms), 0);
    assert_true(took_ms >= LIMITED_LEAST_MS);
}

static void test_http__waiting_for_the_rate_is_cancelled(void **state)
{
    static const char *const methods[] = {"GET", "PUT"};
    const volatile int cancel = 1;
    uint64_t took_ms;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(do_limited(methods[i], RATE_MIN, &cancel, &took_ms), -EAGAIN);
        assert_non_null(strstr(error_text(), "interrupted"));
    }
}

/* The client hangs up first. */
static enum http_fake_next cancel_and_be_silent(void *arg, const struct http_fake_request *r, int fd)
{
    char end;
    __atomic_store_n((int *)arg, 1, __ATOMIC_RELAXED);
    return recv(fd, &end, 1, 0) < 0 ? HTTP_FAKE_RESET : HTTP_FAKE_CLOSE;
}

static enum http_fake_next answer_shortly(void *arg, const struct http_fake_request *r, int fd)
{
    http_fake_text(fd, "HTTP/1.1 204 No Content\r\n\r\n");
    return HTTP_FAKE_KEEP;
}

/* One request that is told of cancel; how long it took, *rc how it ended. */
static uint64_t do_cancelled(http_fake_handler *answer, volatile int *cancel, int *rc)
{
    RESPONSE r = {0};
    struct http *h = NULL;
    struct http_fake *server = http_fake_start(answer, (void *)cancel);
    assert_int_equal(http_new(&(struct http_config){.cancel = cancel, HTTP_FAKE_TIMEOUTS}, &h), 0);
    struct http_request q = {.method = "GET", .url = http_fake_url(server)};
    uint64_t begin = clock_now_ms();
    *rc = http_do(h, &q, &r);
    uint64_t took_ms = clock_now_ms() - begin;
    http_free(h);
    http_fake_stop(server);
    return took_ms;
}

static void test_http__waiting_for_a_silent_server_is_cancelled(void **state)
{
    volatile int cancel = 0;
    int rc;
    assert_true(do_cancelled(cancel_and_be_silent, &cancel, &rc) < HTTP_FAKE_TIMEOUT_S * 1000 / 2);
    assert_int_equal(rc, -EAGAIN);
    assert_non_null(strstr(error_text(), "interrupted"));
    /* what tidies up afterwards is answered still, and given up soon where it is not */
    (void)do_cancelled(answer_shortly, &cancel, &rc);
    assert_int_equal(rc, 0);
    assert_true(do_cancelled(cancel_and_be_silent, &cancel, &rc) < HTTP_FAKE_TIMEOUT_S * 1000 / 2);
    assert_int_equal(rc, -EAGAIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(http__headers_and_body_arrive),
        TEST(http__libcurl_leaves_no_key_in_freed_memory),
        TEST(http__connections_are_kept),
        TEST(http__what_is_asked_afresh_goes_over_a_new_connection),
        TEST(http__a_connection_that_gave_a_short_answer_is_not_used_again),
        TEST(http__a_kept_connection_that_died_is_replaced),
        TEST(http__transport_failures_are_worth_a_retry),
        TEST(http__nobody_listens),
        TEST(http__wrong_ranges_never_reach_the_sink),
        TEST(http__a_whole_object_may_answer_a_whole_range),
        TEST(http__more_bytes_than_asked_for_are_refused),
        TEST(http__redirects_are_not_followed),
        TEST(http__error_bodies_are_kept_apart_and_bounded),
        TEST(http__the_sinks_refusal_is_the_result),
        TEST(http__puts_send_their_body_and_headers),
        cmocka_unit_test(test_http__endless_bodies_are_cut),
        cmocka_unit_test(test_http__a_trickle_times_out),
        cmocka_unit_test(test_http__no_more_connections_than_allowed),
        cmocka_unit_test(test_http__a_rate_holds_both_ways),
        cmocka_unit_test(test_http__waiting_for_the_rate_is_cancelled),
        cmocka_unit_test(test_http__waiting_for_a_silent_server_is_cancelled),
    };
    unset_proxies();
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Redirects, between two servers that lead to each other. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "net/http.h"

/* /to/STATUS/ADDRESS answers with a redirect there, with here: and there: for the addresses of the servers, and
 * /d/to?ADDRESS too; /down/N leads to /down/N-1; all else has a body. */
struct fixture {
    struct http_fake *here, *there;
    struct http *http;
    char url[512];
    char seen[8192]; /* the requests' methods, hosts (h or t), targets, ranges and Authorizations */
};

static void note(struct fixture *f, const struct http_fake_request *r, char server)
{
    char range[64] = "-", who[64] = "-";
    size_t len = strlen(f->seen);
    http_fake_header(r, "range", range, sizeof range);
    http_fake_header(r, "authorization", who, sizeof who);
    snprintf(f->seen + len, sizeof f->seen - len, "%s %c %.200s %s %s|", r->method, server, r->target, range, who);
}

static void redirect(const struct fixture *f, const char *target, int fd)
{
    int status = atoi(target + strlen("/to/"));
    const char *to = strchr(target + strlen("/to/"), '/') + 1;
    const char *server = !strncmp(to, "here:", 5)    ? http_fake_url(f->here)
                         : !strncmp(to, "there:", 6) ? http_fake_url(f->there)
                                                     : "";
    http_fake_text(fd, "HTTP/1.1 %d Moved\r\nLocation: %s%s\r\nContent-Length: 4\r\n\r\nmove", status, server,
                   *server ? strchr(to, ':') + 1 : to);
}

static enum http_fake_next answer(struct fixture *f, const struct http_fake_request *r, int fd, char server)
{
    char range[64];
    note(f, r, server);
    if (!strncmp(r->target, "/to/", 4))
        redirect(f, r->target, fd);
    else if (!strncmp(r->target, "/d/to?", 6))
        http_fake_text(fd, "HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", r->target + 6);
    else if (!strncmp(r->target, "/down/", 6) && atoi(r->target + 6))
        http_fake_text(fd, "HTTP/1.1 302 Found\r\nLocation: %d\r\nContent-Length: 0\r\n\r\n", atoi(r->target + 6) - 1);
    else if (http_fake_header(r, "range", range, sizeof range))
        http_fake_text(fd,
                       "HTTP/1.1 206 OK\r\nETag: \"there\"\r\nContent-Range: bytes 2-4/9\r\nContent-Length: 3\r\n\r\n"
                       "234");
    else
        http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n%s", strcmp(r->method, "HEAD") ? "all" : "");
    return HTTP_FAKE_KEEP;
}

static enum http_fake_next answer_here(void *arg, const struct http_fake_request *r, int fd)
{
    return answer(arg, r, fd, 'h');
}

static enum http_fake_next answer_there(void *arg, const struct http_fake_request *r, int fd)
{
    return answer(arg, r, fd, 't');
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->here = http_fake_start(answer_here, f);
    f->there = http_fake_start(answer_there, f);
    const struct http_config config = {HTTP_FAKE_TIMEOUTS};
    assert_int_equal(http_new(&config, &f->http), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    http_free(f->http);
    http_fake_stop(f->here);
    http_fake_stop(f->there);
    free(f);
    return 0;
}

static struct http_request request(struct fixture *f, const char *method, const char *target)
{
    f->seen[0] = 0;
    snprintf(f->url, sizeof f->url, "%s%s", http_fake_url(f->here), target);
    return (struct http_request){.method = method, .url = f->url};
}

static void test_http_follow__range_and_headers_go_on(void **state)
{
    struct fixture *f = *state;
    CLEANUP(http_response_release) struct http_response resp = {0};
    CLEANUP_FREE char *to = NULL;
    char at[128];
    struct http_request req = request(f, "GET", "/to/307/there:/x/y%20z?signature=secret#part");
    req.range_off = 2;
    req.range_len = 3;
    assert_int_equal(http_follow(f->http, &req, &resp, &to), 0);
    assert_int_equal(resp.status, 206);
    assert_string_equal(resp.etag, "\"there\"");
    assert_memory_equal(resp.body.data, "234", 3);
    assert_non_null(strstr(f->seen, "|GET t /x/y%20z?signature=secret bytes=2-4 -|"));
    snprintf(at, sizeof at, "%s/x/y%%20z", http_fake_url(f->there));
    assert_string_equal(to, at);
}

static void test_http_follow__addresses_are_resolved(void **state)
{
    static const struct {
        const char *target, *seen;
    } cases[] = {
        {"/d/to?/abs?q=1", "|GET h /abs?q=1 "},
        {"/d/to?rel", "|GET h /d/rel "},
        {"/d/to?../rel", "|GET h /rel "},
        {"/d/to??q", "|GET h /d/to?q "},
        {"/d/to?a%20b", "|GET h /d/a%20b "},
        {"/to/302/there:", "|GET t / "},
        {"/to/302/here:/to/301/there:/end", "|GET t /end "},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        CLEANUP(http_response_release) struct http_response resp = {0};
        CLEANUP_FREE char *to = NULL;
        struct http_request req = request(f, "GET", cases[i].target);
        if (http_follow(f->http, &req, &resp, &to) || resp.status != 200 || !to || !strstr(f->seen, cases[i].seen))
            fail_msg("%s: status %d, %s", cases[i].target, resp.status, f->seen);
    }
}

static void test_http_follow__heads_stay_heads(void **state)
{
    struct fixture *f = *state;
    CLEANUP(http_response_release) struct http_response resp = {0};
    CLEANUP_FREE char *to = NULL;
    struct http_request req = request(f, "HEAD", "/to/303/there:/x");
    assert_int_equal(http_follow(f->http, &req, &resp, &to), 0);
    assert_int_equal(resp.content_length, 3);
    assert_non_null(strstr(f->seen, "|HEAD t /x "));
}

/* The way leaves the first server and comes back to it: nobody is told who asks but that server, before. */
static void test_http_follow__who_asks_is_told_to_the_first_server_alone(void **state)
{
    struct fixture *f = *state;
    CLEANUP(http_response_release) struct http_response resp = {0};
    CLEANUP_FREE char *to = NULL;
    struct http_request req = request(f, "GET", "/to/302/here:/to/302/there:/to/302/here:/end");
    req.headers[0] = "Authorization: me";
    req.headers[1] = "X-Other: x";
    assert_int_equal(http_follow(f->http, &req, &resp, &to), 0);
    assert_string_equal(f->seen, "GET h /to/302/here:/to/302/there:/to/302/here:/end - me|"
                                 "GET h /to/302/there:/to/302/here:/end - me|"
                                 "GET t /to/302/here:/end - -|"
                                 "GET h /end - -|");
    struct http_request user = request(f, "GET", "/to/302/http://u:p@127.0.0.1:1/");
    free(to);
    assert_int_equal(http_follow(f->http, &user, &resp, &to), -EAGAIN); /* nobody listens */
    assert_string_equal(to, "http://127.0.0.1:1/");
}

static void test_http_follow__ten_are_followed(void **state)
{
    struct fixture *f = *state;
    CLEANUP(http_response_release) struct http_response resp = {0};
    CLEANUP_FREE char *to = NULL;
    struct http_request req = request(f, "GET", "/down/10");
    assert_int_equal(http_follow(f->http, &req, &resp, &to), 0);
    assert_int_equal(http_fake_requests(f->here), 11);
    free(to);
    to = NULL;
    req = request(f, "GET", "/down/11");
    assert_int_equal(http_follow(f->http, &req, &resp, &to), -EIO);
    assert_non_null(strstr(error_text(), "more than 10 times"));
    assert_int_equal(http_fake_requests(f->here), 22);
}

static void test_http_follow__what_is_not_followed(void **state)
{
    static const struct {
        const char *target;
        int rc, status;
    } cases[] = {
        {"/to/302/ftp://elsewhere/x?secret", -EBADMSG, 0},
        {"/to/302/file:///etc/passwd?secret", -EBADMSG, 0},
        {"/to/302/http://?secret", -EBADMSG, 0},
        {"/to/302/ftp://user:secret@elsewhere/x", -EBADMSG, 0},
        {"/to/302/http://user:secret?@elsewhere/x", -EBADMSG, 0},
        {"/to/300/there:/x?secret", 0, 300},
        {"/to/304/there:/x?secret", 0, 304},
        {"/to/404/there:/x?secret", 0, 404},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        CLEANUP(http_response_release) struct http_response resp = {0};
        CLEANUP_FREE char *to = NULL;
        struct http_request req = request(f, "GET", cases[i].target);
        int rc = http_follow(f->http, &req, &resp, &to);
        if (rc != cases[i].rc || (!rc && resp.status != cases[i].status) || (rc && strstr(error_text(), "secret")))
            fail_msg("%s: %d, status %d: %s", cases[i].target, rc, resp.status, error_text());
        assert_int_equal(http_fake_requests(f->there), 0);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_http_follow__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(range_and_headers_go_on), TEST(addresses_are_resolved),
        TEST(heads_stay_heads),        TEST(who_asks_is_told_to_the_first_server_alone),
        TEST(ten_are_followed),        TEST(what_is_not_followed),
    };
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

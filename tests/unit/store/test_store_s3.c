/* The S3 store against servers that differ in what they make of conditions, and one that breaks in
 * the middle of a listing. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "store/store.h"

enum conditions { RFC, BARE_ETAGS, IGNORING, LACKING, ONLY_IF_NONE_MATCH };

/* A bucket with room for one object. Its ETag is the number of puts. */
struct bucket {
    enum conditions conditions;
    pthread_mutex_t mutex;
    char key[256], data[64];
    size_t len;
    unsigned version; /* 0: there is no object */
    unsigned puts, gets;
};

static bool match_holds(const struct bucket *b, const char *wanted)
{
    char etag[32];
    snprintf(etag, sizeof etag, b->conditions == BARE_ETAGS ? "%u" : "\"%u\"", b->version);
    return b->version && strcmp(etag, wanted) == 0;
}

/* The status a put is answered with. */
static int judge_put(const struct bucket *b, const struct http_fake_request *r, bool there)
{
    char match[64];
    bool absent = http_fake_header(r, "if-none-match", match, sizeof match);
    bool matching = !absent && http_fake_header(r, "if-match", match, sizeof match);
    if (b->conditions == LACKING && (absent || matching))
        return 501;
    if (b->conditions == IGNORING || (b->conditions == ONLY_IF_NONE_MATCH && matching))
        return 200;
    return (absent && there) || (matching && !(there && match_holds(b, match))) ? 412 : 200;
}

static void serve_put(struct bucket *b, const struct http_fake_request *r, bool there, int fd)
{
    int status = judge_put(b, r, there);
    if (status == 200) {
        snprintf(b->key, sizeof b->key, "%.255s", r->target);
        b->len = r->body_len;
        memcpy(b->data, r->body, b->len);
        b->version = ++b->puts;
    }
    http_fake_text(fd, "HTTP/1.1 %d X\r\nETag: \"%u\"\r\nContent-Length: 0\r\n\r\n", status, b->version);
}

static enum http_fake_next serve_bucket(void *arg, const struct http_fake_request *r, int fd)
{
    struct bucket *b = arg;
    SCOPED_LOCK(&b->mutex);
    bool there = b->version && strcmp(b->key, r->target) == 0;
    if (r->method[0] == 'P') {
        serve_put(b, r, there, fd);
    } else if (r->method[0] == 'D') {
        b->version = there ? 0 : b->version;
        http_fake_text(fd, "HTTP/1.1 204 X\r\n\r\n");
    } else if (!there) {
        http_fake_text(fd, "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
    } else {
        b->gets++;
        http_fake_text(fd, "HTTP/1.1 200 X\r\nETag: \"%u\"\r\nContent-Length: %zu\r\n\r\n", b->version, b->len);
        if (r->method[0] == 'G')
            http_fake_send(fd, b->data, b->len);
    }
    return HTTP_FAKE_KEEP;
}

static struct store *open_store(struct http_fake *server)
{
    struct store *s = NULL;
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SK", 1);
    struct store_options options = {.endpoint = http_fake_url(server), .timeout_ms = 120000};
    if (store_open("s3://bucket/some/prefix/", &options, &s))
        fail_msg("%s", error_text());
    return s;
}

static int put(struct store *s, const char *text, enum store_put_mode mode, const char *version)
{
    return store_put(
        s, &(struct store_put){.key = "k", .data = text, .len = strlen(text), .mode = mode, .version = version});
}

static void with_bucket(enum conditions conditions, void (*check)(struct store *s, struct bucket *b))
{
    struct bucket b = {.conditions = conditions, .mutex = PTHREAD_MUTEX_INITIALIZER};
    struct http_fake *server = http_fake_start(serve_bucket, &b);
    struct store *s = open_store(server);
    check(s, &b);
    store_close(s);
    http_fake_stop(server);
}

static bool probe(struct store *s)
{
    bool honoured = false;
    if (store_probe_conditional(s, &honoured))
        fail_msg("%s", error_text());
    return honoured;
}

static void swaps(struct store *s, struct bucket *b)
{
    char version[STORE_VERSION_MAX];
    CLEANUP_BYTES now = BYTES_INIT(64);
    assert_true(probe(s));
    unsigned puts = b->puts;
    assert_true(probe(s));
    assert_int_equal(b->puts, puts); /* found out once */
    assert_int_equal(put(s, "one", STORE_PUT_IF_ABSENT, NULL), 0);
    assert_int_equal(put(s, "two", STORE_PUT_IF_ABSENT, NULL), -EEXIST);
    assert_int_equal(store_get_small(s, "k", &now, version), 0);
    assert_int_equal(put(s, "two", STORE_PUT_IF_MATCH, version), 0);
    assert_int_equal(put(s, "three", STORE_PUT_IF_MATCH, version), -EEXIST);
    assert_string_equal(b->key, "/bucket/some/prefix/k");
    assert_memory_equal(b->data, "two", 3);
}

static void swaps_without_asking(struct store *s, struct bucket *b)
{
    char version[STORE_VERSION_MAX];
    CLEANUP_BYTES now = BYTES_INIT(64);
    b->conditions = BARE_ETAGS;
    /* there is room for one object: let the probe come first all the same, by a put that fails */
    assert_int_equal(put(s, "x", STORE_PUT_IF_MATCH, "\"9\""), -EEXIST);
    assert_int_equal(put(s, "one", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(store_get_small(s, "k", &now, version), 0);
    assert_int_equal(put(s, "two", STORE_PUT_IF_MATCH, version), 0);
}

static void cannot_swap(struct store *s, struct bucket *b)
{
    assert_false(probe(s));
    assert_int_equal(b->version, 0); /* the probe's object is gone */
    assert_int_equal(put(s, "one", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(put(s, "two", STORE_PUT_IF_MATCH, "\"1\""), -ENOTSUP);
    assert_non_null(strstr(error_text(), "does not support conditional puts"));
    assert_memory_equal(b->data, "one", 3);
}

static void creates_as_well_as_it_can(struct store *s, struct bucket *b)
{
    assert_int_equal(put(s, "one", STORE_PUT_IF_ABSENT, NULL), 0);
    assert_int_equal(put(s, "two", STORE_PUT_IF_ABSENT, NULL), -EEXIST);
    assert_memory_equal(b->data, "one", 3);
}

static void test_store_s3__swaps_where_conditions_are_honoured(void **state)
{
    with_bucket(RFC, swaps);
    with_bucket(BARE_ETAGS, swaps);
    with_bucket(BARE_ETAGS, swaps_without_asking);
}

static void test_store_s3__servers_without_conditions_are_found_out(void **state)
{
    with_bucket(IGNORING, cannot_swap);
    with_bucket(LACKING, cannot_swap);
    with_bucket(ONLY_IF_NONE_MATCH, cannot_swap);
    with_bucket(LACKING, creates_as_well_as_it_can);
}

/* Pages of two keys of a..g; the third page fails twice, once in the middle of its text. */

static enum http_fake_next serve_pages(void *arg, const struct http_fake_request *r, int fd)
{
    static const char *const failures[] = {
        "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<ListBucketResult><Contents><Key>some/prefix/e</Key>",
    };
    char body[1024] = "<ListBucketResult>", after = 0;
    const char *p = strstr(r->target, "continuation-token=");
    if (p)
        after = p[strlen("continuation-token=")];
    else if ((p = strstr(r->target, "start-after=some%2Fprefix%2F")))
        after = p[strlen("start-after=some%2Fprefix%2F")];
    if (after == 'd' && r->number < 5) {
        http_fake_text(fd, "%s", failures[r->number - 2 > 1 ? 1 : r->number - 2]);
        return HTTP_FAKE_CLOSE;
    }
    char first = after ? (char)(after + 1) : 'a', last = GR_MIN((char)(first + 1), 'g');
    for (char c = first; c <= last; c++) {
        size_t n = strlen(body);
        snprintf(body + n, sizeof body - n, "<Contents><Key>some/prefix/%c</Key><Size>1</Size></Contents>", c);
    }
    size_t n = strlen(body);
    if (last < 'g')
        snprintf(body + n, sizeof body - n,
                 "<IsTruncated>true</IsTruncated><NextContinuationToken>%c</NextContinuationToken>", last);
    n = strlen(body);
    snprintf(body + n, sizeof body - n, "</ListBucketResult>");
    http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    return HTTP_FAKE_KEEP;
}

static int join(void *arg, const struct store_item *item)
{
    return bytes_append(arg, item->key, strlen(item->key));
}

static void test_store_s3__a_broken_listing_shows_each_key_once(void **state)
{
    CLEANUP_BYTES keys = BYTES_INIT(100);
    struct http_fake *server = http_fake_start(serve_pages, NULL);
    struct store *s = open_store(server);
    if (store_list(s, "", join, &keys))
        fail_msg("%s", error_text());
    assert_string_equal(bytes_string(&keys), "abcdefg");
    assert_true(http_fake_requests(server) >= 6);
    store_close(s);
    http_fake_stop(server);
}

/* Busy twice: once it says for how long, once until when. */
static enum http_fake_next serve_busy(void *arg, const struct http_fake_request *r, int fd)
{
    _Atomic unsigned *left = arg;
    unsigned n = atomic_fetch_sub(left, 1);
    char date[64];
    time_t then = time(NULL) + 2;
    struct tm tm;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&then, &tm));
    if (n == 2)
        http_fake_text(fd, "HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n");
    else if (n == 1)
        http_fake_text(fd, "HTTP/1.1 429 X\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n", date);
    else
        http_fake_text(fd, "HTTP/1.1 200 X\r\nETag: \"e\"\r\nContent-Length: 4\r\n\r\nbody");
    return HTTP_FAKE_KEEP;
}

static void test_store_s3__a_busy_server_is_left_alone_for_as_long_as_it_says(void **state)
{
    _Atomic unsigned left = 2;
    struct http_fake *server = http_fake_start(serve_busy, &left);
    struct store *s = open_store(server);
    CLEANUP_BYTES got = BYTES_INIT(64);
    uint64_t before = clock_now_ms();
    assert_int_equal(store_get_small(s, "k", &got, NULL), 0);
    assert_true(clock_now_ms() - before >= 2000); /* 1 s, and up to the second 2 s away */
    assert_int_equal(http_fake_requests(server), 3);
    store_close(s);
    http_fake_stop(server);
}

/* A 404 whose Content-Length is half of what the server wrote, then the whole of it. */
static enum http_fake_next serve_cut_error(void *arg, const struct http_fake_request *r, int fd)
{
    static const char error[] = "<Error><Code>NoSuchKey</Code></Error>";
    size_t len = r->number ? strlen(error) : strlen(error) / 2;
    http_fake_text(fd, "HTTP/1.1 404 X\r\nContent-Length: %zu\r\n\r\n%.*s", len, (int)len, error);
    return HTTP_FAKE_KEEP;
}

static void test_store_s3__an_error_cut_short_is_asked_for_again(void **state)
{
    struct http_fake *server = http_fake_start(serve_cut_error, NULL);
    struct store *s = open_store(server);
    CLEANUP_BYTES got = BYTES_INIT(64);
    assert_int_equal(store_get_small(s, "k", &got, NULL), -ENOENT);
    assert_int_equal(http_fake_requests(server), 2);
    store_close(s);
    http_fake_stop(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_s3__a_busy_server_is_left_alone_for_as_long_as_it_says),
        cmocka_unit_test(test_store_s3__swaps_where_conditions_are_honoured),
        cmocka_unit_test(test_store_s3__servers_without_conditions_are_found_out),
        cmocka_unit_test(test_store_s3__a_broken_listing_shows_each_key_once),
        cmocka_unit_test(test_store_s3__an_error_cut_short_is_asked_for_again),
    };
    static const char *const unset[] = {"http_proxy", "all_proxy", "ALL_PROXY", "AWS_NO_SIGN_REQUEST", "AWS_REGION"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(unset); i++)
        unsetenv(unset[i]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The HTTP source against a server that does what it should not. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "imagebuild/source/source.h"

static const char body[] = "0123456789";

/* How the server misbehaves from now on. */
static struct {
    const char *etag, *modified;
    unsigned failures; /* answers that are 503 first */
    bool ignores_range, loops, gone;
    const char *leads_to; /* what is below /base/ is there */
    bool get_alone;       /* HEAD is forbidden there */
    bool large;           /* the page of loop/ is larger than the room of one page */
    unsigned large_asked;
} server;

enum { LARGE_FILES = 60000 };

static struct http_fake *fake;
static char url[64];

static void send_file(const struct http_fake_request *r, int fd)
{
    char range[64], headers[256] = "";
    unsigned first = 0, last = sizeof body - 2;
    if (server.etag)
        sprintf(headers + strlen(headers), "ETag: %s\r\n", server.etag);
    if (server.modified)
        sprintf(headers + strlen(headers), "Last-Modified: %s\r\n", server.modified);
    if (!strcmp(r->method, "HEAD"))
        return http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n%s\r\n", headers);
    if (server.ignores_range || !http_fake_header(r, "Range", range, sizeof range))
        return http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n%s\r\n%s", headers, body);
    assert_int_equal(sscanf(range, "bytes=%u-%u", &first, &last), 2);
    if (first > 9)
        return http_fake_text(fd, "HTTP/1.1 416 No\r\nContent-Length: 0\r\n\r\n");
    last = last > 9 ? 9 : last;
    http_fake_text(fd, "HTTP/1.1 206 OK\r\nContent-Length: %u\r\nContent-Range: bytes %u-%u/10\r\n%s\r\n%.*s",
                   last - first + 1, first, last, headers, (int)(last - first + 1), body + first);
}

static void send_large_page(int fd)
{
    CLEANUP_BYTES page = BYTES_INIT(64 << 20);
    __atomic_add_fetch(&server.large_asked, 1, __ATOMIC_RELAXED); /* before the asker can go on */
    assert_int_equal(bytes_append(&page, "[", 1), 0);
    for (unsigned i = 0; i < LARGE_FILES; i++)
        assert_int_equal(bytes_printf(&page,
                                      "%s{\"name\":\"f%06u\", \"type\":\"file\", "
                                      "\"mtime\":\"Wed, 21 Oct 2015 07:28:00 GMT\", \"size\":10}\n",
                                      i ? "," : "", i),
                         0);
    assert_int_equal(bytes_append(&page, "]", 1), 0);
    http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n", page.len);
    http_fake_send(fd, page.data, page.len);
}

static enum http_fake_next serve(void *arg, const struct http_fake_request *r, int fd)
{
    static const char page[] = "<title>Index of /</title><a href='loop/'>loop</a><a href='file'>file</a>";
    if (__atomic_load_n(&server.failures, __ATOMIC_RELAXED) &&
        __atomic_fetch_sub(&server.failures, 1, __ATOMIC_RELAXED))
        http_fake_text(fd, "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
    else if (server.leads_to && !strncmp(r->target, "/base/", 6))
        http_fake_text(fd, "HTTP/1.1 302 Found\r\nLocation: %s%s?signature=secret\r\nContent-Length: 0\r\n\r\n",
                       server.leads_to, r->target + strlen("/base/"));
    else if (server.get_alone && !strcmp(r->method, "HEAD"))
        http_fake_text(fd, "HTTP/1.1 403 Signed for GET\r\nContent-Length: 0\r\n\r\n");
    else if (server.large && strstr(r->target, "loop/"))
        send_large_page(fd);
    else if (r->target[strcspn(r->target, "?") - 1] == '/' && (server.loops || !strstr(r->target, "loop")))
        http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", sizeof page - 1, page);
    else if (server.gone || strstr(r->target, "loop/"))
        http_fake_text(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    else
        send_file(r, fd);
    return HTTP_FAKE_KEEP;
}

static struct source *source;

static int setup(void **state)
{
    struct source_options options = {.connections = 4, .timeout_ms = 60000};
    memset(&server, 0, sizeof server);
    fake = http_fake_start(serve, NULL);
    snprintf(url, sizeof url, "%s/base//", http_fake_url(fake));
    assert_int_equal(source_open(url, &options, &source), 0);
    return 0;
}

static int teardown(void **state)
{
    source_close(source);
    http_fake_stop(fake);
    return 0;
}

static int note(void *arg, const struct source_entry *e)
{
    return bytes_printf(arg, "%.*s%s:%llu:%lld:%.*s|", (int)e->path_len, e->path, S_ISDIR(e->mode) ? "/" : "",
                        (unsigned long long)e->size, (long long)e->mtime, (int)e->validator_len,
                        e->validator_len ? e->validator : "");
}

static int listed(char *out, size_t size)
{
    struct bytes text = BYTES_INIT(1 << 16);
    int rc = source_list(source, note, &text);
    snprintf(out, size, "%s", text.len ? bytes_string(&text) : "");
    bytes_release(&text);
    return rc;
}

static int read_part(const char *validator, uint64_t off, size_t len, char *dst)
{
    const struct source_read r = {.path = "file",
                                  .path_len = 4,
                                  .validator = validator,
                                  .validator_len = strlen(validator),
                                  .offset = off,
                                  .len = len,
                                  .dst = (uint8_t *)dst};
    memset(dst, 0, len + 1);
    return source_read(source, &r);
}

static void test_source_http__versions_are_the_best_the_server_gives(void **state)
{
    char text[300];
    server.etag = "\"strong\"";
    server.modified = "Wed, 21 Oct 2015 07:28:00 GMT";
    assert_int_equal(listed(text, sizeof text), 0);
    assert_string_equal(text, "file:10:1445412480:\"strong\"|");
    server.etag = "W/\"weak\"";
    assert_int_equal(listed(text, sizeof text), 0);
    assert_string_equal(text, "file:10:1445412480:t:1445412480-10|");
    server.modified = NULL;
    assert_int_equal(listed(text, sizeof text), 0);
    assert_string_equal(text, "file:10:0:|");
    struct source_counts counts = {0}; /* of the last time: the link to loop/ led nowhere */
    source_ask_counts(source, &counts);
    assert_int_equal(counts.vanished, 1);
    assert_string_equal(counts.first_vanished, "loop");
    server.gone = true; /* between the page and the question */
    assert_int_equal(listed(text, sizeof text), -ENOENT);
    counts = (struct source_counts){0};
    source_ask_counts(source, &counts);
    assert_int_equal(counts.vanished, 2);
}

static void test_source_http__a_page_that_leads_back_ends(void **state)
{
    char text[300];
    server.loops = true;
    assert_int_equal(listed(text, sizeof text), -EINVAL);
    assert_non_null(strstr(error_text(), "may lead back"));
}

static int count(void *arg, const struct source_entry *e)
{
    unsigned *files = arg;
    *files += S_ISREG(e->mode);
    return 0;
}

static int stop(void *arg, const struct source_entry *e)
{
    return 77;
}

static void test_source_http__a_large_page_is_listed_alone(void **state)
{
    unsigned files = 0;
    server.large = true;
    assert_int_equal(source_list(source, count, &files), 0);
    assert_int_equal(files, LARGE_FILES + 1);
    assert_int_equal(__atomic_load_n(&server.large_asked, __ATOMIC_RELAXED), 2); /* again, with all the room there is */
    assert_int_equal(source_list(source, stop, NULL), 77);
}

static void test_source_http__reads_what_was_listed(void **state)
{
    char got[16];
    server.etag = "\"one\"";
    server.failures = 2;
    assert_int_equal(read_part("\"one\"", 3, 4, got), 0);
    assert_string_equal(got, "3456");
    assert_int_equal(read_part("\"two\"", 3, 4, got), -ESTALE); /* a server that ignores If-Match */
    assert_int_equal(read_part("\"one\"", 8, 4, got), -ESTALE);
    server.modified = "Wed, 21 Oct 2015 07:28:00 GMT";
    assert_int_equal(read_part("t:1445412480-10", 0, 10, got), 0);
    assert_int_equal(read_part("t:1445412481-10", 0, 10, got), -ESTALE);
    assert_int_equal(read_part("t:1445412480-11", 0, 10, got), -ESTALE);
    assert_int_equal(read_part("sha256:abc", 8, 4, got), -EBADMSG);
}

static void test_source_http__a_server_without_ranges_serves_whole_files(void **state)
{
    char got[16];
    server.ignores_range = true;
    assert_int_equal(read_part("", 0, 10, got), 0);
    assert_string_equal(got, body);
    assert_int_equal(read_part("", 0, 5, got), -ENOTSUP);
    assert_int_equal(read_part("", 5, 5, got), -ENOTSUP);
}

/* All that is known of a file without a version is its size. */
static void test_source_http__the_size_is_proved(void **state)
{
    char got[16] = "";
    struct source_read r = {
        .path = "file", .path_len = 4, .validator = "", .len = 4, .dst = (uint8_t *)got, .size = 10};
    assert_int_equal(source_read(source, &r), 0);
    assert_string_equal(got, "0123");
    r.size = 9; /* it has grown */
    assert_int_equal(source_read(source, &r), -ESTALE);
    r.validator = "sha256:abc";
    r.validator_len = 10;
    assert_int_equal(source_read(source, &r), -EBADMSG);
}

static void test_source_http__a_list_says_what_need_not_be_asked(void **state)
{
    struct source_ask ask = {.path = "file", .path_len = 4, .have_size = true, .size = 10, .have_sha256 = true};
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    assert_int_equal(source_look(source, &ask, note, &text), 0);
    assert_int_equal(http_fake_requests(fake), 0);
    assert_non_null(strstr(bytes_string(&text), ":10:0:sha256:0000"));
    ask.have_sha256 = false;
    ask.size = 11;
    assert_int_equal(source_look(source, &ask, note, &text), -EBADMSG);
    assert_non_null(strstr(error_text(), "10 bytes, the list says 11"));
}

/* What the server says itself is of no account: index, version and bytes are those of the target. */
static void test_source_http__redirects_are_followed(void **state)
{
    char text[300], got[16];
    server.leads_to = "/cdn/";
    server.etag = "\"strong\"";
    assert_int_equal(listed(text, sizeof text), 0);
    assert_string_equal(text, "file:10:0:\"strong\"|");
    assert_int_equal(read_part("\"strong\"", 3, 4, got), 0);
    assert_string_equal(got, "3456");
    assert_int_equal(read_part("\"other\"", 3, 4, got), -ESTALE);
    server.get_alone = true;
    assert_int_equal(listed(text, sizeof text), 0);
    assert_string_equal(text, "file:10:0:\"strong\"|");
}

static void test_source_http__refusals_name_the_address(void **state)
{
    struct source_version v;
    server.leads_to = "/cdn/";
    server.gone = true;
    assert_int_equal(source_stat(source, "a b", 3, &v), -ENOENT);
    assert_non_null(strstr(error_text(), "/base/a%20b (redirected to http://127.0.0.1:"));
    assert_non_null(strstr(error_text(), "/cdn/a%20b) is not there"));
    assert_null(strstr(error_text(), "secret"));
    server.leads_to = "ftp://elsewhere/";
    assert_int_equal(source_stat(source, "a b", 3, &v), -EBADMSG);
    assert_non_null(strstr(error_text(), "/base/a%20b: it is redirected to 'ftp://elsewhere/a%20b'"));
    assert_null(strstr(error_text(), "secret"));
}

/* One sentence, at once: a loop does not pass. */
static void test_source_http__a_loop_of_redirects_ends(void **state)
{
    struct source_version v;
    server.leads_to = "/base/";
    assert_int_equal(source_stat(source, "a", 1, &v), -EIO);
    assert_non_null(strstr(error_text(), "more than 10 times"));
    assert_int_equal(http_fake_requests(fake), 11);
}

static void test_source_http__addresses_that_cannot_be(void **state)
{
    static const char *const wrong[] = {"http://",      "http:///x",    "http://h:/x",
                                        "http://h/x?y", "http://h/a b", "https://u:secret@h/"};
    struct source *none;
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        assert_int_equal(source_open(wrong[i], &(struct source_options){0}, &none), -EINVAL);
        assert_null(strstr(error_text(), "secret"));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    unsetenv("http_proxy");
    const struct CMUnitTest tests[] = {
        TEST(test_source_http__versions_are_the_best_the_server_gives),
        TEST(test_source_http__a_page_that_leads_back_ends),
        TEST(test_source_http__a_large_page_is_listed_alone),
        TEST(test_source_http__reads_what_was_listed),
        TEST(test_source_http__a_server_without_ranges_serves_whole_files),
        TEST(test_source_http__the_size_is_proved),
        TEST(test_source_http__a_list_says_what_need_not_be_asked),
        TEST(test_source_http__redirects_are_followed),
        TEST(test_source_http__refusals_name_the_address),
        TEST(test_source_http__a_loop_of_redirects_ends),
        TEST(test_source_http__addresses_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

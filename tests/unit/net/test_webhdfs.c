/* The client for HDFS over a small one in memory that misbehaves as told. tests/flow/hdfs.sh has the real one. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "fake/hdfs_fake.h"
#include "net/hdfs/webhdfs.h"
#include "net/hdfs/webhdfs_internal.h"

/* A script: what the hook does with the next requests to a node, and what it saw. */
struct script {
    struct hdfs_fake *f;
    char node;
    int from, times; /* requests of the node, counted from 0: which of them are answered by the script */
    const char *status, *exception, *message;
    const char *raw; /* a whole answer instead */
    enum http_fake_next next;
    atomic_int seen;
    char targets[16][2048]; /* of the node's requests */
};

static bool play(void *arg, char node, const struct http_fake_request *r, int fd, enum http_fake_next *next)
{
    struct script *s = arg;
    if (node != s->node)
        return false;
    int n = atomic_fetch_add(&s->seen, 1);
    if (n < 16)
        snprintf(s->targets[n], sizeof s->targets[n], "%.2000s", r->target);
    if (n < s->from || n >= s->from + s->times)
        return false;
    *next = s->next;
    if (s->raw)
        http_fake_text(fd, "%s", s->raw);
    else if (s->exception)
        hdfs_fake_refuse(fd, s->status, s->exception, s->message);
    return true;
}

static struct webhdfs *open_at(const char *hosts, const char *token_file)
{
    char url[512];
    struct webhdfs *w = NULL;
    const struct webhdfs_config config = {.token_file = token_file, .http = {HTTP_FAKE_TIMEOUTS}};
    snprintf(url, sizeof url, "hdfs://%s/base", hosts);
    if (webhdfs_new(url, &config, &w))
        fail_msg("%s", error_text());
    return w;
}

static int collect(void *arg, const void *data, size_t len)
{
    return bytes_append(arg, data, len);
}

/* Bytes of /f; rc. */
static int read_f(struct webhdfs *w, uint64_t off, uint64_t n, struct bytes *out)
{
    uint64_t done;
    bytes_clear(out);
    int rc = webhdfs_read(w, "/f", 2, &(struct http_part){.off = off, .len = n}, collect, out, &done);
    assert_int_equal(done, out->len);
    return rc;
}

struct world {
    struct hdfs_fake *f;
    struct webhdfs *w;
    struct bytes got;
    struct script script;
};

static int setup(void **state)
{
    struct world *x = calloc(1, sizeof *x);
    x->f = hdfs_fake_new();
    x->w = open_at(hdfs_fake_namenode(x->f), NULL);
    x->got.max = 1 << 20;
    hdfs_fake_put(x->f, "/f", "0123456789", 10, 1500);
    x->script = (struct script){.f = x->f, .node = 'n'};
    hdfs_fake_set_hook(x->f, play, &x->script);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct world *x = *state;
    webhdfs_free(x->w);
    hdfs_fake_free(x->f);
    bytes_release(&x->got);
    free(x);
    return 0;
}

static void test_webhdfs__reads_ranges_and_ends(void **state)
{
    struct world *x = *state;
    assert_int_equal(read_f(x->w, 3, 4, &x->got), 0);
    assert_string_equal(bytes_string(&x->got), "3456");
    assert_int_equal(read_f(x->w, 0, UINT64_MAX, &x->got), 0);
    assert_string_equal(bytes_string(&x->got), "0123456789");
    assert_int_equal(read_f(x->w, 5, 6, &x->got), 0); /* the length announced is not enough: nothing is handed on */
    assert_int_equal(x->got.len, 0);
    assert_int_equal(read_f(x->w, 10, 1, &x->got), 0); /* an IOException that does not pass */
    assert_int_equal(x->got.len, 0);
    assert_int_equal(read_f(x->w, UINT64_MAX - 3, 2, &x->got), 0);
}

struct redirection {
    char answer[512];
    char followed[512]; /* what the DataNode was asked */
};

static bool redirect(void *arg, char node, const struct http_fake_request *r, int fd, enum http_fake_next *next)
{
    struct redirection *d = arg;
    if (node == 'n')
        http_fake_text(fd, "%s", d->answer);
    else
        snprintf(d->followed, sizeof d->followed, "%.500s", r->target);
    return node == 'n';
}

static void test_webhdfs__redirects_are_taken_as_given(void **state)
{
    struct world *x = *state;
    struct redirection d;
    hdfs_fake_put(x->f, "/a +&?=#;\xc3\xa9", "here", 4, 0);
    hdfs_fake_set_hook(x->f, redirect, &d);
    snprintf(d.answer, sizeof d.answer,
             "HTTP/1.1 307 T\r\nLocation: http://%s/webhdfs/v1/a%%20+&%%3F=%%23;\xc3\xa9?op=OPEN&offset=0&x=+\r\n"
             "Content-Length: 0\r\n\r\n",
             hdfs_fake_datanode(x->f));
    assert_int_equal(read_f(x->w, 0, 4, &x->got), 0);
    assert_string_equal(bytes_string(&x->got), "here");
    assert_string_equal(d.followed, "/webhdfs/v1/a%20+&%3F=%23;%C3%A9?op=OPEN&offset=0&x=+");
    snprintf(d.answer, sizeof d.answer, "HTTP/1.1 307 T\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(read_f(x->w, 0, 4, &x->got), -EACCES);
    assert_non_null(strstr(error_text(), "to no HTTP address"));
    snprintf(d.answer, sizeof d.answer, "HTTP/1.1 307 T\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(read_f(x->w, 0, 4, &x->got), -EACCES);
}

/* The first Location names a port where nobody listens. */
static void test_webhdfs__a_dead_datanode_is_excluded(void **state)
{
    struct world *x = *state;
    x->script.times = 1;
    x->script.next = HTTP_FAKE_KEEP;
    x->script.raw = "HTTP/1.1 307 T\r\nLocation: http://127.0.0.1:1/webhdfs/v1/f?op=OPEN\r\nContent-Length: 0\r\n\r\n";
    assert_int_equal(read_f(x->w, 0, 10, &x->got), 0);
    assert_int_equal(x->got.len, 10);
    assert_null(strstr(x->script.targets[0], "excludedatanodes"));
    assert_non_null(strstr(x->script.targets[1], "&excludedatanodes=127.0.0.1%3A1"));
    assert_int_equal(read_f(x->w, 0, 10, &x->got), 0);
    assert_non_null(strstr(x->script.targets[2], "&excludedatanodes=127.0.0.1%3A1"));
    /* when there is no other the NameNode says so, and the list is forgotten */
    x->script.from = 3;
    x->script.raw = NULL;
    x->script.status = "403 Forbidden";
    x->script.exception = "IOException";
    x->script.message = "No active nodes contain this block";
    assert_int_equal(read_f(x->w, 0, 10, &x->got), -EAGAIN);
    assert_int_equal(read_f(x->w, 0, 10, &x->got), 0);
    assert_null(strstr(x->script.targets[4], "excludedatanodes"));
}

static void test_webhdfs__a_cut_answer_is_told_with_what_came(void **state)
{
    struct world *x = *state;
    x->script.node = 'd';
    x->script.times = 1;
    x->script.raw = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123";
    x->script.next = HTTP_FAKE_CLOSE;
    assert_int_equal(read_f(x->w, 0, 10, &x->got), -EAGAIN);
    assert_string_equal(bytes_string(&x->got), "0123"); /* the caller goes on after them */
    x->script.from = 1;
    x->script.raw = "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n012345678901";
    assert_int_equal(read_f(x->w, 0, 10, &x->got), -EIO);
    assert_non_null(strstr(error_text(), "more bytes than were asked for"));
    x->script.from = 2; /* gone between NameNode and DataNode: the NameNode shall be asked again */
    x->script.raw = NULL;
    x->script.status = "404 Not Found";
    x->script.exception = "FileNotFoundException";
    x->script.message = "gone";
    assert_int_equal(read_f(x->w, 0, 10, &x->got), -EAGAIN);
}

static int stop(void *arg, const void *data, size_t len)
{
    return error_set(-ECANCELED, "the sink's own");
}

static void test_webhdfs__a_sink_may_refuse(void **state)
{
    struct world *x = *state;
    uint64_t done;
    assert_int_equal(webhdfs_read(x->w, "/f", 2, &(struct http_part){.len = 10}, stop, NULL, &done), -ECANCELED);
    assert_string_equal(error_text(), "the sink's own");
    assert_int_equal(x->script.seen, 1);
}

static void test_webhdfs__the_exception_decides(void **state)
{
    static const struct {
        const char *status, *exception;
        int rc;
    } cases[] = {
        {"404 Not Found", "FileNotFoundException", -ENOENT},
        {"403 Forbidden", "AccessControlException", -EACCES},
        {"403 Forbidden", "SecurityException", -ENOKEY},
        {"403 Forbidden", "InvalidToken", -ENOKEY},
        {"401 Unauthorized", "AuthenticationException", -ENOKEY},
        {"403 Forbidden", "IOException", -EAGAIN},
        {"403 Forbidden", "EOFException", -EAGAIN},
        {"403 Forbidden", "SafeModeException", -EAGAIN},
        {"403 Forbidden", "RetriableException", -EAGAIN},
        {"403 Forbidden", "StandbyException", -EAGAIN},
        {"403 Forbidden", "FSLimitException$PathComponentTooLongException", -EINVAL},
        {"403 Forbidden", "DSQuotaExceededException", -ENOSPC},
        {"403 Forbidden", "FileAlreadyExistsException", -EEXIST},
        {"400 Bad Request", "IllegalArgumentException", -EINVAL},
        {"400 Bad Request", "NobodyKnowsThisException", -EIO},
        {"500 Server Error", "NullPointerException", -EAGAIN},
    };
    struct world *x = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct script s = {.node = 'n',
                           .times = 1,
                           .status = cases[i].status,
                           .exception = cases[i].exception,
                           .message = "first line\nat java.lang"};
        CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
        hdfs_fake_set_hook(x->f, play, &s);
        assert_int_equal(webhdfs_stat(x->w, "/f", 2, &page), cases[i].rc);
        assert_non_null(strstr(error_text(), cases[i].exception));
        assert_non_null(strstr(error_text(), "first line"));
        assert_null(strstr(error_text(), "java.lang"));
        assert_int_equal(s.seen, 1);
    }
}

static void test_webhdfs__what_is_no_webhdfs_is_said(void **state)
{
    static const struct {
        const char *answer;
        int rc;
        const char *part;
    } cases[] = {
        {"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", -ENOKEY, "HADOOP_TOKEN_FILE_LOCATION"},
        {"HTTP/1.1 404 No\r\nContent-Length: 12\r\n\r\n<html>no way", -EIO, "9870"},
        {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", -EAGAIN, "503"},
        {"HTTP/1.1 404 No\r\nContent-Length: 18\r\n\r\n{\"RemoteException\"", -EAGAIN, "cut short"},
        {"HTTP/1.1 404 No\r\nContent-Length: 24\r\n\r\n{\"message\":\"not found\"}\n", -EIO, "9870"},
        {"HTTP/1.1 307 No\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n", -EIO, "9870"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n<html>", -EBADMSG, "no valid JSON"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", -EBADMSG, "type"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", -EBADMSG, "type"},
    };
    struct world *x = *state;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct script s = {.node = 'n', .times = 1, .raw = cases[i].answer};
        CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
        hdfs_fake_set_hook(x->f, play, &s);
        assert_int_equal(webhdfs_stat(x->w, "/f", 2, &page), cases[i].rc);
        assert_non_null(strstr(error_text(), cases[i].part));
    }
}

static void assert_serves(struct webhdfs *w)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    if (webhdfs_stat(w, "/f", 2, &page))
        fail_msg("%s", error_text());
    assert_int_equal(webhdfs_page_status(page, 0)->size, 10);
}

static void test_webhdfs__standby_and_dead_namenodes_are_left(void **state)
{
    struct world *x = *state;
    struct hdfs_fake *standby = hdfs_fake_new();
    struct script says = {.node = 'n',
                          .times = 1,
                          .status = "403 Forbidden",
                          .exception = "StandbyException",
                          .message = "Operation category READ is not supported in state standby"};
    char hosts[256];
    hdfs_fake_set_hook(standby, play, &says);
    snprintf(hosts, sizeof hosts, "127.0.0.1:1,%s,%s", hdfs_fake_namenode(standby), hdfs_fake_namenode(x->f));
    struct webhdfs *w = open_at(hosts, NULL);
    assert_serves(w);
    assert_int_equal(says.seen, 1);
    assert_serves(w); /* the one that served is asked first */
    assert_int_equal(says.seen, 1);
    assert_int_equal(x->script.seen, 2);
    x->script.from = 2; /* it becomes the standby one, and the other the active */
    x->script.times = 100;
    x->script.status = says.status;
    x->script.exception = says.exception;
    x->script.message = says.message;
    hdfs_fake_put(standby, "/f", "0123456789", 10, 1500);
    assert_serves(w);
    assert_serves(w);
    assert_int_equal(says.seen, 3);
    assert_int_equal(x->script.seen, 3);
    webhdfs_free(w);
    hdfs_fake_free(standby);
}

static void test_webhdfs__nobody_serving_is_worth_a_retry(void **state)
{
    struct webhdfs *w = open_at("127.0.0.1:1,127.0.0.1:2", NULL);
    struct webhdfs_page *page;
    assert_int_equal(webhdfs_stat(w, "/f", 2, &page), -EAGAIN);
    assert_non_null(strstr(error_text(), "hdfs://127.0.0.1:1,127.0.0.1:2/f"));
    webhdfs_free(w);
}

static void test_webhdfs__pages_are_judged(void **state)
{
#define PAGE(entries, remaining)                                                                                       \
    "{\"DirectoryListing\":{\"partialListing\":{\"FileStatuses\":{\"FileStatus\":[" entries "]}},"                     \
    "\"remainingEntries\":" remaining "}}"
#define ENTRY(name, type, permission, length)                                                                          \
    "{\"pathSuffix\":\"" name "\",\"type\":\"" type "\",\"permission\":\"" permission "\",\"length\":" length          \
    ",\"modificationTime\":-1}"
    static const char *const bad[] = {
        "",
        "{}",
        "[]",
        "null",
        PAGE("", "5"),
        PAGE("7", "0"),
        PAGE(ENTRY("..", "FILE", "644", "1"), "0"),
        PAGE(ENTRY(".", "DIRECTORY", "644", "1"), "0"),
        PAGE(ENTRY("", "DIRECTORY", "644", "1"), "0"),
        PAGE(ENTRY("a/b", "FILE", "644", "1"), "0"),
        PAGE(ENTRY("a\\u0000b", "FILE", "644", "1"), "0"),
        PAGE(ENTRY("a", "SOCKET", "644", "1"), "0"),
        PAGE(ENTRY("a", "FILE", "999", "1"), "0"),
        PAGE(ENTRY("a", "FILE", "", "1"), "0"),
        PAGE(ENTRY("a", "FILE", "644", "-1"), "0"),
        PAGE(ENTRY("a", "FILE", "644", "1.5"), "0"),
        PAGE(ENTRY("a", "FILE", "644", "99999999999999999999"), "0"),
        PAGE(ENTRY("a", "FILE", "644", "1"), "-1"),
        PAGE(ENTRY("a", "FILE", "644", "1"), "\"x\""),
    };
    struct webhdfs_page *page = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++) {
        assert_int_equal(webhdfs_list_decode(bad[i], strlen(bad[i]), &page), -EBADMSG);
        assert_null(page);
    }
    const char good[] = PAGE(ENTRY("a", "SYMLINK", "1777", "1"), "3");
    assert_int_equal(webhdfs_list_decode(good, strlen(good), &page), 0);
    assert_int_equal(webhdfs_page_count(page), 1);
    assert_true(webhdfs_page_more(page));
    const struct webhdfs_status *s = webhdfs_page_status(page, 0);
    assert_int_equal(s->type, WEBHDFS_SYMLINK);
    assert_int_equal(s->permission, 01777);
    assert_int_equal(s->mtime_ms, -1);
    assert_string_equal(s->owner, "");
    webhdfs_page_free(page);
}

static void test_webhdfs__a_listing_that_repeats_itself_ends(void **state)
{
    struct world *x = *state;
    char raw[1024];
    const char page_text[] = PAGE(ENTRY("a", "FILE", "644", "1"), "3");
    struct webhdfs_page *page;
    snprintf(raw, sizeof raw, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(page_text), page_text);
    x->script.times = 10;
    x->script.raw = raw;
    assert_int_equal(webhdfs_list(x->w, "", 0, NULL, &page), 0);
    webhdfs_page_free(page);
    assert_int_equal(webhdfs_list(x->w, "", 0, "a", &page), -EBADMSG);
    assert_non_null(strstr(error_text(), "does not end"));
    assert_non_null(strstr(x->script.targets[1], "/webhdfs/v1/?op=LISTSTATUS_BATCH&user.name=tester&startAfter=a"));
}

static void test_webhdfs__renames_replace_or_refuse(void **state)
{
    struct world *x = *state;
    assert_int_equal(webhdfs_create(x->w, "/tmp/new", "fresh", 5), 0);
    assert_int_equal(webhdfs_rename(x->w, "/tmp/new", "/f", false), -EEXIST);
    assert_int_equal(webhdfs_rename(x->w, "/tmp/new", "/none/f", false), -ENOENT);
    assert_int_equal(webhdfs_mkdirs(x->w, "/none"), 0);
    assert_int_equal(webhdfs_rename(x->w, "/tmp/new", "/f", true), 0);
    assert_int_equal(webhdfs_rename(x->w, "/tmp/new", "/f", true), -ENOENT);
    assert_int_equal(read_f(x->w, 0, 5, &x->got), 0);
    assert_string_equal(bytes_string(&x->got), "fresh");
    assert_int_equal(webhdfs_delete(x->w, "/f"), 0);
    assert_int_equal(webhdfs_delete(x->w, "/f"), 0);
    assert_int_equal(read_f(x->w, 0, 5, &x->got), -ENOENT);
    /* HttpFS: RENAME answers with a body, CREATE leads back to it */
    struct script gateway = {
        .node = 'n', .times = 9, .raw = "HTTP/1.1 200 OK\r\nContent-Length: 17\r\n\r\n{\"boolean\":false}"};
    hdfs_fake_set_hook(x->f, play, &gateway);
    assert_int_equal(webhdfs_rename(x->w, "/a", "/b", true), -ENOTSUP);
    char raw[256];
    snprintf(raw, sizeof raw,
             "HTTP/1.1 307 T\r\nLocation: http://%s/webhdfs/v1/f?op=CREATE&data=true\r\nContent-Length: 0\r\n\r\n",
             hdfs_fake_namenode(x->f));
    gateway.raw = raw;
    assert_int_equal(webhdfs_create(x->w, "/f", "x", 1), -ENOTSUP);
    assert_non_null(strstr(error_text(), "write through the NameNode's own address"));
}

/* ------------------------------------------------------------------ tokens */

#define SECRET "QmFzZTY0X1NlY3JldA"

static void write_file(const char *path, const void *data, size_t len)
{
    assert_int_equal(io_write_file_atomic(path, data, len, false), 0);
}

static void test_webhdfs__a_token_is_sent_and_never_shown(void **state)
{
    struct world *x = *state;
    char path[] = "/tmp/granary-test-XXXXXX";
    int fd = mkstemp(path);
    close(fd);
    write_file(path, SECRET "\n", sizeof SECRET);
    struct webhdfs *w = open_at(hdfs_fake_namenode(x->f), path);
    assert_serves(w);
    assert_string_equal(x->script.targets[0], "/webhdfs/v1/f?op=GETFILESTATUS&delegation=" SECRET);
    static const char *const messages[] = {"token " SECRET " has expired", "op=OPEN&delegation=x"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(messages); i++) {
        struct script s = {
            .node = 'n', .times = 1, .status = "403 Forbidden", .exception = "InvalidToken", .message = messages[i]};
        struct webhdfs_page *page;
        hdfs_fake_set_hook(x->f, play, &s);
        assert_int_equal(webhdfs_stat(w, "/f", 2, &page), -ENOKEY);
        assert_non_null(strstr(error_text(), "fetch a new one"));
        assert_null(strstr(error_text(), SECRET));
        assert_null(strstr(error_text(), "delegation="));
    }
    webhdfs_free(w);
    unlink(path);
}

/* A file as Hadoop writes it: two tokens of HDFS, one of another kind; fields of 200 bytes have longer lengths. */
static size_t token_file(uint8_t *out)
{
    uint8_t *p = out;
    static const char *const tokens[][3] = {
        {"a", "YARN_AM", "h1:1"}, {"b", "HDFS_DELEGATION_TOKEN", "h1:8020"}, {"c", "HDFS_DELEGATION_TOKEN", "h2:8020"}};
    memcpy(p, "HDTS\0\3", 6);
    p += 6;
    for (int i = 0; i < 3; i++) {
        *p++ = 1;
        *p++ = (uint8_t)tokens[i][0][0]; /* alias */
        *p++ = (uint8_t)-113;            /* one byte of length follows */
        *p++ = 200;
        memset(p, 'i' + i, 200); /* identifier */
        p += 200;
        *p++ = 2;
        memcpy(p, "pw", 2);
        p += 2;
        for (int k = 1; k < 3; k++) {
            *p = (uint8_t)strlen(tokens[i][k]);
            memcpy(p + 1, tokens[i][k], *p);
            p += 1 + *p;
        }
    }
    *p++ = 0; /* secrets */
    return (size_t)(p - out);
}

static void test_hadoop_token__the_one_for_the_namenode_wins(void **state)
{
    static const char *const h2[] = {"other:9870", "h2:9870"}, *const none[] = {"h3:9870"};
    uint8_t file[2000];
    size_t len = token_file(file);
    char *token = NULL;
    assert_int_equal(hadoop_token_decode(file, len, h2, 2, &token), 0);
    /* base64url of 8f c8 'k' * 200 02 'p' 'w' 15 … : computed with another program */
    assert_memory_equal(token, "j8hra2tra2tr", 12);
    assert_int_equal(strlen(token), (202 + 3 + 22 + 8) * 8 / 6 + 1);
    free(token);
    assert_int_equal(hadoop_token_decode(file, len, none, 1, &token), 0);
    assert_memory_equal(token, "j8hqampqampq", 12); /* the first of HDFS */
    free(token);
    static const char *const exact[] = {"h1:9870", "h2:8020"};
    assert_int_equal(hadoop_token_decode(file, len, exact, 2, &token), 0);
    assert_memory_equal(token, "j8hra2tra2tr", 12);
    free(token);
    for (size_t cut = 5; cut < len - 1; cut++) { /* cut anywhere: damage, but after the last token */
        uint8_t *part = malloc(cut);
        memcpy(part, file, cut);
        assert_int_equal(hadoop_token_decode(part, cut, h2, 2, &token), -EBADMSG);
        free(part);
    }
}

static void test_hadoop_token__what_is_none_is_refused(void **state)
{
    static const struct {
        const char *data;
        size_t len;
        int rc;
    } cases[] = {
        {"", 0, -EBADMSG},
        {"  \n", 3, -EBADMSG},
        {"two words", 9, -EBADMSG},
        {"abc=", 4, -EBADMSG},
        {"HDTS\1abc", 8, -EBADMSG},
        {"HDTS\0\0\0", 7, -ENOENT},
        {"HDTS\0\x8c\x7f\xff\xff\xff", 10, -EBADMSG}, /* two thousand million tokens */
        {"HDTS\0\xff", 6, -EBADMSG},                  /* a negative length */
    };
    static const char *const services[] = {"h:9870"};
    char *token = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        assert_int_equal(hadoop_token_decode(cases[i].data, cases[i].len, services, 1, &token), cases[i].rc);
        assert_null(token);
    }
    assert_int_equal(hadoop_token_decode("HDTSxyz-_\r\n", 11, services, 1, &token), 0); /* text all the same */
    assert_string_equal(token, "HDTSxyz-_");
    free(token);
}

static void test_hdfs_address__parts(void **state)
{
    struct hdfs_address a;
    assert_int_equal(hdfs_address_parse("hdfs://nn1,nn2:50070,[::1]:9870/a b/%41//", &a), 0);
    assert_int_equal(a.count, 3);
    assert_string_equal(a.namenodes[0], "nn1:9870");
    assert_string_equal(a.namenodes[1], "nn2:50070");
    assert_string_equal(a.namenodes[2], "[::1]:9870");
    assert_string_equal(a.path, "/a b/%41");
    assert_string_equal(a.name, "hdfs://nn1,nn2:50070,[::1]:9870");
    assert_false(a.tls);
    hdfs_address_release(&a);
    assert_int_equal(hdfs_address_parse("swebhdfs://nn", &a), 0);
    assert_string_equal(a.namenodes[0], "nn:9871");
    assert_string_equal(a.path, "");
    assert_true(a.tls);
    hdfs_address_release(&a);
    static const char *const bad[] = {"hdfs://",         "hdfs:///a",
                                      "hdfs://a,/b",     "hdfs://,a/b",
                                      "hdfs://u:p@h/x",  "hdfs://h:x/",
                                      "hdfs://h:/",      "hdfs://h h/x",
                                      "hdfs://[::1/x",   "hdfs://h:123456/x",
                                      "hdfs://[::1]x/y", "hdfs://h?x/y",
                                      "s3://a/b",        "hdfs://a,a,a,a,a,a,a,a,a/x"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++)
        if (hdfs_address_parse(bad[i], &a) != -EINVAL)
            fail_msg("%s", bad[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_webhdfs__reads_ranges_and_ends),
        TEST(test_webhdfs__redirects_are_taken_as_given),
        TEST(test_webhdfs__a_dead_datanode_is_excluded),
        TEST(test_webhdfs__a_cut_answer_is_told_with_what_came),
        TEST(test_webhdfs__a_sink_may_refuse),
        TEST(test_webhdfs__the_exception_decides),
        TEST(test_webhdfs__what_is_no_webhdfs_is_said),
        TEST(test_webhdfs__standby_and_dead_namenodes_are_left),
        TEST(test_webhdfs__nobody_serving_is_worth_a_retry),
        TEST(test_webhdfs__pages_are_judged),
        TEST(test_webhdfs__a_listing_that_repeats_itself_ends),
        TEST(test_webhdfs__renames_replace_or_refuse),
        TEST(test_webhdfs__a_token_is_sent_and_never_shown),
        cmocka_unit_test(test_hadoop_token__the_one_for_the_namenode_wins),
        cmocka_unit_test(test_hadoop_token__what_is_none_is_refused),
        cmocka_unit_test(test_hdfs_address__parts),
    };
    unsetenv("http_proxy");
    unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    setenv("HADOOP_USER_NAME", "tester", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The S3 source: what keys become, and what is done about failures. test_s3_walk.c has large buckets,
 * tests/flow/source-s3.sh the real server. */
#include "unit/s3_bucket.h"

#include <pthread.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/log.h"
#include "imagebuild/tree/listing.h"

/* ------------------------------------------------------------------ listings */

static int add(void *arg, const struct source_entry *e)
{
    return listing_add(arg, e);
}

static struct listing *make_listing(bool skip_bad_names)
{
    struct listing_options options = {.skip_bad_names = skip_bad_names};
    struct listing *l = NULL;
    assert_int_equal(listing_new(&options, &l), 0);
    return l;
}

static void assert_listed(const char *url, const char *expected, unsigned skipped)
{
    struct source *s = open_source(url, 0);
    CLEANUP(cleanup_listing) struct listing *l = make_listing(true);
    CLEANUP(cleanup_nodes) struct nodes *nodes = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *c = NULL;
    CLEANUP_BYTES text = BYTES_INIT(1 << 17);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(source_list(s, add, l), 0);
    assert_int_equal(listing_seal(l, &nodes), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(nodes_cursor_new(nodes, &c), 0);
    struct node n;
    while (nodes_next(c, &n) == 1)
        assert_int_equal(bytes_printf(&text, "%.*s %o %lld %s\n", (int)n.path_len, n.path, n.mode, (long long)n.mtime,
                                      n.validator_len ? "v" : "-"),
                         0);
    assert_string_equal(bytes_string(&text), expected);
    assert_int_equal(listing_stats(l).names_skipped, skipped);
    source_close(s);
}

static const struct object keys[] = {
    {"data/", 0, "\"r\"", 0},
    {"data//double", 5, "\"1\"", 0},
    {"data/_$folder$", 0, "\"2\"", 0},
    {"data/a b+c%41", 5, "\"3\"", 0},
    {"data/bytes/", 3, "\"4\"", 0},
    {"data/dir/", 0, "\"5\"", 0},
    {"data/dir/file", 7, "\"6\"", 0},
    {"data/hadoop_$folder$", 0, "\"7\"", 0},
    {"data/not_$folder$", 1, "\"8\"", 0},
    {"data/nul\0x", 1, "\"9\"", 10},
    {"data/x", 0, "\"10\"", 0},
    {"data/x/y", 2, NULL, 0},
    {"database/z", 2, "\"11\"", 0},
};

static void test_source_s3__keys_become_paths(void **state)
{
    serve(keys, GR_ARRAY_SIZE(keys));
    assert_listed("s3://bucket/data",
                  " 40755 1000 -\n"
                  "_$folder$ 100644 1002 v\n"
                  "a b+c%41 100644 1003 v\n"
                  "dir 40755 1005 -\n"
                  "dir/file 100644 1006 v\n"
                  "hadoop 40755 1007 -\n"
                  "not_$folder$ 100644 1008 v\n"
                  "x 40755 1011 -\n"
                  "x/y 100644 1011 -\n",
                  4);
    assert_string_equal(server.bucket, "bucket");
    assert_string_equal(server.prefix, "data/");
    assert_int_equal(server.connections, CONNECTIONS);
    assert_listed("s3://bucket/data/dir/", " 40755 1005 -\nfile 100644 1006 v\n", 0);
    static const struct object whole[] = {{"a", 1, "\"1\"", 0}, {"b/c", 1, "\"2\"", 0}};
    serve(whole, 2);
    assert_listed("s3://bucket", " 40755 1001 -\na 100644 1000 v\nb 40755 1001 -\nb/c 100644 1001 v\n", 0);
    assert_string_equal(server.prefix, "");
    assert_listed("s3://bucket/", " 40755 1001 -\na 100644 1000 v\nb 40755 1001 -\nb/c 100644 1001 v\n", 0);
}

static void test_source_s3__bad_keys_are_refused_by_name(void **state)
{
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/data", 0);
    CLEANUP(cleanup_listing) struct listing *l = make_listing(false);
    assert_int_equal(source_list(s, add, l), -EINVAL);
    assert_non_null(strstr(error_text(), "s3://bucket/data: an empty component cannot be a file name: '/double'"));
    assert_int_equal(server.list_calls, 1); /* the visitor's error is not retried */
    source_close(s);
}

static void test_source_s3__a_lost_page_is_listed_again_from_where_it_was(void **state)
{
    static const struct object many[] = {
        {"a", 1, "\"1\"", 0}, {"b", 1, "\"2\"", 0}, {"c", 1, "\"3\"", 0}, {"d", 1, "\"4\"", 0}, {"e", 1, "\"5\"", 0}};
    for (int call = 0; call < 5; call++) {
        serve(many, 5);
        server.page = 1;
        server.fail_list_call = call;
        assert_listed("s3://bucket",
                      " 40755 1004 -\na 100644 1000 v\nb 100644 1001 v\nc 100644 1002 v\nd 100644 1003 v\n"
                      "e 100644 1004 v\n",
                      0);
    }
    serve(many, 5);
    assert_listed("s3://bucket",
                  " 40755 1004 -\na 100644 1000 v\nb 100644 1001 v\nc 100644 1002 v\nd 100644 1003 v\n"
                  "e 100644 1004 v\n",
                  0);
    assert_int_equal(server.list_calls, 1); /* one page costs one request */
}

static void test_source_s3__nothing_under_the_prefix(void **state)
{
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/dat", 0);
    assert_int_equal(source_list(s, add, NULL), -ENOENT);
    assert_non_null(strstr(error_text(), "s3://bucket/dat"));
    source_close(s);
    struct source_options options = {0};
    assert_int_equal(source_open("s3:///x", &options, &s), -EINVAL);
    assert_int_equal(source_open("gopher://x/y", &options, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "s3://bucket/prefix"));
    assert_int_equal(source_open("", &options, &s), -EINVAL);
}

/* ------------------------------------------------------------------ reading */

static int read_at(struct source *s, const char *path, const char *etag, uint64_t off, uint64_t len, uint8_t *dst)
{
    struct source_read r = {.path = path,
                            .path_len = strlen(path),
                            .validator = etag,
                            .validator_len = strlen(etag),
                            .offset = off,
                            .len = len,
                            .dst = dst};
    return source_read(s, &r);
}

static void test_source_s3__reads_are_conditional_and_repeated(void **state)
{
    uint8_t data[8];
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/data", 0);
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 2, 4, data), 0);
    assert_memory_equal(data, "\2\3\4\5", 4);
    assert_int_equal(read_at(s, "dir/file", "\"0\"", 2, 4, data), -ESTALE);
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 2, 6, data), -ESTALE);
    assert_int_equal(read_at(s, "dir/none", "\"6\"", 2, 4, data), -ENOENT);
    server.hides_etag = true;
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 2, 4, data), -EIO);
    assert_non_null(strstr(error_text(), "must pass ETag on"));
    server.hides_etag = false;
    server.fail_reads = 2;
    server.fail_rc = -EAGAIN;
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 0, 7, data), 0);
    server.fail_reads = 1;
    server.fail_rc = -ETIMEDOUT;
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 0, 7, data), 0);
    server.short_once = true;
    memset(data, 0, sizeof data);
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 0, 7, data), 0);
    assert_memory_equal(data, "\0\1\2\3\4\5\6", 7);
    server.fail_reads = 1;
    server.fail_rc = -EACCES; /* not worth a retry */
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 0, 7, data), -EACCES);
    assert_string_equal(error_text(), "the server says no");
    struct source_version v;
    server.fail_reads = 1;
    server.fail_rc = -EAGAIN;
    assert_int_equal(source_stat(s, "dir/file", 8, &v), 0);
    assert_int_equal(v.size, 7);
    assert_int_equal(v.mtime, 77);
    assert_false(v.have_owner);
    assert_string_equal(v.validator, "\"6\"");
    assert_int_equal(source_stat(s, "dir/none", 8, &v), -ENOENT);
    source_close(s);
}

static void test_source_s3__retries_end(void **state)
{
    uint8_t data[8];
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/data", 250);
    server.fail_reads = 1000;
    server.fail_rc = -EAGAIN;
    assert_int_equal(read_at(s, "dir/file", "\"6\"", 0, 7, data), -EAGAIN);
    assert_non_null(strstr(error_text(), "the server says no"));
    assert_non_null(strstr(error_text(), "retries"));
    assert_true(server.fail_reads > 990);
    source_close(s);
}

static void *read_forever(void *arg)
{
    static uint8_t data[8];
    return (void *)(intptr_t)read_at(arg, "dir/file", "\"6\"", 0, 7, data);
}

static void test_source_s3__cancel_ends_the_waiting(void **state)
{
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/data", 3600000);
    server.fail_reads = 1 << 30;
    server.fail_rc = -EAGAIN;
    pthread_t thread;
    void *rc;
    assert_int_equal(pthread_create(&thread, NULL, read_forever, s), 0);
    usleep(20000);
    source_cancel(s);
    pthread_join(thread, &rc);
    assert_int_equal((intptr_t)rc, -ECANCELED);
    source_close(s);
}

static void test_source_s3__a_signal_ends_the_waiting(void **state)
{
    volatile int interrupted = 1;
    serve(keys, GR_ARRAY_SIZE(keys));
    server.fail_list_call = 0;
    struct source_options options = {.cancel = &interrupted};
    CLEANUP(cleanup_listing) struct listing *l = make_listing(true);
    struct source *s;
    assert_int_equal(source_open("s3://bucket/data", &options, &s), 0);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(source_list(s, add, l), -ECANCELED);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(server.list_calls, 1);
    source_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_s3__keys_become_paths),
        cmocka_unit_test(test_source_s3__bad_keys_are_refused_by_name),
        cmocka_unit_test(test_source_s3__a_lost_page_is_listed_again_from_where_it_was),
        cmocka_unit_test(test_source_s3__nothing_under_the_prefix),
        cmocka_unit_test(test_source_s3__reads_are_conditional_and_repeated),
        cmocka_unit_test(test_source_s3__retries_end),
        cmocka_unit_test(test_source_s3__cancel_ends_the_waiting),
        cmocka_unit_test(test_source_s3__a_signal_ends_the_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

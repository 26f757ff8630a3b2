/* The S3 source over a client of our own making, linked in place of net/s3.c: what keys become, and
 * what is done about failures. tests/flow/source-s3.sh has the real server. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "imagebuild/source.h"
#include "imagebuild/tree.h"
#include "net/s3.h"

/* ------------------------------------------------------------------ the server */

struct object {
    const char *key;
    uint64_t size;
    const char *etag;
    size_t key_len; /* 0: strlen */
};

static struct server {
    const struct object *objects;
    size_t count;
    int fail_list_after; /* objects; then once -EAGAIN */
    int list_calls;
    _Atomic int fail_reads; /* so many reads fail first, with fail_rc */
    int fail_rc;
    bool short_once;
    bool ignores_if_match;
    char bucket[64], prefix[64];
    unsigned connections;
} server;

struct s3 {
    int unused;
};

int s3_new(const struct s3_config *config, struct s3 **out)
{
    snprintf(server.bucket, sizeof server.bucket, "%s", config->bucket);
    server.connections = config->http.connections;
    *out = calloc(1, sizeof **out);
    return 0;
}

void s3_free(struct s3 *s)
{
    free(s);
}

static size_t key_len(const struct object *o)
{
    return o->key_len ? o->key_len : strlen(o->key);
}

int s3_list(struct s3 *s, const char *prefix, const char *start_after, s3_visit *visit, void *arg)
{
    server.list_calls++;
    snprintf(server.prefix, sizeof server.prefix, "%s", prefix);
    int given = 0;
    for (size_t i = 0; i < server.count; i++) {
        const struct object *o = &server.objects[i];
        if (strncmp(o->key, prefix, strlen(prefix)) || (start_after && strcmp(o->key, start_after) <= 0))
            continue;
        if (server.fail_list_after >= 0 && given++ == server.fail_list_after) {
            server.fail_list_after = -1;
            return error_set(-EAGAIN, "the page is lost");
        }
        struct s3_object object = {.key = o->key,
                                   .key_len = key_len(o),
                                   .size = o->size,
                                   .mtime = 1000 + (int64_t)i,
                                   .mtime_nsec = 5,
                                   .etag = o->etag};
        int rc = visit(arg, &object);
        if (rc)
            return rc;
    }
    return 0;
}

static const struct object *find(const char *key, size_t len)
{
    for (size_t i = 0; i < server.count; i++)
        if (key_len(&server.objects[i]) == len && !memcmp(server.objects[i].key, key, len))
            return &server.objects[i];
    return NULL;
}

static int fail_now(void)
{
    if (atomic_fetch_sub(&server.fail_reads, 1) > 0)
        return error_set(server.fail_rc, "the server says no");
    return 0;
}

int s3_get(struct s3 *s, const char *key, size_t len, uint64_t off, uint64_t n, const char *if_match, http_sink *sink,
           void *arg, struct s3_meta *meta)
{
    int rc = fail_now();
    const struct object *o = find(key, len);
    if (rc)
        return rc;
    if (!o)
        return error_set(-ENOENT, "no such key");
    if (if_match && !server.ignores_if_match && strcmp(if_match, o->etag))
        return error_set(-ESTALE, "precondition failed");
    if (off + n > o->size)
        return error_set(if_match ? -ESTALE : -EBADMSG, "range");
    uint64_t give = server.short_once ? n / 2 : n;
    server.short_once = false;
    for (uint64_t i = 0; !rc && i < give; i++) {
        char byte = (char)(off + i);
        rc = sink(arg, &byte, 1);
    }
    meta->size = o->size;
    snprintf(meta->etag, sizeof meta->etag, "%s", o->etag);
    return rc;
}

int s3_head(struct s3 *s, const char *key, size_t len, struct s3_meta *out)
{
    int rc = fail_now();
    const struct object *o = find(key, len);
    if (rc || !o)
        return rc ? rc : error_set(-ENOENT, "no such key");
    *out = (struct s3_meta){.size = o->size, .mtime = 77};
    snprintf(out->etag, sizeof out->etag, "%s", o->etag);
    return 0;
}

/* ------------------------------------------------------------------ listings */

static struct source *open_source(const char *url, uint64_t timeout_ms)
{
    struct source_options options = {.connections = 12, .timeout_ms = timeout_ms};
    struct source *s;
    assert_int_equal(source_open(url, &options, &s), 0);
    return s;
}

static void serve(const struct object *objects, size_t count)
{
    server = (struct server){.objects = objects, .count = count, .fail_list_after = -1};
}

static int add(void *arg, const struct source_entry *e)
{
    return tree_add(arg, e);
}

static int print(void *arg, struct tree *t, node_id id)
{
    CLEANUP_BYTES path = BYTES_INIT(1 << 17);
    const struct node *n = tree_node(t, id);
    size_t len;
    const char *validator = tree_validator(t, n, &len);
    assert_int_equal(tree_path(t, id, &path), 0);
    return bytes_printf(arg, "%.*s %o %lld %s\n", (int)path.len, (char *)path.data, n->mode, (long long)n->mtime,
                        validator ? "v" : "-");
}

static void assert_listed(const char *url, const char *expected, unsigned skipped)
{
    struct source *s = open_source(url, 0);
    struct tree_options options = {.skip_bad_names = true};
    CLEANUP(cleanup_tree) struct tree *t = NULL;
    CLEANUP_BYTES text = BYTES_INIT(1 << 17);
    assert_int_equal(tree_new(&options, &t), 0);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(s->ops->list(s, add, t), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(tree_seal(t), 0);
    assert_int_equal(tree_walk(t, print, &text), 0);
    assert_string_equal(bytes_string(&text), expected);
    assert_int_equal(tree_stats(t).names_skipped, skipped);
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
    assert_int_equal(server.connections, 12);
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
    struct tree_options options = {0};
    CLEANUP(cleanup_tree) struct tree *t = NULL;
    assert_int_equal(tree_new(&options, &t), 0);
    assert_int_equal(s->ops->list(s, add, t), -EINVAL);
    assert_non_null(strstr(error_text(), "s3://bucket/data: an empty component cannot be a file name: '/double'"));
    assert_int_equal(server.list_calls, 1); /* the visitor's error is not retried */
    source_close(s);
}

static void test_source_s3__a_lost_page_is_listed_again_from_where_it_was(void **state)
{
    static const struct object many[] = {
        {"a", 1, "\"1\"", 0}, {"b", 1, "\"2\"", 0}, {"c", 1, "\"3\"", 0}, {"d", 1, "\"4\"", 0}, {"e", 1, "\"5\"", 0}};
    for (int after = 0; after < 5; after++) {
        serve(many, 5);
        server.fail_list_after = after;
        assert_listed("s3://bucket",
                      " 40755 1004 -\na 100644 1000 v\nb 100644 1001 v\nc 100644 1002 v\nd 100644 1003 v\n"
                      "e 100644 1004 v\n",
                      0);
        assert_int_equal(server.list_calls, 2);
    }
}

static void test_source_s3__nothing_under_the_prefix(void **state)
{
    serve(keys, GR_ARRAY_SIZE(keys));
    struct source *s = open_source("s3://bucket/dat", 0);
    assert_int_equal(s->ops->list(s, add, NULL), -ENOENT);
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
    return s->ops->read(s, &r);
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
    server.ignores_if_match = true;
    assert_int_equal(read_at(s, "dir/file", "\"0\"", 2, 4, data), -ESTALE);
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
    assert_int_equal(s->ops->stat(s, "dir/file", 8, &v), 0);
    assert_int_equal(v.size, 7);
    assert_int_equal(v.mtime, 77);
    assert_false(v.have_owner);
    assert_string_equal(v.validator, "\"6\"");
    assert_int_equal(s->ops->stat(s, "dir/none", 8, &v), -ENOENT);
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
    s->ops->cancel(s);
    pthread_join(thread, &rc);
    assert_int_equal((intptr_t)rc, -ECANCELED);
    source_close(s);
}

static void test_source_s3__a_signal_ends_the_waiting(void **state)
{
    volatile int interrupted = 1;
    serve(keys, GR_ARRAY_SIZE(keys));
    server.fail_list_after = 3;
    struct source_options options = {.cancel = &interrupted};
    struct tree_options tree_options = {.skip_bad_names = true};
    CLEANUP(cleanup_tree) struct tree *t = NULL;
    struct source *s;
    assert_int_equal(tree_new(&tree_options, &t), 0);
    assert_int_equal(source_open("s3://bucket/data", &options, &s), 0);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(s->ops->list(s, add, t), -ECANCELED);
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

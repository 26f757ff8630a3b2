/* What every store must do, over each kind there is: a directory, the fake, plain HTTP (reads, of
 * what a file store wrote); with GRANARY_TEST_S3=s3://BUCKET/PREFIX and AWS_* set, S3 alone; with
 * GRANARY_TEST_HDFS=hdfs://NAMENODE:PORT/PATH, HDFS alone.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/vec.h"
#include "fake/hdfs_fake.h"
#include "fake/http_fake.h"
#include "fake/store_fake.h"
#include "net/http.h"

/* A kind of store as two views of the same objects. */
struct kind {
    const char *name;
    struct store *writer, *reader;
    bool checks_keys; /* -EINVAL for keys that lead out */
    bool text_keys;   /* keys must be UTF-8 */
    bool no_match;    /* IF_ABSENT holds, IF_MATCH is refused */
    bool says_md5;
    unsigned many; /* keys of the long listing */
};

static char dir[] = "/tmp/granary-test-XXXXXX";

static int put(struct kind *k, const char *key, const void *data, size_t len, enum store_put_mode mode,
               const char *version)
{
    return store_put(k->writer,
                     &(struct store_put){.key = key, .data = data, .len = len, .mode = mode, .version = version});
}

static void must_put(struct kind *k, const char *key, const void *data, size_t len)
{
    if (put(k, key, data, len, STORE_PUT_ALWAYS, NULL))
        fail_msg("%s", error_text());
}

static void assert_reads(struct kind *k, const char *key, uint64_t off, const void *data, size_t len)
{
    CLEANUP_BYTES got = BYTES_INIT(64 << 20);
    if (store_get(k->reader, key, off, len, store_append, &got))
        fail_msg("%s", error_text());
    assert_int_equal(got.len, len);
    if (len)
        assert_memory_equal(got.data, data, len);
}

static int get_fails(struct kind *k, const char *key, uint64_t off, uint64_t len)
{
    CLEANUP_BYTES got = BYTES_INIT(64 << 20);
    int rc = store_get(k->reader, key, off, len, store_append, &got);
    assert_int_equal(got.len, 0);
    return rc;
}

static void what_was_put_comes_back(struct kind *k)
{
    static char path[1000]; /* four components of 249 bytes */
    memset(path, 'x', sizeof path - 1);
    path[249] = path[499] = path[749] = '/';
    const char *const keys[] = {"granary.json",     "packs/ab/abcdef", "odd/sp ace+plus&amp=?#",
                                "odd/ünïcode-漢字", "odd/%41~!*'()",   "odd/new\nline",
                                "odd/...",          "odd/\xff\xfe",    path};
    struct store_item item;
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++) {
        if (strstr(keys[i], "\xff") && k->text_keys)
            continue;
        CLEANUP_BYTES small = BYTES_INIT(2000);
        must_put(k, keys[i], keys[i], strlen(keys[i]));
        assert_reads(k, keys[i], 0, keys[i], strlen(keys[i]));
        assert_int_equal(bytes_append(&small, "<", 1), 0);
        assert_int_equal(store_get_small(k->reader, keys[i], &small, NULL), 0);
        assert_string_equal(bytes_string(&small) + 1, keys[i]);
        assert_int_equal(store_stat(k->reader, keys[i], &item), 0);
        assert_int_equal(item.size, strlen(keys[i]));
        assert_true(llabs(item.mtime - time(NULL)) < 3600);
        char md5[MD5_HEX_SIZE];
        assert_string_equal(item.md5, k->says_md5 ? md5_hex(keys[i], strlen(keys[i]), md5) : "");
    }
}

static void ranges_are_exact(struct kind *k)
{
    enum { SIZE = 3 << 20 };
    uint8_t *data = malloc(SIZE);
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 31 + (i >> 12));
    must_put(k, "packs/big", data, SIZE);
    assert_reads(k, "packs/big", 0, data, SIZE);
    assert_reads(k, "packs/big", 0, data, 1);
    assert_reads(k, "packs/big", SIZE - 1, data + SIZE - 1, 1);
    assert_reads(k, "packs/big", 1234567, data + 1234567, 1000000);
    assert_reads(k, "packs/big", 5, data, 0);
    assert_int_equal(get_fails(k, "packs/big", SIZE - 10, 11), -EBADMSG);
    assert_int_equal(get_fails(k, "packs/big", SIZE, 1), -EBADMSG);
    assert_int_equal(get_fails(k, "packs/big", (uint64_t)1 << 40, 1), -EBADMSG);
    assert_int_equal(get_fails(k, "packs/big", UINT64_MAX - 5, 5), -EBADMSG);
    CLEANUP_BYTES small = BYTES_INIT(100);
    assert_int_equal(bytes_append(&small, "kept", 4), 0);
    assert_int_equal(store_get_small(k->reader, "packs/big", &small, NULL), -EMSGSIZE);
    assert_int_equal(small.len, 4);
    free(data);
}

static int refuse_after(void *arg, const void *data, size_t len)
{
    size_t *left = arg;
    if (len >= *left)
        return error_set(-ECANCELED, "the sink's own");
    *left -= len;
    return 0;
}

static void a_sink_may_refuse(struct kind *k)
{
    size_t left = 1 << 20;
    assert_int_equal(store_get(k->reader, "packs/big", 0, 3 << 20, refuse_after, &left), -ECANCELED);
    assert_string_equal(error_text(), "the sink's own");
}

static void empty_objects_are_objects(struct kind *k)
{
    struct store_item item;
    CLEANUP_BYTES small = BYTES_INIT(10);
    must_put(k, "empty/object", "", 0);
    assert_int_equal(store_stat(k->reader, "empty/object", &item), 0);
    assert_int_equal(item.size, 0);
    assert_reads(k, "empty/object", 0, "", 0);
    assert_int_equal(get_fails(k, "empty/object", 0, 1), -EBADMSG);
    assert_int_equal(store_get_small(k->reader, "empty/object", &small, NULL), 0);
    assert_int_equal(small.len, 0);
}

static void what_is_absent_is_enoent(struct kind *k)
{
    struct store_item item;
    CLEANUP_BYTES small = BYTES_INIT(10);
    assert_int_equal(get_fails(k, "no/such/key", 0, 1), -ENOENT);
    assert_non_null(strstr(error_text(), "no/such/key"));
    assert_int_equal(get_fails(k, "no/such/key", 0, 0), -ENOENT);
    assert_int_equal(store_get_small(k->reader, "no/such/key", &small, NULL), -ENOENT);
    assert_int_equal(store_stat(k->reader, "no/such/key", &item), -ENOENT);
    assert_int_equal(store_stat(k->reader, "packs", &item), -ENOENT); /* a prefix is no object */
    assert_int_equal(store_stat(k->reader, "granary.json/below", &item), -ENOENT);
}

static void keys_that_lead_out_are_refused(struct kind *k)
{
    static const char *const bad[] = {"", "/", "/a", "a/", "..", "a/../b", "./a", "a//b"};
    struct store_item item;
    for (size_t i = 0; k->checks_keys && i < GR_ARRAY_SIZE(bad); i++)
        assert_int_equal(store_stat(k->reader, bad[i], &item), -EINVAL);
}

static void read_only_stores_say_so(struct kind *k)
{
    bool conditional = true;
    struct store_put q = {.key = "x", .data = "x", .len = 1};
    if (k->reader == k->writer)
        return;
    assert_int_equal(store_put(k->reader, &q), -ENOTSUP);
    assert_non_null(strstr(error_text(), "use the s3:// or file:// address"));
    assert_int_equal(store_remove(k->reader, "x"), -ENOTSUP);
    assert_int_equal(store_list(k->reader, "", NULL, NULL), -ENOTSUP);
    assert_int_equal(store_probe_conditional(k->reader, &conditional), 0);
    assert_false(conditional);
}

struct seen {
    VEC(char *) keys;
    uint64_t bytes;
    size_t stop_after; /* 0: never */
};

static int see(void *arg, const struct store_item *item)
{
    struct seen *s = arg;
    assert_int_equal(vec_push(&s->keys, strdup(item->key)), 0);
    s->bytes += item->size;
    assert_true(llabs(item->mtime - time(NULL)) < 3600);
    return s->stop_after && s->keys.len == s->stop_after ? 77 : 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void seen_release(struct seen *s)
{
    for (size_t i = 0; i < s->keys.len; i++)
        free(s->keys.items[i]);
    vec_release(&s->keys);
}

static void assert_lists(struct kind *k, const char *prefix, const char *const *keys, size_t n)
{
    CLEANUP(seen_release) struct seen s = {0};
    if (store_list(k->writer, prefix, see, &s))
        fail_msg("%s", error_text());
    if (s.keys.len)
        qsort(s.keys.items, s.keys.len, sizeof(char *), by_name);
    for (size_t i = 0; i < n && i < s.keys.len; i++)
        assert_string_equal(s.keys.items[i], keys[i]);
    assert_int_equal(s.keys.len, n);
}

static void listings_show_each_key_once(struct kind *k)
{
    static const char *const keys[] = {"l/a b+c%", "l/aa/x", "l/aa/y", "l/ab", "l/ab-c/z", "l/ü/é"};
    size_t n = GR_ARRAY_SIZE(keys);
    for (size_t i = 0; i < n; i++)
        must_put(k, keys[i], "12345", 5);
    assert_lists(k, "l/", keys, n);
    assert_lists(k, "l/a", keys, 5);
    assert_lists(k, "l/aa", keys + 1, 2);
    assert_lists(k, "l/aa/", keys + 1, 2);
    assert_lists(k, "l/aa/x", keys + 1, 1);
    assert_lists(k, "l/ab", keys + 3, 2);
    assert_lists(k, "l/a b+", keys, 1);
    assert_lists(k, "l/none", NULL, 0);
    assert_lists(k, "none/at/all/", NULL, 0);
    CLEANUP(seen_release) struct seen s = {.stop_after = 2};
    assert_int_equal(store_list(k->writer, "l/", see, &s), 77);
    assert_int_equal(s.keys.len, 2);
    assert_int_equal(s.bytes, 10);
}

static void long_listings_are_whole(struct kind *k)
{
    char key[64];
    for (unsigned i = 0; i < k->many; i++) {
        snprintf(key, sizeof key, "many/%02u/%05u", i % 7, i);
        must_put(k, key, "", 0);
    }
    CLEANUP(seen_release) struct seen s = {0};
    assert_int_equal(store_list(k->writer, "many/", see, &s), 0);
    assert_int_equal(s.keys.len, k->many);
    qsort(s.keys.items, s.keys.len, sizeof(char *), by_name);
    for (size_t i = 1; i < s.keys.len; i++)
        assert_int_not_equal(strcmp(s.keys.items[i - 1], s.keys.items[i]), 0);
}

/* A store that can do the one condition and not the other says so. */
static void absence_holds(struct kind *k)
{
    struct store *s = k->writer;
    bool conditional = true;
    assert_int_equal(store_probe_conditional(s, &conditional), 0);
    assert_false(conditional);
    assert_int_equal(put(k, "c/tag", "one", 3, STORE_PUT_IF_ABSENT, NULL), 0);
    assert_int_equal(put(k, "c/tag", "two", 3, STORE_PUT_IF_ABSENT, NULL), -EEXIST);
    assert_int_equal(put(k, "c/tag", "two", 3, STORE_PUT_IF_MATCH, "x"), -ENOTSUP);
    assert_reads(k, "c/tag", 0, "one", 3);
    must_put(k, "c/tag", "three", 5);
    assert_reads(k, "c/tag", 0, "three", 5);
    assert_int_equal(store_remove(s, "c/tag"), 0);
    assert_int_equal(put(k, "c/tag", "four", 4, STORE_PUT_IF_ABSENT, NULL), 0);
    assert_lists(k, ".granary-tmp", NULL, 0);
}

static void conditions_hold(struct kind *k)
{
    struct store *s = k->writer;
    bool conditional = false;
    char first[STORE_VERSION_MAX], second[STORE_VERSION_MAX];
    CLEANUP_BYTES b = BYTES_INIT(100);
    assert_int_equal(store_probe_conditional(s, &conditional), 0);
    assert_true(conditional);
    assert_lists(k, "probe/", NULL, 0); /* the probe leaves nothing behind */
    assert_int_equal(put(k, "c/tag", "one", 3, STORE_PUT_IF_MATCH, "\"0123\""), -EEXIST); /* absent */
    assert_int_equal(put(k, "c/tag", "one", 3, STORE_PUT_IF_ABSENT, NULL), 0);
    assert_int_equal(put(k, "c/tag", "two", 3, STORE_PUT_IF_ABSENT, NULL), -EEXIST);
    assert_int_equal(store_get_small(s, "c/tag", &b, first), 0);
    assert_string_equal(bytes_string(&b), "one");
    assert_int_equal(put(k, "c/tag", "two", 3, STORE_PUT_IF_MATCH, first), 0);
    assert_int_equal(put(k, "c/tag", "three", 5, STORE_PUT_IF_MATCH, first), -EEXIST);
    bytes_clear(&b);
    assert_int_equal(store_get_small(s, "c/tag", &b, second), 0);
    assert_string_equal(bytes_string(&b), "two");
    assert_string_not_equal(first, second);
    assert_int_equal(store_remove(s, "c/tag"), 0);
    assert_int_equal(put(k, "c/tag", "three", 5, STORE_PUT_IF_MATCH, second), -EEXIST);
    assert_int_equal(put(k, "c/tag", "four", 4, STORE_PUT_IF_ABSENT, NULL), 0);
}

static void removed_is_absent(struct kind *k)
{
    struct store_item item;
    must_put(k, "r/a", "x", 1);
    assert_int_equal(store_remove(k->writer, "r/a"), 0);
    assert_int_equal(store_stat(k->writer, "r/a", &item), -ENOENT);
    assert_int_equal(store_remove(k->writer, "r/a"), 0);
    assert_int_equal(store_remove(k->writer, "never/was"), 0);
    assert_lists(k, "r/", NULL, 0);
}

static void conforms(struct kind *k)
{
    what_was_put_comes_back(k);
    ranges_are_exact(k);
    a_sink_may_refuse(k);
    empty_objects_are_objects(k);
    what_is_absent_is_enoent(k);
    keys_that_lead_out_are_refused(k);
    read_only_stores_say_so(k);
    listings_show_each_key_once(k);
    if (k->no_match)
        absence_holds(k);
    else
        conditions_hold(k);
    removed_is_absent(k);
    long_listings_are_whole(k);
}

static struct store *open_url(const char *url)
{
    struct store *s = NULL;
    if (store_open(url, &(struct store_options){.timeout_ms = 120000, .connections = 4}, &s))
        fail_msg("%s", error_text());
    return s;
}

static struct store *open_below(const char *name)
{
    char url[128];
    snprintf(url, sizeof url, "file://%s/%s", dir, name);
    return open_url(url);
}

static void test_store_file__conforms(void **state)
{
    CLEANUP(cleanup_store) struct store *s = open_below("file");
    conforms(&(struct kind){.name = "file", .writer = s, .reader = s, .checks_keys = true, .many = 300});
}

static void test_store_fake__conforms(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *f = store_fake_new();
    CLEANUP(cleanup_store) struct store *s = NULL;
    assert_int_equal(store_retry_open(store_fake_store(f), 20000, NULL, &s), 0);
    conforms(&(struct kind){.name = "fake", .writer = s, .reader = s, .many = 3000});
}

/* A web server of the directory, with ranges. */
static enum http_fake_next serve_file(void *arg, const struct http_fake_request *r, int fd)
{
    char target[8192], path[9000], range[128];
    CLEANUP_BYTES body = BYTES_INIT(64 << 20);
    snprintf(target, sizeof target, "%s", r->target);
    long decoded = http_percent_decode(target, strlen(target));
    target[GR_MAX(decoded, 0)] = 0;
    snprintf(path, sizeof path, "%s%s", dir, target);
    struct stat st;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || io_read_file(path, &body)) {
        http_fake_text(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n%s", r->method[0] == 'H' ? "" : "gone");
        return HTTP_FAKE_KEEP;
    }
    unsigned long long first = 0, last = body.len - 1;
    bool ranged =
        http_fake_header(r, "range", range, sizeof range) && sscanf(range, "bytes=%llu-%llu", &first, &last) == 2;
    if (ranged && first >= body.len) {
        http_fake_text(fd, "HTTP/1.1 416 No\r\nContent-Range: bytes */%zu\r\nContent-Length: 0\r\n\r\n", body.len);
        return HTTP_FAKE_KEEP;
    }
    last = GR_MIN(last, body.len - 1);
    size_t len = ranged ? last - first + 1 : body.len;
    http_fake_text(fd, "HTTP/1.1 %s\r\nETag: \"%llx\"\r\nLast-Modified: %s\r\nContent-Length: %zu\r\n",
                   ranged ? "206 Partial Content" : "200 OK", (unsigned long long)st.st_mtim.tv_nsec, (char *)arg, len);
    if (ranged)
        http_fake_text(fd, "Content-Range: bytes %llu-%llu/%zu\r\n", first, last, body.len);
    http_fake_text(fd, "\r\n");
    if (r->method[0] != 'H')
        http_fake_send(fd, body.data + (ranged ? first : 0), len);
    return HTTP_FAKE_KEEP;
}

static void test_store_below__conforms(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *f = store_fake_new();
    CLEANUP(cleanup_store) struct store *s = NULL;
    store_fake_put(f, "granary.json", "outside", 7);
    assert_int_equal(store_below_open(store_fake_store(f), "deep/er", &s), 0);
    assert_string_equal(s->url, "fake://store/deep/er");
    conforms(&(struct kind){.name = "below", .writer = s, .reader = s, .checks_keys = true, .many = 1500});
    char key[STORE_KEY_MAX + 1];
    struct store_item item;
    memset(key, 'k', sizeof key - 1);
    key[sizeof key - 1] = 0;
    assert_int_equal(store_stat(s, key, &item), -EINVAL); /* too long with what is in front of it */
}

static void test_store_http__conforms(void **state)
{
    char date[64], url[128];
    time_t now = time(NULL);
    struct tm tm;
    strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
    struct http_fake *server = http_fake_start(serve_file, date);
    snprintf(url, sizeof url, "%s/http/", http_fake_url(server));
    {
        CLEANUP(cleanup_store) struct store *w = open_below("http"), *r = open_url(url);
        conforms(&(struct kind){.name = "http", .writer = w, .reader = r, .checks_keys = true, .many = 10});
    }
    http_fake_stop(server);
}

static void test_store_s3__conforms(void **state)
{
    const char *base = getenv("GRANARY_TEST_S3");
    if (!base)
        skip();
    char url[1024];
    snprintf(url, sizeof url, "%s/conformance-%d", base, (int)getpid());
    CLEANUP(cleanup_store) struct store *s = open_url(url);
    conforms(&(struct kind){.name = "s3",
                            .writer = s,
                            .reader = s,
                            .checks_keys = true,
                            .text_keys = true,
                            .says_md5 = true,
                            .many = 2500});
}

static void test_store_fake_hdfs__conforms(void **state)
{
    struct hdfs_fake *f = hdfs_fake_new();
    char url[128];
    snprintf(url, sizeof url, "hdfs://%s/store", hdfs_fake_namenode(f));
    {
        CLEANUP(cleanup_store) struct store *s = open_url(url);
        conforms(&(struct kind){.name = "fake hdfs",
                                .writer = s,
                                .reader = s,
                                .checks_keys = true,
                                .text_keys = true,
                                .no_match = true,
                                .many = 20});
    }
    hdfs_fake_free(f);
}

static void test_store_hdfs__conforms(void **state)
{
    const char *base = getenv("GRANARY_TEST_HDFS");
    if (!base)
        skip();
    char url[1024];
    snprintf(url, sizeof url, "%s/conformance-%d", base, (int)getpid());
    CLEANUP(cleanup_store) struct store *s = open_url(url);
    conforms(&(struct kind){.name = "hdfs",
                            .writer = s,
                            .reader = s,
                            .checks_keys = true,
                            .text_keys = true,
                            .no_match = true,
                            .many = 300});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_file__conforms),      cmocka_unit_test(test_store_fake__conforms),
        cmocka_unit_test(test_store_http__conforms),      cmocka_unit_test(test_store_s3__conforms),
        cmocka_unit_test(test_store_fake_hdfs__conforms), cmocka_unit_test(test_store_hdfs__conforms),
        cmocka_unit_test(test_store_below__conforms),
    };
    char command[128];
    if (!mkdtemp(dir))
        return 1;
    unsetenv("http_proxy");
    unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    if (getenv("GRANARY_TEST_S3"))
        cmocka_set_test_filter("test_store_s3*");
    if (getenv("GRANARY_TEST_HDFS"))
        cmocka_set_test_filter("test_store_hdfs*");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    snprintf(command, sizeof command, "rm -r %s", dir);
    return failed || system(command);
}

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
#include "base/text.h"
#include "imagebuild/key_split.h"
#include "imagebuild/listing.h"
#include "imagebuild/rules.h"
#include "net/s3_list.h"

/* ------------------------------------------------------------------ the server */

struct object {
    const char *key;
    uint64_t size;
    const char *etag;
    size_t key_len; /* 0: strlen */
};

enum fault { NO_FAULT, REPEATS, BACKWARDS, EMPTY };

static struct server {
    const struct object *objects; /* sorted */
    size_t count, page;           /* keys a page */
    int fail_list_call;           /* -EAGAIN, once */
    int fail_every;               /* calls; 0: never */
    enum fault fault;
    int fault_call;
    bool fault_always, slow;
    _Atomic int list_calls, running, most_running;
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

static int order_of(const struct object *o, const void *key, size_t len)
{
    int order = len ? memcmp(o->key, key, GR_MIN(key_len(o), len)) : 0;
    return order ? order : (key_len(o) > len) - (key_len(o) < len);
}

static void put_object(struct bytes *xml, const struct object *o)
{
    char when[TEXT_TIME_MAX];
    text_format_time(1000 + (o - server.objects), when);
    assert_int_equal(bytes_printf(xml, "<Contents><Key>"), 0);
    assert_int_equal(http_percent_encode(xml, o->key, key_len(o), true), 0);
    assert_int_equal(
        bytes_printf(xml, "</Key><Size>%llu</Size><LastModified>%s</LastModified>", (unsigned long long)o->size, when),
        0);
    assert_int_equal(bytes_printf(xml, o->etag ? "<ETag>%s</ETag></Contents>" : "</Contents>", o->etag), 0);
}

/* 0: this call answers; else its failure. *fault: what the page is to have. */
static int next_call(enum fault *fault)
{
    int call = atomic_fetch_add(&server.list_calls, 1);
    if (call == server.fail_list_call)
        return error_set(-EAGAIN, "the page is lost");
    if (server.fail_every && call % server.fail_every == server.fail_every - 1)
        return error_set(call % 2 ? -EAGAIN : -ETIMEDOUT, "a page is lost");
    *fault = call == server.fault_call || (server.fault_always && call >= server.fault_call) ? server.fault : NO_FAULT;
    return 0;
}

int s3_list_after(struct s3 *s, const char *prefix, const void *after, size_t after_len, struct s3_list_page **out)
{
    enum fault fault = NO_FAULT;
    int rc = next_call(&fault);
    if (rc)
        return rc;
    int running = atomic_fetch_add(&server.running, 1) + 1, most = atomic_load(&server.most_running);
    while (running > most && !atomic_compare_exchange_weak(&server.most_running, &most, running))
        ;
    if (!after_len) /* the first call alone: one thread */
        snprintf(server.prefix, sizeof server.prefix, "%s", prefix);
    CLEANUP_BYTES xml = BYTES_INIT(16 << 20);
    assert_int_equal(bytes_printf(&xml, "<ListBucketResult><EncodingType>url</EncodingType>"), 0);
    size_t low = 0, high = server.count, given = 0;
    while (low < high) { /* the first behind `after` */
        size_t middle = low + (high - low) / 2;
        if (order_of(&server.objects[middle], after, after_len) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (fault == REPEATS && low && !order_of(&server.objects[low - 1], after, after_len))
        low--;
    for (; low < server.count && given < server.page && fault != EMPTY; low++) {
        const struct object *o = &server.objects[low];
        if (strncmp(o->key, prefix, strlen(prefix)))
            continue;
        put_object(&xml, o);
        if (fault == REPEATS)
            put_object(&xml, o);
        if (fault == BACKWARDS && given == 1)
            put_object(&xml, o - 1);
        given++;
    }
    for (; low < server.count && strncmp(server.objects[low].key, prefix, strlen(prefix)); low++)
        ;
    if (low < server.count)
        assert_int_equal(bytes_printf(&xml, "<IsTruncated>true</IsTruncated>"
                                            "<NextContinuationToken>t</NextContinuationToken>"),
                         0);
    assert_int_equal(bytes_printf(&xml, "</ListBucketResult>"), 0);
    if (server.slow)
        usleep(500);
    atomic_fetch_sub(&server.running, 1);
    return s3_list_decode(xml.data, xml.len, out);
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

enum { CONNECTIONS = 12 };
static unsigned connections = CONNECTIONS;
static struct rules *left_out; /* NULL: nothing */

static struct source *open_source(const char *url, uint64_t timeout_ms)
{
    struct source_options options = {.connections = connections, .timeout_ms = timeout_ms, .rules = left_out};
    struct source *s;
    assert_int_equal(source_open(url, &options, &s), 0);
    return s;
}

static void serve(const struct object *objects, size_t count)
{
    server = (struct server){.objects = objects, .count = count, .page = 1000, .fail_list_call = -1};
}

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
    assert_int_equal(s->ops->list(s, add, l), 0);
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
    assert_int_equal(s->ops->list(s, add, l), -EINVAL);
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

/* Keys of many shapes: numbers, hashes, deep and flat directories, other scripts. Each 64 bytes at most. */
static size_t make_key(unsigned shape, unsigned i, char out[64])
{
    static const char *const names[] = {"\xe4\xb8\xad", "\xe6\x96\x87", "\xc3\xa9", "~", "A"};
    switch (shape) {
    case 0:
        return (size_t)snprintf(out, 64, "p/%08u.jpg", i);
    case 1:
        return (size_t)snprintf(out, 64, "p/%08x%08x", i * 2654435761u, i);
    case 2:
        return (size_t)snprintf(out, 64, "p/class-%03u/%05u", i % 97, i);
    case 3:
        return (size_t)snprintf(out, 64, "p/%s/%s%s/%u", names[i % 5], names[i / 5 % 5], names[i / 25 % 5], i);
    default:
        return (size_t)snprintf(out, 64, "p/aaaaaaaaaaaaaaaaaaaaaaaaaa/bbbbbbbbbbbbbbbbbbbbbb/%c/%u", 'a' + (i % 3), i);
    }
}

static int compare_objects(const void *a, const void *b)
{
    const struct object *y = b;
    return order_of(a, y->key, key_len(y));
}

enum { MANY = 20000 };
static struct object many_objects[MANY];
static char many_keys[MANY][64];

static void serve_many(unsigned shape)
{
    for (unsigned i = 0; i < MANY; i++) {
        make_key(shape, i, many_keys[i]);
        many_objects[i] = (struct object){.key = many_keys[i], .size = 1, .etag = "\"e\""};
    }
    qsort(many_objects, MANY, sizeof *many_objects, compare_objects);
    serve(many_objects, MANY);
    server.page = 100;
    server.slow = true;
}

static int see(void *arg, const struct source_entry *e)
{
    uint8_t *seen = arg;
    assert_int_equal(e->mode, S_IFREG | 0644);
    seen[e->mtime - 1000]++;
    return 0;
}

static void assert_all_seen_once(void)
{
    static uint8_t seen[MANY];
    memset(seen, 0, sizeof seen);
    struct source *s = open_source("s3://bucket/p", 0);
    int rc = s->ops->list(s, see, seen);
    if (rc)
        fail_msg("%s", error_text());
    for (size_t i = 0; i < MANY; i++)
        if (seen[i] != 1)
            fail_msg("key %s came %u times", many_objects[i].key, seen[i]);
    source_close(s);
}

static void test_source_s3__large_buckets_are_listed_in_parallel(void **state)
{
    for (unsigned shape = 0; shape < 5; shape++) {
        serve_many(shape);
        assert_all_seen_once();
        print_message("shape %u: %d pages, %d requests, %d at once\n", shape, MANY / 100, server.list_calls,
                      server.most_running);
        assert_true(server.most_running > 2);
        assert_true(server.list_calls < 2 * MANY / 100 + 100);
    }
}

/* What is taken of the keys comes once, and the answer is the requests made. */
static int list_without(const char *pattern)
{
    static uint8_t seen[MANY];
    memset(seen, 0, sizeof seen);
    assert_int_equal(rules_new(&left_out), 0);
    assert_int_equal(rules_add(left_out, false, pattern), 0);
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(s->ops->list(s, see, seen), 0);
    for (size_t i = 0; i < MANY; i++) {
        const char *path = many_objects[i].key + 2;
        if (seen[i] > 1 || (!seen[i] && rules_take(left_out, path, strlen(path), false)))
            fail_msg("%s: %s came %u times", pattern, many_objects[i].key, seen[i]);
    }
    source_close(s);
    rules_free(left_out);
    left_out = NULL;
    return server.list_calls;
}

/* Of the three directories, 67 pages each. */
static void test_source_s3__directories_left_out_are_not_listed(void **state)
{
    static const struct {
        const char *pattern;
        int requests;
    } cases[] = {{"/a*/b*/[ac]/1999*", 200}, {"/a*/b*/b/", 134}, {"/a*/b*/[bc]/", 69}, {"c", 135}, {"/a*/", 2}};
    connections = 1; /* no probes */
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        serve_many(4);
        server.slow = false;
        assert_int_equal(list_without(cases[i].pattern), cases[i].requests);
    }
    connections = CONNECTIONS;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++)
        for (unsigned shape = 2; shape < 5; shape++) {
            serve_many(shape);
            server.fault = REPEATS;
            server.fault_always = true;
            (void)list_without(i ? cases[i].pattern : "/*[0-4]/");
        }
}

static void test_source_s3__lost_and_disordered_pages_lose_no_key(void **state)
{
    for (unsigned shape = 0; shape < 5; shape++) {
        serve_many(shape);
        server.slow = false;
        server.fail_every = 50;
        assert_all_seen_once();
    }
    for (int call = 0; call < 30; call += 3) {
        serve_many(2);
        server.slow = false;
        server.fault = call % 2 ? BACKWARDS : REPEATS;
        server.fault_call = call;
        assert_all_seen_once();
    }
    for (int call = 0; call < 60; call += 3) { /* among them those that look where keys are */
        serve_many(2);
        server.slow = false;
        server.fault = EMPTY;
        server.fault_call = call;
        assert_all_seen_once();
    }
    for (unsigned shape = 0; shape < 5; shape++) {
        serve_many(shape);
        server.slow = false;
        server.fault = REPEATS;
        server.fault_always = true;
        assert_all_seen_once();
    }
}

static void test_source_s3__a_server_without_order_is_refused(void **state)
{
    static uint8_t seen[MANY];
    serve_many(0);
    server.fault = BACKWARDS;
    server.fault_call = 10;
    server.fault_always = true;
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(s->ops->list(s, see, seen), -EIO);
    assert_non_null(strstr(error_text(), "backwards"));
    source_close(s);
    serve_many(0);
    server.page = 1; /* the key asked for itself, again and again */
    server.fault = REPEATS;
    server.fault_call = 10;
    server.fault_always = true;
    s = open_source("s3://bucket/p", 0);
    assert_int_equal(s->ops->list(s, see, seen), -EIO);
    assert_non_null(strstr(error_text(), "does not end"));
    source_close(s);
}

static int stop_visiting(void *arg, const struct source_entry *e)
{
    return --*(int *)arg ? 0 : -ENOSPC;
}

static void test_source_s3__a_visitor_ends_the_listing(void **state)
{
    int left = 1500;
    serve_many(1);
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(s->ops->list(s, stop_visiting, &left), -ENOSPC);
    assert_int_equal(left, 0);
    source_close(s);
}

static void test_source_s3__a_key_between_two(void **state)
{
    static const struct {
        const char *after, *end, *expected; /* NULL: none */
    } cases[] = {
        {"p/a", "p/c", "p/b"},
        {"p/a", NULL, NULL},
        {"p/a", "p/b", NULL},
        {"p/00", "p/99", NULL},
        {"p/x", "p/x ", ""},
        {"p/x", "p/x!", "p/x "},
        {"p/\xe4\xb8\xad", "p/\xe4\xb8\xae", ""},
        {"p/\xe4\xb8\xad/a", "p/\xe6\x96\x87/z",
         "p/\xe4\xb8\xad"
         "0"},
    };
    CLEANUP_BYTES middle = BYTES_INIT(1000);
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        const char *after = cases[i].after, *end = cases[i].end, *expected = cases[i].expected;
        int rc = key_split(after, strlen(after), end, end ? strlen(end) : 0, 2, &middle);
        assert_int_equal(rc, !expected || *expected);
        if (!rc)
            continue;
        const char *key = bytes_string(&middle);
        assert_true(strcmp(after, key) < 0 && (!end || strcmp(key, end) < 0) && !strncmp(key, "p/", 2));
        assert_true(text_is_utf8(key, strlen(key)));
        if (expected)
            assert_string_equal(key, expected);
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
    server.fail_list_call = 0;
    struct source_options options = {.cancel = &interrupted};
    CLEANUP(cleanup_listing) struct listing *l = make_listing(true);
    struct source *s;
    assert_int_equal(source_open("s3://bucket/data", &options, &s), 0);
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(s->ops->list(s, add, l), -ECANCELED);
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
        cmocka_unit_test(test_source_s3__large_buckets_are_listed_in_parallel),
        cmocka_unit_test(test_source_s3__directories_left_out_are_not_listed),
        cmocka_unit_test(test_source_s3__lost_and_disordered_pages_lose_no_key),
        cmocka_unit_test(test_source_s3__a_server_without_order_is_refused),
        cmocka_unit_test(test_source_s3__a_visitor_ends_the_listing),
        cmocka_unit_test(test_source_s3__a_key_between_two),
        cmocka_unit_test(test_source_s3__nothing_under_the_prefix),
        cmocka_unit_test(test_source_s3__reads_are_conditional_and_repeated),
        cmocka_unit_test(test_source_s3__retries_end),
        cmocka_unit_test(test_source_s3__cancel_ends_the_waiting),
        cmocka_unit_test(test_source_s3__a_signal_ends_the_waiting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

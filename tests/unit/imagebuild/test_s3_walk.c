/* Large buckets, listed by several threads: every key comes once, whatever the keys look like and whatever the server
 * loses, repeats or disorders. */
#include "unit/counts.h"
#include "unit/s3_bucket.h"

#include <sys/stat.h>

#include "imagebuild/source/source_internal.h"

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
static size_t many; /* are served */

static void serve_keys(unsigned shape, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        make_key(shape, i, many_keys[i]);
        many_objects[i] = (struct object){.key = many_keys[i], .size = 1, .etag = "\"e\""};
    }
    qsort(many_objects, count, sizeof *many_objects, compare_objects);
    serve(many_objects, count);
    many = count;
    server.page = 100;
    server.slow = true;
}

static void serve_many(unsigned shape)
{
    serve_keys(shape, MANY);
}

/* Enough for every fault's call. */
static void serve_fewer(unsigned shape)
{
    serve_keys(shape, full_or(MANY, 4000));
    server.page = full_or(100, 50);
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
    int rc = source_list(s, see, seen);
    if (rc)
        fail_msg("%s", error_text());
    for (size_t i = 0; i < many; i++)
        if (seen[i] != 1)
            fail_msg("key %s came %u times", many_objects[i].key, seen[i]);
    source_close(s);
}

static bool is_listed_in_parallel(unsigned shape)
{
    serve_many(shape);
    assert_all_seen_once();
    print_message("shape %u: %d pages, %d requests, %d at once\n", shape, MANY / 100, server.list_calls,
                  server.most_running);
    return server.most_running > 2 && server.list_calls < 2 * MANY / 100 + 100;
}

/* Whether probes overtake the range's owner is the scheduler's choice as well: on a busy machine not in every listing.
 */
static void test_s3_walk__large_buckets_are_listed_in_parallel(void **state)
{
    for (unsigned shape = 0; shape < 5; shape++)
        for (unsigned tries = 1; !is_listed_in_parallel(shape); tries++)
            assert_true(tries < 100);
}

/* What is taken of the keys comes once, and the answer is the requests made. */
static int list_without(const char *pattern)
{
    static uint8_t seen[MANY];
    memset(seen, 0, sizeof seen);
    assert_int_equal(rules_new(&left_out), 0);
    assert_int_equal(rules_add(left_out, false, pattern), 0);
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(source_list(s, see, seen), 0);
    for (size_t i = 0; i < many; i++) {
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
static void test_s3_walk__directories_left_out_are_not_listed(void **state)
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
        for (unsigned shape = 2; shape < 5; shape += full_or(1, 2)) {
            serve_fewer(shape);
            server.fault = REPEATS;
            server.fault_always = true;
            (void)list_without(i ? cases[i].pattern : "/*[0-4]/");
        }
}

static void test_s3_walk__lost_and_disordered_pages_lose_no_key(void **state)
{
    for (unsigned shape = 0; shape < 5; shape++) {
        serve_fewer(shape);
        server.slow = false;
        server.fail_every = 50;
        assert_all_seen_once();
    }
    const int step = (int)full_or(3, 9); /* odd: calls that are even and odd in turn */
    for (int call = 0; call < 30; call += step) {
        serve_fewer(2);
        server.slow = false;
        server.fault = call % 2 ? BACKWARDS : REPEATS;
        server.fault_call = call;
        assert_all_seen_once();
    }
    for (int call = 0; call < 60; call += step) { /* among them those that look where keys are */
        serve_fewer(2);
        server.slow = false;
        server.fault = EMPTY;
        server.fault_call = call;
        assert_all_seen_once();
    }
    for (unsigned shape = 0; shape < 5; shape++) {
        serve_fewer(shape);
        server.slow = false;
        server.fault = REPEATS;
        server.fault_always = true;
        assert_all_seen_once();
    }
}

static void test_s3_walk__a_server_without_order_is_refused(void **state)
{
    static uint8_t seen[MANY];
    serve_fewer(0);
    server.fault = BACKWARDS;
    server.fault_call = 10;
    server.fault_always = true;
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(source_list(s, see, seen), -EIO);
    assert_non_null(strstr(error_text(), "backwards"));
    source_close(s);
    serve_fewer(0);
    server.page = 1; /* the key asked for itself, again and again */
    server.fault = REPEATS;
    server.fault_call = 10;
    server.fault_always = true;
    s = open_source("s3://bucket/p", 0);
    assert_int_equal(source_list(s, see, seen), -EIO);
    assert_non_null(strstr(error_text(), "does not end"));
    source_close(s);
}

static int stop_visiting(void *arg, const struct source_entry *e)
{
    return --*(int *)arg ? 0 : -ENOSPC;
}

static void test_s3_walk__a_visitor_ends_the_listing(void **state)
{
    int left = 1500;
    serve_fewer(1);
    struct source *s = open_source("s3://bucket/p", 0);
    assert_int_equal(source_list(s, stop_visiting, &left), -ENOSPC);
    assert_int_equal(left, 0);
    source_close(s);
}

static void test_s3_walk__a_key_between_two(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s3_walk__large_buckets_are_listed_in_parallel),
        cmocka_unit_test(test_s3_walk__directories_left_out_are_not_listed),
        cmocka_unit_test(test_s3_walk__lost_and_disordered_pages_lose_no_key),
        cmocka_unit_test(test_s3_walk__a_server_without_order_is_refused),
        cmocka_unit_test(test_s3_walk__a_visitor_ends_the_listing),
        cmocka_unit_test(test_s3_walk__a_key_between_two),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What a passing failure costs the caller: nothing but time. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake/store_fake.h"

enum { LONG = 60000 };

struct both {
    struct store_fake *fake;
    struct store *store;
};

static struct both open_both(uint64_t timeout_ms)
{
    struct both b = {.fake = store_fake_new()};
    assert_int_equal(store_retry_open(store_fake_store(b.fake), timeout_ms, NULL, &b.store), 0);
    return b;
}

static void release_both(struct both *b)
{
    store_close(b->store);
    store_fake_free(b->fake);
}

#define BOTH(timeout_ms) CLEANUP(release_both) struct both b = open_both(timeout_ms)

static void fault(struct store_fake *f, enum store_fake_op op, enum store_fake_kind kind, unsigned count, int code,
                  uint64_t bytes)
{
    store_fake_add_fault(
        f, &(struct store_fake_fault){.op = op, .kind = kind, .count = count, .code = code, .bytes = bytes});
}

static void take_counter(void *arg, const struct counter_row *row)
{
    uint64_t *values = arg;
    if (strcmp(row->name, "granary_store_retries_total") == 0)
        values[0] = row->value;
    if (strcmp(row->name, "granary_store_retries_exhausted_total") == 0)
        values[1] = row->value;
}

static void assert_counted(struct both *b, uint64_t retries, uint64_t exhausted)
{
    uint64_t values[2] = {99, 99};
    store_counters(b->store, take_counter, values);
    assert_int_equal(values[0], retries);
    assert_int_equal(values[1], exhausted);
}

static void test_store_retry__a_get_goes_on_behind_what_came(void **state)
{
    BOTH(LONG);
    CLEANUP_BYTES got = BYTES_INIT(100);
    store_fake_put(b.fake, "k", "0123456789abcdef", 16);
    store_fake_set_piece(b.fake, 2);
    fault(b.fake, FAKE_GET, FAKE_CUT, 1, -EAGAIN, 5);
    fault(b.fake, FAKE_GET, FAKE_CUT, 1, -ETIMEDOUT, 0);
    fault(b.fake, FAKE_GET, FAKE_CUT, 1, -EAGAIN, 3);
    assert_int_equal(store_get(b.store, "k", 1, 14, store_append, &got), 0);
    assert_int_equal(got.len, 14);
    assert_memory_equal(got.data, "123456789abcde", 14);
    assert_int_equal(store_fake_bytes_got(b.fake), 14); /* nothing came twice */
    assert_counted(&b, 3, 0);
}

static void test_store_retry__a_get_that_broke_behind_its_last_byte_is_done(void **state)
{
    BOTH(LONG);
    CLEANUP_BYTES got = BYTES_INIT(100);
    store_fake_put(b.fake, "k", "0123", 4);
    fault(b.fake, FAKE_GET, FAKE_CUT, 0, -EAGAIN, 4);
    assert_int_equal(store_get(b.store, "k", 0, 4, store_append, &got), 0);
    assert_int_equal(got.len, 4);
    assert_int_equal(store_fake_calls(b.fake, FAKE_GET), 1);
}

static int refuse(void *arg, const void *data, size_t len)
{
    ++*(int *)arg;
    return error_set(-EAGAIN, "the caller's own");
}

static void test_store_retry__what_the_callers_sink_says_is_final(void **state)
{
    BOTH(LONG);
    int calls = 0;
    store_fake_put(b.fake, "k", "0123", 4);
    assert_int_equal(store_get(b.store, "k", 0, 4, refuse, &calls), -EAGAIN);
    assert_string_equal(error_text(), "the caller's own");
    assert_int_equal(calls, 1);
}

static void test_store_retry__lasting_failures_are_passed_on_at_once(void **state)
{
    static const int codes[] = {-ENOENT, -EACCES, -EBADMSG, -EIO, -ENOTSUP, -EEXIST, -EINVAL, -ENOSPC};
    BOTH(LONG);
    struct store_item item;
    for (size_t i = 0; i < GR_ARRAY_SIZE(codes); i++) {
        store_fake_clear_faults(b.fake);
        store_fake_reset_counters(b.fake);
        fault(b.fake, FAKE_STAT, FAKE_FAIL, 0, codes[i], 0);
        assert_int_equal(store_stat(b.store, "k", &item), codes[i]);
        assert_int_equal(store_fake_calls(b.fake, FAKE_STAT), 1);
    }
}

static void test_store_retry__lasting_refusals_are_the_stores_health_until_it_accepts_one(void **state)
{
    BOTH(LONG);
    struct store_item item;
    struct store_health health;
    store_fake_put(b.fake, "k", "x", 1);
    fault(b.fake, FAKE_STAT, FAKE_FAIL, 2, -EACCES, 0);
    for (unsigned i = 1; i <= 2; i++, cancel_sleep_until(clock_now_us() + 5000, NULL)) {
        assert_int_equal(store_stat(b.store, i == 1 ? "k" : "l", &item), -EACCES);
        store_health(b.store, &health);
        assert_int_equal(health.refusals, i);
        assert_int_equal(health.failures, 0);
        assert_int_equal(health.refusal_code, -EACCES);
        assert_string_equal(health.refusal, error_text());
    }
    store_health(b.store, &health);
    assert_true(health.refused_ms >= 5 && health.refusing_ms >= health.refused_ms + 5);
    assert_int_equal(store_stat(b.store, "none", &item), -ENOENT); /* the keys are good again */
    store_health(b.store, &health);
    assert_int_equal(health.refusals, 0);
    assert_string_equal(health.refusal, "");
    int calls = 0;
    assert_int_equal(store_get(b.store, "k", 0, 1, refuse, &calls), -EAGAIN); /* the sink, not the store */
    store_health(b.store, &health);
    assert_int_equal(health.refusals, 0);
}

/* A pack holds hundreds of chunks, and a read of each is an operation: one archived pack is no store that refuses. */
static void test_store_retry__an_object_that_is_refused_again_counts_once(void **state)
{
    BOTH(LONG);
    struct store_item item;
    struct store_health health;
    char key[] = "packs/a";
    fault(b.fake, FAKE_STAT, FAKE_FAIL, 1000, -EACCES, 0);
    for (int i = 0; i < 10; i++) /* two objects, in turns */
        assert_int_equal(store_stat(b.store, i % 2 ? "packs/a" : "packs/b", &item), -EACCES);
    store_health(b.store, &health);
    assert_int_equal(health.refusals, 2);
    for (; key[6] <= 'z'; key[6]++)
        assert_int_equal(store_stat(b.store, key, &item), -EACCES);
    store_health(b.store, &health);
    assert_int_equal(health.refusals, STORE_REFUSED_MAX);
    store_fake_clear_faults(b.fake);
    assert_int_equal(store_stat(b.store, "packs/a", &item), -ENOENT);
    fault(b.fake, FAKE_STAT, FAKE_FAIL, 1, -EACCES, 0);
    assert_int_equal(store_stat(b.store, "packs/a", &item), -EACCES); /* it counts again */
    store_health(b.store, &health);
    assert_int_equal(health.refusals, 1);
}

static void test_store_retry__gives_up_at_its_deadline_and_says_so(void **state)
{
    uint64_t tries = 0;
    for (uint64_t timeout_ms = 120; tries < 2; timeout_ms *= 2) { /* a busy machine may have no time for a second try */
        assert_true(timeout_ms < LONG);
        BOTH(timeout_ms);
        struct store_item item;
        store_fake_set_dead(b.fake, -EAGAIN);
        uint64_t begin = clock_now_ms();
        assert_int_equal(store_stat(b.store, "k", &item), -EAGAIN);
        assert_true(clock_now_ms() - begin >= timeout_ms);
        assert_non_null(strstr(error_text(), "injected fault"));
        assert_non_null(strstr(error_text(), "(gave up after "));
        tries = store_fake_calls(b.fake, FAKE_STAT);
        assert_counted(&b, tries - 1, 1);
    }
}

static void test_store_retry__every_operation_is_repeated(void **state)
{
    BOTH(LONG);
    struct store_item item;
    bool conditional;
    CLEANUP_BYTES small = BYTES_INIT(100);
    assert_int_equal(bytes_append(&small, "before", 6), 0);
    store_fake_put(b.fake, "k", "0123", 4);
    for (enum store_fake_op op = 0; op < FAKE_OPS; op++)
        fault(b.fake, op, FAKE_FAIL, 1, op & 1 ? -EAGAIN : -ETIMEDOUT, 0);
    struct store_put put = {.key = "k2", .data = "x", .len = 1, .mode = STORE_PUT_IF_ABSENT};
    assert_int_equal(store_stat(b.store, "k", &item), 0);
    assert_int_equal(store_get_small(b.store, "k", &small, NULL), 0);
    assert_memory_equal(small.data, "before0123", 10);
    assert_int_equal(small.len, 10);
    assert_int_equal(store_put(b.store, &put), 0);
    assert_int_equal(store_remove(b.store, "k2"), 0);
    assert_int_equal(store_probe_conditional(b.store, &conditional), 0);
    assert_counted(&b, 5, 0);
    assert_int_equal(store_fake_count(b.fake, ""), 1);
}

static void test_store_retry__a_small_get_that_was_lost_is_not_there_twice(void **state)
{
    BOTH(LONG);
    CLEANUP_BYTES small = BYTES_INIT(4);
    store_fake_put(b.fake, "k", "0123", 4);
    fault(b.fake, FAKE_GET_SMALL, FAKE_LOSE, 2, -EAGAIN, 0);
    assert_int_equal(store_get_small(b.store, "k", &small, NULL), 0);
    assert_int_equal(small.len, 4);
}

static void test_store_retry__a_conditional_put_whose_answer_was_lost_is_done(void **state)
{
    BOTH(LONG);
    char version[STORE_VERSION_MAX];
    CLEANUP_BYTES old = BYTES_INIT(100);
    fault(b.fake, FAKE_PUT, FAKE_LOSE, 1, -ETIMEDOUT, 0);
    struct store_put put = {.key = "k", .data = "mine", .len = 4, .mode = STORE_PUT_IF_ABSENT};
    assert_int_equal(store_put(b.store, &put), 0);
    assert_int_equal(store_get_small(b.store, "k", &old, version), 0);
    store_fake_clear_faults(b.fake);
    fault(b.fake, FAKE_PUT, FAKE_LOSE, 1, -EAGAIN, 0);
    fault(b.fake, FAKE_STAT, FAKE_FAIL, 1, -EAGAIN, 0); /* and the look at it fails once, too */
    put = (struct store_put){.key = "k", .data = "next", .len = 4, .mode = STORE_PUT_IF_MATCH, .version = version};
    assert_int_equal(store_put(b.store, &put), 0);
    fault(b.fake, FAKE_PUT, FAKE_LOSE, 1, -EAGAIN, 0);
    put = (struct store_put){.key = "empty", .mode = STORE_PUT_IF_ABSENT};
    assert_int_equal(store_put(b.store, &put), 0);
}

static void rival_puts(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT)
        store_fake_put(f, key, arg, 4);
}

static void test_store_retry__a_rivals_bytes_are_not_taken_for_ours(void **state)
{
    BOTH(LONG);
    fault(b.fake, FAKE_PUT, FAKE_FAIL, 1, -EAGAIN, 0);
    store_fake_set_hook(b.fake, rival_puts, (char[]){"his"});
    struct store_put put = {.key = "k", .data = "mine", .len = 4, .mode = STORE_PUT_IF_ABSENT};
    assert_int_equal(store_put(b.store, &put), -EEXIST);
    put.len = 3; /* another length */
    store_fake_clear_faults(b.fake);
    fault(b.fake, FAKE_PUT, FAKE_FAIL, 1, -EAGAIN, 0);
    assert_int_equal(store_put(b.store, &put), -EEXIST);
}

static void test_store_retry__a_condition_that_fails_at_first_is_final_even_with_equal_bytes(void **state)
{
    BOTH(LONG);
    store_fake_put(b.fake, "k", "mine", 4);
    struct store_put put = {.key = "k", .data = "mine", .len = 4, .mode = STORE_PUT_IF_ABSENT};
    assert_int_equal(store_put(b.store, &put), -EEXIST);
    assert_int_equal(store_fake_calls(b.fake, FAKE_STAT), 0);
}

/* A store whose listing, ascending, breaks behind every second key. */
struct breaking {
    struct store base;
    unsigned calls;
    bool resumable;
};

static int breaking_after(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg)
{
    struct breaking *k = (struct breaking *)s;
    k->calls++;
    for (char name[2] = "a"; name[0] <= 'g'; name[0]++) {
        if (after && strcmp(name, after) <= 0)
            continue;
        int rc = visit(arg, &(struct store_item){.key = name});
        if (rc)
            return rc;
        if ((name[0] - 'a') % 2)
            return error_set(-EAGAIN, "broken behind %s", name);
    }
    return 0;
}

static int breaking_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return breaking_after(s, prefix, NULL, visit, arg);
}

static void breaking_close(struct store *s)
{
}

static int join(void *arg, const struct store_item *item)
{
    return bytes_append(arg, item->key, strlen(item->key));
}

static int stop_at_b(void *arg, const struct store_item *item)
{
    return *item->key == 'b' ? -EAGAIN : 0;
}

static void test_store_retry__a_listing_goes_on_behind_the_last_key(void **state)
{
    static const struct store_ops resumable = {
        .list = breaking_list, .list_after = breaking_after, .close = breaking_close};
    static const struct store_ops plain = {.list = breaking_list, .close = breaking_close};
    struct breaking k = {.base = {.ops = &resumable, .url = "breaking"}};
    CLEANUP_BYTES keys = BYTES_INIT(100);
    CLEANUP(cleanup_store) struct store *s = NULL;
    assert_int_equal(store_retry_open(&k.base, LONG, NULL, &s), 0);
    assert_int_equal(store_list(s, "", join, &keys), 0);
    assert_string_equal(bytes_string(&keys), "abcdefg");
    assert_int_equal(k.calls, 4);
    k.calls = 0;
    assert_int_equal(store_list(s, "", stop_at_b, NULL), -EAGAIN); /* the visitor's, not repeated */
    assert_int_equal(k.calls, 1);
    /* a store that cannot resume must not show keys twice */
    bytes_clear(&keys);
    k.base.ops = &plain;
    assert_int_equal(store_list(s, "", join, &keys), -EAGAIN);
    assert_string_equal(bytes_string(&keys), "ab");
}

static void test_store_retry__nothing_is_tried_again_once_cancelled(void **state)
{
    const volatile int cancel = 1;
    struct store_fake *fake = store_fake_new();
    struct store *s = NULL;
    struct store_item item;
    assert_int_equal(store_retry_open(store_fake_store(fake), LONG, &cancel, &s), 0);
    fault(fake, FAKE_STAT, FAKE_FAIL, 100, -EAGAIN, 0);
    assert_int_equal(store_stat(s, "k", &item), -ECANCELED);
    assert_non_null(strstr(error_text(), "interrupted"));
    struct both b = {.store = s};
    assert_counted(&b, 0, 0);
    store_close(s);
    store_fake_free(fake);
}

static void test_store_open__names_the_known_kinds(void **state)
{
    struct store *s = NULL;
    assert_int_equal(store_open("ftp://x/y", NULL, &s), -EINVAL);
    assert_non_null(
        strstr(error_text(), "file:///DIR, s3://BUCKET/PREFIX, hdfs://NAMENODE:9870/PATH and http(s)://HOST/PATH"));
    assert_int_equal(store_open("", NULL, &s), -EINVAL);
    assert_int_equal(store_open("http://user:hidden@host/x", NULL, &s), -EINVAL);
    assert_null(strstr(error_text(), "hidden"));
    assert_int_equal(store_open("http:///x", NULL, &s), -EINVAL);
    assert_int_equal(store_open("s3:///x", NULL, &s), -EINVAL);
    assert_int_equal(store_open("hdfs:///x", NULL, &s), -EINVAL);
    assert_int_equal(store_open("hdfs://user:hidden@host/x", NULL, &s), -EINVAL);
    assert_null(strstr(error_text(), "hidden"));
    assert_null(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_retry__a_get_goes_on_behind_what_came),
        cmocka_unit_test(test_store_retry__a_get_that_broke_behind_its_last_byte_is_done),
        cmocka_unit_test(test_store_retry__what_the_callers_sink_says_is_final),
        cmocka_unit_test(test_store_retry__lasting_failures_are_passed_on_at_once),
        cmocka_unit_test(test_store_retry__lasting_refusals_are_the_stores_health_until_it_accepts_one),
        cmocka_unit_test(test_store_retry__an_object_that_is_refused_again_counts_once),
        cmocka_unit_test(test_store_retry__gives_up_at_its_deadline_and_says_so),
        cmocka_unit_test(test_store_retry__every_operation_is_repeated),
        cmocka_unit_test(test_store_retry__a_small_get_that_was_lost_is_not_there_twice),
        cmocka_unit_test(test_store_retry__a_conditional_put_whose_answer_was_lost_is_done),
        cmocka_unit_test(test_store_retry__a_rivals_bytes_are_not_taken_for_ours),
        cmocka_unit_test(test_store_retry__a_condition_that_fails_at_first_is_final_even_with_equal_bytes),
        cmocka_unit_test(test_store_retry__a_listing_goes_on_behind_the_last_key),
        cmocka_unit_test(test_store_retry__nothing_is_tried_again_once_cancelled),
        cmocka_unit_test(test_store_open__names_the_known_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

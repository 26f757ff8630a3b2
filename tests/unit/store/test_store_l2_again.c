/* A store that does not answer, behind a node that had not, for a moment, what it owns: it is asked again between the
 * tries of the store. */
#include "unit/cmocka_all.h"

#include "unit/l2_world.h"

enum { NODES = 2, OWNER = 0, PATIENCE_MS = 30000 };

static struct world w;

/* Nodes, of which m1 is this one, before a store that is dead. Returns a key of the other. */
static unsigned begin_dead(void)
{
    static const char *const lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces"};
    char key[64];
    unsigned k = 0;
    struct store *retrying;
    begin(&w, NODES);
    w.weight[OWNER] = 1;
    const struct follow_config config = {
        .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w};
    assert_int_equal(follow_open(&config, &w.proxies), 0);
    assert_int_equal(store_retry_open(store_fake_store(w.origin), PATIENCE_MS, NULL, &retrying), 0);
    assert_int_equal(store_l2_open(retrying, w.proxies, &w.store), 0);
    store_fake_set_dead(w.origin, -EAGAIN);
    while (store_is_own(w.store, key_of(k, key), 0))
        k++;
    return k;
}

static struct request_context within(uint64_t ms)
{
    return (struct request_context){.deadline_ms = clock_now_ms() + ms};
}

static int get_within(unsigned k, struct request_context *context)
{
    char key[64];
    CLEANUP_BYTES got = BYTES_INIT(16);
    int rc = store_get_until(w.store, key_of(k, key), 0, 4, context, store_append, &got);
    if (!rc)
        assert_true(got.len == 4 && !memcmp(got.data, "text", 4));
    return rc;
}

/* Its first answer is this. */
static void owner_fails_once(enum store_fake_kind kind, int code)
{
    store_fake_add_fault(
        w.fakes[OWNER], &(struct store_fake_fault){.op = FAKE_GET, .kind = kind, .count = 1, .code = code, .bytes = 2});
}

static struct store_l2_report report_of_owner(void)
{
    CLEANUP(store_l2_reports_release) struct store_l2_reports r;
    store_proxies_reports(w.proxies, &r);
    return r.items[OWNER];
}

static void test_again__the_owner_is_asked_between_tries(void **state)
{
    const unsigned k = begin_dead();
    struct request_context context = within(PATIENCE_MS);
    owner_fails_once(FAKE_FAIL, -ENOENT);
    assert_int_equal(get_within(k, &context), 0);
    assert_int_equal(store_fake_calls(w.fakes[OWNER], FAKE_GET), 2);
    assert_true(store_fake_calls(w.origin, FAKE_GET) > 1);
    assert_true(context.from_l2);
    assert_false(context.owner_lacks);
    assert_null(context.meanwhile);
    assert_false(report_of_owner().down);
    end(&w);
}

/* An operation that waits for the breaker, because others have found the store dead, asks as well. */
static void test_again__the_owner_is_asked_while_another_probes(void **state)
{
    struct store_health health = {0};
    const unsigned k = begin_dead();
    store_fake_set_dead(w.fakes[OWNER], -ENOENT);
    for (unsigned i = 0; !health.silent; i++) {
        struct request_context short_one = within(0);
        assert_true(i < KEYS && get_within(i, &short_one));
        store_health(w.store, &health);
    }
    store_fake_set_dead(w.fakes[OWNER], 0);
    owner_fails_once(FAKE_FAIL, -EAGAIN);
    struct request_context context = within(PATIENCE_MS);
    assert_int_equal(get_within(k, &context), 0);
    assert_true(context.from_l2);
    end(&w);
}

/* A node answers a whole list of chunks, so nobody asks it for the rest. */
static void test_again__what_came_in_part_is_the_stores(void **state)
{
    const unsigned k = begin_dead();
    struct request_context context = within(700);
    owner_fails_once(FAKE_CUT, -EAGAIN);
    assert_int_equal(get_within(k, &context), -EAGAIN);
    assert_int_equal(store_fake_calls(w.fakes[OWNER], FAKE_GET), 1);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again__the_owner_is_asked_between_tries),
        cmocka_unit_test(test_again__the_owner_is_asked_while_another_probes),
        cmocka_unit_test(test_again__what_came_in_part_is_the_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

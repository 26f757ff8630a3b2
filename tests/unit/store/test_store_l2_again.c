/* A store that does not answer, behind a node that had not, for a moment, what it owns: it is asked again between the
 * tries of the store. */
#include "unit/cmocka_all.h"

#include "unit/l2_world.h"

enum { NODES = 2, OWNER = 0, PATIENCE_MS = 30000 };

static struct world w;

/* The owner, alone or with m1, this node, before a store that is dead. */
static void begin_with(unsigned n, int64_t weight)
{
    static const char *const lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces"};
    struct store *retrying;
    begin(&w, n);
    w.weight[OWNER] = weight;
    const struct follow_config config = {
        .lists = lists, .n = n, .node = {.address = n > 1 ? "m1:80" : NULL}, .open = open_counted, .open_arg = &w};
    assert_int_equal(follow_open(&config, &w.proxies), 0);
    assert_int_equal(store_retry_open(store_fake_store(w.origin), PATIENCE_MS, NULL, &retrying), 0);
    assert_int_equal(store_l2_open(retrying, w.proxies, &w.store), 0);
    store_fake_set_dead(w.origin, -EAGAIN);
}

/* Return the first key from k on that the owner has. */
static unsigned owners_key(unsigned k)
{
    char key[64];
    while (store_is_own(w.store, key_of(k, key), 0))
        k++;
    return k;
}

/* Nodes, of which m1 is this one, before a store that is dead. Returns a key of the other. */
static unsigned begin_dead(void)
{
    begin_with(NODES, 1);
    return owners_key(0);
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

/* Two reads of what is cached nowhere, of which one waits for the store: the proxy answers 502 or 504 each time. It
 * stays up for what it has. Returns how often it was asked by the one that waited. */
static unsigned asked_while_it_waits(unsigned n, int64_t weight)
{
    char missing[64];
    begin_with(n, weight);
    const unsigned k = owners_key(0);
    struct request_context waits = within(1100), short_one = within(0), other = within(0);
    store_fake_add_fault(w.fakes[OWNER],
                         &(struct store_fake_fault){
                             .op = FAKE_GET, .kind = FAKE_FAIL, .key_prefix = key_of(k, missing), .code = -EAGAIN});
    assert_int_equal(get_within(k, &waits), -EAGAIN);
    const unsigned asked = store_fake_calls(w.fakes[OWNER], FAKE_GET);
    assert_int_not_equal(get_within(k, &short_one), 0);
    assert_false(report_of_owner().down);
    assert_int_equal(get_within(owners_key(k + 1), &other), 0);
    assert_true(other.from_l2);
    end(&w);
    return asked;
}

static void test_again__a_plain_proxy_before_a_dead_store_is_not_asked_again(void **state)
{
    assert_int_equal(asked_while_it_waits(1, 0), 1);
}

static void test_again__a_node_that_fails_while_a_read_waits_stays_up(void **state)
{
    assert_true(asked_while_it_waits(NODES, 1) > 1);
}

/* The owner has failed three reads, and answers again. */
static void owner_was_away(void)
{
    store_fake_set_dead(w.fakes[OWNER], -EAGAIN);
    for (unsigned i = 0, k = 0; i < 3; i++, k++) {
        struct request_context short_one = within(0);
        k = owners_key(k);
        assert_int_not_equal(get_within(k, &short_one), 0);
    }
    assert_true(report_of_owner().down);
    store_fake_set_dead(w.fakes[OWNER], 0);
}

/* A read that this node does in place of the owner gets it from the owner when that is back. */
static void test_again__who_stands_in_for_the_owner_asks_it_again(void **state)
{
    const unsigned k = begin_dead();
    owner_was_away();
    struct request_context context = within(PATIENCE_MS / 2);
    assert_int_equal(get_within(k, &context), 0);
    assert_true(context.from_l2);
    assert_false(report_of_owner().down);
    end(&w);
}

static void note_down(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    *(int *)arg = report_of_owner().down;
}

/* While the store is asked for what a trial's answer lacks, the node can be asked for the rest. */
static void test_again__a_node_that_lacks_something_answers(void **state)
{
    char key[64];
    int down = -1;
    const unsigned k = begin_dead();
    owner_was_away();
    owner_fails_once(FAKE_FAIL, -ENOENT);
    store_fake_set_hook(w.origin, note_down, &down);
    for (uint64_t end_ms = clock_now_ms() + PATIENCE_MS; store_is_own(w.store, key_of(k, key), 0);) {
        assert_true(clock_now_ms() < end_ms);
        usleep(10000);
    }
    struct request_context context = within(0), other = within(0);
    assert_int_not_equal(get_within(k, &context), 0);
    assert_int_equal(down, 0);
    assert_int_equal(get_within(owners_key(k + 1), &other), 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_again__the_owner_is_asked_between_tries),
        cmocka_unit_test(test_again__the_owner_is_asked_while_another_probes),
        cmocka_unit_test(test_again__what_came_in_part_is_the_stores),
        cmocka_unit_test(test_again__a_plain_proxy_before_a_dead_store_is_not_asked_again),
        cmocka_unit_test(test_again__a_node_that_fails_while_a_read_waits_stays_up),
        cmocka_unit_test(test_again__who_stands_in_for_the_owner_asks_it_again),
        cmocka_unit_test(test_again__a_node_that_lacks_something_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

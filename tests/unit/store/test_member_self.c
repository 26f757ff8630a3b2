/* Nodes that are each other's proxies: which member of a list is this node, and what of an object it has. */
#include "unit/cmocka_all.h"

#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "store/l2/l2_internal.h"
#include "unit/l2_world.h"

static void test_member__is_this_node_by_port_and_address(void **state)
{
    static const struct {
        const char *url, *self;
        bool is;
    } cases[] = {
        {"http://127.0.0.1:9465/images", "127.0.0.1:9465", true},
        {"http://127.0.0.1:9465/images", "0.0.0.0:9465", true},
        {"http://127.0.0.1:9465", "[::]:9465", true},
        {"http://[::ffff:127.0.0.1]:9465/", "127.0.0.1:9465", true},
        {"http://localhost:9465/images", "0.0.0.0:9465", true},
        {"http://node7:9465/images", "node7:9465", true},
        {"http://127.0.0.1:9466/images", "127.0.0.1:9465", false},
        {"http://127.0.0.1:9466/images", "0.0.0.0:9465", false},
        {"http://127.0.0.2:9465/images", "127.0.0.1:9465", false}, /* another server of this machine */
        {"http://192.0.2.7:9465/images", "0.0.0.0:9465", false},   /* RFC 5737: nobody's */
        {"http://[2001:db8::7]:9465/images", "[::]:9465", false},
        {"http://node8:9465/images", "node7:9465", false},
        {"http://127.0.0.1/images", "127.0.0.1:80", false}, /* a member's port must be written */
        {"127.0.0.1:9465", "127.0.0.1:9465", false},
        {"http://127.0.0.1:9465/a:9466", "127.0.0.1:9466", false},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++)
        if (member_is_self(cases[i].url, cases[i].self) != cases[i].is)
            fail_msg("%s at %s", cases[i].url, cases[i].self);
}

static void test_member__is_this_node_by_its_name(void **state)
{
    char name[200] = "", url[256];
    assert_int_equal(gethostname(name, sizeof name - 1), 0);
    snprintf(url, sizeof url, "http://%s:9465/images", name);
    assert_true(member_is_self(url, "0.0.0.0:9465"));
    assert_false(member_is_self(url, "0.0.0.0:9466"));
}

/* Every stripe of an object belongs to one node by itself. This node's come from the store, and it knows which they
 * are; the others come from the others. */
static void test_member__stripes_of_this_node_come_from_the_store(void **state)
{
    enum { NODES = 4, SELF = 1, STRIPES = 200 };
    static struct world w;
    static uint8_t data[4];
    const char *key = "packs/aa/large";
    unsigned own = 0, of[NODES] = {0};
    begin(&w, NODES);
    const char *lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces", "http://m2:80/faces", "http://m3:80/faces"};
    open_followed(&w,
                  &(struct follow_config){
                      .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++) {
        uint64_t off = stripe * STORE_STRIPE, before[NODES], store = store_fake_calls(w.origin, FAKE_GET);
        for (unsigned i = 0; i < NODES; i++)
            before[i] = store_fake_calls(w.fakes[i], FAKE_GET);
        CLEANUP_BYTES got = BYTES_INIT(sizeof data);
        bool mine = store_is_own(w.store, key, off);
        assert_true(store_is_own(w.store, key, off + STORE_STRIPE - 1) == mine);
        (void)!store_get(w.store, key, off, sizeof data, store_append,
                         &got); /* nobody has it: the store is asked last */
        for (unsigned i = 0; i < NODES; i++) {
            unsigned asked = (unsigned)(store_fake_calls(w.fakes[i], FAKE_GET) - before[i]);
            of[i] += asked;
            assert_true(!asked || (!mine && i != SELF));
        }
        assert_true(store_fake_calls(w.origin, FAKE_GET) > store);
        own += mine;
    }
    assert_int_equal(of[SELF], 0);
    assert_int_equal(own + of[0] + of[2] + of[3], STRIPES);
    for (unsigned i = 0; i < NODES; i++) /* 50 on average */
        assert_in_range(i == SELF ? own : of[i], 25, 80);
    struct store_l2_reports r;
    store_proxies_reports(w.proxies, &r);
    for (size_t i = 0; i < r.len; i++)
        assert_true(r.items[i].self == !strcmp(r.items[i].url, "http://m1:80/faces"));
    store_l2_reports_release(&r);
    end(&w);
}

static void test_member__what_the_owner_lacks_is_known(void **state)
{
    enum { NODES = 2 };
    static struct world w;
    const char *lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces"};
    char key[64];
    unsigned k = 0;
    begin(&w, NODES);
    w.weight[0] = 1;
    open_followed(&w,
                  &(struct follow_config){
                      .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    while (store_is_own(w.store, key_of(k, key), 0))
        k++;
    struct request_context context = {.deadline_ms = UINT64_MAX};
    CLEANUP_BYTES got = BYTES_INIT(16);
    store_fake_set_dead(w.fakes[0], -ENOENT);
    assert_int_equal(store_get_until(w.store, key, 0, 4, &context, store_append, &got), 0);
    assert_true(context.owner_lacks);
    store_fake_set_dead(w.fakes[0], 0);
    assert_int_equal(store_get_until(w.store, key, 0, 4, &context, store_append, &got), 0);
    assert_false(context.owner_lacks);
    end(&w);
}

/* A node that has nothing is passed over in the end, or its share would be fetched by every other node; but not while
 * the store is silent, too. */
static void test_member__one_that_has_nothing_is_passed_over(void **state)
{
    enum { NODES = 2, SOME = 20 /* trials */ };
    static struct world w;
    const char *lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces"};
    begin(&w, NODES);
    w.weight[0] = 1;
    open_followed(&w,
                  &(struct follow_config){
                      .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    store_fake_set_dead(w.fakes[0], -ENOENT);
    store_fake_set_dead(w.origin, -EIO);
    for (unsigned k = 0; k < KEYS; k++)
        (void)!get(&w, k);
    assert_true(store_fake_calls(w.fakes[0], FAKE_GET) > 2 * LACKS_MAX); /* of 300 */
    store_fake_set_dead(w.origin, 0);
    uint64_t before = store_fake_calls(w.fakes[0], FAKE_GET);
    for (unsigned k = 0; k < KEYS; k++)
        assert_int_equal(get(&w, k), 0);
    assert_in_range(store_fake_calls(w.fakes[0], FAKE_GET) - before, LACKS_MAX, LACKS_MAX + SOME);
    end(&w);
}

/* How many of `n` stripes of an object belong to each of the nodes, as this one sees it: by who is asked. */
static void shares(struct world *w, unsigned nodes, unsigned self, unsigned n, unsigned of[])
{
    static uint8_t data[4];
    const char *key = "packs/bb/larger";
    memset(of, 0, nodes * sizeof *of);
    for (uint64_t stripe = 0; stripe < n; stripe++) {
        unsigned before[MANY];
        for (unsigned i = 0; i < nodes; i++)
            before[i] = (unsigned)store_fake_calls(w->fakes[i], FAKE_GET);
        CLEANUP_BYTES got = BYTES_INIT(sizeof data);
        of[self] += store_is_own(w->store, key, stripe * STORE_STRIPE);
        (void)!store_get(w->store, key, stripe * STORE_STRIPE, sizeof data, store_append, &got);
        for (unsigned i = 0; i < nodes; i++)
            of[i] += (unsigned)store_fake_calls(w->fakes[i], FAKE_GET) - before[i];
    }
}

/* How far the clock is ahead of the real one. */
static _Atomic time_t ahead_s;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int rc = __real_clock_gettime(clock, out);
    out->tv_sec += ahead_s;
    return rc;
}

/* A node's share follows its weight, which it says itself; a list that gives one is right. */
static void test_member__nodes_say_their_weights(void **state)
{
    enum { NODES = 4, SELF = 1, STRIPES = 1200 };
    static struct world w;
    unsigned of[NODES];
    begin(&w, NODES);
    static const char text[] = "http://m0:80/faces\nhttp://m1:80/faces\nhttp://m2:80/faces\nhttp://m3:80/faces 8\n";
    assert_int_equal(io_write_file_atomic(w.file, text, sizeof text - 1, false), 0);
    const char *lists[] = {w.file};
    open_followed(&w, &(struct follow_config){
                          .lists = lists, .n = 1, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    store_proxies_weigh(w.proxies, 8);
    shares(&w, NODES, SELF, STRIPES, of);
    for (unsigned i = 0; i < NODES; i++) /* 300 on average */
        assert_in_range(of[i], 240, 360);
    w.weight[0] = 16;
    w.weight[2] = 8;
    w.weight[3] = 100;                    /* the list says 8 */
    shares(&w, NODES, SELF, STRIPES, of); /* they are heard */
    shares(&w, NODES, SELF, STRIPES, of);
    assert_in_range(of[0], 410, 550);    /* 480 */
    for (unsigned i = 1; i < NODES; i++) /* 240 */
        assert_in_range(of[i], 185, 295);
    w.weight[2] = STORE_WEIGHT_MAX + 1ll; /* not a weight */
    shares(&w, NODES, SELF, STRIPES, of);
    shares(&w, NODES, SELF, STRIPES, of);
    assert_in_range(of[2], 185, 295);
    end(&w);
}

/* What a leaving node had belongs to the others, who ask it first as long as it answers. */
static void test_member__a_node_that_leaves_is_asked_first(void **state)
{
    enum { NODES = 4, SELF = 1, LEAVES = 2, STRIPES = 600 };
    static struct world w;
    static uint8_t data[4];
    const char *key = "packs/bb/larger",
               *lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces", "http://m2:80/faces", "http://m3:80/faces"};
    unsigned of[NODES], inherited = 0, own = 0;
    begin(&w, NODES);
    for (unsigned i = 0; i < NODES; i++)
        w.weight[i] = 8;
    open_followed(&w,
                  &(struct follow_config){
                      .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    store_proxies_weigh(w.proxies, 8);
    shares(&w, NODES, SELF, STRIPES, of);
    assert_in_range(of[LEAVES], 110, 190); /* 150 */
    unsigned had = of[SELF], of_leaving = of[LEAVES];
    w.weight[LEAVES] = -1;
    shares(&w, NODES, SELF, STRIPES, of); /* it is heard */
    assert_int_equal(store_proxies_departures(w.proxies), 1);
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++) {
        uint64_t off = stripe * STORE_STRIPE, asked = store_fake_calls(w.fakes[LEAVES], FAKE_GET),
                 store = store_fake_calls(w.origin, FAKE_GET);
        bool heir = store_proxies_inherits(w.proxies, key, off);
        CLEANUP_BYTES got = BYTES_INIT(sizeof data);
        (void)!store_get(w.store, key, off, sizeof data, store_append, &got);
        inherited += heir;
        own += store_is_own(w.store, key, off);
        assert_true(!heir ||
                    (store_is_own(w.store, key, off) && store_fake_calls(w.fakes[LEAVES], FAKE_GET) == asked + 1 &&
                     store_fake_calls(w.origin, FAKE_GET) > store));
    }
    assert_int_equal(own, had + inherited);
    assert_in_range(inherited, of_leaving / 5, of_leaving / 2); /* a third */
    w.weight[LEAVES] = 8;                                       /* it stays after all, */
    shares(&w, NODES, SELF, STRIPES, of);
    assert_int_equal(of[SELF], own); /* but has been believed not long ago */
    ahead_s += 5;
    shares(&w, NODES, SELF, STRIPES, of);
    shares(&w, NODES, SELF, STRIPES, of);
    assert_int_equal(of[SELF], had);
    assert_int_equal(of[LEAVES], of_leaving);
    end(&w);
}

/* This node leaves: nothing belongs to it. */
static void test_member__a_node_that_leaves_owns_nothing(void **state)
{
    enum { NODES = 2, STRIPES = 50 };
    static struct world w;
    const char *lists[NODES] = {"http://m0:80/faces", "http://m1:80/faces"};
    unsigned own = 0;
    begin(&w, NODES);
    open_followed(&w,
                  &(struct follow_config){
                      .lists = lists, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++)
        own += store_is_own(w.store, "packs/bb/larger", stripe * STORE_STRIPE);
    assert_in_range(own, 10, 40);
    store_proxies_leave(w.proxies);
    assert_true(store_proxies_left(w.proxies));
    for (uint64_t stripe = 0; stripe < STRIPES; stripe++)
        assert_false(store_is_own(w.store, "packs/bb/larger", stripe * STORE_STRIPE));
    end(&w);
}

static const char *const three[] = {"http://m0:80/faces", "http://m1:80/faces", "http://m2:80/faces"};

/* Gets of a server that is no node, as fetch makes them. */
static void get_with_lists(struct world *w, unsigned n)
{
    for (unsigned k = 0; k < n; k++) {
        char key[64];
        struct request_context context = {.deadline_ms = UINT64_MAX, .header = "Granary-Chunks: x"};
        CLEANUP_BYTES got = BYTES_INIT(16);
        assert_int_equal(store_get_until(w->store, key_of(k, key), 0, 4, &context, store_append, &got), 0);
        assert_non_null(context.header);
    }
}

/* A server that is no node may have nodes for its proxies: their first answer says what they are, and from then on it
 * asks as nodes do, for stripes, by weights. */
static void test_member__nodes_are_proxies_of_others_too(void **state)
{
    enum { NODES = 3, STRIPES = 300 };
    static struct world w;
    unsigned of[NODES];
    begin(&w, NODES);
    w.wants_lists = true;
    for (unsigned i = 0; i < NODES; i++)
        w.weight[i] = i ? 8 : 16;
    open_followed(&w, &(struct follow_config){.lists = three, .n = NODES, .open = open_counted, .open_arg = &w});
    assert_false(w.store->striped);
    get_with_lists(&w, KEYS);
    assert_true(w.store->striped);
    struct store_l2_reports r;
    uint64_t requests = 0;
    store_proxies_reports(w.proxies, &r);
    for (size_t i = 0; i < r.len; i++) {
        assert_int_equal(r.items[i].failures, 0);
        assert_int_equal(r.items[i].weight, strstr(r.items[i].url, "m0") ? 16 : 8);
        requests += r.items[i].requests;
    }
    store_l2_reports_release(&r);
    assert_int_equal(requests, KEYS + 1);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 0);
    w.wants_lists = false;
    for (unsigned i = 0; i < NODES; i++)
        store_fake_reset_counters(w.fakes[i]);
    shares(&w, NODES, 0, STRIPES, of);
    assert_in_range(store_fake_calls(w.fakes[0], FAKE_GET), 110, 190); /* 150 */
    for (unsigned i = 1; i < NODES; i++)
        assert_in_range(of[i], 45, 105); /* 75 */
    end(&w);
}

/* What a node gets from other nodes is from nodes, their first answers included. */
static void test_member__a_node_knows_what_others_are_before_they_answer(void **state)
{
    enum { NODES = 3 };
    static struct world w;
    unsigned others = 0;
    begin(&w, NODES);
    open_followed(&w,
                  &(struct follow_config){
                      .lists = three, .n = NODES, .node = {.address = "m1:80"}, .open = open_counted, .open_arg = &w});
    for (unsigned k = 0; k < KEYS; k++) {
        char key[64];
        struct request_context context = {.deadline_ms = UINT64_MAX, .header = "Granary-Chunks: x"};
        CLEANUP_BYTES got = BYTES_INIT(16);
        assert_int_equal(store_get_until(w.store, key_of(k, key), 0, 4, &context, store_append, &got), 0);
        assert_true(context.from_node == (context.from_l2 != 0));
        others += context.from_node;
    }
    assert_in_range(others, KEYS / 2, KEYS - 1);
    end(&w);
}

/* Other proxies get no lists of chunks, and have whole objects. */
static void test_member__what_is_no_node_is_asked_as_ever(void **state)
{
    static struct world w;
    begin(&w, 3);
    w.wants_lists = true;
    open_followed(&w, &(struct follow_config){.lists = three, .n = 3, .open = open_counted, .open_arg = &w});
    get_with_lists(&w, KEYS);
    assert_false(w.store->striped);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_member__is_this_node_by_port_and_address),
        cmocka_unit_test(test_member__is_this_node_by_its_name),
        cmocka_unit_test(test_member__stripes_of_this_node_come_from_the_store),
        cmocka_unit_test(test_member__what_the_owner_lacks_is_known),
        cmocka_unit_test(test_member__one_that_has_nothing_is_passed_over),
        cmocka_unit_test(test_member__nodes_say_their_weights),
        cmocka_unit_test(test_member__a_node_that_leaves_is_asked_first),
        cmocka_unit_test(test_member__a_node_that_leaves_owns_nothing),
        cmocka_unit_test(test_member__nodes_are_proxies_of_others_too),
        cmocka_unit_test(test_member__a_node_knows_what_others_are_before_they_answer),
        cmocka_unit_test(test_member__what_is_no_node_is_asked_as_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Lists of shared cache proxies that change while others read: a file of members, its weights, and what happens to a
 * proxy that joins, leaves, or comes back. test_store_l2_names.c has the names of a name service.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/io.h"
#include "unit/counters.h"
#include "unit/counts.h"
#include "unit/l2_world.h"

static void write_list(struct world *w, const char *text)
{
    assert_int_equal(io_write_file_atomic(w->file, text, strlen(text), false), 0);
}

/* The file names the members [from, to). */
static void write_members(struct world *w, unsigned from, unsigned to)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 20);
    for (unsigned i = from; i < to; i++)
        assert_int_equal(bytes_printf(&text, "http://m%u:80/faces\n", i), 0);
    write_list(w, to > from ? bytes_string(&text) : "");
}

static void open_lists(struct world *w, const char *const *lists, size_t n)
{
    const struct follow_config config = {.lists = lists, .n = n, .open = open_counted, .open_arg = w, .file_ms = 1};
    open_followed(w, &config);
}

/* Which of the first n members is asked for each key; n: the store. */
static void places(struct world *w, unsigned n, unsigned out[KEYS])
{
    for (unsigned k = 0; k < KEYS; k++) {
        uint64_t before[16];
        assert_true(n <= 16);
        for (unsigned i = 0; i < n; i++)
            before[i] = store_fake_calls(w->fakes[i], FAKE_GET);
        assert_int_equal(get(w, k), 0);
        out[k] = n;
        for (unsigned i = 0; i < n; i++)
            if (store_fake_calls(w->fakes[i], FAKE_GET) != before[i])
                out[k] = i;
    }
}

static unsigned count_at(const unsigned at[KEYS], unsigned member)
{
    unsigned n = 0;
    for (unsigned k = 0; k < KEYS; k++)
        n += at[k] == member;
    return n;
}

/* ---- who has a key ---- */

static void test_store_l2_lists__only_the_keys_of_one_that_leaves_move(void **state)
{
    static struct world w;
    unsigned before[KEYS], without[KEYS], again[KEYS], more[KEYS];
    begin(&w, 5);
    write_members(&w, 0, 4);
    open_lists(&w, (const char *const[]){w.file}, 1);
    places(&w, 5, before);
    write_members(&w, 0, 3);
    wait_for_list(&w, 3, false);
    places(&w, 5, without);
    for (unsigned k = 0; k < KEYS; k++)
        assert_true(before[k] == 3 ? without[k] < 3 : without[k] == before[k]);
    assert_int_equal(w.open[3], 0);
    write_members(&w, 0, 4);
    wait_for_list(&w, 4, false);
    places(&w, 5, again);
    assert_memory_equal(before, again, sizeof before);
    write_members(&w, 0, 5);
    wait_for_list(&w, 5, false);
    places(&w, 5, more);
    for (unsigned k = 0; k < KEYS; k++)
        assert_true(more[k] == 4 || more[k] == before[k]);
    assert_in_range(count_at(more, 4), KEYS / 10, KEYS * 3 / 10);
    end(&w);
}

static void test_store_l2_lists__a_weight_is_a_share_of_the_keys(void **state)
{
    static struct world w;
    unsigned at[KEYS], equal[KEYS], scaled[KEYS];
    begin(&w, 3);
    write_list(&w, "http://m0:80/faces 100\nhttp://m1:80/faces 200\nhttp://m2:80/faces 300\n");
    open_lists(&w, (const char *const[]){w.file}, 1);
    places(&w, 3, at);
    assert_in_range(count_at(at, 0), KEYS / 6 * 7 / 10, KEYS / 6 * 13 / 10);
    assert_in_range(count_at(at, 1), KEYS / 3 * 8 / 10, KEYS / 3 * 12 / 10);
    assert_in_range(count_at(at, 2), KEYS / 2 * 8 / 10, KEYS / 2 * 12 / 10);

    /* Equal weights place keys as no weights do, and a weight that grows takes keys from others only. */
    write_list(&w, "http://m0:80/faces\nhttp://m1:80/faces\nhttp://m2:80/faces\n");
    for (uint64_t before = 0; before != 3;) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports r;
        store_proxies_reports(w.proxies, &r);
        before = r.items[0].weight + r.items[1].weight + r.items[2].weight;
    }
    places(&w, 3, equal);
    write_list(&w, "http://m0:80/faces 977\nhttp://m1:80/faces 977 # of 977 GB\nhttp://m2:80/faces 977\n");
    for (uint64_t before = 0; before != 3 * 977;) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports r;
        store_proxies_reports(w.proxies, &r);
        before = r.items[0].weight + r.items[1].weight + r.items[2].weight;
    }
    places(&w, 3, scaled);
    assert_memory_equal(equal, scaled, sizeof equal);
    for (unsigned k = 0; k < KEYS; k++)
        assert_true(at[k] == equal[k] || at[k] > equal[k]);
    end(&w);
}

static void test_store_l2_lists__one_in_two_lists_is_one(void **state)
{
    static struct world w;
    begin(&w, 3);
    write_list(&w, "http://m1:80/faces 5\nhttp://m2:80/faces/\n");
    open_lists(&w, (const char *const[]){"http://m0:80/faces", w.file, "http://m1:80/faces/"}, 3);
    CLEANUP(store_l2_reports_release) struct store_l2_reports r;
    store_proxies_reports(w.proxies, &r);
    assert_int_equal(r.len, 3);
    assert_string_equal(r.items[2].url, "http://m1:80/faces");
    assert_int_equal(r.items[2].weight, 5);
    assert_int_equal(r.list_count, 1);
    assert_string_equal(r.lists[0].list, w.file);
    store_l2_reports_release(&r);
    end(&w);
}

/* ---- the file ---- */

static void test_store_l2_lists__a_wrong_file_leaves_all_as_it_was(void **state)
{
    static const struct {
        const char *text, *said;
    } wrong[] = {
        {"", "names no shared cache proxy"},
        {"# all away\n\n", "names no shared cache proxy"},
        {"http://m0:80/faces\ncache1:8080\n", "line 2: write the address"},
        {"http://m0:80/faces\n\nhttp://me:secret@m1:80/faces\n", "line 3: write the address"},
        {"http://m0:80/faces?x=1\n", "line 1: write the address"},
        {"s3://lake/faces\n", "line 1: write the address"},
        {"http://m0:80/faces 0\n", "line 1: the weight must be"},
        {"http://m0:80/faces 1.5\n", "line 1: the weight must be"},
        {"http://m0:80/faces 1 2\n", "line 1: the weight must be"},
        {"http://m0:80/faces 1000001\n", "line 1: the weight must be"},
        {"http://m0:80/faces\nhttp://m1:80/faces\nhttp://m0:80/faces/ 7\n", "line 3: this address is there already"},
    };
    static struct world w;
    unsigned before[KEYS], after[KEYS];
    begin(&w, 4);
    write_members(&w, 0, 3);
    open_lists(&w, (const char *const[]){w.file}, 1);
    places(&w, 3, before);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports r;
        write_list(&w, wrong[i].text);
        wait_for_list(&w, 3, true);
        store_proxies_reports(w.proxies, &r);
        for (uint64_t limit = clock_now_ms() + LIMIT_MS; !strstr(r.lists[0].failure, wrong[i].said);) {
            assert_true(clock_now_ms() < limit);
            store_l2_reports_release(&r);
            store_proxies_reports(w.proxies, &r);
        }
        assert_null(strstr(r.lists[0].failure, "secret"));
        assert_non_null(strstr(r.lists[0].failure, w.file));
    }
    assert_int_equal(unlink(w.file), 0);
    wait_for_list(&w, 3, true);
    places(&w, 3, after);
    assert_memory_equal(before, after, sizeof before);
    write_list(&w, "  http://m0:80/faces/\t3 \r\n#\n\thttp://m3:80/faces# the new one"); /* no newline at the end */
    wait_for_list(&w, 2, false);
    end(&w);
}

static void test_store_l2_lists__a_file_that_comes_later_is_read_then(void **state)
{
    static struct world w;
    begin(&w, 2);
    open_lists(&w, (const char *const[]){w.file}, 1);
    wait_for_list(&w, 0, true);
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 1);
    write_members(&w, 0, 2);
    wait_for_list(&w, 2, false);
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 1);
    end(&w);
}

static void test_store_l2_lists__too_many_leave_all_as_it_was(void **state)
{
    static struct world w;
    CLEANUP_BYTES text = BYTES_INIT(1 << 20);
    begin(&w, 2);
    write_members(&w, 0, 2);
    open_lists(&w, (const char *const[]){w.file}, 1);
    for (unsigned i = 0; i <= STORE_L2_MAX; i++)
        assert_int_equal(bytes_printf(&text, "http://m0:80/faces/%u\n", i), 0);
    write_list(&w, bytes_string(&text));
    wait_for_list(&w, 2, true);
    write_members(&w, 0, 1);
    wait_for_list(&w, 1, false);
    end(&w);
}

/* ---- what a proxy keeps ---- */

static void test_store_l2_lists__a_proxy_keeps_its_health_and_counts_while_others_come_and_go(void **state)
{
    static struct world w;
    begin(&w, 4);
    write_members(&w, 0, 2);
    open_lists(&w, (const char *const[]){w.file}, 1);
    store_fake_set_dead(w.fakes[1], -EAGAIN);
    struct store_l2_report before = {.down = false}, after;
    for (unsigned k = 0; !before.down; k = (k + 1) % KEYS) {
        CLEANUP(store_l2_reports_release) struct store_l2_reports r;
        assert_int_equal(get(&w, k), 0);
        store_proxies_reports(w.proxies, &r);
        before = r.items[1];
    }
    uint64_t sum = counter_value(store_proxies_counters, w.proxies, "granary_l2_requests_total");
    write_list(&w, "http://m2:80/faces\nhttp://m1:80/faces 9\nhttp://m3:80/faces\n"); /* and m0 leaves */
    wait_for_list(&w, 3, false);
    CLEANUP(store_l2_reports_release) struct store_l2_reports r;
    store_proxies_reports(w.proxies, &r);
    after = r.items[2];
    assert_string_equal(after.url, "http://m1:80/faces");
    assert_true(after.down);
    assert_int_equal(after.requests, before.requests);
    assert_int_equal(after.failures, before.failures);
    assert_int_equal(counter_value(store_proxies_counters, w.proxies, "granary_l2_requests_total"), sum);
    assert_int_equal(counter_value(store_proxies_counters, w.proxies, "granary_l2_proxies"), 3);
    assert_int_equal(counter_value(store_proxies_counters, w.proxies, "granary_l2_down"), 1);
    store_l2_reports_release(&r);
    end(&w);
}

static void *get_first(void *arg)
{
    assert_int_equal(get(arg, 0), 0);
    return NULL;
}

static void test_store_l2_lists__one_that_left_ends_its_request_and_is_freed_then(void **state)
{
    static struct world w;
    pthread_t reader;
    begin(&w, 3);
    write_members(&w, 0, 1);
    open_lists(&w, (const char *const[]){w.file}, 1);
    store_fake_hold(w.fakes[0], FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, get_first, &w), 0);
    store_fake_wait_held(w.fakes[0], 1);
    write_members(&w, 1, 3);
    wait_for_list(&w, 2, false);
    assert_int_equal(get(&w, 1), 0);
    assert_int_equal(store_fake_calls(w.fakes[1], FAKE_GET) + store_fake_calls(w.fakes[2], FAKE_GET), 1);
    assert_int_equal(w.open[0], 1);
    store_fake_release(w.fakes[0]);
    pthread_join(reader, NULL);
    assert_int_equal(w.open[0], 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 0);
    end(&w);
}

/* ---- many ---- */

struct reading {
    struct world *w;
    _Atomic bool enough;
    _Atomic unsigned reads, failed;
};

static void *read_on(void *arg)
{
    struct reading *r = arg;
    for (unsigned k = 0; !atomic_load(&r->enough); k = (k * 7 + 13) % KEYS) {
        atomic_fetch_add(&r->failed, get(r->w, k) != 0);
        atomic_fetch_add(&r->reads, 1);
    }
    return NULL;
}

/* Members join, leave, flap, fail and answer again while eight threads read. */
static void test_store_l2_lists__readers_see_no_error_while_members_change(void **state)
{
    enum { THREADS = 8, LIVE = 12 };
    static struct world w;
    pthread_t threads[THREADS];
    const unsigned rounds = full_or(300, 60);
    begin(&w, LIVE);
    write_members(&w, 0, 4);
    open_lists(&w, (const char *const[]){w.file}, 1);
    struct reading r = {.w = &w};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_on, &r), 0);
    for (unsigned i = 0; i < rounds; i++) {
        unsigned from = i * 5 % (LIVE - 1), to = from + 1 + i * 3 % (LIVE - from);
        store_fake_set_dead(w.fakes[i % LIVE], i % 2 ? -ETIMEDOUT : -EAGAIN);
        store_fake_set_dead(w.fakes[(i + 3) % LIVE], 0);
        write_members(&w, from, to);
        if (i % 3)
            wait_for_list(&w, to - from, false);
        if (i % 7 == 0)
            write_list(&w, "broken");
    }
    atomic_store(&r.enough, true);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(r.failed, 0);
    assert_true(r.reads > THREADS);
    end(&w);
}

/* Five hundred members, of which one in ten is replaced; prints what a choice costs. */
static void test_store_l2_lists__five_hundred_members(void **state)
{
    enum { TIMES = 2000 };
    static struct world w;
    char key[80];
    unsigned shared[MANY] = {0}, used = 0;
    begin(&w, 0);
    for (unsigned i = 0; i < MANY; i++) {
        w.fakes[i] = store_fake_new();
        store_fake_set_dead(w.fakes[i], 0);
    }
    write_members(&w, 0, MANY);
    open_lists(&w, (const char *const[]){w.file}, 1);
    clock_t begun = clock();
    for (unsigned k = 0; k < TIMES; k++) {
        bool trial;
        snprintf(key, sizeof key, "packs/%02x/%064u", k & 255, k);
        struct proxy *proxy = proxies_choose(w.proxies, key, 0, &trial);
        shared[((struct counted *)proxy->store)->i]++;
        proxy_unref(proxy);
    }
    print_message("a choice among %d takes %.1f us\n", MANY, (double)(clock() - begun) * 1e6 / CLOCKS_PER_SEC / TIMES);
    for (unsigned i = 0; i < MANY; i++) {
        used += shared[i] > 0;
        assert_true(shared[i] < 25); /* of 4 on average */
    }
    assert_true(used > MANY * 9 / 10);
    write_members(&w, 50, MANY);
    wait_for_list(&w, MANY - 50, false);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(w.open[i], i >= 50);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_l2_lists__only_the_keys_of_one_that_leaves_move),
        cmocka_unit_test(test_store_l2_lists__a_weight_is_a_share_of_the_keys),
        cmocka_unit_test(test_store_l2_lists__one_in_two_lists_is_one),
        cmocka_unit_test(test_store_l2_lists__a_wrong_file_leaves_all_as_it_was),
        cmocka_unit_test(test_store_l2_lists__a_file_that_comes_later_is_read_then),
        cmocka_unit_test(test_store_l2_lists__too_many_leave_all_as_it_was),
        cmocka_unit_test(test_store_l2_lists__a_proxy_keeps_its_health_and_counts_while_others_come_and_go),
        cmocka_unit_test(test_store_l2_lists__one_that_left_ends_its_request_and_is_freed_then),
        cmocka_unit_test(test_store_l2_lists__readers_see_no_error_while_members_change),
        cmocka_unit_test(test_store_l2_lists__five_hundred_members),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Shared cache proxies in front of a store: which one is asked, what their faults cost, and that a wrong byte of theirs
 * costs no more than two further gets. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/l2_fake.h"
#include "fetch/fetch.h"
#include "store/store.h"
#include "unit/counters.h"

enum { PROXIES = 3, KEYS = 300, LIMIT_MS = 60000, CHUNK = 64 << 10, CHUNKS = 16 };

static const char *const urls[PROXIES] = {"http://cache1:8080/faces", "http://cache2:8080/faces",
                                          "http://cache3:8080/faces"};

struct world {
    struct store_fake *origin, *proxies[PROXIES];
    struct store *store;
    struct store_proxies *handle;
    size_t n;
};

static struct world open_world(size_t n)
{
    struct world w = {.origin = store_fake_new(), .n = n};
    struct store *proxies[PROXIES];
    for (size_t i = 0; i < n; i++) {
        w.proxies[i] = store_fake_new();
        proxies[i] = store_fake_store(w.proxies[i]);
        proxies[i]->url = urls[i];
    }
    assert_int_equal(l2_fake_open(store_fake_store(w.origin), proxies, n, &w.store, &w.handle), 0);
    return w;
}

static void release_world(struct world *w)
{
    store_close(w->store);
    store_proxies_close(w->handle);
    store_fake_free(w->origin);
    for (size_t i = 0; i < w->n; i++)
        store_fake_free(w->proxies[i]);
}

#define WORLD(n) CLEANUP(release_world) struct world w = open_world(n)
#define count_of(name) counter_value(store_proxies_counters, w.handle, "granary_l2" name)

static void put_everywhere(struct world *w, const char *key, const char *text)
{
    store_fake_put(w->origin, key, text, strlen(text));
    for (size_t i = 0; i < w->n; i++)
        store_fake_put(w->proxies[i], key, text, strlen(text));
}

static char *key_of(unsigned i, char key[64])
{
    snprintf(key, 64, "packs/%02x/%u", i & 255, i);
    return key;
}

/* 0, and text is what came; or what the get said. */
static int get(struct store *s, const char *key, const char *text)
{
    CLEANUP_BYTES got = BYTES_INIT(1000);
    int rc = store_get(s, key, 0, strlen(text), store_append, &got);
    if (!rc) {
        assert_int_equal(got.len, strlen(text));
        assert_memory_equal(got.data, text, got.len);
    }
    return rc;
}

static struct store_l2_report report_of(struct world *w, size_t i)
{
    CLEANUP(store_l2_reports_release) struct store_l2_reports reports;
    store_proxies_reports(w->handle, &reports);
    assert_int_equal(reports.len, w->n);
    assert_string_equal(reports.items[i].url, urls[i]);
    struct store_l2_report report = reports.items[i];
    report.url = urls[i];
    return report;
}

/* The proxy that a get of key asks; PROXIES: none. */
static size_t asked(struct world *w, const char *key, const char *text)
{
    uint64_t before[PROXIES];
    for (size_t i = 0; i < w->n; i++)
        before[i] = store_fake_calls(w->proxies[i], FAKE_GET);
    assert_int_equal(get(w->store, key, text), 0);
    for (size_t i = 0; i < w->n; i++)
        if (store_fake_calls(w->proxies[i], FAKE_GET) != before[i])
            return i;
    return PROXIES;
}

/* A proxy that fails like this until it is passed over; no get fails meanwhile. Stops at the first request
 * behind that, so that no trial is due yet but by chance. */
static void bring_down(struct world *w, size_t proxy)
{
    char key[64];
    store_fake_set_dead(w->proxies[proxy], -EAGAIN);
    for (unsigned i = 0; i < KEYS && !report_of(w, proxy).down; i++)
        assert_int_equal(get(w->store, key_of(i, key), "text"), 0);
    assert_true(report_of(w, proxy).down);
}

static void test_store_l2__keys_are_spread_evenly(void **state)
{
    WORLD(PROXIES);
    char key[64];
    for (unsigned i = 0; i < KEYS; i++) {
        put_everywhere(&w, key_of(i, key), "text");
        assert_int_equal(get(w.store, key, "text"), 0);
    }
    for (size_t i = 0; i < PROXIES; i++) {
        assert_true(report_of(&w, i).requests > KEYS / PROXIES * 7 / 10);
        assert_int_equal(report_of(&w, i).bytes, 4 * report_of(&w, i).requests);
    }
    assert_int_equal(count_of("_requests_total"), KEYS);
    assert_int_equal(count_of("_bytes_total"), 4 * KEYS);
    assert_int_equal(store_fake_calls(w.origin, FAKE_ANY), 0);
}

/* Nodes of all versions must ask the same proxy for the same key. */
static void test_store_l2__a_key_has_its_place_for_ever(void **state)
{
    static const char expected[] = "121220011200001112010222";
    WORLD(PROXIES);
    char key[64], slots[sizeof expected];
    for (unsigned i = 0; i < sizeof expected - 1; i++) {
        put_everywhere(&w, key_of(i, key), "text");
        slots[i] = (char)('0' + asked(&w, key, "text"));
    }
    slots[sizeof expected - 1] = 0;
    assert_string_equal(slots, expected);
}

static void test_store_l2__one_that_goes_moves_its_own_keys_alone(void **state)
{
    WORLD(PROXIES);
    char key[64];
    size_t place[KEYS];
    for (unsigned i = 0; i < KEYS; i++) {
        put_everywhere(&w, key_of(i, key), "text");
        place[i] = asked(&w, key, "text");
    }
    bring_down(&w, 1);
    uint64_t moved[PROXIES] = {0};
    for (unsigned i = 0; i < KEYS; i++) {
        size_t now = asked(&w, key_of(i, key), "text");
        if (place[i] != 1)
            assert_int_equal(now, place[i]);
        else
            moved[now]++; /* to 1 itself only when a trial happens to be due */
    }
    assert_true(moved[0] > KEYS / PROXIES / 4 && moved[2] > KEYS / PROXIES / 4);
}

static void test_store_l2__a_dead_one_costs_no_error_and_is_passed_over(void **state)
{
    WORLD(1);
    char key[64];
    store_fake_set_dead(w.proxies[0], -ETIMEDOUT);
    for (unsigned i = 0; i < KEYS; i++) {
        store_fake_put(w.origin, key_of(i, key), "text", 4);
        assert_int_equal(get(w.store, key, "text"), 0);
    }
    assert_true(report_of(&w, 0).down);
    assert_true(report_of(&w, 0).requests >= 3);
    assert_true(report_of(&w, 0).requests < 30);
    assert_int_equal(report_of(&w, 0).failures, report_of(&w, 0).requests);
    assert_int_equal(counter_value(store_counters, w.store, "granary_l2_fallthroughs_total"), KEYS);
    assert_int_equal(count_of("_down"), 1);
}

static void test_store_l2__one_that_answers_again_is_asked_again(void **state)
{
    WORLD(2);
    char key[64];
    for (unsigned i = 0; i < KEYS; i++)
        put_everywhere(&w, key_of(i, key), "text");
    bring_down(&w, 1);
    store_fake_set_dead(w.proxies[1], 0);
    uint64_t end = clock_now_ms() + LIMIT_MS;
    while (!report_of(&w, 1).untried) { /* its pause ends, and nobody asks */
        assert_true(clock_now_ms() < end);
        usleep(10000);
    }
    assert_true(report_of(&w, 1).down);
    for (unsigned i = 0; report_of(&w, 1).down; i = (i + 1) % KEYS) {
        assert_int_equal(get(w.store, key_of(i, key), "text"), 0);
        assert_true(clock_now_ms() < end);
    }
    assert_false(report_of(&w, 1).untried);
    store_fake_reset_counters(w.origin);
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(get(w.store, key_of(i, key), "text"), 0);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 0);
}

static void test_store_l2__a_get_that_breaks_goes_on_behind_what_came(void **state)
{
    static const int codes[] = {-EAGAIN, -ETIMEDOUT, -EIO, -ENOTSUP, 0};
    for (size_t i = 0; i < GR_ARRAY_SIZE(codes); i++) {
        WORLD(1);
        put_everywhere(&w, "packs/ab/c", "0123456789");
        store_fake_add_fault(
            w.proxies[0], &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_CUT, .code = codes[i], .bytes = 3});
        assert_int_equal(get(w.store, "packs/ab/c", "0123456789"), 0);
        assert_int_equal(store_fake_bytes_got(w.origin), 7);
        assert_int_equal(count_of("_bytes_total"), 3);
        assert_int_equal(count_of("_failures_total"), 1);
    }
}

static int refuse(void *arg, const void *data, size_t len)
{
    return error_set(-EAGAIN, "the reader's own");
}

static void test_store_l2__a_reader_who_stops_is_no_failure(void **state)
{
    WORLD(1);
    put_everywhere(&w, "packs/ab/c", "text");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(store_get(w.store, "packs/ab/c", 0, 4, refuse, NULL), -EAGAIN);
        assert_string_equal(error_text(), "the reader's own");
    }
    assert_false(report_of(&w, 0).down);
    assert_int_equal(store_fake_calls(w.origin, FAKE_GET), 0);
}

static void test_store_l2__what_is_missing_everywhere_is_nobodys_fault(void **state)
{
    WORLD(1);
    put_everywhere(&w, "packs/ab/short", "te");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(get(w.store, "packs/ab/none", "text"), -ENOENT);
        assert_int_equal(get(w.store, "packs/ab/short", "text"), -EBADMSG);
    }
    assert_false(report_of(&w, 0).down);
}

static void test_store_l2__what_is_missing_there_alone_is_its_fault(void **state)
{
    WORLD(1);
    store_fake_put(w.origin, "packs/ab/c", "text", 4); /* the URL leads elsewhere, perhaps */
    for (int i = 0; i < 20; i++)
        assert_int_equal(get(w.store, "packs/ab/c", "text"), 0);
    assert_true(report_of(&w, 0).down);
}

static void test_store_l2__a_store_that_fails_behind_a_dead_one_says_so(void **state)
{
    WORLD(1);
    put_everywhere(&w, "packs/ab/c", "text");
    store_fake_set_dead(w.proxies[0], -EAGAIN);
    store_fake_set_dead(w.origin, -EACCES);
    assert_int_equal(get(w.store, "packs/ab/c", "text"), -EACCES);
    assert_non_null(strstr(error_text(), "fake://store"));
}

static void test_store_l2__only_packs_and_index_nodes_go_through_them(void **state)
{
    static const char *const direct[] = {"manifests/abc", "catalogs/ab/c", "images/faces/latest", "granary.json"};
    WORLD(1);
    struct store_item item;
    CLEANUP_BYTES small = BYTES_INIT(100);
    for (size_t i = 0; i < GR_ARRAY_SIZE(direct); i++) {
        store_fake_put(w.origin, direct[i], "text", 4);
        assert_int_equal(get(w.store, direct[i], "text"), 0);
    }
    put_everywhere(&w, "packs/ab/c", "text");
    assert_int_equal(store_stat(w.store, "packs/ab/c", &item), 0);
    assert_int_equal(store_get_small(w.store, "packs/ab/c", &small, NULL), 0);
    assert_int_equal(store_fake_calls(w.proxies[0], FAKE_ANY), 0);
    put_everywhere(&w, "indexes/ab/c", "text");
    assert_int_equal(get(w.store, "indexes/ab/c", "text"), 0);
    assert_int_equal(store_fake_calls(w.proxies[0], FAKE_GET), 1);
}

static void test_store_l2__two_alike_are_refused(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    struct store *proxies[] = {store_fake_store(fake), store_fake_store(fake)}, *store;
    assert_int_equal(l2_fake_open(store_fake_store(fake), proxies, 2, &store, NULL), -EINVAL);
    assert_non_null(strstr(error_text(), "twice"));
}

static void test_store_l2__an_address_with_a_password_is_refused_unseen(void **state)
{
    const char *const wrong[] = {"http://cache1/faces", "http://me:secret@cache2/faces"};
    const struct store_options options = {.connections = 1};
    struct store_proxies *proxies;
    assert_int_equal(store_proxies_open(wrong, 2, &options, NULL, &proxies), -EINVAL);
    assert_null(strstr(error_text(), "secret"));
    assert_non_null(strstr(error_text(), "shared cache proxy: "));
}

/* ---- with the fetch above ---- */

struct reading {
    struct world w;
    struct image_fake img;
    struct fetch *fetch;
};

static void begin_reading(struct reading *r)
{
    r->w = open_world(1);
    r->img =
        (struct image_fake){.seed = 7, .size = (uint64_t)CHUNKS * CHUNK, .chunk_size = CHUNK, .pack_chunks = CHUNKS};
    image_fake_put(&r->img, r->w.origin, NULL);
    image_fake_release(&r->img);
    image_fake_put(&r->img, r->w.proxies[0], NULL);
    assert_int_equal(fetch_new(&(struct fetch_config){.workers = 2}, &r->fetch), 0);
    assert_int_equal(fetch_start_threads(r->fetch), 0);
}

static void end_reading(struct reading *r)
{
    fetch_free(r->fetch);
    image_fake_release(&r->img);
    release_world(&r->w);
}

static int read_chunk(struct reading *r, unsigned chunk)
{
    const struct chunk_ref *ref = &r->img.refs[chunk];
    struct inflight *inflight;
    CLEANUP_BUF struct buf *plain = NULL;
    CLEANUP_FREE uint8_t *expected = malloc(CHUNK);
    assert_int_equal(fetch_start(r->fetch, r->w.store, &ref, 1, 1, PRIORITY_DEMAND, 0, &inflight), 0);
    int rc = inflight_wait(inflight, &plain);
    inflight_unref(inflight);
    image_fake_bytes(&r->img, (uint64_t)chunk * CHUNK, expected, CHUNK);
    if (!rc)
        assert_memory_equal(plain->data, expected, CHUNK);
    return rc;
}

static void flip(struct store_fake *f, unsigned count)
{
    store_fake_add_fault(f, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FLIP, .count = count, .bytes = 5});
}

static void test_store_l2__wrong_bytes_come_from_the_store_the_third_time(void **state)
{
    struct reading r;
    begin_reading(&r);
    flip(r.w.proxies[0], 2);
    assert_int_equal(read_chunk(&r, 3), 0);
    assert_int_equal(store_fake_calls(r.w.proxies[0], FAKE_GET), 2);
    assert_int_equal(store_fake_calls(r.w.origin, FAKE_GET), 1);
    assert_int_equal(report_of(&r.w, 0).wrong, 2);
    assert_int_equal(counter_value(fetch_counters, r.fetch, "granary_fetch_refetches_total"), 1);
    assert_int_equal(counter_value(store_proxies_counters, r.w.handle, "granary_l2_wrong_total"), 2);
    end_reading(&r);
}

static void test_store_l2__one_that_is_always_wrong_is_passed_over(void **state)
{
    struct reading r;
    begin_reading(&r);
    flip(r.w.proxies[0], 0);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(read_chunk(&r, i % CHUNKS), 0);
    assert_true(store_fake_calls(r.w.proxies[0], FAKE_GET) < 100);
    assert_true(report_of(&r.w, 0).wrong >= 3);
    end_reading(&r);
}

static void test_store_l2__a_store_that_is_wrong_itself_blames_nobody(void **state)
{
    struct reading r;
    begin_reading(&r);
    flip(r.w.proxies[0], 0);
    flip(r.w.origin, 0);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_int_equal(read_chunk(&r, i), -EBADMSG);
    assert_int_equal(report_of(&r.w, 0).wrong, 0);
    assert_false(report_of(&r.w, 0).down);
    end_reading(&r);
}

/* ---- many threads ---- */

static void *get_many(void *arg)
{
    struct world *w = arg;
    char key[64];
    for (unsigned i = 0; i < 2000; i++)
        assert_int_equal(get(w->store, key_of(i % KEYS, key), "text"), 0);
    return NULL;
}

static void test_store_l2__many_readers_of_failing_ones_see_no_error(void **state)
{
    enum { THREADS = 4 };
    WORLD(PROXIES);
    char key[64];
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < KEYS; i++)
        put_everywhere(&w, key_of(i, key), "text");
    for (size_t i = 0; i < PROXIES; i++)
        store_fake_add_fault(
            w.proxies[i],
            &(struct store_fake_fault){
                .op = FAKE_GET, .kind = i ? FAKE_CUT : FAKE_FAIL, .permille = 300, .code = -EAGAIN, .bytes = 2});
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_many, &w), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(count_of("_requests_total") >= 3 * PROXIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_l2__keys_are_spread_evenly),
        cmocka_unit_test(test_store_l2__a_key_has_its_place_for_ever),
        cmocka_unit_test(test_store_l2__one_that_goes_moves_its_own_keys_alone),
        cmocka_unit_test(test_store_l2__a_dead_one_costs_no_error_and_is_passed_over),
        cmocka_unit_test(test_store_l2__one_that_answers_again_is_asked_again),
        cmocka_unit_test(test_store_l2__a_get_that_breaks_goes_on_behind_what_came),
        cmocka_unit_test(test_store_l2__a_reader_who_stops_is_no_failure),
        cmocka_unit_test(test_store_l2__what_is_missing_everywhere_is_nobodys_fault),
        cmocka_unit_test(test_store_l2__what_is_missing_there_alone_is_its_fault),
        cmocka_unit_test(test_store_l2__a_store_that_fails_behind_a_dead_one_says_so),
        cmocka_unit_test(test_store_l2__only_packs_and_index_nodes_go_through_them),
        cmocka_unit_test(test_store_l2__two_alike_are_refused),
        cmocka_unit_test(test_store_l2__an_address_with_a_password_is_refused_unseen),
        cmocka_unit_test(test_store_l2__wrong_bytes_come_from_the_store_the_third_time),
        cmocka_unit_test(test_store_l2__one_that_is_always_wrong_is_passed_over),
        cmocka_unit_test(test_store_l2__a_store_that_is_wrong_itself_blames_nobody),
        cmocka_unit_test(test_store_l2__many_readers_of_failing_ones_see_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* 64 threads read through a store and two shared cache proxies that fail, stall, break off, send too little, wrong
 * bytes or nothing at all, are dead and come back, by the fetch alone and by an image over a cache. What is read is
 * right or an error; what was asked for is what the counters say became of it; nothing is left in flight, and no
 * thread. Then the weather is fine, and everything can be read. A second each, a minute with GRANARY_FULL; the
 * sanitizers run it too.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "cache/cache.h"
#include "fake/image_fake.h"
#include "fake/l2_fake.h"
#include "format/index.h"
#include "image/image.h"
#include "store/store.h"
#include "unit/counters.h"
#include "unit/counts.h"
#include "unit/threads.h"

enum {
    THREADS = 64,
    PROXIES = 2,
    CHUNK = 64 << 10,
    FIRST = 224, /* chunks with data at the beginning of the image, */
    SECOND = 80, /* and in the second leaf of its index: more than the memory tier has room for */
    ASKED_MOST = 8,
    READ_MOST = 300 << 10,
    RETRY_MS = 400,   /* of the store */
    TIMEOUT_MS = 300, /* of a fetch */
    MEMORY = 16 << 20,
};

struct storm {
    struct store_fake *origin, *proxies[PROXIES];
    struct store *store;
    struct store_proxies *proxied; /* the list of the proxies */
    volatile int cancel;
    struct image_fake img;
    uint8_t *plain; /* of the chunks with data */
    struct fetch *fetch;
    struct cache *cache;
    struct image *image;
    bool neighbours; /* some are asked for with what is wanted */
    _Atomic bool stop;
    _Atomic unsigned numbers;
    _Atomic uint64_t asked, beside, landed, reads, right, failed, left;
};

#define count_of(s, name) counter_value(fetch_counters, (s)->fetch, "granary_fetch_" name)
#define store_count(s, name) counter_value(store_counters, (s)->store, "granary_store_" name)
#define proxies_count(s, name) counter_value(store_proxies_counters, (s)->proxied, "granary_l2_" name)

static uint64_t draw(uint64_t *seed)
{
    /* xorshift64 */
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed >> 11;
}

static uint64_t seed_of(struct storm *s)
{
    return 0x9E3779B97F4A7C15u * (1 + atomic_fetch_add(&s->numbers, 1));
}

static bool is_hole(uint64_t chunk)
{
    return chunk >= FIRST && (chunk < INDEX_FANOUT || chunk >= INDEX_FANOUT + SECOND);
}

/* The n-th chunk with data. */
static uint64_t chunk_at(uint64_t n)
{
    return n < FIRST ? n : INDEX_FANOUT + n - FIRST;
}

/* ---- the weather ---- */

static const struct store_fake_fault weather[] = {
    {.op = FAKE_GET, .kind = FAKE_FAIL, .permille = 300, .code = -EAGAIN},
    {.kind = FAKE_FAIL, .permille = 200, .code = -ETIMEDOUT},
    {.kind = FAKE_FAIL, .permille = 100, .code = -EIO},
    {.kind = FAKE_FAIL, .permille = 50, .code = -ENOENT},
    {.kind = FAKE_CUT, .permille = 200, .code = -EAGAIN},
    {.kind = FAKE_CUT, .permille = 200, .code = -EBADMSG},
    {.kind = FAKE_CUT, .permille = 100, .code = 0},
    {.kind = FAKE_FLIP, .permille = 300},
    {.kind = FAKE_FLIP, .permille = 1000},
    {.kind = FAKE_DELAY, .permille = 500, .bytes = 2},
    {.kind = FAKE_DELAY, .permille = 50, .bytes = TIMEOUT_MS + 50},
};

static void change_weather(struct store_fake *f, uint64_t *seed)
{
    store_fake_clear_faults(f);
    store_fake_set_piece(f, draw(seed) % 2 ? 5000 : 0);
    store_fake_set_dead(f, draw(seed) % 5 ? 0 : draw(seed) % 2 ? -EAGAIN : -ETIMEDOUT);
    for (uint64_t n = draw(seed) % 4; n; n--) {
        struct store_fake_fault fault = weather[draw(seed) % GR_ARRAY_SIZE(weather)];
        fault.op = FAKE_GET;
        if (fault.kind != FAKE_DELAY)
            fault.bytes = draw(seed) % (2 * CHUNK);
        store_fake_add_fault(f, &fault);
    }
}

static void fair_weather(struct storm *s)
{
    __atomic_store_n(&s->cancel, 0, __ATOMIC_RELAXED);
    for (unsigned i = 0; i <= PROXIES; i++) {
        store_fake_clear_faults(i ? s->proxies[i - 1] : s->origin);
        store_fake_set_dead(i ? s->proxies[i - 1] : s->origin, 0);
    }
}

#define wait_until(condition)                                                                                          \
    for (uint64_t since_ = 0; !(condition);)                                                                           \
    counter_pause(&since_, #condition)

static uint64_t served_from(struct storm *s, enum cache_source source)
{
    struct image_traffic t;
    image_traffic(s->image, &t);
    return t.served.bytes[source];
}

/* What the counters are to have seen, whatever chance brings: proxies that keep wrong bytes, a store that is dead. */
static void overture(struct storm *s)
{
    for (unsigned i = 0; i < PROXIES; i++)
        store_fake_add_fault(s->proxies[i], &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_FLIP, .bytes = 9});
    wait_until(proxies_count(s, "wrong_total") && atomic_load(&s->right));
    fair_weather(s);
    for (unsigned i = 0; i < PROXIES; i++)
        store_fake_set_dead(s->proxies[i], -EAGAIN);
    store_fake_add_fault(s->origin, &weather[0]);
    wait_until(proxies_count(s, "failures_total") && store_count(s, "retries_total"));
    store_fake_set_dead(s->origin, -EAGAIN);
    wait_until(store_count(s, "retries_exhausted_total") && atomic_load(&s->failed));
    store_fake_clear_faults(s->origin); /* the proxies are dead still */
    store_fake_set_dead(s->origin, 0);
    uint64_t right = atomic_load(&s->right);
    wait_until(atomic_load(&s->right) > right);
    wait_until(!s->image || (served_from(s, CACHE_FROM_MEMORY) && served_from(s, CACHE_FROM_STORE)));
    fair_weather(s);
}

/* Until the time is over: each of the three by itself; now and then what waits is cancelled. */
static void rage(struct storm *s)
{
    uint64_t seed = seed_of(s), end = clock_now_ms() + full_or(60000, 1000);
    while (clock_now_ms() < end) {
        for (unsigned i = 0; i <= PROXIES; i++)
            if (draw(&seed) % 2)
                change_weather(i ? s->proxies[i - 1] : s->origin, &seed);
        __atomic_store_n(&s->cancel, draw(&seed) % 8 == 0, __ATOMIC_RELAXED);
        sleep_ms((unsigned)(draw(&seed) % 40));
    }
}

/* ---- readers ---- */

static void check_failure(int rc)
{
    must(rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EIO || rc == -ENOENT || rc == -EBADMSG || rc == -ECANCELED,
         "%d: %s", rc, error_text());
    must(*error_text(), "an error without a sentence");
}

static void wait_or_leave(struct storm *s, struct inflight *inflight, uint64_t n, uint64_t *seed)
{
    CLEANUP_BUF struct buf *plain = NULL;
    if (draw(seed) % 16 == 0) {
        atomic_fetch_add(&s->left, 1);
        inflight_unref(inflight);
        return;
    }
    int rc = inflight_wait(inflight, &plain);
    inflight_unref(inflight);
    if (rc) {
        check_failure(rc);
        atomic_fetch_add(&s->failed, 1);
        return;
    }
    must(plain->len == CHUNK && !memcmp(plain->data, s->plain + n * CHUNK, CHUNK), "wrong bytes: chunk %llu",
         (unsigned long long)n);
    atomic_fetch_add(&s->right, 1);
}

static void *fetch_reader(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = seed_of(s);
    while (!atomic_load(&s->stop)) {
        const struct chunk_ref *refs[ASKED_MOST];
        struct inflight *inflights[ASKED_MOST];
        uint64_t chunks[ASKED_MOST], n = 1 + draw(&seed) % ASKED_MOST, at = draw(&seed), step = 1 + draw(&seed) % 3;
        for (uint64_t i = 0; i < n; i++) {
            chunks[i] = (at + i * step) % (FIRST + SECOND);
            refs[i] = &s->img.refs[chunk_at(chunks[i])];
        }
        size_t wanted = s->neighbours ? draw(&seed) % (n + 1) : n;
        atomic_fetch_add(&s->asked, wanted);
        atomic_fetch_add(&s->beside, n - wanted);
        must(!fetch_start(s->fetch, s->store, refs, n, wanted, draw(&seed) % PRIORITIES, 0, inflights), "%s",
             error_text());
        for (size_t i = 0; i < wanted; i++)
            wait_or_leave(s, inflights[i], chunks[i], &seed);
    }
    return NULL;
}

/* The image's bytes from an offset among its data on, as far as they go. */
static void image_reader_step(struct storm *s, uint8_t *got, uint64_t *seed)
{
    uint64_t n = draw(seed) % (FIRST + SECOND), within = draw(seed) % CHUNK;
    uint64_t room = (n < FIRST ? FIRST - n : FIRST + SECOND - n) * CHUNK - within;
    uint64_t most = 1 + draw(seed) % READ_MOST;
    size_t len = (size_t)GR_MIN(most, room);
    uint64_t off = chunk_at(n) * CHUNK + within;
    bool warm = draw(seed) % 16 == 0;
    atomic_fetch_add(&s->reads, !warm);
    int rc = warm ? image_prefetch(s->image, off, len) : image_read(s->image, got, off, len);
    if (rc)
        check_failure(rc);
    must(rc || warm || !memcmp(got, s->plain + n * CHUNK + within, len), "wrong bytes: %zu at %llu", len,
         (unsigned long long)off);
    if (!warm)
        atomic_fetch_add(rc ? &s->failed : &s->right, 1);
}

static void *image_reader(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = seed_of(s);
    uint8_t *got = malloc(READ_MOST);
    while (!atomic_load(&s->stop))
        image_reader_step(s, got, &seed);
    free(got);
    return NULL;
}

/* ---- life ---- */

static void on_landed(void *arg, struct inflight *inflight, bool warm)
{
    struct storm *s = arg;
    if (atomic_fetch_add(&s->landed, 1) % 64 == 0)
        sleep_ms(1); /* who comes late is given its bytes meanwhile */
    fetch_retire(s->fetch, inflight);
}

struct copying {
    struct store_fake *from, *to;
};

static int copy_key(void *arg, const struct store_item *item)
{
    struct copying *c = arg;
    CLEANUP_BYTES data = BYTES_INIT(64 << 20);
    must(store_fake_get(c->from, item->key, &data), "%s", item->key);
    store_fake_put(c->to, item->key, data.data, data.len);
    return 0;
}

static void begin(struct storm *s)
{
    static const char *const urls[PROXIES] = {"http://cache1:8080/lake", "http://cache2:8080/lake"};
    struct store *proxies[PROXIES];
    *s = (struct storm){.origin = store_fake_new(),
                        .img = {.seed = 3,
                                .size = (uint64_t)(INDEX_FANOUT + SECOND) * CHUNK,
                                .chunk_size = CHUNK,
                                .pack_chunks = 24,
                                .hole = is_hole},
                        .plain = malloc((FIRST + SECOND) * CHUNK)};
    image_fake_put(&s->img, s->origin, NULL);
    image_fake_bytes(&s->img, 0, s->plain, FIRST * CHUNK);
    image_fake_bytes(&s->img, (uint64_t)INDEX_FANOUT * CHUNK, s->plain + FIRST * CHUNK, SECOND * CHUNK);
    for (unsigned i = 0; i < PROXIES; i++) {
        s->proxies[i] = store_fake_new();
        proxies[i] = store_fake_store(s->proxies[i]);
        struct copying copying = {.from = s->origin, .to = s->proxies[i]};
        assert_int_equal(store_list(store_fake_store(s->origin), "", copy_key, &copying), 0);
        proxies[i]->url = urls[i];
    }
    struct store *patient = NULL;
    assert_int_equal(store_retry_open(store_fake_store(s->origin), RETRY_MS, &s->cancel, &patient), 0);
    assert_int_equal(l2_fake_open(patient, proxies, PROXIES, &s->store, &s->proxied), 0);
}

static void end(struct storm *s)
{
    store_close(s->store);
    store_proxies_close(s->proxied);
    image_fake_release(&s->img);
    store_fake_free(s->origin);
    for (unsigned i = 0; i < PROXIES; i++)
        store_fake_free(s->proxies[i]);
    free(s->plain);
}

static unsigned threads_now(void)
{
    char line[256];
    unsigned n = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f) && sscanf(line, "Threads: %u", &n) != 1)
        ;
    fclose(f);
    return n;
}

/* A thread that was joined is in the list for a moment longer. */
static void expect_threads(unsigned n)
{
    for (uint64_t since = 0; threads_now() != n;)
        counter_pause(&since, "the threads' end");
}

static void run(struct storm *s, void *(*reader)(void *))
{
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reader, s), 0);
    overture(s);
    rage(s);
    atomic_store(&s->stop, true);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    fair_weather(s);
    print_message("%llu right, %llu failed, %llu left before their end\n", (unsigned long long)s->right,
                  (unsigned long long)s->failed, (unsigned long long)s->left);
}

/* ---- what the counters say ---- */

static void check_store_counters(struct storm *s)
{
    uint64_t proxies = 0;
    for (unsigned i = 0; i < PROXIES; i++)
        proxies += store_fake_calls(s->proxies[i], FAKE_GET);
    assert_int_equal(store_count(s, "gets_total"), store_fake_calls(s->origin, FAKE_GET));
    assert_int_equal(proxies_count(s, "requests_total"), proxies);
    assert_true(proxies_count(s, "failures_total") <= proxies);
    assert_int_equal(store_count(s, "breaker_waiting"), 0);
}

static void check_fetch_counters(struct storm *s)
{
    uint64_t started =
        count_of(s, "demand_chunks_total") + count_of(s, "readahead_chunks_total") + count_of(s, "warm_chunks_total");
    uint64_t known = started + count_of(s, "joins_total") + count_of(s, "dropped_total");
    assert_int_equal(started, s->landed + count_of(s, "errors_total"));
    if (s->neighbours)
        assert_in_range(known, s->asked, s->asked + s->beside); /* those beside that were in flight are not counted */
    else
        assert_int_equal(known, s->asked);
    assert_true(count_of(s, "healed_total") && count_of(s, "verify_failures_total"));
    assert_true(count_of(s, "healed_total") <= count_of(s, "refetches_total"));
    assert_true(count_of(s, "origin_refetches_total") <= count_of(s, "refetches_total"));
    assert_true(count_of(s, "hedge_wins_total") <= count_of(s, "hedges_total"));
    assert_true(count_of(s, "chunk_bytes_total") <= count_of(s, "bytes_total"));
}

static void expect_everything(struct storm *s)
{
    for (uint64_t n = 0; n < FIRST + SECOND; n++) {
        const struct chunk_ref *ref = &s->img.refs[chunk_at(n)];
        struct inflight *inflight;
        CLEANUP_BUF struct buf *plain = NULL;
        int rc = -EIO;
        for (uint64_t since = 0; rc; counter_pause(&since, "a store that is well")) { /* its breaker may be open */
            assert_int_equal(fetch_start(s->fetch, s->store, &ref, 1, 1, PRIORITY_DEMAND, 0, &inflight), 0);
            rc = inflight_wait(inflight, &plain);
            inflight_unref(inflight);
        }
        assert_memory_equal(plain->data, s->plain + n * CHUNK, CHUNK);
    }
}

static void fetch_in_a_storm(bool neighbours)
{
    struct storm s;
    begin(&s);
    s.neighbours = neighbours;
    unsigned threads = threads_now();
    const struct fetch_config config = {.workers = 16,
                                        .queue_max = 40,
                                        .timeout_ms = TIMEOUT_MS,
                                        .hedge_percent = 20,
                                        .keep_stored = true,
                                        .on_landed = on_landed,
                                        .arg = &s};
    assert_int_equal(fetch_new(&config, &s.fetch), 0);
    assert_int_equal(fetch_start_threads(s.fetch), 0);
    run(&s, fetch_reader);
    counter_wait_zero(fetch_counters, s.fetch, "granary_fetch_in_flight");
    counter_wait_zero(fetch_counters, s.fetch, "granary_fetch_busy_workers");
    assert_int_equal(count_of(&s, "queued"), 0);
    check_fetch_counters(&s);
    check_store_counters(&s);
    expect_everything(&s);
    fetch_free(s.fetch);
    expect_threads(threads);
    end(&s);
}

static void test_store_storm__what_is_fetched_is_right_or_an_error_and_all_is_counted(void **state)
{
    fetch_in_a_storm(false);
}

static void test_store_storm__so_it_is_with_neighbours_that_nobody_waits_for(void **state)
{
    fetch_in_a_storm(true);
}

static void test_store_storm__readers_are_gone_while_it_rages(void **state)
{
    struct storm s;
    begin(&s);
    unsigned threads = threads_now();
    uint64_t seed = 1;
    for (int i = 0; i < 30; i++) {
        const struct chunk_ref *refs[FIRST];
        for (unsigned k = 0; k < FIRST; k++)
            refs[k] = &s.img.refs[k];
        const struct fetch_config config = {.workers = 8, .timeout_ms = TIMEOUT_MS, .run_max = 2 * CHUNK};
        assert_int_equal(fetch_new(&config, &s.fetch), 0);
        assert_int_equal(fetch_start_threads(s.fetch), 0);
        for (unsigned k = 0; k <= PROXIES; k++)
            change_weather(k ? s.proxies[k - 1] : s.origin, &seed);
        assert_int_equal(fetch_start(s.fetch, s.store, refs, FIRST, 0, PRIORITY_READAHEAD, 0, NULL), 0);
        fetch_free(s.fetch); /* what is queued is cancelled, what is in flight ends */
    }
    expect_threads(threads);
    end(&s);
}

/* ---- through an image ---- */

static uint64_t served(const struct image_traffic *t)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < CACHE_SOURCES; i++)
        bytes += t->served.bytes[i];
    return bytes;
}

static void expect_image(struct storm *s)
{
    uint8_t *got = malloc(FIRST * CHUNK);
    for (uint64_t since = 0; image_read(s->image, got, 0, FIRST * CHUNK); counter_pause(&since, "a store that is well"))
        ; /* its breaker may be open */
    assert_memory_equal(got, s->plain, FIRST * CHUNK);
    assert_int_equal(image_read(s->image, got, (uint64_t)INDEX_FANOUT * CHUNK, SECOND * CHUNK), 0);
    assert_memory_equal(got, s->plain + FIRST * CHUNK, SECOND * CHUNK);
    free(got);
}

static void test_store_storm__an_image_over_a_cache_reads_right_or_not_at_all(void **state)
{
    struct storm s;
    begin(&s);
    unsigned threads = threads_now();
    const struct cache_config config = {
        .memory = MEMORY, .fetch = {.workers = 16, .queue_max = 40, .timeout_ms = TIMEOUT_MS, .hedge_percent = 20}};
    assert_int_equal(cache_open(&config, &s.cache), 0);
    assert_int_equal(cache_start_threads(s.cache), 0);
    const struct image_config of_image = {.cache = s.cache,
                                          .store = s.store,
                                          .manifest = &s.img.manifest,
                                          .index_memory = 1, /* the index is read again and again */
                                          .readahead = 4 * CHUNK};
    assert_int_equal(image_open(&of_image, &s.img.digest, &s.image), 0);
    run(&s, image_reader);
    counter_wait_zero(cache_counters, s.cache, "granary_fetch_in_flight");
    counter_wait_zero(cache_counters, s.cache, "granary_fetch_busy_workers");
    check_store_counters(&s);
    struct image_traffic t;
    image_traffic(s.image, &t);
    assert_int_equal(t.reads, s.reads);
    assert_int_equal(t.hole_bytes, 0);
    assert_true(served(&t) && served(&t) < t.read_bytes); /* some failed */
    assert_true(t.served.bytes[CACHE_FROM_MEMORY] && t.served.bytes[CACHE_FROM_STORE]);
    expect_image(&s);
    image_close(s.image);
    cache_close(s.cache);
    expect_threads(threads);
    end(&s);
}

static void *nothing(void *arg)
{
    return arg;
}

/* A sanitizer makes a thread of its own with the first one. */
static int make_first_thread(void **state)
{
    pthread_t thread;
    return pthread_create(&thread, NULL, nothing, NULL) || pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_storm__what_is_fetched_is_right_or_an_error_and_all_is_counted),
        cmocka_unit_test(test_store_storm__so_it_is_with_neighbours_that_nobody_waits_for),
        cmocka_unit_test(test_store_storm__readers_are_gone_while_it_rages),
        cmocka_unit_test(test_store_storm__an_image_over_a_cache_reads_right_or_not_at_all),
    };
    log_to(NULL, LOG_LEVEL_ERROR);
    return cmocka_run_group_tests(tests, make_first_thread, NULL);
}

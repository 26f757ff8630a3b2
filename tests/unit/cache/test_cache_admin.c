/* Chunks asked for, evicted and pinned by digest while the cache is in use. */
#include "unit/cache_world.h"

#include <time.h>

#define K 1024u
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7};
#define MIXED mixed_lens, GR_ARRAY_SIZE(mixed_lens)

static struct cache_chunk query(struct world *w, unsigned chunk)
{
    struct cache_chunk out;
    cache_query(w->cache, &w->refs[chunk].digest, 1, &out);
    return out;
}

static void test_cache_admin__a_query_says_what_is_there(void **state)
{
    struct world w;
    struct digest digests[9];
    struct cache_chunk out[9];
    world_init(&w, 8, MIXED, 32 << 20);
    world_open(&w);
    world_warm(&w);
    for (unsigned i = 0; i < 8; i++)
        digests[i] = w.refs[i].digest;
    digests[8] = digest_of("nowhere", 7);
    cache_query(w.cache, digests, 9, out);
    for (unsigned i = 0; i < 8; i++) {
        assert_true(out[i].cached);
        assert_false(out[i].pinned);
        assert_int_equal(out[i].stored_bytes, w.refs[i].plain_len);
    }
    assert_false(out[8].cached);
    assert_int_equal(out[8].stored_bytes, 0);
    world_release(&w);
}

/* Bring a chunk into the cache, from a thread. */
struct bringing {
    struct world *w;
    unsigned chunk;
};

static void *bring(void *arg)
{
    struct bringing *b = arg;
    world_expect(b->w, b->chunk);
    return NULL;
}

static void test_cache_admin__a_look_tells_memory_disk_and_what_is_on_its_way(void **state)
{
    static const uint32_t len = 64 * K;
    struct world w;
    enum cache_where where[4];
    pthread_t reader;
    world_init(&w, 4, &len, 1, 32 << 20);
    world_open(&w);
    struct cache_piece piece = world_piece(&w, 0, 0, 0, NULL);
    assert_int_equal(cache_ensure(w.cache, &piece, 1, PRIORITY_WARM), 0);
    world_settle(&w);
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, bring, &(struct bringing){&w, 2}), 0);
    store_fake_wait_held(w.fake, 1);
    const struct chunk_ref *const chunks[] = {&w.refs[0], &w.refs[1], &w.refs[2], &w.refs[0]};
    cache_look(w.cache, w.store, chunks, 4, where);
    assert_int_equal(where[0], CACHE_ON_DISK);
    assert_int_equal(where[1], CACHE_NOWHERE);
    assert_int_equal(where[2], CACHE_COMING);
    assert_int_equal(where[3], CACHE_ON_DISK);
    store_fake_release(w.fake);
    pthread_join(reader, NULL);
    world_settle(&w);
    cache_look(w.cache, w.store, chunks + 2, 1, where);
    assert_int_equal(where[0], CACHE_ON_DISK);
    world_release(&w);

    world_init(&w, 1, &len, 1, 0);
    w.config.memory = 16 << 20;
    world_open(&w);
    world_expect_all(&w);
    world_settle(&w);
    cache_look(w.cache, w.store, &(const struct chunk_ref *const){&w.refs[0]}, 1, where);
    assert_int_equal(where[0], CACHE_IN_MEMORY);
    world_release(&w);
}

static void test_cache_admin__without_a_directory_nothing_is_cached(void **state)
{
    struct world w;
    world_init(&w, 1, MIXED, 0);
    world_open(&w);
    assert_false(query(&w, 0).cached);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, true), -ENOENT);
    world_release(&w);
}

static void test_cache_admin__what_is_evicted_stays_away_after_a_restart(void **state)
{
    struct world w;
    world_init(&w, 24, MIXED, 32 << 20);
    world_open(&w);
    world_warm(&w);
    for (unsigned i = 0; i < 24; i += 2) {
        assert_int_equal(cache_evict(w.cache, &w.refs[i].digest, false), 0);
        assert_int_equal(cache_evict(w.cache, &w.refs[i].digest, false), -ENOENT);
        assert_false(cache_has(w.cache, &w.refs[i].digest));
    }
    world_check(&w);
    assert_int_equal(count_of(&w, "entries"), 12);
    world_close(&w);
    world_open(&w);
    for (unsigned i = 0; i < 24; i++)
        assert_int_equal(cache_has(w.cache, &w.refs[i].digest), i % 2);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_settle(&w);
    assert_int_equal(count_of(&w, "entries"), 24); /* it can be kept again */
    world_check(&w);
    world_release(&w);
}

static void test_cache_admin__a_sweep_drops_all_but_what_is_pinned(void **state)
{
    struct world w;
    struct cache_sweep sweep = {0};
    world_init(&w, 64, MIXED, 32 << 20);
    world_open(&w);
    world_warm(&w);
    for (unsigned i = 0; i < 64; i += 4)
        assert_int_equal(cache_pin(w.cache, &w.refs[i].digest, true), 0);
    while (cache_sweep_next(w.cache, CACHE_EVICT, &sweep))
        ;
    assert_int_equal(sweep.changed, 48);
    assert_int_equal(sweep.refused, 16);
    assert_int_equal(sweep.bytes_done, sweep.bytes_total);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(cache_has(w.cache, &w.refs[i].digest), i % 4 == 0);
    world_check(&w);
    sweep = (struct cache_sweep){0};
    while (cache_sweep_next(w.cache, CACHE_EVICT_PINNED_TOO, &sweep))
        ;
    assert_int_equal(sweep.changed, 16);
    assert_int_equal(count_of(&w, "entries"), 0);
    world_close(&w);
    world_open(&w);
    assert_int_equal(count_of(&w, "entries"), 0);
    world_check(&w);
    world_release(&w);
}

/* ---- pins ---- */

static void test_cache_admin__pins_outlive_restarts_and_evictions(void **state)
{
    struct world w;
    world_init(&w, 24, MIXED, 32 << 20);
    world_open(&w);
    world_warm(&w);
    for (unsigned i = 0; i < 24; i += 3)
        assert_int_equal(cache_pin(w.cache, &w.refs[i].digest, true), 0);
    assert_int_equal(cache_pin(w.cache, &w.refs[3].digest, true), 0); /* again */
    assert_int_equal(cache_pin(w.cache, &w.refs[6].digest, false), 0);
    for (int life = 0; life < 2; life++) {
        for (unsigned i = 0; i < 24; i++) {
            assert_true(query(&w, i).cached);
            assert_int_equal(query(&w, i).pinned, i % 3 == 0 && i != 6);
        }
        world_expect_all(&w);
        world_check(&w);
        world_close(&w);
        world_open(&w);
    }
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), -EPERM);
    assert_true(query(&w, 0).pinned);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, true), 0);
    assert_int_equal(cache_pin(w.cache, &w.refs[0].digest, true), -ENOENT);
    world_expect(&w, 0);
    world_settle(&w);
    assert_false(query(&w, 0).pinned); /* what comes back is not pinned */
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_check(&w);
    world_release(&w);
}

/* 60 MiB of chunks through 32 MiB. */
static void test_cache_admin__pins_stay_under_pressure_and_have_a_limit(void **state)
{
    struct world w;
    const uint32_t len = 128 * K;
    unsigned pinned = 0, refused = 0;
    world_init(&w, 480, &len, 1, 32 << 20);
    world_open(&w);
    world_expect(&w, 0);
    world_settle(&w);
    assert_int_equal(cache_pin(w.cache, &w.refs[0].digest, true), 0);
    for (unsigned i = 1; i < 480; i++) {
        world_expect(&w, i);
        world_settle(&w);
    }
    assert_true(query(&w, 0).pinned);
    for (unsigned i = 1; i < 480; i++)
        if (query(&w, i).cached) {
            int rc = cache_pin(w.cache, &w.refs[i].digest, true);
            assert_true(rc == 0 || rc == -EDQUOT);
            *(rc ? &refused : &pinned) += 1;
        }
    assert_in_range(pinned * len, 20 << 20, 24 << 20); /* three quarters */
    assert_true(refused > 20);
    struct cache_sweep sweep = {0};
    while (cache_sweep_next(w.cache, CACHE_PIN, &sweep))
        ;
    assert_int_equal(sweep.changed, 0);
    assert_int_equal(sweep.refused, refused);
    world_check(&w);
    world_close(&w);
    world_open(&w);
    sweep = (struct cache_sweep){0};
    while (cache_sweep_next(w.cache, CACHE_UNPIN, &sweep))
        ;
    assert_int_equal(sweep.changed, pinned + 1);
    world_close(&w);
    world_open(&w);
    assert_false(query(&w, 0).pinned);
    world_check(&w);
    world_release(&w);
}

/* As the last test, but for what lasts as long as the process. */
static void test_cache_admin__what_is_held_stays_until_the_end_and_no_longer(void **state)
{
    struct world w;
    const uint32_t len = 128 * K;
    unsigned held = 0;
    world_init(&w, 480, &len, 1, 32 << 20);
    world_open(&w);
    for (unsigned i = 0; i < 4; i++)
        world_expect(&w, i);
    world_settle(&w);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(cache_session_pin(w.cache, &w.refs[i].digest), 0);
    assert_int_equal(cache_session_pin(w.cache, &w.refs[100].digest), -ENOENT);
    assert_int_equal(cache_pin(w.cache, &w.refs[1].digest, true), 0);  /* the user's from now on */
    assert_int_equal(cache_pin(w.cache, &w.refs[2].digest, false), 0); /* nobody's */
    assert_int_equal(cache_session_pin(w.cache, &w.refs[1].digest), 0);
    assert_true(query(&w, 0).held && !query(&w, 0).pinned);
    assert_true(query(&w, 1).pinned && !query(&w, 1).held);
    assert_true(!query(&w, 2).pinned && !query(&w, 2).held);
    cache_session_unpin(w.cache, &w.refs[1].digest); /* ends no pin of the user's */
    cache_session_unpin(w.cache, &w.refs[2].digest);
    cache_session_unpin(w.cache, &w.refs[3].digest);
    cache_session_unpin(w.cache, &w.refs[100].digest);
    assert_true(query(&w, 1).pinned && !query(&w, 3).held);
    world_check(&w);
    assert_int_equal(cache_session_pin(w.cache, &w.refs[3].digest), 0);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), -EPERM);
    for (unsigned i = 4; i < 480; i++) {
        world_expect(&w, i);
        world_settle(&w);
    }
    assert_true(query(&w, 0).cached && query(&w, 1).cached && query(&w, 3).cached);
    world_check(&w);
    for (unsigned i = 4; i < 480; i++) {
        int rc = query(&w, i).cached ? cache_session_pin(w.cache, &w.refs[i].digest) : -ENOENT;
        assert_true(!rc || rc == -EDQUOT || rc == -ENOENT);
        held += !rc;
    }
    assert_in_range(held * len, 20 << 20, 24 << 20);
    struct cache_sweep sweep = {0};
    while (cache_sweep_next(w.cache, CACHE_EVICT, &sweep))
        ;
    assert_int_equal(sweep.refused, held + 3);
    world_check(&w);
    world_close(&w);
    world_open(&w);
    for (unsigned i = 0; i < 480; i++)
        assert_true(!query(&w, i).held && query(&w, i).pinned == (i == 1));
    world_check(&w);
    assert_int_equal(cache_session_pin(w.cache, &w.refs[0].digest), 0);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, true), 0);
    world_expect(&w, 0);
    world_settle(&w);
    assert_false(query(&w, 0).held); /* what comes back is not */
    world_release(&w);
}

struct race {
    struct world *w;
    pthread_barrier_t barrier;
};

static void *unpin_each(void *arg)
{
    struct race *race = arg;
    for (unsigned i = 0; i < race->w->count; i++) {
        pthread_barrier_wait(&race->barrier);
        assert_int_equal(cache_pin(race->w->cache, &race->w->refs[i].digest, false), 0);
    }
    return NULL;
}

/* Every third write of one byte takes its time. */
static ssize_t write_in_any_order(int fd, const void *data, size_t len, off_t off)
{
    static _Atomic unsigned writes;
    if (len == 1 && atomic_fetch_add(&writes, 1) % 3 == 0)
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    return pwrite(fd, data, len, off);
}

/* Whichever of two changes comes last, the disk says what memory says. */
static void test_cache_admin__pinned_and_unpinned_at_once_is_one_of_them(void **state)
{
    struct world w;
    struct race race = {.w = &w};
    const uint32_t len = 4 * K;
    bool pinned[500];
    pthread_t thread;
    world_init(&w, 500, &len, 1, 32 << 20);
    world_open_hooks(&w, &(struct cache_test_hooks){.calls.pwrite = write_in_any_order});
    world_warm(&w);
    pthread_barrier_init(&race.barrier, NULL, 2);
    assert_int_equal(pthread_create(&thread, NULL, unpin_each, &race), 0);
    for (unsigned i = 0; i < w.count; i++) {
        pthread_barrier_wait(&race.barrier);
        assert_int_equal(cache_pin(w.cache, &w.refs[i].digest, true), 0);
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&race.barrier);
    for (unsigned i = 0; i < w.count; i++)
        pinned[i] = query(&w, i).pinned;
    world_close(&w);
    world_open(&w);
    for (unsigned i = 0; i < w.count; i++)
        assert_int_equal(query(&w, i).pinned, pinned[i]);
    world_release(&w);
}

/* ---- readers, pinners and evictors together ---- */

enum { READERS = 6, EVICTORS = 4, ROUNDS = 400 };

struct storm {
    struct world w;
    _Atomic unsigned evictors;
};

static void *read_on(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = 77 + atomic_fetch_add(&s->w.readers, 1);
    while (atomic_load(&s->evictors))
        world_expect(&s->w, world_random(&seed) % s->w.count);
    return NULL;
}

static void *evict_on(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = 7777 + atomic_fetch_add(&s->w.readers, 1);
    for (unsigned i = 0; i < ROUNDS; i++) {
        const struct digest *digest = &s->w.refs[world_random(&seed) % s->w.count].digest;
        uint64_t dice = world_random(&seed) % 4;
        int rc = dice == 0 ? cache_evict(s->w.cache, digest, i % 8 == 0) : cache_pin(s->w.cache, digest, dice != 1);
        assert_true(rc == 0 || rc == -ENOENT || (rc == -EPERM && dice == 0));
    }
    atomic_fetch_sub(&s->evictors, 1);
    return NULL;
}

static void test_cache_admin__readers_see_no_evictor_and_records_say_what_memory_does(void **state)
{
    static struct storm s;
    pthread_t threads[READERS + EVICTORS];
    struct cache_chunk before[24];
    world_init(&s.w, 24, MIXED, 32 << 20);
    world_open(&s.w);
    world_warm(&s.w);
    atomic_store(&s.evictors, EVICTORS);
    for (unsigned i = 0; i < READERS + EVICTORS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < READERS ? read_on : evict_on, &s), 0);
    for (unsigned i = 0; i < READERS + EVICTORS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count_of(&s.w, "crc_errors_total"), 0);
    assert_int_equal(count_of(&s.w, "read_errors_total"), 0);
    world_settle(&s.w);
    world_check(&s.w);
    for (unsigned i = 0; i < 24; i++)
        before[i] = query(&s.w, i);
    world_close(&s.w);
    world_open(&s.w);
    for (unsigned i = 0; i < 24; i++) {
        struct cache_chunk now = query(&s.w, i);
        assert_int_equal(now.cached, before[i].cached);
        assert_int_equal(now.pinned, before[i].pinned);
    }
    world_check(&s.w);
    world_release(&s.w);
}

static void test_cache_admin__what_only_memory_has_is_evicted_too(void **state)
{
    enum { CHUNKS = 160 };
    static const uint32_t len = 256 * K;
    struct world w;
    unsigned only_memory = 0;
    world_init(&w, CHUNKS, &len, 1, 16 << 20);
    w.config.eviction = EVICT_STICKY; /* the disk is full and takes no more */
    w.config.memory = 64 << 20;
    world_open(&w);
    world_expect_all(&w);
    world_settle(&w);
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (query(&w, i).cached || !cache_has(w.cache, &w.refs[i].digest))
            continue;
        assert_int_equal(cache_evict(w.cache, &w.refs[i].digest, false), 0);
        assert_false(cache_has(w.cache, &w.refs[i].digest));
        only_memory++;
    }
    assert_true(only_memory > 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_admin__a_query_says_what_is_there),
        cmocka_unit_test(test_cache_admin__a_look_tells_memory_disk_and_what_is_on_its_way),
        cmocka_unit_test(test_cache_admin__without_a_directory_nothing_is_cached),
        cmocka_unit_test(test_cache_admin__what_is_evicted_stays_away_after_a_restart),
        cmocka_unit_test(test_cache_admin__a_sweep_drops_all_but_what_is_pinned),
        cmocka_unit_test(test_cache_admin__pins_outlive_restarts_and_evictions),
        cmocka_unit_test(test_cache_admin__pins_stay_under_pressure_and_have_a_limit),
        cmocka_unit_test(test_cache_admin__what_is_held_stays_until_the_end_and_no_longer),
        cmocka_unit_test(test_cache_admin__pinned_and_unpinned_at_once_is_one_of_them),
        cmocka_unit_test(test_cache_admin__readers_see_no_evictor_and_records_say_what_memory_does),
        cmocka_unit_test(test_cache_admin__what_only_memory_has_is_evicted_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

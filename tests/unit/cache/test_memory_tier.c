/* The memory tier: alone, and in the cache with and without directories. Every byte is compared. */
#include "unit/cache_world.h"
#include "unit/counts.h"

#include <sys/resource.h>

#include "cache/memory_tier.h"

#define K 1024u

/* Sanitizers map and touch memory of their own. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- alone ---- */

/* Chunk n: its bytes and its name follow from n. */
static void make_chunk(uint64_t n, uint8_t *data, uint32_t len)
{
    uint64_t seed = 0x9E3779B97F4A7C15u * (n + 1);
    for (uint32_t k = 0; k + 8 <= len; k += 8) {
        uint64_t eight = world_random(&seed);
        memcpy(data + k, &eight, sizeof eight);
    }
    for (uint32_t k = len & ~7u; k < len; k++)
        data[k] = (uint8_t)(n + k);
}

static struct digest name_of(uint64_t n)
{
    return digest_of(&n, sizeof n);
}

static uint32_t len_of(uint64_t n)
{
    static const uint32_t lens[] = {128 * K, 4096, 1, 100 * K + 7, 5000, 64 * K, 8191};
    return lens[n % GR_ARRAY_SIZE(lens)];
}

static int put(struct memory_tier *f, uint64_t n)
{
    struct digest name = name_of(n);
    CLEANUP_FREE uint8_t *data = malloc(len_of(n));
    make_chunk(n, data, len_of(n));
    return memory_tier_put(f, &name, data, len_of(n), false);
}

/* false: not there. */
static bool expect(struct memory_tier *f, uint64_t n, uint32_t off, uint32_t len)
{
    struct digest name = name_of(n);
    CLEANUP_FREE uint8_t *want = malloc(len_of(n)), *got = malloc(len + 1);
    got[len] = 0xAB;
    if (memory_tier_read(f, &name, len_of(n), off, len, got) == MEMORY_TIER_MISS)
        return false;
    make_chunk(n, want, len_of(n));
    if (memcmp(want + off, got, len) != 0)
        fail_msg("chunk %llu: wrong bytes", (unsigned long long)n);
    assert_int_equal(got[len], 0xAB);
    return true;
}

static void test_memory_tier__any_part_of_what_was_put_is_read_again(void **state)
{
    struct memory_tier *f;
    uint64_t seed = 3;
    assert_int_equal(memory_tier_new(64 << 20, EVICT_LRU, &f), 0);
    for (uint64_t n = 0; n < 70; n++)
        assert_int_equal(put(f, n), 0);
    for (int i = 0; i < 2000; i++) {
        uint64_t n = world_random(&seed) % 70;
        uint32_t off = world_random(&seed) % len_of(n), len = 1 + world_random(&seed) % (len_of(n) - off);
        assert_true(expect(f, n, off, len));
    }
    struct memory_tier_stats s;
    memory_tier_stats(f, &s);
    assert_int_equal(s.hits, 2000);
    assert_int_equal(s.entries, 70);
    memory_tier_check(f);
    memory_tier_free(f);
}

static void test_memory_tier__another_name_length_or_range_is_a_miss(void **state)
{
    struct memory_tier *f;
    uint8_t byte;
    struct digest name = name_of(0), twin = name;
    assert_int_equal(memory_tier_new(16 << 20, EVICT_LRU, &f), 0);
    assert_int_equal(put(f, 0), 0);
    twin.b[31] ^= 1; /* the last byte counts; the index knows 16, so this one is taken for damage */
    assert_int_equal(memory_tier_read(f, &twin, len_of(0), 0, 1, &byte), MEMORY_TIER_MISS);
    assert_int_equal(put(f, 0), 0);
    twin = name;
    twin.b[15] ^= 1;
    assert_int_equal(memory_tier_read(f, &twin, len_of(0), 0, 1, &byte), MEMORY_TIER_MISS);
    assert_int_equal(memory_tier_read(f, &name, len_of(0) - 1, 0, 1, &byte), MEMORY_TIER_MISS);
    assert_int_equal(memory_tier_read(f, &name, len_of(0), len_of(0), 1, &byte), MEMORY_TIER_MISS);
    assert_int_equal(memory_tier_read(f, &name, len_of(0), UINT32_MAX, 1, &byte), MEMORY_TIER_MISS);
    assert_true(memory_tier_has(f, &name));
    memory_tier_drop(f, &name);
    assert_false(memory_tier_has(f, &name));
    assert_false(expect(f, 0, 0, 1));
    memory_tier_check(f);
    memory_tier_free(f);
}

/* Bytes of this process in memory. */
static uint64_t resident(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*s %lld", &pages), 1);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void fill_under_budget(enum evict_policy policy)
{
    enum { BUDGET = 48 << 20 };
    struct memory_tier *f;
    struct memory_tier_stats s;
    uint64_t before = resident();
    assert_int_equal(memory_tier_new(BUDGET, policy, &f), 0);
    assert_true(SANITIZED || resident() - before < 2 << 20);
    for (uint64_t n = 0; n < full_or(6000, 2000); n++) {
        expect(f, n, 0, 1); /* a miss, for the policy */
        put(f, n);
        memory_tier_stats(f, &s);
        assert_true(s.used_bytes <= s.capacity);
        assert_true(s.capacity < BUDGET);
    }
    assert_true(s.evictions > 0 || policy != EVICT_LRU);
    assert_true(s.used_bytes > BUDGET / 2);
    assert_true(SANITIZED || resident() - before <= BUDGET + (1 << 20)); /* a MiB is the test's */
    memory_tier_check(f);
    memory_tier_free(f);
}

static void test_memory_tier__the_budget_holds_with_the_index_and_is_touched_late(void **state)
{
    fill_under_budget(EVICT_LRU);
    fill_under_budget(EVICT_AUTO);
}

static void test_memory_tier__memory_that_is_not_to_be_had_is_refused_with_a_sentence(void **state)
{
    struct memory_tier *f;
    struct rlimit limit, small;
    assert_int_equal(memory_tier_new(15 << 20, EVICT_LRU, &f), -EINVAL);
    assert_non_null(strstr(error_text(), "16 MiB"));
    if (SANITIZED)
        return;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    small = limit;
    small.rlim_cur = 1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
    int rc = memory_tier_new(UINT64_C(4) << 30, EVICT_LRU, &f);
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_int_equal(rc, -ENOMEM);
    assert_non_null(strstr(error_text(), "memory="));
}

/* ---- 32 threads, evictions ---- */

enum { THREADS = 32, NAMES = 3000 };

struct crowd {
    struct memory_tier *memory_tier;
    _Atomic unsigned numbers, found;
};

static void *put_and_read(void *arg)
{
    struct crowd *crowd = arg;
    uint64_t seed = 77 + atomic_fetch_add(&crowd->numbers, 1);
    for (unsigned i = 0; i < full_or(400, 100); i++) {
        uint64_t n = world_random(&seed) % NAMES;
        n = world_random(&seed) % 2 ? n % 50 : n; /* some are hot: many readers of one slot */
        struct digest name = name_of(n);
        uint32_t off = world_random(&seed) % len_of(n), len = 1 + world_random(&seed) % (len_of(n) - off);
        if (i % 64 == 0)
            memory_tier_drop(crowd->memory_tier, &name);
        if (expect(crowd->memory_tier, n, off, len))
            atomic_fetch_add(&crowd->found, 1);
        else
            put(crowd->memory_tier, n); /* busy: no matter */
    }
    return NULL;
}

static void test_memory_tier__many_threads_read_right_bytes_while_chunks_come_and_go(void **state)
{
    struct crowd crowd = {0};
    struct memory_tier_stats s;
    pthread_t threads[THREADS];
    assert_int_equal(memory_tier_new(16 << 20, EVICT_LRU, &crowd.memory_tier), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_read, &crowd), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    memory_tier_stats(crowd.memory_tier, &s);
    assert_int_equal(s.hits, atomic_load(&crowd.found));
    assert_true(s.hits > 0);
    assert_true(s.evictions > 0);
    assert_int_equal(s.crc_errors, 0);
    memory_tier_check(crowd.memory_tier);
    memory_tier_free(crowd.memory_tier);
}

/* ---- in the cache ---- */

static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7};
static const uint32_t even_lens[] = {128 * K};

static void test_memory_tier__what_landed_is_read_from_memory(void **state)
{
    struct world w;
    world_init(&w, 40, mixed_lens, GR_ARRAY_SIZE(mixed_lens), 64 << 20);
    w.config.memory = 32 << 20;
    world_open(&w);
    world_expect_all(&w);
    world_settle_fills(&w, 40);
    assert_int_equal(count_of(&w, "memory_entries"), 40);
    store_fake_set_dead(w.fake, -EIO);
    uint64_t reads = count_of(&w, "uring_reads_total") + count_of(&w, "pread_reads_total");
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "memory_hits_total"), 40);
    assert_int_equal(count_of(&w, "hits_total"), 40);
    assert_int_equal(count_of(&w, "memory_hit_bytes_total"), count_of(&w, "hit_bytes_total"));
    assert_int_equal(count_of(&w, "uring_reads_total") + count_of(&w, "pread_reads_total"), reads);
    world_release(&w);
}

static void test_memory_tier__a_restart_loses_nothing_and_whole_hits_enter_again(void **state)
{
    struct world w;
    world_init(&w, 40, mixed_lens, GR_ARRAY_SIZE(mixed_lens), 64 << 20);
    w.config.memory = 32 << 20;
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    assert_int_equal(count_of(&w, "memory_entries"), 0);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "memory_hits_total"), 0);
    assert_int_equal(count_of(&w, "memory_entries"), 40);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "memory_hits_total"), 40);
    world_release(&w);
}

static void test_memory_tier__bytes_flipped_in_memory_are_found_and_read_from_disk(void **state)
{
    struct world w;
    world_init(&w, 1, even_lens, 1, 32 << 20);
    w.config.memory = 16 << 20;
    world_open(&w);
    world_warm(&w);
    world_expect(&w, 0);
    assert_true(memory_tier_has(w.cache->memory_tier, &w.refs[0].digest));
    memory_tier_peek(w.cache->memory_tier, &w.refs[0].digest)[70 * K] ^= 1;
    uint8_t byte;
    struct cache_piece p = world_piece(&w, 0, 60 * K, 1, &byte); /* another block: still good */
    assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_expect(&w, 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_int_equal(gets(&w), 1);
    world_expect(&w, 0); /* whole from disk: it came in again */
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_true(memory_tier_has(w.cache->memory_tier, &w.refs[0].digest));
    world_release(&w);
}

static void test_memory_tier__memory_alone_is_a_cache(void **state)
{
    struct world w;
    world_init(&w, 60, mixed_lens, GR_ARRAY_SIZE(mixed_lens), 0);
    w.config.memory = 32 << 20;
    world_open(&w);
    world_warm(&w);
    for (unsigned i = 0; i < w.count; i++)
        assert_true(cache_has(w.cache, &w.refs[i].digest));
    store_fake_set_dead(w.fake, -EIO);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "memory_hits_total"), 60);
    assert_int_equal(count_of(&w, "misses_total"), 0);
    world_release(&w);
}

static void test_memory_tier__an_evicted_chunk_is_in_no_tier(void **state)
{
    struct world w;
    world_init(&w, 2, even_lens, 1, 32 << 20);
    w.config.memory = 16 << 20;
    world_open(&w);
    world_expect_all(&w);
    world_settle_fills(&w, 2);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), 0);
    assert_false(cache_has(w.cache, &w.refs[0].digest));
    assert_true(cache_has(w.cache, &w.refs[1].digest));
    world_close(&w);
    w.config.dir_count = 0;
    world_open(&w);
    world_expect_all(&w);
    world_settle(&w);
    struct cache_chunk chunk;
    cache_query(w.cache, &w.refs[0].digest, 1, &chunk);
    assert_true(chunk.cached);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), 0);
    assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), -ENOENT);
    world_release(&w);
}

struct crowd_world {
    struct world *world;
    pthread_barrier_t barrier;
};

static void *read_all_together(void *arg)
{
    struct crowd_world *crowd = arg;
    for (unsigned i = 0; i < crowd->world->count; i++) {
        pthread_barrier_wait(&crowd->barrier);
        world_expect(crowd->world, i);
    }
    return NULL;
}

/* One get a chunk, though readers come while it travels, while it is put and after that. */
static void test_memory_tier__nothing_is_fetched_twice_with_memory_alone(void **state)
{
    enum { READERS = 8 };
    struct world w;
    pthread_t threads[READERS];
    world_init(&w, 100, mixed_lens, GR_ARRAY_SIZE(mixed_lens), 0);
    w.config.memory = 32 << 20;
    world_open(&w);
    struct crowd_world crowd = {.world = &w};
    pthread_barrier_init(&crowd.barrier, NULL, READERS);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all_together, &crowd), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&crowd.barrier);
    assert_int_equal(gets(&w), 100);
    world_release(&w);
}

static void *read_at_random(void *arg)
{
    struct world *w = arg;
    uint64_t seed = 1000 + atomic_fetch_add(&w->readers, 1);
    CLEANUP_FREE uint8_t *dst = malloc(512 * K);
    for (unsigned i = 0; i < full_or(150, 50); i++) {
        unsigned chunk = world_random(&seed) % w->count;
        uint32_t whole = w->refs[chunk].plain_len, off = world_random(&seed) % whole;
        uint32_t len = i % 2 ? whole - off : 1 + world_random(&seed) % (whole - off);
        if (i % 3 == 0)
            off = 0, len = whole;
        struct cache_piece p = world_piece(w, chunk, off, len, dst);
        if (cache_read(w->cache, &p, 1, NULL, 0, PRIORITY_DEMAND))
            fail_msg("chunk %u: %s", chunk, error_text());
        if (memcmp(dst, w->plain[chunk] + off, len) != 0)
            fail_msg("chunk %u: wrong bytes", chunk);
    }
    return NULL;
}

static void test_memory_tier__many_readers_and_a_small_memory_over_a_small_disk(void **state)
{
    struct world w;
    pthread_t threads[THREADS];
    world_init(&w, 300, mixed_lens, GR_ARRAY_SIZE(mixed_lens), 24 << 20);
    w.config.memory = 16 << 20;
    world_open(&w);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, &w), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_true(count_of(&w, "memory_hits_total") > 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_settle(&w);
    world_check(&w);
    memory_tier_check(w.cache->memory_tier);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_tier__any_part_of_what_was_put_is_read_again),
        cmocka_unit_test(test_memory_tier__another_name_length_or_range_is_a_miss),
        cmocka_unit_test(test_memory_tier__the_budget_holds_with_the_index_and_is_touched_late),
        cmocka_unit_test(test_memory_tier__memory_that_is_not_to_be_had_is_refused_with_a_sentence),
        cmocka_unit_test(test_memory_tier__many_threads_read_right_bytes_while_chunks_come_and_go),
        cmocka_unit_test(test_memory_tier__what_landed_is_read_from_memory),
        cmocka_unit_test(test_memory_tier__a_restart_loses_nothing_and_whole_hits_enter_again),
        cmocka_unit_test(test_memory_tier__bytes_flipped_in_memory_are_found_and_read_from_disk),
        cmocka_unit_test(test_memory_tier__memory_alone_is_a_cache),
        cmocka_unit_test(test_memory_tier__an_evicted_chunk_is_in_no_tier),
        cmocka_unit_test(test_memory_tier__nothing_is_fetched_twice_with_memory_alone),
        cmocka_unit_test(test_memory_tier__many_readers_and_a_small_memory_over_a_small_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

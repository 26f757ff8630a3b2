/* The cache when all goes well: hits, fills, restarts, its bounds. Many readers: test_cache_readers.c; faults:
 * test_cache_faults.c.
 */
#include "unit/cache_world.h"
#include "unit/counts.h"

#include "base/crc32c.h"

#define K 1024u
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7, 1024 * K};
#define MIXED mixed_lens, GR_ARRAY_SIZE(mixed_lens)
static const uint32_t even_lens[] = {128 * K};
#define EVEN even_lens, 1

static void test_cache__what_was_read_once_is_a_hit(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_open(&w);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "misses_total"), 45);
    world_settle_fills(&w, 45);
    store_fake_set_dead(w.fake, -EIO);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "hits_total"), 45);
    assert_int_equal(count_of(&w, "entries"), 45);
    assert_int_equal(count_of(&w, "fills_dropped_total"), 0);
    assert_true(count_of(&w, "uring_reads_total") + count_of(&w, "pread_reads_total") >= 45);
    world_check(&w);
    world_release(&w);
}

static void test_cache__any_part_at_any_alignment_is_right(void **state)
{
    struct world w;
    uint64_t seed = 5;
    CLEANUP_FREE uint8_t *dst = aligned_alloc(4096, 4 << 20);
    world_init(&w, 27, MIXED, 64 << 20);
    world_open(&w);
    world_warm(&w);
    const unsigned reads = full_or(3000, 1000);
    for (unsigned i = 0; i < reads; i++) {
        unsigned chunk = world_random(&seed) % w.count;
        uint32_t whole = w.refs[chunk].plain_len, off = world_random(&seed) % whole;
        if (i % 3 == 0)
            off &= ~(32 * K - 1);
        uint32_t len = 1 + world_random(&seed) % (whole - off);
        if (i % 5 == 0)
            len = whole - off;
        uint8_t *at = dst + (i % 2 ? world_random(&seed) % 4096 : 0);
        at[len] = 0xAB; /* nothing is written after it */
        struct cache_piece p = world_piece(&w, chunk, off, len, at);
        assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
        assert_true(memcmp(at, w.plain[chunk] + off, len) == 0);
        assert_int_equal(at[len], 0xAB);
    }
    assert_int_equal(count_of(&w, "hits_total"), reads);
    world_release(&w);
}

static uint16_t short_hash(const char *name)
{
    uint32_t crc = crc32c(name, strlen(name));
    return (uint16_t)(crc >> 16 ^ crc);
}

static void test_cache__images_whose_names_are_alike_in_16_bits_have_quotas_of_their_own(void **state)
{
    enum { N = 20 };
    struct world w;
    char other[32];
    struct cache_piece pieces[N];
    for (unsigned i = 0; snprintf(other, sizeof other, "cars-%u", i), short_hash(other) != short_hash("faces"); i++) {
    }
    world_init(&w, N, EVEN, 32 << 20);
    w.config.quotas[0].name = "faces";
    w.config.quotas[1].name = other;
    w.config.quotas[0].size = w.config.quotas[1].size = 8 << 20;
    w.config.quota_count = 2;
    world_open(&w);
    for (unsigned i = 0; i < N; i++) {
        pieces[i] = world_piece(&w, i, 0, 0, NULL);
        pieces[i].quota = cache_quota(w.cache, i < 5 ? "faces" : other);
    }
    assert_int_equal(cache_ensure(w.cache, pieces, N, PRIORITY_WARM), 0);
    for (int life = 0; life < 2; life++) {
        world_settle(&w);
        world_check(&w);
        assert_int_equal(w.cache->space.groups[0].used, 5 * even_lens[0]);
        assert_int_equal(w.cache->space.groups[1].used, (N - 5) * even_lens[0]);
        world_close(&w);
        world_open(&w);
    }
    world_release(&w);
}

static void test_cache__one_call_mixes_hits_and_misses_over_many_chunks(void **state)
{
    enum { N = 150 }; /* more than a window */
    struct world w;
    struct cache_piece pieces[N];
    CLEANUP_FREE uint8_t *dst = malloc(N * 128 * K);
    world_init(&w, N, EVEN, 64 << 20);
    world_open(&w);
    for (unsigned i = 0; i < N; i += 3)
        world_expect(&w, i);
    world_settle_fills(&w, N / 3);
    for (unsigned i = 0; i < N; i++)
        pieces[i] = world_piece(&w, i, 100, 100 * K, dst + (size_t)i * 128 * K);
    assert_int_equal(cache_read(w.cache, pieces, N, NULL, 0, PRIORITY_DEMAND), 0);
    for (unsigned i = 0; i < N; i++)
        assert_true(memcmp(pieces[i].dst, w.plain[i] + 100, 100 * K) == 0);
    assert_int_equal(count_of(&w, "hits_total"), N / 3);
    world_release(&w);
}

static void test_cache__neighbours_of_a_miss_come_in_the_same_get(void **state)
{
    struct world w;
    CLEANUP_FREE uint8_t *dst = malloc(128 * K);
    world_init(&w, 8, EVEN, 64 << 20);
    world_open(&w);
    struct cache_piece p = world_piece(&w, 0, 0, 128 * K, dst), ahead[7];
    for (unsigned i = 1; i < 8; i++)
        ahead[i - 1] = world_piece(&w, i, 0, 0, NULL);
    assert_int_equal(cache_read(w.cache, &p, 1, ahead, 7, PRIORITY_DEMAND), 0);
    world_settle_fills(&w, 8);
    assert_int_equal(gets(&w), 1);
    world_expect_all(&w);
    assert_int_equal(gets(&w), 1);
    assert_true(cache_has(w.cache, &w.refs[7].digest));
    assert_int_equal(cache_read(w.cache, &p, 1, ahead, 7, PRIORITY_DEMAND), 0); /* all are there */
    assert_int_equal(gets(&w), 1);
    world_release(&w);
}

static void test_cache__neighbours_of_a_hit_are_fetched_where_they_are_missing(void **state)
{
    struct world w;
    CLEANUP_FREE uint8_t *dst = malloc(128 * K);
    world_init(&w, 8, EVEN, 64 << 20);
    world_open(&w);
    world_expect(&w, 0);
    world_expect(&w, 3);
    world_settle_fills(&w, 2);
    struct cache_piece p = world_piece(&w, 0, 0, 128 * K, dst), ahead[2];
    ahead[0] = world_piece(&w, 3, 0, 0, NULL);
    ahead[1] = world_piece(&w, 4, 0, 0, NULL);
    assert_int_equal(cache_read(w.cache, &p, 1, ahead, 2, PRIORITY_DEMAND), 0);
    assert_false(ahead[0].started);
    assert_true(ahead[1].started);
    world_settle_fills(&w, 3);
    assert_int_equal(gets(&w), 3);
    assert_true(cache_has(w.cache, &w.refs[4].digest));
    world_release(&w);
}

static void *read_chunk_zero(void *arg)
{
    world_expect(arg, 0);
    return NULL;
}

static void test_cache__many_readers_of_one_cold_chunk_make_one_get(void **state)
{
    enum { READERS = 32 };
    struct world w;
    pthread_t threads[READERS];
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_chunk_zero, &w), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(gets(&w), 1);
    world_release(&w);
}

static void test_cache__a_slot_with_all_pins_taken_is_fetched(void **state)
{
    struct world w;
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    struct space *space = &w.cache->space;
    struct slot *slot = space_slot_at(space, space_find(space, &w.refs[0].digest));
    atomic_store(&slot->node.pins, UINT16_MAX);
    world_expect(&w, 0);
    assert_int_equal(count_of(&w, "misses_total"), 1);
    assert_int_equal(gets(&w), 2);
    assert_int_equal(atomic_load(&slot->node.pins), UINT16_MAX);
    atomic_store(&slot->node.pins, 0);
    world_expect(&w, 0);
    assert_int_equal(count_of(&w, "hits_total"), 1);
    world_check(&w);
    world_release(&w);
}

static void test_cache__survives_close_and_open(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    assert_int_equal(count_of(&w, "entries"), 45);
    world_expect_all(&w);
    world_check(&w);
    world_release(&w);
}

static void test_cache__survives_a_process_that_ends_without_farewell(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_in_child(world_open(&w); world_warm(&w));
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    assert_int_equal(count_of(&w, "entries"), 45);
    world_expect_all(&w);
    world_release(&w);
}

static void test_cache__many_lives_with_eviction_stay_right(void **state)
{
    struct world w;
    world_init(&w, 150, MIXED, 24 << 20); /* does not fit */
    for (int life = 0; life < 3; life++) {
        world_in_child({
            world_open(&w);
            uint64_t seed = 77 + life;
            for (int i = 0; i < 150; i++)
                world_expect(&w, world_random(&seed) % w.count);
            wait_for(&w, "fills_total", 1); /* a busy disk may take its time */
        });
        world_open(&w);
        world_check(&w);
        assert_true(count_of(&w, "entries") > 0);
        world_expect_all(&w);
        assert_int_equal(count_of(&w, "crc_errors_total"), 0);
        world_close(&w);
    }
    world_release(&w);
}

static void test_cache__what_made_room_is_counted(void **state)
{
    struct world w;
    world_init(&w, 150, MIXED, 24 << 20); /* does not fit */
    world_open(&w);
    for (unsigned i = 0; i < w.count; i++) {
        struct cache_piece p = world_piece(&w, i, 0, 0, NULL);
        assert_int_equal(cache_ensure(w.cache, &p, 1, PRIORITY_WARM), 0);
    }
    world_settle(&w);
    uint64_t evictions = count_of(&w, "evictions_total");
    assert_true(evictions > 0);
    assert_int_equal(count_of(&w, "fills_total") - evictions, count_of(&w, "entries"));
    world_release(&w);
}

static void test_cache__a_larger_size_keeps_everything(void **state)
{
    struct world w;
    world_init(&w, 60, MIXED, 48 << 20);
    world_open(&w);
    world_warm(&w);
    for (uint64_t size = 64 << 20; size <= 1 << 30; size *= 4) {
        world_close(&w);
        store_fake_set_dead(w.fake, -EIO);
        w.config.dirs[0].size = size;
        world_open(&w);
        assert_int_equal(count_of(&w, "entries"), 60);
        assert_true(count_of(&w, "capacity_bytes") > size / 10 * 9);
        world_expect_all(&w);
        world_check(&w);
    }
    world_release(&w);
}

static void test_cache__a_smaller_size_keeps_what_fits(void **state)
{
    struct world w;
    world_init(&w, 200, EVEN, 64 << 20); /* 25 MiB in 4 MiB slabs */
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    for (int i = 0; i < 2; i++) { /* and back: what was dropped stays dropped */
        w.config.dirs[0].size = i ? 64 << 20 : 24 << 20;
        world_open(&w);
        uint64_t kept = count_of(&w, "entries");
        assert_in_range(kept, 64, 160);
        assert_int_equal(kept % 32, 0); /* whole slabs */
        world_check(&w);
        world_close(&w);
    }
    world_open(&w);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_warm(&w);
    world_close(&w);
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    world_expect_all(&w);
    world_release(&w);
}

static void test_cache__a_size_that_does_not_fit_leaves_what_is_there(void **state)
{
    struct world w;
    world_init(&w, 60, MIXED, 48 << 20);
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    for (unsigned shift = 40; shift <= 46; shift += 6) { /* within what the slabs would allow, and beyond */
        w.config.dirs[0].size = UINT64_C(1) << shift;
        assert_int_equal(cache_open(&w.config, &w.cache), -ENOSPC);
    }
    w.config.dirs[0].size = 48 << 20;
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    world_expect_all(&w);
    world_release(&w);
}

static void test_cache__too_small_or_too_large_is_refused(void **state)
{
    struct world w;
    world_init(&w, 1, EVEN, 1 << 20);
    assert_int_equal(cache_open(&w.config, &w.cache), -EINVAL);
    assert_non_null(strstr(error_text(), "at least 16 MiB"));
    w.config.dirs[0].size = UINT64_C(100) << 40;
    assert_int_equal(cache_open(&w.config, &w.cache), -ENOSPC);
    assert_non_null(strstr(error_text(), w.dir));
    w.config.dirs[0].size = 16 << 20;
    world_open(&w);
    world_warm(&w);
    world_expect(&w, 0);
    world_release(&w);
}

static void test_cache__a_directory_below_a_missing_one_is_refused(void **state)
{
    struct world w;
    char above[80], path[96];
    world_init(&w, 1, EVEN, 16 << 20);
    snprintf(above, sizeof above, "%s/not-mounted", w.dir);
    snprintf(path, sizeof path, "%s/cache", above);
    w.config.dirs[0].path = path;
    assert_int_equal(cache_open(&w.config, &w.cache), -ENOENT);
    assert_non_null(strstr(error_text(), path));
    assert_int_equal(access(above, F_OK), -1);
    w.config.dirs[0].path = w.dir;
    world_open(&w);
    world_release(&w);
}

static void expect_refused(struct world *w, const char *why)
{
    assert_int_equal(cache_open(&w->config, &w->cache), -EPERM);
    if (!strstr(error_text(), w->dir) || !strstr(error_text(), why))
        fail_msg("'%s' does not say '%s'", error_text(), why);
}

static void test_cache__a_directory_that_another_user_made_ready_is_refused(void **state)
{
    static const char *const names[] = {"lock", "records", "data"};
    struct world w;
    char path[96], victim[96];
    struct stat st;
    world_init(&w, 1, EVEN, 16 << 20);
    snprintf(victim, sizeof victim, "%s.victim", w.dir);
    CLEANUP_FD int fd = open(victim, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "secret", 6), 6);
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        char target[128];
        snprintf(path, sizeof path, "%s/%s", w.dir, names[i]);
        snprintf(target, sizeof target, "../%s", victim);
        assert_int_equal(symlink(target, path), 0);
        expect_refused(&w, "is a symbolic link");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(link(victim, path), 0);
        expect_refused(&w, "a hard link");
        assert_int_equal(unlink(path), 0);
        int made = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        assert_true(made >= 0 && !fchmod(made, 0666) && !close(made));
        expect_refused(&w, "may be written by other users");
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(chmod(w.dir, 0777), 0);
    expect_refused(&w, "chmod go-w");
    assert_int_equal(chmod(w.dir, 0700), 0);
    assert_true(!fstat(fd, &st) && st.st_size == 6);
    assert_int_equal(unlink(victim), 0);
    world_open(&w);
    world_release(&w);
}

static void test_cache__second_opener_is_told_the_pid_of_the_first(void **state)
{
    struct world w;
    char pid[32];
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    struct cache *second = NULL;
    assert_int_equal(cache_open(&w.config, &second), -EBUSY);
    snprintf(pid, sizeof pid, "process %ld;", (long)getpid());
    assert_non_null(strstr(error_text(), pid));
    world_close(&w);
    world_in_child(world_open(&w)); /* the dead do not hold it */
    world_open(&w);
    world_release(&w);
}

static void test_cache__without_directories_everything_is_fetched(void **state)
{
    struct world w;
    world_init(&w, 9, MIXED, 0);
    world_open(&w);
    world_expect_all(&w);
    world_expect_all(&w);
    assert_true(gets(&w) >= 9);
    assert_int_equal(count_of(&w, "hits_total"), 0);
    struct cache_piece p = world_piece(&w, 0, 0, 0, NULL);
    assert_int_equal(cache_ensure(w.cache, &p, 1, PRIORITY_WARM), -EIO);
    assert_non_null(strstr(error_text(), "no cache directory"));
    assert_false(cache_has(w.cache, &w.refs[0].digest));
    world_release(&w);
}

static void test_cache__fills_beyond_their_memory_are_dropped_but_never_when_warming(void **state)
{
    struct world w;
    world_init(&w, 20, EVEN, 64 << 20);
    w.config.fill_memory = 256 * K;
    world_open(&w);
    pthread_mutex_lock(&w.cache->fill.lock);
    w.cache->fill.queued_bytes = 256 * K; /* as if the disk were behind */
    pthread_mutex_unlock(&w.cache->fill.lock);
    assert_int_equal(count_of(&w, "fill_queue_bytes"), 256 * K);
    world_expect_all(&w);
    wait_for(&w, "fills_dropped_total", 20);
    assert_int_equal(count_of(&w, "entries"), 0);
    world_warm(&w);
    assert_int_equal(count_of(&w, "entries"), 20);
    assert_int_equal(count_of(&w, "fills_dropped_total"), 20);
    pthread_mutex_lock(&w.cache->fill.lock);
    w.cache->fill.queued_bytes = 0;
    pthread_mutex_unlock(&w.cache->fill.lock);
    world_release(&w);
}

/* As if so much waited to be written. */
static void set_behind(struct world *w, size_t bytes)
{
    SCOPED_LOCK(&w->cache->fill.lock);
    w->cache->fill.queued_bytes = bytes;
    pthread_cond_broadcast(&w->cache->fill.memory_freed);
}

struct fetch_ahead {
    struct world *w;
    unsigned chunk;
    _Atomic bool begun;
    int rc;
};

static void *fetch_ahead(void *arg)
{
    struct fetch_ahead *a = arg;
    struct cache_piece p = world_piece(a->w, a->chunk, 0, 0, NULL);
    a->begun = true;
    a->rc = cache_ahead(a->w->cache, &p, 1);
    return NULL;
}

static void test_cache__nothing_is_fetched_ahead_that_would_be_dropped(void **state)
{
    struct world w;
    pthread_t thread;
    CLEANUP_FREE uint8_t *dst = malloc(128 * K);
    world_init(&w, 20, EVEN, 64 << 20);
    w.config.fill_memory = 1024 * K;
    world_open(&w);
    struct cache_piece p = world_piece(&w, 0, 0, 128 * K, dst), next = world_piece(&w, 1, 0, 0, NULL);
    struct fetch_ahead ahead = {.w = &w, .chunk = 2};
    set_behind(&w, 600 * K);
    assert_int_equal(cache_read(w.cache, &p, 1, &next, 1, PRIORITY_DEMAND), 0);
    assert_false(next.started);
    assert_int_equal(pthread_create(&thread, NULL, fetch_ahead, &ahead), 0);
    while (!ahead.begun)
        sched_yield();
    wait_for(&w, "entries", 1);
    assert_int_equal(gets(&w),
                     1); /* the thread stands still, or has not come so far: it asks for nothing in either case */
    set_behind(&w, 0);
    pthread_join(thread, NULL);
    assert_int_equal(ahead.rc, 0);
    assert_true(cache_has(w.cache, &w.refs[2].digest));
    p = world_piece(&w, 4, 0, 128 * K, dst);
    assert_int_equal(cache_read(w.cache, &p, 1, &next, 1, PRIORITY_DEMAND), 0);
    assert_true(next.started);
    world_release(&w);
}

static void *warm_all(void *arg)
{
    world_warm(arg);
    return NULL;
}

static void test_cache__many_warm_callers_at_once_keep_everything(void **state)
{
    enum { CALLERS = 12 };
    struct world w;
    pthread_t threads[CALLERS];
    world_init(&w, 90, MIXED, 64 << 20);
    w.config.fill_memory = 1024 * K;
    world_open(&w);
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, warm_all, &w), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(count_of(&w, "entries"), 90);
    assert_int_equal(count_of(&w, "fills_total"), 90); /* each written once */
    store_fake_set_dead(w.fake, -EIO);
    world_expect_all(&w);
    world_release(&w);
}

struct warm_one {
    struct cache *c;
    const struct cache_piece *piece;
    int rc;
};

static void *warm_one(void *arg)
{
    struct warm_one *one = arg;
    one->rc = cache_ensure(one->c, one->piece, 1, PRIORITY_WARM);
    return NULL;
}

static void test_cache__warming_waits_for_a_slot_that_readers_hold(void **state)
{
    struct world w;
    const uint32_t len = 4096 * K;
    struct space_slot pins[3];
    pthread_t thread;
    world_init(&w, 4, &len, 1, 16 << 20); /* three slots */
    world_open(&w);
    w.count = 3;
    world_warm(&w);
    for (unsigned i = 0; i < 3; i++) {
        SCOPED_LOCK(&w.cache->lock);
        space_pin(&w.cache->space, space_find(&w.cache->space, &w.refs[i].digest), &pins[i]);
    }
    w.count = 4;
    struct cache_piece p = world_piece(&w, 3, 0, 0, NULL);
    struct cache *c = w.cache;
    struct warm_one one = {.c = c, .piece = &p};
    assert_int_equal(pthread_create(&thread, NULL, warm_one, &one), 0);
    for (uint64_t since_ms = 0; atomic_load(&c->waiters) == 0;)
        counter_pause(&since_ms, "a thread that waits");
    assert_false(cache_has(c, &w.refs[3].digest));
    for (unsigned i = 0; i < 3; i++)
        cache_unpin(c, &pins[i]);
    pthread_join(thread, NULL);
    assert_int_equal(one.rc, 0);
    assert_true(cache_has(c, &w.refs[3].digest));
    world_check(&w);
    world_release(&w);
}

static void test_cache__what_warming_is_about_to_write_is_not_fetched_again(void **state)
{
    struct world w;
    struct space_slot slot;
    pthread_t thread;
    world_init(&w, 1, EVEN, 32 << 20);
    w.config.fill_memory = 256 * K;
    world_open(&w);
    struct cache *c = w.cache;
    struct cache_piece p = world_piece(&w, 0, 0, 0, NULL);
    struct warm_one one = {.c = c, .piece = &p};
    set_behind(&w, 256 * K);
    {
        const struct space_request want = fill_request(&w.refs[0]);
        SCOPED_LOCK(&c->lock);
        assert_int_equal(space_alloc(&c->space, &want, &slot), 0); /* a fill that takes its time */
    }
    assert_int_equal(pthread_create(&thread, NULL, warm_one, &one), 0);
    while (atomic_load(&c->waiters) == 0) /* for that fill: the chunk has come */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    for (unsigned i = 0; i < 20; i++)
        world_expect(&w, 0);
    assert_int_equal(gets(&w), 1);
    {
        SCOPED_LOCK(&c->lock);
        space_abort(&c->space, slot.id);
        pthread_cond_broadcast(&c->changed);
    }
    pthread_join(thread, NULL);
    assert_int_equal(one.rc, 0);
    world_settle(&w);
    assert_int_equal(gets(&w), 1);
    assert_int_equal(count_of(&w, "fills_total"), 1);
    assert_int_equal(count_of(&w, "fill_queue_bytes"), 256 * K); /* nothing of it is queued any more */
    set_behind(&w, 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__what_was_read_once_is_a_hit),
        cmocka_unit_test(test_cache__any_part_at_any_alignment_is_right),
        cmocka_unit_test(test_cache__images_whose_names_are_alike_in_16_bits_have_quotas_of_their_own),
        cmocka_unit_test(test_cache__one_call_mixes_hits_and_misses_over_many_chunks),
        cmocka_unit_test(test_cache__neighbours_of_a_miss_come_in_the_same_get),
        cmocka_unit_test(test_cache__neighbours_of_a_hit_are_fetched_where_they_are_missing),
        cmocka_unit_test(test_cache__many_readers_of_one_cold_chunk_make_one_get),
        cmocka_unit_test(test_cache__a_slot_with_all_pins_taken_is_fetched),
        cmocka_unit_test(test_cache__survives_close_and_open),
        cmocka_unit_test(test_cache__survives_a_process_that_ends_without_farewell),
        cmocka_unit_test(test_cache__many_lives_with_eviction_stay_right),
        cmocka_unit_test(test_cache__what_made_room_is_counted),
        cmocka_unit_test(test_cache__a_larger_size_keeps_everything),
        cmocka_unit_test(test_cache__a_smaller_size_keeps_what_fits),
        cmocka_unit_test(test_cache__a_size_that_does_not_fit_leaves_what_is_there),
        cmocka_unit_test(test_cache__too_small_or_too_large_is_refused),
        cmocka_unit_test(test_cache__a_directory_below_a_missing_one_is_refused),
        cmocka_unit_test(test_cache__a_directory_that_another_user_made_ready_is_refused),
        cmocka_unit_test(test_cache__second_opener_is_told_the_pid_of_the_first),
        cmocka_unit_test(test_cache__without_directories_everything_is_fetched),
        cmocka_unit_test(test_cache__fills_beyond_their_memory_are_dropped_but_never_when_warming),
        cmocka_unit_test(test_cache__nothing_is_fetched_ahead_that_would_be_dropped),
        cmocka_unit_test(test_cache__many_warm_callers_at_once_keep_everything),
        cmocka_unit_test(test_cache__warming_waits_for_a_slot_that_readers_hold),
        cmocka_unit_test(test_cache__what_warming_is_about_to_write_is_not_fetched_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

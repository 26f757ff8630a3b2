/* What is hot goes up: from disk to memory, from a slow directory to a fast one. */
#include "unit/cache_world.h"
#include "unit/counts.h"

#include <signal.h>

#define K 1024u
static const uint32_t even_lens[] = {128 * K};
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7};

enum { SSD, HDD };

/* ---- a world with a fast and a slow directory ---- */

struct two {
    struct world w;
    char hdd[80];
    struct cache_test_hooks hooks;
};

static void two_init(struct two *t, unsigned n, const uint32_t *lens, size_t lens_count)
{
    memset(t, 0, sizeof *t);
    world_init(&t->w, n, lens, lens_count, 16 << 20);
    snprintf(t->hdd, sizeof t->hdd, "%s-hdd", t->w.dir);
    t->w.config.dirs[HDD].path = t->hdd;
    t->w.config.dirs[HDD].size = 48 << 20;
    t->w.config.dirs[HDD].hdd = true;
    t->w.config.dir_count = 2;
    t->hooks.apart_ms = 1;
}

static void two_open(struct two *t)
{
    assert_int_equal(cache_open_with(&t->w.config, &t->hooks, &t->w.cache), 0);
    assert_int_equal(cache_start_threads(t->w.cache), 0);
}

static void two_release(struct two *t)
{
    char path[128];
    world_release(&t->w);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", t->hdd, (const char *[]){"lock", "data", "records"}[i]);
        unlink(path);
    }
    rmdir(t->hdd);
}

/* Where a chunk is; -1: nowhere. */
static int place_of(struct two *t, unsigned chunk)
{
    struct cache *c = t->w.cache;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, &t->w.refs[chunk].digest);
    return id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY ? (int)space_dir_of(&c->space, id)
                                                                                 : -1;
}

static unsigned count_in(struct two *t, int dir)
{
    unsigned n = 0;
    for (unsigned i = 0; i < t->w.count; i++)
        n += place_of(t, i) == dir;
    return n;
}

static unsigned first_in(struct two *t, int dir)
{
    for (unsigned i = 0; i < t->w.count; i++)
        if (place_of(t, i) == dir)
            return i;
    fail_msg("no chunk in directory %d", dir);
    return 0;
}

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* Two hits that count, on a chunk that is on the slow directory; there is room on the fast one. */
static unsigned make_one_hot(struct two *t)
{
    unsigned hot = first_in(t, HDD), cold = first_in(t, SSD);
    assert_int_equal(cache_evict(t->w.cache, &t->w.refs[cold].digest, false), 0);
    uint64_t moves = count_of(&t->w, "moves_total");
    world_expect(&t->w, hot);
    pause_ms(3);
    world_expect(&t->w, hot);
    wait_for(&t->w, "moves_total", moves + 1);
    return hot;
}

/* ---- between directories ---- */

static void test_mover__the_fast_directory_is_filled_first(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    assert_int_equal(count_in(&t, SSD), 96); /* 3 slabs of 4 MiB */
    assert_int_equal(count_in(&t, HDD), 104);
    store_fake_set_dead(t.w.fake, -EIO);
    world_expect_all(&t.w);
    world_check(&t.w);
    two_release(&t);
}

static void test_mover__what_is_hit_twice_on_the_slow_one_moves_up(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    unsigned hot = make_one_hot(&t);
    assert_int_equal(place_of(&t, hot), SSD);
    store_fake_set_dead(t.w.fake, -EIO);
    world_expect(&t.w, hot);
    assert_int_equal(count_in(&t, SSD), 96);
    assert_int_equal(count_in(&t, HDD), 103);
    assert_int_equal(count_of(&t.w, "entries"), 199);
    world_check(&t.w);
    two_release(&t);
}

static void test_mover__hits_at_one_time_count_as_one(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    t.hooks.apart_ms = 600000;
    two_open(&t);
    world_warm(&t.w);
    unsigned warm = first_in(&t, HDD);
    for (int i = 0; i < 20; i++)
        world_expect(&t.w, warm);
    mover_stop(t.w.cache->mover); /* nothing was queued */
    assert_int_equal(count_of(&t.w, "moves_total"), 0);
    assert_int_equal(place_of(&t, warm), HDD);
    two_release(&t);
}

static void test_mover__a_moved_chunk_survives_a_restart_in_its_new_place(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    unsigned hot = make_one_hot(&t);
    world_close(&t.w);
    store_fake_set_dead(t.w.fake, -EIO);
    two_open(&t);
    assert_int_equal(place_of(&t, hot), SSD);
    assert_int_equal(count_of(&t.w, "entries"), 199);
    world_expect(&t.w, hot);
    world_check(&t.w);
    two_release(&t);
}

static void test_mover__a_chunk_evicted_after_its_move_does_not_come_back(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    unsigned hot = make_one_hot(&t);
    assert_int_equal(cache_evict(t.w.cache, &t.w.refs[hot].digest, false), 0);
    world_close(&t.w); /* waits for the old record to be blanked */
    two_open(&t);
    assert_int_equal(place_of(&t, hot), -1);
    two_release(&t);
}

/* A kill between the new record and the end of the old one leaves both. */
static void test_mover__of_two_records_the_newer_counts(void **state)
{
    struct two t;
    struct stat st;
    char path[128];
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    snprintf(path, sizeof path, "%s/records", t.hdd);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    CLEANUP_FREE uint8_t *before = malloc((size_t)st.st_size);
    assert_int_equal(pread(fd, before, (size_t)st.st_size, 0), st.st_size);
    unsigned hot = make_one_hot(&t);
    world_close(&t.w);
    assert_int_equal(pwrite(fd, before, (size_t)st.st_size, 0), st.st_size);
    store_fake_set_dead(t.w.fake, -EIO);
    two_open(&t);
    assert_int_equal(place_of(&t, hot), SSD);
    assert_int_equal(count_of(&t.w, "entries"), 199);
    world_expect(&t.w, hot);
    world_check(&t.w);
    two_release(&t);
}

static void *heat(void *arg)
{
    struct two *t = arg;
    uint64_t seed = 90 + atomic_fetch_add(&t->w.readers, 1);
    for (;;)
        world_expect(&t->w, world_random(&seed) % t->w.count);
    return NULL;
}

static void move_until_killed(struct two *t, unsigned ms)
{
    pthread_t thread;
    two_open(t);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread, NULL, heat, t), 0);
    pause_ms(ms);
    kill(getpid(), SIGKILL);
}

static void test_mover__kills_during_moves_leave_right_chunks(void **state)
{
    struct two t;
    two_init(&t, 200, even_lens, 1);
    for (unsigned round = 0; round < 6; round++) {
        fflush(NULL);
        pid_t pid = fork();
        if (pid == 0)
            move_until_killed(&t, 40 + 37 * round);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        two_open(&t);
        world_check(&t.w);
        world_expect_all(&t.w);
        world_close(&t.w);
    }
    two_release(&t);
}

static void test_mover__bytes_that_went_bad_are_not_moved(void **state)
{
    struct two t;
    char path[128];
    two_init(&t, 200, even_lens, 1);
    two_open(&t);
    world_warm(&t.w);
    unsigned bad = first_in(&t, HDD);
    assert_int_equal(cache_evict(t.w.cache, &t.w.refs[first_in(&t, SSD)].digest, false), 0);
    uint8_t byte;
    struct cache_piece p = world_piece(&t.w, bad, 0, 1, &byte);
    assert_int_equal(cache_read(t.w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    snprintf(path, sizeof path, "%s/data", t.hdd);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    uint64_t at;
    {
        struct cache *c = t.w.cache;
        struct space_slot slot;
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        space_pin(&c->space, space_find(&c->space, &t.w.refs[bad].digest), &slot);
        space_unpin(slot.pins);
        at = cache_place_data_offset(&c->dirs[HDD]->geometry, &slot.place) + 100 * K;
    }
    assert_int_equal(pwrite(fd, "wrong", 5, (off_t)at), 5);
    assert_int_equal(fdatasync(fd), 0);
    pause_ms(3);
    assert_int_equal(cache_read(t.w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0); /* hot; this block is good */
    mover_stop(t.w.cache->mover);                                                /* when it has tried */
    world_expect(&t.w, bad);                                                     /* found out, fetched */
    assert_int_equal(count_of(&t.w, "moves_total"), 0);
    assert_int_equal(count_of(&t.w, "crc_errors_total"), 1);
    world_check(&t.w);
    two_release(&t);
}

/* ---- into memory ---- */

static void test_mover__a_chunk_hit_in_parts_enters_memory_after_the_second(void **state)
{
    struct world w;
    uint8_t got[4096];
    world_init(&w, 8, even_lens, 1, 32 << 20);
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    store_fake_set_dead(w.fake, -EIO);
    w.config.memory = 16 << 20;
    world_open(&w);
    struct cache_piece p = world_piece(&w, 3, 8 * K, sizeof got, got);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(count_of(&w, "memory_entries"), 0);
        assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    }
    wait_for(&w, "memory_lifts_total", 1);
    p = world_piece(&w, 3, 100 * K, sizeof got, got);
    assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    assert_true(memcmp(got, w.plain[3] + 100 * K, sizeof got) == 0);
    assert_int_equal(count_of(&w, "memory_hits_total"), 1);
    assert_int_equal(count_of(&w, "hits_total"), 3); /* a lift is no hit */
    assert_int_equal(count_of(&w, "memory_entries"), 1);
    world_release(&w);
}

/* ---- all at once ---- */

enum { THREADS = 32 };

static void *do_anything(void *arg)
{
    struct two *t = arg;
    struct world *w = &t->w;
    uint64_t seed = 500 + atomic_fetch_add(&w->readers, 1);
    CLEANUP_FREE uint8_t *dst = malloc(512 * K);
    /* on a busy machine the mover comes to it late */
    const unsigned turns = full_or(120, 40);
    for (unsigned i = 0; i < turns || !count_of(w, "moves_total") || !count_of(w, "memory_lifts_total"); i++) {
        unsigned chunk = world_random(&seed) % w->count;
        if (world_random(&seed) % 2)
            chunk %= 40; /* hot ones */
        uint32_t whole = w->refs[chunk].plain_len, off = world_random(&seed) % whole;
        uint32_t len = 1 + world_random(&seed) % (whole - off);
        struct cache_piece p = world_piece(w, chunk, off, len, dst);
        if (cache_read(w->cache, &p, 1, NULL, 0, PRIORITY_DEMAND))
            fail_msg("chunk %u: %s", chunk, error_text());
        if (memcmp(dst, w->plain[chunk] + off, len) != 0)
            fail_msg("chunk %u: wrong bytes", chunk);
        if (world_random(&seed) % 16 == 0 && cache_evict(w->cache, &w->refs[chunk].digest, false) == 0)
            continue;
    }
    return NULL;
}

static void test_mover__many_threads_with_every_tier_too_small(void **state)
{
    struct two t;
    pthread_t threads[THREADS];
    two_init(&t, 500, mixed_lens, GR_ARRAY_SIZE(mixed_lens));
    t.w.config.dirs[HDD].size = 24 << 20;
    t.w.config.memory = 16 << 20;
    t.w.config.eviction = EVICT_LRU; /* lets everything in */
    two_open(&t);
    do { /* until the mover has had its turn, which comes after everybody's */
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, do_anything, &t), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    } while (!count_of(&t.w, "moves_total") || !count_of(&t.w, "memory_lifts_total"));
    world_settle(&t.w);
    world_check(&t.w);
    memory_tier_check(t.w.cache->memory_tier);
    assert_int_equal(count_of(&t.w, "crc_errors_total"), 0);
    world_expect_all(&t.w);
    two_release(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mover__the_fast_directory_is_filled_first),
        cmocka_unit_test(test_mover__what_is_hit_twice_on_the_slow_one_moves_up),
        cmocka_unit_test(test_mover__hits_at_one_time_count_as_one),
        cmocka_unit_test(test_mover__a_moved_chunk_survives_a_restart_in_its_new_place),
        cmocka_unit_test(test_mover__a_chunk_evicted_after_its_move_does_not_come_back),
        cmocka_unit_test(test_mover__of_two_records_the_newer_counts),
        cmocka_unit_test(test_mover__kills_during_moves_leave_right_chunks),
        cmocka_unit_test(test_mover__bytes_that_went_bad_are_not_moved),
        cmocka_unit_test(test_mover__a_chunk_hit_in_parts_enters_memory_after_the_second),
        cmocka_unit_test(test_mover__many_threads_with_every_tier_too_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

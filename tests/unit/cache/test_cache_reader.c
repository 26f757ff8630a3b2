/* Reads in flight (cache_reader): none waits for another, not even for one whose disk hangs. */
#include "unit/cache_world.h"
#include "unit/hung_read.h"
#include "unit/reader.h"

enum { CHUNKS = 24, PART = 4096, SOON_MS = 100, LONG_MS = 60000 };
static const uint32_t lens[] = {128 << 10};

struct reads {
    struct cache_reader *reader;
    struct cache_group groups[CHUNKS], *all[CHUNKS];
    struct cache_served served;
    uint8_t got[CHUNKS][PART];
};

static struct reads r;

/* A warm world without a store, and a reader. */
static void start(struct world *w)
{
    world_init(w, CHUNKS, lens, 1, 64 << 20);
    world_open(w);
    world_warm(w);
    world_expect(w, 0);
    store_fake_set_dead(w->fake, -EIO);
    w->cache->disk_timeout_ms = LONG_MS;
    r = (struct reads){0};
    assert_int_equal(cache_reader_new(w->cache, &r.reader), 0);
    for (unsigned i = 0; i < CHUNKS; i++) {
        r.all[i] = &r.groups[i];
        r.groups[i].count = 1;
        r.groups[i].pieces[0] = world_piece(w, i, PART, PART, r.got[i]);
        r.groups[i].pieces[0].served = &r.served;
    }
}

static void end(struct world *w)
{
    cache_reader_free(r.reader);
    world_release(w);
}

/* The same; skips the test where there is no io_uring: containers often forbid it. */
static void start_with_uring(struct world *w)
{
    start(w);
    if (count_of(w, "rings"))
        return;
    end(w);
    skip();
}

static void expect_bytes(struct world *w, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++) {
        assert_true(r.groups[i].got);
        assert_memory_equal(r.got[i], w->plain[i] + PART, PART);
    }
}

static void test_cache_reader__all_are_read_in_one_submission(void **state)
{
    struct world w;
    start_with_uring(&w);
    unsigned before = hung_submissions;
    uint64_t hits = count_of(&w, "hits_total");
    cache_reader_start(r.reader, r.all, CHUNKS);
    reader_take(r.reader, CHUNKS);
    expect_bytes(&w, 0, CHUNKS);
    assert_int_equal(hung_submissions - before, 1);
    assert_int_equal(count_of(&w, "hits_total") - hits, CHUNKS);
    assert_int_equal(r.served.pieces[CACHE_FROM_DISK], CHUNKS);
    assert_true(r.served.disk_us > 0);
    end(&w);
}

/* The last one hangs. The others end, and so do those that are started later. */
static void test_cache_reader__a_hung_read_does_not_hold_up_the_others(void **state)
{
    struct world w;
    start_with_uring(&w);
    hung_read_begin();
    cache_reader_start(r.reader, r.all, CHUNKS / 2);
    reader_take(r.reader, CHUNKS / 2 - 1);
    cache_reader_start(r.reader, r.all + CHUNKS / 2, CHUNKS / 2);
    reader_take(r.reader, CHUNKS / 2);
    expect_bytes(&w, 0, CHUNKS / 2 - 1);
    expect_bytes(&w, CHUNKS / 2, CHUNKS);
    int wait_ms;
    assert_true(cache_reader_fd(r.reader, &wait_ms) >= 0 && wait_ms > LONG_MS / 2);
    hung_read_end(); /* a short read */
    reader_take(r.reader, 1);
    assert_false(r.groups[CHUNKS / 2 - 1].got);
    assert_int_equal(count_of(&w, "read_errors_total"), 1);
    end(&w);
}

static void test_cache_reader__a_late_read_is_given_up_and_its_disk_told(void **state)
{
    struct world w;
    start_with_uring(&w);
    w.cache->disk_timeout_ms = SOON_MS;
    record_memory_forget(w.cache->records, &r.groups[0].pieces[0].ref.digest);
    hung_read_begin();
    cache_reader_start(r.reader, r.all, 1);
    reader_take(r.reader, 1);
    assert_false(r.groups[0].got);
    assert_int_equal(count_of(&w, "bypassed_total"), 0);
    assert_int_equal(count_of(&w, "read_timeouts_total"), 1);
    assert_int_equal(w.cache->reader_stats.lost, 1);
    assert_int_equal(rings_lost(w.cache->readers, cache_data_file(0)), 1);
    assert_int_equal(rings_lost(w.cache->readers, cache_record_file(0)), 0); /* it has answered */
    assert_true(cache_dir_state(w.cache->dirs[0], CACHE_READING) != HEALTH_NORMAL);
    cache_reader_start(r.reader, r.all, 1); /* and is not asked again */
    reader_take(r.reader, 1);
    assert_false(r.groups[0].got);
    assert_int_equal(w.cache->reader_stats.lost, 1);
    hung_read_end();
    world_check(&w); /* no pin is left */
    end(&w);
}

static void test_cache_reader__bad_bytes_are_not_got_and_the_others_are(void **state)
{
    struct world w;
    start_with_uring(&w);
    CLEANUP_FD int fd = world_open_file(&w, "data");
    uint8_t block[PART];
    off_t at = 0;
    while (pread(fd, block, PART, at) == PART && memcmp(block, w.plain[3] + PART, PART))
        at += PART;
    block[100] ^= 1;
    assert_true(pwrite(fd, block, PART, at) == PART && !fsync(fd));
    cache_reader_start(r.reader, r.all, CHUNKS);
    reader_take(r.reader, CHUNKS);
    assert_false(r.groups[3].got);
    expect_bytes(&w, 0, 3);
    expect_bytes(&w, 4, CHUNKS);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_int_equal(count_of(&w, "entries"), CHUNKS - 1);
    end(&w);
}

static void test_cache_reader__an_io_uring_that_fails_is_done_without(void **state)
{
    struct world w;
    start_with_uring(&w);
    hung_refusal = -EBADR;
    cache_reader_start(r.reader, r.all, CHUNKS);
    reader_take(r.reader, CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_false(r.groups[i].got);
    assert_int_equal(count_of(&w, "bypassed_total"), 0);
    world_expect(&w, 1);
    world_check(&w);
    end(&w);
}

static void test_cache_reader__where_memory_was_short_the_next_is_in_flight_again(void **state)
{
    struct world w;
    start_with_uring(&w);
    hung_refusal = -EAGAIN;
    cache_reader_start(r.reader, r.all, 1);
    reader_take(r.reader, 1);
    assert_false(r.groups[0].got);
    cache_reader_start(r.reader, r.all, 1);
    reader_take(r.reader, 1);
    expect_bytes(&w, 0, 1);
    end(&w);
}

/* Another thread wants a ring, and all are lent. */
static void *borrow_late(void *arg)
{
    struct world *w = arg;
    struct ring *ring = rings_borrow(w->cache->readers, clock_now_ms() + LONG_MS);
    assert_non_null(ring);
    rings_return(ring);
    return NULL;
}

static void test_cache_reader__its_ring_goes_round(void **state)
{
    struct world w;
    struct ring *lent[READERS_MAX - 1];
    pthread_t thread;
    start_with_uring(&w);
    hung_read_begin();
    cache_reader_start(r.reader, r.all, 2);
    reader_take(r.reader, 1);
    for (unsigned i = 0; i < READERS_MAX - 1; i++)
        assert_non_null(lent[i] = rings_borrow(w.cache->readers, clock_now_ms() + LONG_MS));
    assert_true(cache_reader_has_room(r.reader, 1, PART));
    assert_int_equal(pthread_create(&thread, NULL, borrow_late, &w), 0);
    for (uint64_t since_ms = 0; cache_reader_has_room(r.reader, 1, PART);)
        counter_pause(&since_ms, "a thread that waits for a ring");
    hung_read_end();
    reader_take(r.reader, 1);
    pthread_join(thread, NULL);
    assert_true(cache_reader_has_room(r.reader, 1, PART));
    for (unsigned i = 0; i < READERS_MAX - 1; i++)
        rings_return(lent[i]);
    end(&w);
}

static void test_cache_reader__without_io_uring_nothing_is_in_flight(void **state)
{
    struct world w;
    start(&w);
    world_close(&w);
    cache_reader_free(r.reader);
    world_open_with(&w, true);
    assert_int_equal(cache_reader_new(w.cache, &r.reader), 0);
    cache_reader_start(r.reader, r.all, CHUNKS);
    reader_take(r.reader, CHUNKS);
    assert_false(r.groups[0].got);
    assert_int_equal(count_of(&w, "bypassed_total"), 0);
    world_expect(&w, 0);
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_reader__all_are_read_in_one_submission),
        cmocka_unit_test(test_cache_reader__a_hung_read_does_not_hold_up_the_others),
        cmocka_unit_test(test_cache_reader__a_late_read_is_given_up_and_its_disk_told),
        cmocka_unit_test(test_cache_reader__bad_bytes_are_not_got_and_the_others_are),
        cmocka_unit_test(test_cache_reader__an_io_uring_that_fails_is_done_without),
        cmocka_unit_test(test_cache_reader__where_memory_was_short_the_next_is_in_flight_again),
        cmocka_unit_test(test_cache_reader__its_ring_goes_round),
        cmocka_unit_test(test_cache_reader__without_io_uring_nothing_is_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

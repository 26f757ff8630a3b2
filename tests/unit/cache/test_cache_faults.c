/* The cache when its disk lies, refuses or is damaged: every read is right, and what happened is counted. */
#include "unit/cache_world.h"

#include "base/clock.h"
#include "base/io.h"
#include "unit/scratch.h"

#define K 1024u
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7};
#define MIXED mixed_lens, GR_ARRAY_SIZE(mixed_lens)
static const uint32_t even_lens[] = {128 * K};
#define EVEN even_lens, 1

static struct space_slot slot_of(struct world *w, unsigned chunk)
{
    struct space_slot slot;
    SCOPED_LOCK(&w->cache->lock);
    uint32_t id = space_find(&w->cache->space, &w->refs[chunk].digest);
    assert_int_not_equal(id, SPACE_NONE);
    space_pin(&w->cache->space, id, &slot);
    space_unpin(slot.pins);
    return slot;
}

/* Where a chunk lies in the data file, and its record. */
static uint64_t data_offset(struct world *w, unsigned chunk)
{
    struct space_slot slot = slot_of(w, chunk);
    return cache_place_data_offset(&w->cache->dirs[0]->geometry, &slot.place);
}

static uint64_t record_offset(struct world *w, unsigned chunk)
{
    struct space_slot slot = slot_of(w, chunk);
    return cache_place_record_offset(&w->cache->dirs[0]->geometry, &slot.place);
}

static void flip(int fd, uint64_t off, uint8_t bits)
{
    uint8_t byte;
    assert_int_equal(io_pread_full(fd, &byte, 1, off), 1);
    byte ^= bits;
    assert_int_equal(io_pwrite_full(fd, &byte, 1, off), 0);
    assert_int_equal(fdatasync(fd), 0); /* the cache reads past the page cache */
}

static void test_cache_faults__any_flipped_byte_is_fetched_again_and_healed(void **state)
{
    struct world w;
    uint64_t seed = 3;
    const uint32_t len = 100 * K + 7;
    world_init(&w, 1, &len, 1, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    for (unsigned i = 0; i < 40; i++) {
        uint32_t at = i == 0 ? 0 : i == 1 ? len - 1 : world_random(&seed) % len;
        flip(fd, data_offset(&w, 0) + at, (uint8_t)(1 << i % 8));
        world_expect(&w, 0);
        assert_int_equal(count_of(&w, "crc_errors_total"), i + 1);
        world_settle(&w);
        world_expect(&w, 0); /* healed: a hit */
        assert_int_equal(gets(&w), 2 + i);
    }
    assert_int_equal(count_of(&w, "hits_total"), 40);
    close(fd);
    world_check(&w);
    world_release(&w);
}

static void test_cache_faults__only_the_blocks_a_read_needs_must_hold(void **state)
{
    struct world w;
    uint8_t dst[4096];
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    flip(fd, data_offset(&w, 0) + CACHE_BLOCK + 5, 1);
    struct cache_piece good = world_piece(&w, 0, 0, CACHE_BLOCK, dst);
    struct cache_piece bad = world_piece(&w, 0, 2 * CACHE_BLOCK - 100, 4096, dst);
    assert_int_equal(cache_read(w.cache, &good, 1, NULL, 0, PRIORITY_DEMAND), 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    assert_int_equal(cache_read(w.cache, &bad, 1, NULL, 0, PRIORITY_DEMAND), 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_memory_equal(dst, w.plain[0] + 2 * CACHE_BLOCK - 100, 4096);
    close(fd);
    world_release(&w);
}

static void test_cache_faults__a_record_damaged_under_the_server_is_fetched_again_and_healed(void **state)
{
    struct world w;
    uint64_t seed = 4;
    const uint32_t len = 100 * K + 7;
    world_init(&w, 1, &len, 1, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "records");
    for (unsigned i = 0; i < 40; i++) {
        uint32_t size = cache_class_record_size(cache_class_of(len));
        record_memory_forget(w.cache->records, &w.refs[0].digest); /* else nobody looks at the one on disk */
        flip(fd, record_offset(&w, 0) + (i == 0 ? 0 : world_random(&seed) % size), (uint8_t)(1 << i % 8));
        world_expect(&w, 0);
        assert_int_equal(count_of(&w, "crc_errors_total"), i + 1);
        world_settle(&w);
        world_expect(&w, 0);
        assert_int_equal(gets(&w), 2 + i);
    }
    close(fd);
    world_check(&w);
    world_release(&w);
}

static void test_cache_faults__a_sound_record_of_another_chunk_is_a_miss(void **state)
{
    struct world w;
    CLEANUP_BUF struct buf *other = buf_new(128 * K);
    world_init(&w, 2, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    memcpy(other->data, w.plain[1], 128 * K);
    struct space_slot slot = slot_of(&w, 0);
    slot.seq = 1000; /* as if memory were wrong about what is there */
    uint64_t deadline_ms = clock_now_ms() + 60000;
    struct ring *ring = rings_borrow(w.cache->writers, deadline_ms);
    assert_non_null(ring);
    struct cache_fill fill = {&slot, &w.refs[1].digest, other, -1};
    cache_dir_fill(w.cache->dirs[0], ring, &fill, 1, deadline_ms);
    assert_int_equal(fill.rc, 0);
    rings_return(ring);
    world_expect(&w, 0);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    world_check(&w);
    world_release(&w);
}

static void test_cache_faults__a_bad_hit_with_the_store_down_is_the_stores_error(void **state)
{
    struct world w;
    uint8_t dst[4096];
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    flip(fd, data_offset(&w, 0), 1);
    store_fake_set_dead(w.fake, -EACCES);
    struct cache_piece p = world_piece(&w, 0, 0, 4096, dst);
    assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), -EACCES);
    assert_int_equal(cache_ensure(w.cache, &p, 1, PRIORITY_WARM), -EACCES);
    store_fake_set_dead(w.fake, 0);
    world_expect(&w, 0);
    close(fd);
    world_release(&w);
}

static struct cache_chunk query(struct world *w, unsigned chunk)
{
    struct cache_chunk out;
    cache_query(w->cache, &w->refs[chunk].digest, 1, &out);
    return out;
}

static void spoil(struct world *w, int fd, unsigned chunk)
{
    flip(fd, data_offset(w, chunk), 1);
}

static void test_cache_faults__a_pinned_chunk_that_proved_bad_is_pinned_when_it_is_back(void **state)
{
    struct world w;
    uint8_t dst[4096];
    world_init(&w, 200, EVEN, 16 << 20); /* 96 slots */
    world_open(&w);
    world_expect(&w, 0);
    world_settle(&w);
    assert_int_equal(cache_pin(w.cache, &w.refs[0].digest, true), 0);
    int fd = world_open_file(&w, "data");
    spoil(&w, fd, 0);
    store_fake_set_dead(w.fake, -EACCES);
    struct cache_piece p = world_piece(&w, 0, 0, 4096, dst);
    assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), -EACCES);
    assert_false(query(&w, 0).cached);
    world_check(&w);
    store_fake_set_dead(w.fake, 0);
    for (unsigned i = 1; i < w.count; i++) /* nothing else takes its place meanwhile */
        world_expect(&w, i);
    for (int life = 0; life < 2; life++) {
        world_expect(&w, 0);
        world_settle(&w);
        assert_true(query(&w, 0).cached && query(&w, 0).pinned);
        assert_int_equal(cache_evict(w.cache, &w.refs[0].digest, false), -EPERM);
        world_check(&w);
        world_close(&w);
        world_open(&w);
    }
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    close(fd);
    world_release(&w);
}

static void test_cache_faults__a_pinned_chunk_that_proved_bad_can_be_unpinned_and_evicted(void **state)
{
    enum { BY_UNPIN, BY_EVICT, BY_SWEEP_OF_PINS, BY_SWEEP, WAYS };
    struct world w;
    uint8_t dst[4096];
    world_init(&w, WAYS, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    for (unsigned way = 0; way < WAYS; way++) {
        const struct digest *chunk = &w.refs[way].digest;
        struct cache_sweep sweep = {0};
        assert_int_equal(cache_pin(w.cache, chunk, true), 0);
        spoil(&w, fd, way);
        store_fake_set_dead(w.fake, -EACCES);
        struct cache_piece p = world_piece(&w, way, 0, 4096, dst);
        assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), -EACCES);
        store_fake_set_dead(w.fake, 0);
        assert_int_equal(cache_evict(w.cache, chunk, false), -EPERM);
        if (way == BY_UNPIN)
            assert_int_equal(cache_pin(w.cache, chunk, false), 0);
        else if (way == BY_EVICT)
            assert_int_equal(cache_evict(w.cache, chunk, true), 0);
        else
            while (cache_sweep_next(w.cache, way == BY_SWEEP ? CACHE_EVICT_PINNED_TOO : CACHE_UNPIN, &sweep))
                ;
        assert_int_equal(cache_evict(w.cache, chunk, true), -ENOENT);
        world_check(&w);
        world_expect(&w, way);
        world_settle(&w);
        assert_true(query(&w, way).cached);
        assert_false(query(&w, way).pinned);
    }
    close(fd);
    world_release(&w);
}

static void test_cache_faults__slots_swapped_behind_its_back_are_seen(void **state)
{
    struct world w;
    world_init(&w, 2, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    assert_int_equal(io_pwrite_full(fd, w.plain[1], 128 * K, data_offset(&w, 0)), 0);
    assert_int_equal(io_pwrite_full(fd, w.plain[0], 128 * K, data_offset(&w, 1)), 0);
    assert_int_equal(fdatasync(fd), 0);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 2);
    close(fd);
    world_release(&w);
}

static void test_cache_faults__a_data_file_cut_under_the_server_is_misses(void **state)
{
    struct world w;
    world_init(&w, 24, MIXED, 32 << 20);
    world_open(&w);
    world_warm(&w);
    int fd = world_open_file(&w, "data");
    assert_int_equal(ftruncate(fd, 0), 0);
    world_expect_all(&w);
    /* What is filled meanwhile makes the file longer, with holes where other chunks were; where the fills are slow,
     * there are so many errors that reading is down. */
    assert_int_equal(
        count_of(&w, "read_errors_total") + count_of(&w, "crc_errors_total") + count_of(&w, "bypassed_total"), 24);
    assert_true(count_of(&w, "read_errors_total") > 0);
    world_settle(&w);
    world_check(&w);
    close(fd);
    world_close(&w);
    world_open(&w); /* found cut at the next start: whatever was written since stays claimed, whatever not is not */
    world_expect_all(&w);
    world_release(&w);
}

enum damage { CUT, ZEROED, GARBAGE, LONGER, SPRINKLED, GONE, DAMAGES };

static void damage_file(struct world *w, const char *name, enum damage damage, uint64_t seed)
{
    struct stat s;
    uint8_t junk[4096];
    int fd = world_open_file(w, name);
    assert_int_equal(fstat(fd, &s), 0);
    uint64_t size = (uint64_t)s.st_size;
    for (size_t i = 0; i < sizeof junk; i++)
        junk[i] = damage == ZEROED ? 0 : (uint8_t)world_random(&seed);
    if (damage == CUT || damage == LONGER)
        assert_int_equal(ftruncate(fd, (off_t)(damage == CUT ? size / 2 + 100 : size + 1)), 0);
    for (uint64_t off = 0; (damage == ZEROED || damage == GARBAGE) && off + 4096 <= size; off += 4096)
        assert_int_equal(io_pwrite_full(fd, junk, 4096, off), 0);
    for (int i = 0; damage == SPRINKLED && i < 2000; i++)
        assert_int_equal(io_pwrite_full(fd, junk, 1 + i % 40, 4096 + world_random(&seed) % (size - 8192)), 0);
    if (damage == GONE) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", w->dir, name);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(fdatasync(fd), 0);
    close(fd);
}

static void try_damage(const char *name, enum damage damage)
{
    struct world w;
    world_init(&w, 64, MIXED, 20 << 20);
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    damage_file(&w, name, damage, 11 + damage);
    world_open(&w);
    world_check(&w);
    world_expect_all(&w);
    world_warm(&w);
    world_expect_all(&w);
    world_check(&w);
    world_release(&w);
}

static void test_cache_faults__any_damage_to_the_records_is_misses(void **state)
{
    for (enum damage d = 0; d < DAMAGES; d++)
        try_damage("records", d);
}

static void test_cache_faults__any_damage_to_the_data_is_misses(void **state)
{
    for (enum damage d = 0; d < DAMAGES; d++)
        try_damage("data", d);
}

static void test_cache_faults__a_record_older_than_its_data_is_a_miss(void **state)
{
    struct world w;
    world_init(&w, 120, EVEN, 16 << 20); /* 96 slots */
    world_open(&w);
    for (unsigned i = 0; i < 90; i++)
        world_expect(&w, i);
    world_settle_fills(&w, 90);
    struct stat s;
    int fd = world_open_file(&w, "records");
    assert_int_equal(fstat(fd, &s), 0);
    CLEANUP_FREE uint8_t *before = malloc((size_t)s.st_size);
    assert_int_equal(io_pread_full(fd, before, (size_t)s.st_size, 0), s.st_size);
    for (unsigned i = 0; i < 120; i++)
        world_expect(&w, i);
    world_warm(&w);
    assert_true(count_of(&w, "evictions_total") >= 24);
    world_close(&w);
    /* Power was lost: the records' writes never reached the disk, the data's did. */
    assert_int_equal(io_pwrite_full(fd, before, (size_t)s.st_size, 0), 0);
    close(fd);
    world_open(&w);
    world_expect_all(&w);
    assert_true(count_of(&w, "crc_errors_total") > 0);
    world_release(&w);
}

static void test_cache_faults__a_disk_that_takes_no_writes_costs_only_hits(void **state)
{
    struct world w;
    world_init(&w, 24, MIXED, 32 << 20);
    world_in_child({
        world_open(&w);
        scratch_limit(4096);
        world_expect_all(&w);
        wait_for(&w, "writing_down", 1); /* after some errors nothing is tried any more */
        assert_true(count_of(&w, "fill_errors_total") > 0);
        world_expect_all(&w);
        assert_int_equal(count_of(&w, "entries"), 0);
        struct cache_piece p = world_piece(&w, 0, 0, 0, NULL);
        assert_int_equal(cache_ensure(w.cache, &p, 1, PRIORITY_WARM), -EIO);
        assert_non_null(strstr(error_text(), "no directory of the cache"));
        world_check(&w);
        scratch_limit(RLIM_INFINITY);
        world_wait_until_back(&w);
        world_warm(&w);
        store_fake_set_dead(w.fake, -EIO);
        world_expect_all(&w);
        world_check(&w);
    });
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w); /* and all of it is believed by the next one */
    world_expect_all(&w);
    world_release(&w);
}

static void test_cache_faults__a_failed_fetch_fails_its_reader_alone(void **state)
{
    struct world w;
    uint8_t dst[2][4096];
    world_init(&w, 2, EVEN, 32 << 20);
    world_open(&w);
    world_expect(&w, 0);
    world_settle_fills(&w, 1);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    struct cache_piece p[2] = {world_piece(&w, 0, 0, 4096, dst[0]), world_piece(&w, 1, 0, 4096, dst[1])};
    assert_int_equal(cache_read(w.cache, p, 2, NULL, 0, PRIORITY_DEMAND), -ETIMEDOUT);
    assert_int_equal(cache_read(w.cache, p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    store_fake_set_dead(w.fake, 0);
    assert_int_equal(cache_read(w.cache, p, 2, NULL, 0, PRIORITY_DEMAND), 0);
    world_check(&w);
    world_release(&w);
}

static void test_cache_faults__a_reference_that_lies_about_length_is_refused(void **state)
{
    struct world w;
    uint8_t dst[4096];
    world_init(&w, 1, EVEN, 32 << 20);
    world_open(&w);
    world_warm(&w);
    struct cache_piece p = world_piece(&w, 0, 0, 4096, dst);
    p.ref.plain_len = 256 * K;
    assert_int_equal(cache_read(w.cache, &p, 1, NULL, 0, PRIORITY_DEMAND), -EBADMSG);
    world_expect(&w, 0);
    assert_int_equal(count_of(&w, "hits_total"), 1);
    world_release(&w);
}

struct storm {
    struct world *w;
    _Atomic unsigned running;
};

static void *read_in_storm(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = 0x9E3779B97F4A7C15u * (1 + atomic_fetch_add(&s->w->readers, 1));
    for (int i = 0; i < 150 || count_of(s->w, "crc_errors_total") < 5; i++)
        world_expect(s->w, world_random(&seed) % s->w->count);
    atomic_fetch_sub(&s->running, 1);
    return NULL;
}

static void test_cache_faults__readers_in_a_storm_of_damage_read_right(void **state)
{
    enum { READERS = 8 };
    struct world w;
    struct storm storm = {.w = &w, .running = READERS};
    pthread_t threads[READERS];
    uint64_t seed = 99;
    world_init(&w, 160, MIXED, 20 << 20);
    world_open(&w);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_storm, &storm), 0);
    int fd = world_open_file(&w, "data");
    while (atomic_load(&storm.running)) {
        uint64_t junk = world_random(&seed);
        assert_int_equal(io_pwrite_full(fd, &junk, sizeof junk, world_random(&seed) % (12 << 20)), 0);
        (void)!fdatasync(fd); /* EIO when a direct write of the cache came between: the kernel minds the mixture */
    }
    close(fd);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    world_check(&w);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_faults__any_flipped_byte_is_fetched_again_and_healed),
        cmocka_unit_test(test_cache_faults__only_the_blocks_a_read_needs_must_hold),
        cmocka_unit_test(test_cache_faults__a_record_damaged_under_the_server_is_fetched_again_and_healed),
        cmocka_unit_test(test_cache_faults__a_sound_record_of_another_chunk_is_a_miss),
        cmocka_unit_test(test_cache_faults__a_bad_hit_with_the_store_down_is_the_stores_error),
        cmocka_unit_test(test_cache_faults__a_pinned_chunk_that_proved_bad_is_pinned_when_it_is_back),
        cmocka_unit_test(test_cache_faults__a_pinned_chunk_that_proved_bad_can_be_unpinned_and_evicted),
        cmocka_unit_test(test_cache_faults__slots_swapped_behind_its_back_are_seen),
        cmocka_unit_test(test_cache_faults__a_data_file_cut_under_the_server_is_misses),
        cmocka_unit_test(test_cache_faults__any_damage_to_the_records_is_misses),
        cmocka_unit_test(test_cache_faults__any_damage_to_the_data_is_misses),
        cmocka_unit_test(test_cache_faults__a_record_older_than_its_data_is_a_miss),
        cmocka_unit_test(test_cache_faults__a_disk_that_takes_no_writes_costs_only_hits),
        cmocka_unit_test(test_cache_faults__a_failed_fetch_fails_its_reader_alone),
        cmocka_unit_test(test_cache_faults__a_reference_that_lies_about_length_is_refused),
        cmocka_unit_test(test_cache_faults__readers_in_a_storm_of_damage_read_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* The cache on disks that fail, hang and lie while it runs: its readers see right bytes and wait for no disk longer
 * than they must, what happens is counted, and the directory comes back by itself.
 */
#include "unit/faulty_world.h"

#include "unit/scratch.h"

static void test_cache_health__a_disk_that_fails_its_reads_is_left_aside_and_comes_back(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    disk_fake_reads(w.dir, DISK_ERROR, EIO);
    world_expect_all(&w);
    assert_in_range(count_of(&w, "read_errors_total"), 1, HEALTH_FAULTS_MAX); /* fewer when a probe is in between */
    assert_int_equal(count_of(&w, "bypassed_total"), CHUNKS - count_of(&w, "read_errors_total"));
    assert_int_equal(count_of(&w, "reading_down"), 1);
    assert_int_equal(now_hits(&w), 0);
    disk_fake_reset();
    world_wait_until_back(&w);
    world_expect_all(&w); /* those that failed were dropped: they are filled again */
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

static void test_cache_health__a_few_failed_reads_are_healed_without_setting_it_aside(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    char records[128]; /* which no probe reads */
    snprintf(records, sizeof records, "%s/records", w.dir);
    for (unsigned i = 0; i < 12; i++) {
        disk_fake_reads(records, DISK_ERROR, EIO);
        world_expect(&w, i);
        disk_fake_reset();
        world_expect(&w, 12 + i); /* not the next one: its record would be in memory then */
    }
    assert_int_equal(count_of(&w, "read_errors_total"), 12);
    assert_int_equal(count_of(&w, "bypassed_total"), 0);
    assert_int_equal(count_of(&w, "reading_down"), 0);
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

static void test_cache_health__one_read_waits_for_a_hung_disk_and_the_others_do_not(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    disk_fake_reads(w.dir, DISK_HANG, 0);
    find_out(&w, 0);
    assert_int_equal(count_of(&w, "read_timeouts_total"), 1);
    uint64_t bypassed = count_of(&w, "bypassed_total");
    for (int i = 0; i < 3; i++)
        world_expect_all(&w);
    assert_int_equal(count_of(&w, "read_timeouts_total"), 1);
    assert_int_equal(count_of(&w, "bypassed_total") - bypassed, 3 * CHUNKS);
    disk_fake_reset();
    world_wait_until_back(&w);
    expect_all_hits(&w); /* nothing is known against the chunks */
    faulty_release(&w);
}

/* Write four chunks at once, of which the last is the first again; return how many are kept. */
static unsigned write_four(struct world *w)
{
    struct fill_item items[4];
    unsigned kept = 0;
    for (unsigned i = 0; i < 4; i++) {
        const struct chunk_ref *ref = &w->refs[i % 3];
        items[i] = (struct fill_item){.request = fill_request(ref), .stored = buf_new(ref->plain_len)};
        memcpy(items[i].stored->data, w->plain[i % 3], ref->plain_len);
    }
    fill_items(w->cache, items, 4);
    for (unsigned i = 0; i < 4; i++) {
        kept += !items[i].rc;
        buf_unref(items[i].stored);
    }
    return kept;
}

static void test_cache_health__of_chunks_that_are_written_together_each_is_tried(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    disk_fake_writes(w.dir, DISK_ERROR, EIO);
    unsigned before = disk_fake_calls_made();
    assert_int_equal(write_four(&w), 0);
    assert_true(disk_fake_calls_made() - before >= 1 + 4); /* together, then one by one */
    assert_int_equal(count_of(&w, "fill_errors_total"), 4);
    assert_int_equal(count_of(&w, "entries"), 0);
    disk_fake_reset();
    assert_int_equal(write_four(&w), 4);
    assert_int_equal(count_of(&w, "fills_total"), 3);
    for (unsigned i = 0; i < 3; i++)
        world_expect(&w, i);
    assert_int_equal(now_hits(&w), 3);
    faulty_release(&w);
}

/* The n-th chunk, from 0, that can be read in a directory. */
static unsigned chunk_in(struct world *w, unsigned dir, unsigned n)
{
    SCOPED_LOCK(&w->cache->lock);
    for (unsigned i = 0;; i++) {
        assert_true(i < CHUNKS);
        uint32_t id = space_find(&w->cache->space, &w->refs[i].digest);
        if (id != SPACE_NONE && cache_readable_locked(w->cache, id) && space_dir_of(&w->cache->space, id) == dir &&
            !n--)
            return i;
    }
}

static void test_cache_health__a_hung_directory_leaves_the_other_one_alone(void **state)
{
    char second[SCRATCH_MAX];
    struct world w;
    scratch_make(second);
    faulty_world(&w, second);
    world_warm(&w);
    disk_fake_reads(second, DISK_HANG, 0);
    find_out(&w, chunk_in(&w, 1, 0));
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "read_timeouts_total"), 1);
    assert_int_equal(count_of(&w, "reading_down"), 1);
    assert_true(now_hits(&w) > 0); /* of the first */
    world_warm(&w);                /* what the second has is kept by the first meanwhile */
    expect_all_hits(&w);
    disk_fake_reset();
    world_wait_until_back(&w);
    expect_all_hits(&w);
    faulty_release(&w);
    scratch_remove(second);
}

struct crowd {
    struct world *w;
    unsigned chunk;
};

static void *read_in_crowd(void *arg)
{
    const struct crowd *c = arg;
    world_expect(c->w, c->chunk);
    return NULL;
}

/* More readers at a time than there are rings read a chunk of a directory that hangs. */
static void lose_a_crowd(struct world *w, const char *path, unsigned dir)
{
    enum { READERS = 3 * READERS_MAX };
    pthread_t threads[READERS];
    struct crowd crowd = {.w = w, .chunk = chunk_in(w, dir, 0)};
    disk_fake_reads(path, DISK_HANG, 0);
    uint32_t before = set_timeout(w, 2000); /* time for many of them to get in line */
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_crowd, &crowd), 0);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    set_timeout(w, before);
    assert_true(disk_fake_hanging() > 0);
}

/* Those that hang are the only ones that are down: their crowd may have been too long for the first one, too, which a
 * probe brings back. */
static void expect_hits_of_the_first(struct world *w, unsigned hung)
{
    for (uint64_t since = 0; count_of(w, "reading_down") != hung;)
        counter_pause(&since, "the first directory");
    world_settle(w);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t before = now_hits(w);
        world_expect(w, chunk_in(w, 0, i));
        assert_int_equal(now_hits(w) - before, 1);
    }
}

static void test_cache_health__crowds_at_hung_directories_leave_rings_for_another(void **state)
{
    char second[SCRATCH_MAX], third[SCRATCH_MAX];
    struct world w;
    scratch_make(second);
    scratch_make(third);
    faulty_world_of(&w, second, third);
    world_warm(&w);
    lose_a_crowd(&w, second, 1);
    expect_hits_of_the_first(&w, 1);
    lose_a_crowd(&w, third, 2);
    expect_hits_of_the_first(&w, 2);
    faulty_release(&w);
    scratch_remove(second);
    scratch_remove(third);
}

static void test_cache_health__a_hung_write_costs_hits_and_ensure_says_so(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    disk_fake_writes(w.dir, DISK_HANG, 0);
    uint32_t before = set_timeout(&w, SOON_MS);
    world_expect_all(&w);
    wait_for(&w, "writing_down", 1);
    world_settle(&w); /* no fill waits for the disk any more */
    set_timeout(&w, before);
    struct cache_piece p = world_piece(&w, 0, 0, 0, NULL);
    assert_int_equal(cache_ensure(w.cache, &p, 1, PRIORITY_WARM), -EIO);
    assert_non_null(strstr(error_text(), "no directory of the cache"));
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "entries"), 0);
    disk_fake_reset();
    world_wait_until_back(&w);
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

struct raised_timeout {
    struct world *w;
    uint32_t later_ms;
};

/* What hangs has its deadline already. */
static void *raise_timeout_after_a_hang(void *arg)
{
    const struct raised_timeout *p = arg;
    for (uint64_t since_ms = 0; !disk_fake_hanging() && !count_of(p->w, "writing_down");)
        counter_pause(&since_ms, "a write that hangs");
    set_timeout(p->w, p->later_ms);
    return NULL;
}

static void test_cache_health__ensure_keeps_in_another_directory_what_one_does_not_take(void **state)
{
    char second[SCRATCH_MAX];
    struct world w;
    scratch_make(second);
    faulty_world(&w, second);
    world_warm(&w);
    unsigned chunk = chunk_in(&w, 1, 0);
    assert_int_equal(cache_evict(w.cache, &w.refs[chunk].digest, false), 0);
    disk_fake_writes(second, DISK_HANG, 0);
    struct raised_timeout raised_timeout = {.w = &w, .later_ms = set_timeout(&w, SOON_MS)};
    pthread_t other;
    assert_int_equal(pthread_create(&other, NULL, raise_timeout_after_a_hang, &raised_timeout), 0);
    world_warm(&w);
    pthread_join(other, NULL);
    assert_int_equal(count_of(&w, "writing_down"), 1);
    expect_all_hits(&w);
    faulty_release(&w);
    scratch_remove(second);
}

static void test_cache_health__reads_go_on_while_writes_hang(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    struct cache_piece half[CHUNKS / 2];
    for (unsigned i = 0; i < CHUNKS / 2; i++)
        half[i] = world_piece(&w, i, 0, 0, NULL);
    assert_int_equal(cache_ensure(w.cache, half, CHUNKS / 2, PRIORITY_WARM), 0);
    disk_fake_writes(w.dir, DISK_HANG, 0);
    uint32_t before = set_timeout(&w, SOON_MS);
    for (unsigned i = CHUNKS / 2; i < CHUNKS; i++)
        world_expect(&w, i);
    wait_for(&w, "writing_down", 1);
    set_timeout(&w, before);
    for (unsigned i = 0; i < CHUNKS; i++)
        world_expect(&w, i % (CHUNKS / 2));
    assert_int_equal(now_hits(&w), CHUNKS);
    assert_int_equal(count_of(&w, "reading_down") + count_of(&w, "reading_suspect"), 0);
    faulty_release(&w);
}

static void test_cache_health__a_disk_that_hangs_while_it_gives_room_back_is_set_aside(void **state)
{
    static const struct watermark marks = {.high = 85, .low = 75};
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    disk_fake_writes(w.dir, DISK_HANG, 0);
    uint32_t before = set_timeout(&w, SOON_MS);
    watermark_apply(w.cache, 0, &marks, 100, 100);
    set_timeout(&w, before);
    assert_int_equal(count_of(&w, "writing_down"), 1);
    world_expect_all(&w);
    disk_fake_reset();
    world_wait_until_back(&w);
    watermark_apply(w.cache, 0, &marks, 0, 1 << 30);
    assert_int_equal(count_of(&w, "yielded_bytes"), 0);
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

static void test_cache_health__a_full_or_read_only_disk_is_left_aside_for_writing(void **state)
{
    for (int i = 0; i < 2; i++) {
        struct world w;
        faulty_world(&w, NULL);
        disk_fake_writes(w.dir, DISK_ERROR, i ? EROFS : ENOSPC);
        world_expect_all(&w);
        wait_for(&w, "writing_down", 1);
        assert_true(count_of(&w, "fill_errors_total") > 0);
        disk_fake_reset();
        world_wait_until_back(&w);
        world_warm(&w);
        expect_all_hits(&w);
        faulty_release(&w);
    }
}

static void test_cache_health__a_disk_that_lies_is_found_out_by_its_probe(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    disk_fake_reads(w.dir, DISK_WRONG, 0);
    while (!count_of(&w, "reading_down"))
        world_expect_all(&w);
    assert_true(count_of(&w, "crc_errors_total") > 0);
    assert_int_equal(count_of(&w, "read_errors_total"), 0);
    disk_fake_reset();
    world_wait_until_back(&w);
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

static void test_cache_health__a_directory_deleted_under_it_serves_on(void **state)
{
    struct world w;
    char path[128];
    faulty_world(&w, NULL);
    world_warm(&w);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", w.dir, (const char *[]){"lock", "data", "records"}[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(w.dir), 0);
    wait_for(&w, "directories_deleted", 1);
    expect_all_hits(&w);
    struct cache_dir_report reports[CACHE_DIRS_MAX];
    assert_int_equal(cache_dir_reports(w.cache, reports), 1);
    assert_true(reports[0].deleted);
    assert_string_equal(reports[0].reading, "normal");
    faulty_release(&w);
}

struct storm {
    struct world *w;
    _Atomic bool over;
};

static void *read_in_storm(void *arg)
{
    struct storm *s = arg;
    uint64_t seed = 0x9E3779B97F4A7C15u * (1 + atomic_fetch_add(&s->w->readers, 1));
    while (!atomic_load(&s->over))
        world_expect(s->w, world_random(&seed) % CHUNKS);
    return NULL;
}

static void test_cache_health__readers_in_a_storm_of_faults_read_right(void **state)
{
    enum { READERS = 6, ROUNDS = 40 };
    static const struct {
        enum disk_fault fault;
        int error;
    } kinds[] = {{DISK_HEALTHY, 0}, {DISK_ERROR, EIO}, {DISK_HANG, 0}, {DISK_WRONG, 0}, {DISK_ERROR, ENOSPC}};
    char second[SCRATCH_MAX];
    struct world w;
    pthread_t threads[READERS];
    uint64_t seed = 7;
    scratch_make(second);
    faulty_world(&w, second);
    struct storm storm = {.w = &w};
    uint32_t before = set_timeout(&w, SOON_MS);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_storm, &storm), 0);
    for (int i = 0; i < ROUNDS; i++) {
        unsigned r = world_random(&seed) % GR_ARRAY_SIZE(kinds), s = world_random(&seed) % GR_ARRAY_SIZE(kinds);
        disk_fake_reads(i % 2 ? w.dir : second, kinds[r].fault, kinds[r].error);
        disk_fake_writes(i % 3 ? w.dir : second, kinds[s].fault, kinds[s].error);
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    disk_fake_reset();
    atomic_store(&storm.over, true);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    world_settle(&w);
    set_timeout(&w, before);
    world_wait_until_back(&w);
    world_warm(&w);
    world_expect_all(&w);
    faulty_release(&w);
    scratch_remove(second);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_health__a_disk_that_fails_its_reads_is_left_aside_and_comes_back),
        cmocka_unit_test(test_cache_health__a_few_failed_reads_are_healed_without_setting_it_aside),
        cmocka_unit_test(test_cache_health__of_chunks_that_are_written_together_each_is_tried),
        cmocka_unit_test(test_cache_health__one_read_waits_for_a_hung_disk_and_the_others_do_not),
        cmocka_unit_test(test_cache_health__a_hung_directory_leaves_the_other_one_alone),
        cmocka_unit_test(test_cache_health__crowds_at_hung_directories_leave_rings_for_another),
        cmocka_unit_test(test_cache_health__a_hung_write_costs_hits_and_ensure_says_so),
        cmocka_unit_test(test_cache_health__ensure_keeps_in_another_directory_what_one_does_not_take),
        cmocka_unit_test(test_cache_health__reads_go_on_while_writes_hang),
        cmocka_unit_test(test_cache_health__a_disk_that_hangs_while_it_gives_room_back_is_set_aside),
        cmocka_unit_test(test_cache_health__a_full_or_read_only_disk_is_left_aside_for_writing),
        cmocka_unit_test(test_cache_health__a_disk_that_lies_is_found_out_by_its_probe),
        cmocka_unit_test(test_cache_health__a_directory_deleted_under_it_serves_on),
        cmocka_unit_test(test_cache_health__readers_in_a_storm_of_faults_read_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

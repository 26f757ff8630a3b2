/* A cache is opened, loaded and closed on disks that hang or are slow: each ends within its time, and what can be kept
 * is kept.
 */
#include "unit/faulty_world.h"

#include "base/clock.h"
#include "unit/scratch.h"

/* What is at the gate waits until it is opened. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t opened;
    bool open;
    unsigned waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .opened = PTHREAD_COND_INITIALIZER};

static void wait_at_gate(void)
{
    SCOPED_LOCK(&gate.lock);
    gate.waiting++;
    while (!gate.open)
        pthread_cond_wait(&gate.opened, &gate.lock);
    gate.waiting--;
}

static unsigned count_at_gate(void)
{
    SCOPED_LOCK(&gate.lock);
    return gate.waiting;
}

static void open_gate(bool open)
{
    SCOPED_LOCK(&gate.lock);
    gate.open = open;
    pthread_cond_broadcast(&gate.opened);
}

static void test_cache_open_close__a_disk_that_hangs_while_it_is_opened_is_left_out(void **state)
{
    struct world w;
    struct cache_dir_report reports[CACHE_DIRS_MAX];
    struct cache_test_hooks hooks = {.opening = wait_at_gate, .open_timeout_ms = 1};
    world_init(&w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20);
    open_gate(false);
    world_open_hooks(&w, &hooks);
    assert_int_equal(count_of(&w, "directories_absent"), 1);
    assert_int_equal(cache_dir_reports(w.cache, reports), 1);
    assert_string_equal(reports[0].reading, "absent");
    world_expect_all(&w);
    world_close(&w);
    open_gate(true); /* what was left behind opens it now, and gives it back */
    char records[128];
    snprintf(records, sizeof records, "%s/records", w.dir);
    for (uint64_t since_ms = 0; access(records, F_OK) || cache_open(&w.config, &w.cache) == -EBUSY;)
        counter_pause(&since_ms, "what was left behind");
    assert_int_equal(count_of(&w, "directories"), 1);
    assert_int_equal(cache_start_threads(w.cache), 0);
    world_warm(&w);
    expect_all_hits(&w);
    world_release(&w);
}

static void test_cache_open_close__a_disk_that_hangs_while_it_is_loaded_is_down(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    world_close(&w);
    struct cache_test_hooks hooks = {.no_uring = true, .calls = disk_fake_calls(), .load_timeout_ms = 1};
    disk_fake_reads(w.dir, DISK_HANG, 0);
    world_open_hooks(&w, &hooks);
    assert_int_equal(count_of(&w, "reading_down"), 1);
    world_expect_all(&w);
    assert_int_equal(now_hits(&w), 0);
    disk_fake_reset();
    world_wait_until_back(&w);
    world_warm(&w);
    expect_all_hits(&w);
    faulty_release(&w);
}

static void test_cache_open_close__the_cache_closes_although_its_disk_hangs(void **state)
{
    struct world w;
    faulty_world(&w, NULL);
    world_warm(&w);
    disk_fake_reads(w.dir, DISK_HANG, 0);
    disk_fake_writes(w.dir, DISK_HANG, 0);
    set_timeout(&w, SOON_MS);
    find_out(&w, 0);
    world_close(&w); /* what hangs stays behind */
    disk_fake_reset();
    disk_fake_wait_hanging(0);
    world_open(&w);
    world_expect_all(&w);
    assert_int_equal(now_hits(&w), CHUNKS);
    world_release(&w);
}

static ssize_t write_through_gate(int fd, const void *data, size_t len, off_t off)
{
    wait_at_gate();
    return pwrite(fd, data, len, off);
}

static bool is_late(struct fill *f)
{
    SCOPED_LOCK(&f->lock);
    return f->stopping && clock_now_ms() > f->stop_ms;
}

static void *open_gate_late(void *arg)
{
    for (uint64_t since_ms = 0; !is_late(arg);)
        counter_pause(&since_ms, "the closing");
    open_gate(true);
    return NULL;
}

static void test_cache_open_close__closing_does_not_write_all_that_is_queued_to_a_slow_disk(void **state)
{
    struct world w;
    pthread_t opener;
    open_gate(false);
    world_init(&w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20);
    world_open_hooks(&w, &(struct cache_test_hooks){.no_uring = true, .calls.pwrite = write_through_gate});
    world_expect_all(&w);
    for (uint64_t since_ms = 0; !count_at_gate();) /* it keeps the cache from closing until the gate is open */
        counter_pause(&since_ms, "a write at the gate");
    set_timeout(&w, SOON_MS); /* of the closing: the writes at the gate have theirs */
    assert_int_equal(pthread_create(&opener, NULL, open_gate_late, &w.cache->fill), 0);
    cache_close(w.cache);
    pthread_join(opener, NULL);
    world_open(&w);
    assert_true(count_of(&w, "entries") <= FILL_THREADS);
    world_expect_all(&w);
    world_release(&w);
}

static void test_cache_open_close__what_came_before_the_last_is_written_and_nothing_after(void **state)
{
    struct world w;
    open_gate(false);
    world_init(&w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20);
    world_open_hooks(&w, &(struct cache_test_hooks){.no_uring = true, .calls.pwrite = write_through_gate});
    size_t bytes = 0;
    for (unsigned i = 0; i < CHUNKS / 2; i++) {
        world_expect(&w, i);
        bytes += w.refs[i].plain_len;
    }
    for (uint64_t since_ms = 0; cache_unwritten(w.cache) < bytes;) /* they are queued behind their readers' backs */
        counter_pause(&since_ms, "what was read to be queued");
    cache_keep_no_more(w.cache);
    assert_int_equal(cache_unwritten(w.cache), bytes);
    world_expect_all(&w); /* reads go on */
    open_gate(true);
    for (uint64_t since_ms = 0; cache_unwritten(w.cache);)
        counter_pause(&since_ms, "what is queued to be written");
    assert_int_equal(count_of(&w, "entries"), CHUNKS / 2);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS / 2);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_open_close__a_disk_that_hangs_while_it_is_opened_is_left_out),
        cmocka_unit_test(test_cache_open_close__a_disk_that_hangs_while_it_is_loaded_is_down),
        cmocka_unit_test(test_cache_open_close__the_cache_closes_although_its_disk_hangs),
        cmocka_unit_test(test_cache_open_close__closing_does_not_write_all_that_is_queued_to_a_slow_disk),
        cmocka_unit_test(test_cache_open_close__what_came_before_the_last_is_written_and_nothing_after),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

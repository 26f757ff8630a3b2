/* A cache that gives room back and takes it again, with readers all the while. */
#include "unit/cache_world.h"
#include "unit/counts.h"

#include "base/log.h"

#define K 1024u
enum { BUDGET = 48 << 20, CHUNKS = 300, READERS = 8 };

static const uint32_t lens[] = {128 * K, 64 * K, 100 * K + 7, 4096};
static const struct watermark marks = {.high = 85, .low = 75};
/* What the filesystem writes about a file's extents is in its blocks too, and differs with how they were written. */
static const uint64_t extents = 256 << 10;
/* Of 1 GiB: as the filesystem of others would be. */
static const uint64_t total = 1 << 30, full = 1 << 30, half = 1 << 29;

static uint64_t yielded(struct world *w)
{
    return count_of(w, "yielded_bytes");
}

static uint64_t blocks_of(struct world *w)
{
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        int fd = world_open_file(w, i ? "records" : "data");
        struct stat st;
        assert_int_equal(fstat(fd, &st), 0);
        sum += (uint64_t)st.st_blocks * 512;
        close(fd);
    }
    return sum;
}

static void begin(struct world *w)
{
    world_init(w, CHUNKS, lens, GR_ARRAY_SIZE(lens), BUDGET);
    world_open(w);
    world_warm(w);
}

static void test_watermark__between_the_marks_nothing_happens(void **state)
{
    struct world w;
    begin(&w);
    uint64_t slab = w.cache->dirs[0]->geometry.slab_size, low = total / 100 * 75;
    watermark_apply(w.cache, 0, &marks, total / 100 * 85, total);
    assert_int_equal(yielded(&w), 0);
    watermark_apply(w.cache, 0, &(struct watermark){.high = 75, .low = 75}, low + slab, total);
    assert_int_equal(yielded(&w), slab);                    /* no more than it takes */
    watermark_apply(w.cache, 0, &marks, low - slab, total); /* the slab has room, its records have none */
    assert_int_equal(yielded(&w), slab);
    watermark_apply(w.cache, 0, &marks, low - 2 * slab, total);
    assert_int_equal(yielded(&w), 0);
    world_release(&w);
}

static void test_watermark__what_is_given_back_is_free_and_comes_again(void **state)
{
    struct world w;
    begin(&w);
    uint64_t before = blocks_of(&w), slab = w.cache->dirs[0]->geometry.slab_size;
    watermark_apply(w.cache, 0, &marks, full, total);
    assert_true(yielded(&w) > 3 * slab);
    assert_true(extents < slab && blocks_of(&w) + yielded(&w) <= before + extents);
    world_expect_all(&w);
    world_check(&w);

    watermark_apply(w.cache, 0, &marks, half, total);
    assert_int_equal(yielded(&w), 0);
    assert_true(blocks_of(&w) + extents >= before && blocks_of(&w) <= BUDGET);
    world_warm(&w);
    world_expect_all(&w);
    world_check(&w);
    world_release(&w);
}

static void test_watermark__no_record_of_what_was_given_back_is_believed(void **state)
{
    struct world w;
    begin(&w);
    watermark_apply(w.cache, 0, &marks, full, total);
    world_settle(&w);
    uint64_t entries = count_of(&w, "entries");
    world_close(&w);
    world_open(&w); /* all of it is reserved again */
    assert_int_equal(yielded(&w), 0);
    assert_int_equal(count_of(&w, "entries"), entries);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_release(&w);
}

struct reader {
    struct world *w;
    pthread_t thread;
    _Atomic bool *stop;
    uint64_t seed;
};

static void *read_on(void *arg)
{
    struct reader *r = arg;
    while (!atomic_load(r->stop))
        world_expect(r->w, (unsigned)(world_random(&r->seed) % r->w->count));
    return NULL;
}

static void test_watermark__readers_and_fills_see_nothing_of_it(void **state)
{
    struct world w;
    struct reader readers[READERS];
    _Atomic bool stop = false;
    begin(&w);
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){.w = &w, .stop = &stop, .seed = 88172645463325252u + i};
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_on, &readers[i]), 0);
    }
    for (unsigned i = 0; i < full_or(40, 12); i++) {
        watermark_apply(w.cache, 0, &marks, full, total);
        world_expect(&w, i);
        watermark_apply(w.cache, 0, &marks, half, total);
        world_expect(&w, i);
    }
    stop = true;
    for (unsigned i = 0; i < READERS; i++)
        pthread_join(readers[i].thread, NULL);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    assert_int_equal(count_of(&w, "read_errors_total"), 0);
    world_check(&w);
    world_release(&w);
}

int main(void)
{
    log_to(NULL, LOG_LEVEL_ERROR); /* a test gives back more often than one wants to read */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watermark__between_the_marks_nothing_happens),
        cmocka_unit_test(test_watermark__what_is_given_back_is_free_and_comes_again),
        cmocka_unit_test(test_watermark__no_record_of_what_was_given_back_is_believed),
        cmocka_unit_test(test_watermark__readers_and_fills_see_nothing_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

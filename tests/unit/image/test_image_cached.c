/* Parts of an image that are cached: what is prefetched, and short reads together, which take what is cached and never
 * wait for the store. */
#include "unit/image_world.h"

#include <errno.h>
#include <fcntl.h>

#include "format/index.h"
#include "unit/reader.h"

static void test_image_cached__what_was_prefetched_is_read_with_the_store_dead(void **state)
{
    struct world w;
    const struct image_fake img = {.seed = 6, .size = 200 * CHUNK, .chunk_size = CHUNK, .hole = every_third};
    world_init(&w, &img, true, 0);
    assert_int_equal(image_prefetch(w.image, 10, 150 * CHUNK), 0);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    expect_read(&w, 10, 150 * CHUNK);
    assert_int_equal(image_prefetch(w.image, 0, img.size), -ETIMEDOUT);
    world_release(&w);
}

/* Read them together: those of `expected` are done, and right. */
static void expect_together(struct world *w, struct image_cached_read *reads, size_t n, unsigned expected)
{
    CLEANUP_FREE uint8_t *want = malloc(CHUNK);
    struct image_cached_read *all[IMAGE_READS_MAX];
    struct cache_reader *reader;
    assert_int_equal(cache_reader_new(w->cache, &reader), 0);
    for (size_t i = 0; i < n; i++)
        all[i] = &reads[i];
    image_start_cached(w->image, reader, all, n);
    for (size_t ended = 0; ended < n;) {
        while (image_take_cached(reader))
            ended++;
        reader_await(reader);
    }
    cache_reader_free(reader);
    for (size_t i = 0; i < n; i++) {
        if (reads[i].got != (expected >> i & 1))
            fail_msg("read %zu: %d", i, reads[i].got);
        if (!reads[i].got)
            continue;
        image_fake_bytes(&w->img, reads[i].off, want, reads[i].len);
        assert_memory_equal(reads[i].dst, want, reads[i].len);
    }
}

static void test_image_cached__short_reads_together_take_what_is_cached_and_nothing_else(void **state)
{
    struct world w;
    static uint8_t dst[8][CHUNK];
    world_init(&w, &small, true, CHUNK);
    struct image_cached_read reads[] = {
        {.dst = dst[0], .off = 4096, .len = 4096},
        {.dst = dst[1], .off = 9 * CHUNK, .len = 4096},      /* not cached */
        {.dst = dst[2], .off = CHUNK, .len = 4096},          /* a hole */
        {.dst = dst[3], .off = 3 * CHUNK - 100, .len = 200}, /* in two chunks */
        {.dst = dst[4], .off = small.size, .len = 1},
        {.dst = dst[5], .off = 4 * CHUNK - 100, .len = 200}, /* one of them is a hole */
        {.dst = dst[6], .off = 6 * CHUNK - 100, .len = 200}, /* one of them is not cached */
        {.dst = dst[7], .off = 2 * CHUNK, .len = CHUNK},
    };
    enum { N = GR_ARRAY_SIZE(reads), CACHED = 1 | 1 << 3 | 1 << (N - 1) };
    expect_together(&w, reads, N, 0);
    assert_int_equal(image_prefetch(w.image, 0, 6 * CHUNK), 0);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    expect_together(&w, reads, N, CACHED);
    uint64_t hits = cache_count(&w, "cache_hits_total"), together = image_count(&w, "reads_total");
    assert_int_equal(together, 3);
    expect_together(&w, reads, N, CACHED);
    assert_int_equal(image_count(&w, "reads_total"), together + 3);
    assert_int_equal(image_count(&w, "read_bytes_total"), 2 * (4096 + 200 + CHUNK));
    assert_int_equal(cache_count(&w, "cache_hits_total"), hits + 4);
    assert_int_equal(cache_count(&w, "cache_misses_total"), 0);

    /* A miss beside them changes nothing. */
    store_fake_set_dead(w.fake, 0);
    expect_read(&w, 9 * CHUNK, CHUNK);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    expect_together(&w, reads, N, CACHED | 1 << 1);
    image_close(w.image);
    open_image(&w, 0, CHUNK);
    expect_together(&w, reads, N, 0); /* the index node is forgotten with the image */
    expect_read(&w, 0, CHUNK);
    expect_together(&w, reads, N, CACHED | 1 << 1);

    /* What is bad is a miss, and is dropped. */
    char path[SCRATCH_MAX + 8];
    snprintf(path, sizeof path, "%s/data", w.dir);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    CLEANUP_FREE uint8_t *bad = calloc(1, CACHE_SIZE / 2);
    assert_true(pwrite(fd, bad, CACHE_SIZE / 2, 0) == CACHE_SIZE / 2 && !fsync(fd));
    expect_together(&w, reads, N, 0);
    assert_int_equal(cache_count(&w, "cache_crc_errors_total"), 5);
    world_release(&w);
}

static void test_image_cached__a_run_is_read_otherwise_where_something_was_missed(void **state)
{
    struct world w;
    enum { RUN = 8, CHUNKS = 100 };
    static uint8_t dst[2][4096];
    const struct image_fake img = {.seed = 7, .size = CHUNKS * CHUNK, .chunk_size = CHUNK};
    world_init(&w, &img, true, CHUNK);
    struct image_cached_read reads[] = {
        {.dst = dst[0], .off = (RUN - 1) * CHUNK, .len = 4096},
        {.dst = dst[1], .off = (CHUNKS - 1) * CHUNK, .len = 4096},
    };
    assert_int_equal(image_prefetch(w.image, 0, img.size), 0);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    expect_together(&w, reads, 2, 1 | 1 << 1); /* nothing was missed */

    assert_int_equal(cache_evict(w.cache, &w.img.refs[0].digest, true), 0);
    for (unsigned i = 0; i < RUN; i++)
        expect_read(&w, i * CHUNK, CHUNK);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    expect_together(&w, reads, 2, 1 << 1);
    world_release(&w);
}

/* A program that reads a file of a cold image in small pieces waits for few chunks: what is read in flight counts, too.
 */
static void test_image_cached__small_reads_in_order_have_readahead(void **state)
{
    struct world w;
    enum { CHUNKS = 64, LEN = 4096 };
    static uint8_t dst[LEN];
    const struct image_fake img = {.seed = 8, .size = CHUNKS * CHUNK, .chunk_size = CHUNK};
    struct cache_reader *reader;
    world_init(&w, &img, true, 16 * CHUNK);
    assert_int_equal(cache_reader_new(w.cache, &reader), 0);
    for (uint64_t off = 0; off < img.size; off += LEN) {
        struct image_cached_read read = {.dst = dst, .off = off, .len = LEN}, *one = &read;
        image_start_cached(w.image, reader, &one, 1);
        while (!image_take_cached(reader))
            reader_await(reader);
        if (!read.got)
            assert_int_equal(image_read(w.image, dst, off, LEN), 0);
        counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    }
    cache_reader_free(reader);
    assert_in_range(cache_count(&w, "cache_misses_total"), 1, CHUNKS / 8);
    world_release(&w);
}

static void test_image_cached__prefetch_keeps_nodes_that_only_memory_has(void **state)
{
    struct world w;
    const struct image_fake img = {.seed = 5, .size = 200 * CHUNK, .chunk_size = CHUNK};
    world_init(&w, &img, true, 0);
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0);
    assert_int_equal(cache_evict(w.cache, &w.img.manifest.index_root.digest, true), 0);
    expect_read(&w, 0, CHUNK); /* memory has the node */
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    image_close(w.image);
    open_image(&w, 0, 0);
    expect_read(&w, 0, CHUNK);
    world_release(&w);
}

/* Requests in order would all wait for the leaf that they come to next. */
static void test_image_cached__prefetch_of_a_leafs_beginning_keeps_the_next_leaf(void **state)
{
    struct world w;
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    const struct image_fake img = {.seed = 5, .size = 2 * leaf, .chunk_size = CHUNK};
    world_init(&w, &img, true, 0);
    assert_int_equal(image_prefetch(w.image, CHUNK, CHUNK), 0);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 3); /* root, leaf, chunk */
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 5); /* the next leaf, too */
    assert_int_equal(image_prefetch(w.image, leaf, CHUNK), 0);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 6);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0);
    world_release(&w);
}

static void test_image_cached__prefetch_without_a_cache_directory_is_an_error(void **state)
{
    struct world w;
    world_init(&w, &small, false, 0);
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), -EIO);
    assert_int_equal(image_prefetch(w.image, CHUNK, CHUNK), -EIO); /* nor can what says that it is a hole */
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_cached__what_was_prefetched_is_read_with_the_store_dead),
        cmocka_unit_test(test_image_cached__short_reads_together_take_what_is_cached_and_nothing_else),
        cmocka_unit_test(test_image_cached__small_reads_in_order_have_readahead),
        cmocka_unit_test(test_image_cached__a_run_is_read_otherwise_where_something_was_missed),
        cmocka_unit_test(test_image_cached__prefetch_keeps_nodes_that_only_memory_has),
        cmocka_unit_test(test_image_cached__prefetch_of_a_leafs_beginning_keeps_the_next_leaf),
        cmocka_unit_test(test_image_cached__prefetch_without_a_cache_directory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

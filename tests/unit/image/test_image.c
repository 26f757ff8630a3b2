/* The image reader over a real cache and the fake store: every offset gives the image's bytes, the index costs what it
 * should, and what is wrong in an image or a store is an error and never wrong bytes. */
#include "unit/image_world.h"

#include <errno.h>
#include <pthread.h>

#include "base/crc32c.h"
#include "format/index.h"
#include "image/image_internal.h"

/* Two levels, the middle leaf all holes, holes inside the last. */
static bool middle_leaf(uint64_t chunk)
{
    return chunk / INDEX_FANOUT == 1 || (chunk >= 2 * INDEX_FANOUT && chunk % 2);
}

static bool all(uint64_t chunk)
{
    return true;
}

static const struct image_fake large = {.seed = 2,
                                        .size = (2 * INDEX_FANOUT + 7) * (uint64_t)CHUNK + 8192,
                                        .chunk_size = CHUNK,
                                        .pack_chunks = 256,
                                        .hole = middle_leaf};

static void test_image__every_kind_of_range_reads_right(void **state)
{
    struct world w;
    world_init(&w, &small, false, 0);
    expect_read(&w, 0, small.size);
    expect_read(&w, 0, 0);
    expect_read(&w, small.size, 0);
    expect_read(&w, CHUNK - 1, 2);
    expect_read(&w, 1, CHUNK);
    expect_read(&w, CHUNK, CHUNK);            /* a hole */
    expect_read(&w, CHUNK + 5, 10);           /* inside it */
    expect_read(&w, small.size - 4096, 4096); /* the short last chunk */
    expect_read(&w, small.size - 1, 1);
    unsigned seed = 4;
    for (int i = 0; i < 100; i++) {
        uint64_t off = (unsigned)rand_r(&seed) % small.size;
        expect_read(&w, off, (unsigned)rand_r(&seed) % (small.size - off) / (i % 2 ? 20 : 1));
    }
    assert_int_equal(image_manifest(w.image)->size, small.size);
    assert_true(digest_equal(image_digest(w.image), &w.img.digest));
    world_release(&w);
}

static void test_image__what_reaches_behind_the_end_is_refused(void **state)
{
    struct world w;
    uint8_t byte[2];
    world_init(&w, &small, false, 0);
    assert_int_equal(image_read(w.image, byte, small.size - 1, 2), -EINVAL);
    assert_int_equal(image_read(w.image, byte, small.size + 1, 0), -EINVAL);
    assert_int_equal(image_read(w.image, byte, UINT64_MAX, 2), -EINVAL);
    assert_int_equal(image_prefetch(w.image, 1, UINT64_MAX), -EINVAL);
    assert_int_equal(image_extents(w.image, 4096, small.size, NULL, NULL), -EINVAL);
    world_release(&w);
}

static void test_image__two_levels_of_index_read_right(void **state)
{
    struct world w;
    world_init(&w, &large, false, 0);
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    expect_read(&w, leaf - 3 * CHUNK - 7, 5 * CHUNK); /* over the border into the holes */
    expect_read(&w, 2 * leaf - 100, 4 * CHUNK + 200); /* and out of them */
    expect_read(&w, large.size - 2 * CHUNK, 2 * CHUNK);
    /* The root and the two leaves that are there; nothing was asked for the third. */
    assert_int_equal(image_count(&w, "node_misses_total"), 3);
    world_release(&w);
}

static void test_image__index_memory_is_a_limit_and_not_a_fault(void **state)
{
    struct world w;
    world_init(&w, &large, false, 0);
    image_close(w.image);
    open_image(&w, 1, 0);
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    for (int i = 0; i < 4; i++) {
        expect_read(&w, 5, 100);
        expect_read(&w, 2 * leaf + 5, 100);
    }
    assert_true(image_count(&w, "node_evictions_total") >= 8);
    assert_true(image_count(&w, "node_bytes") < 120 << 10); /* one leaf */
    world_release(&w);
}

static bool all_but_one_a_leaf(uint64_t chunk)
{
    return chunk % INDEX_FANOUT != 5;
}

static void test_image__the_table_of_nodes_grows_with_them(void **state)
{
    enum { LEAVES = 80 };
    const struct image_fake many = {
        .seed = 9, .size = (uint64_t)LEAVES * INDEX_FANOUT * CHUNK, .chunk_size = CHUNK, .hole = all_but_one_a_leaf};
    struct world w;
    struct node_cache_stats stats;
    world_init(&w, &many, false, 0);
    for (uint64_t i = 0; i < LEAVES; i++)
        expect_read(&w, (i * INDEX_FANOUT + 5) * CHUNK, 10);
    node_cache_stats(w.image->nodes, &stats);
    assert_int_equal(stats.nodes, LEAVES + 1);
    for (uint64_t i = 0; i < LEAVES; i++)
        expect_read(&w, (i * INDEX_FANOUT + 5) * CHUNK, 10);
    assert_int_equal(image_count(&w, "node_misses_total"), LEAVES + 1);
    image_set_index_memory(w.image, 1);
    node_cache_stats(w.image->nodes, &stats);
    assert_int_equal(stats.nodes, 1);
    world_release(&w);
}

struct run {
    uint64_t off, len;
    bool hole;
};

struct runs {
    size_t count, stop_after;
    struct run items[64];
};

static int note_run(void *arg, uint64_t off, uint64_t len, bool hole)
{
    struct runs *runs = arg;
    runs->items[runs->count++] = (struct run){off, len, hole};
    return runs->count == runs->stop_after;
}

static void expect_run(const struct runs *runs, size_t i, uint64_t off, uint64_t len, bool hole)
{
    assert_true(i < runs->count);
    assert_int_equal(runs->items[i].off, off);
    assert_int_equal(runs->items[i].len, len);
    assert_int_equal(runs->items[i].hole, hole);
}

static void test_image__extents_cover_the_range_and_merge_neighbours(void **state)
{
    struct world w;
    struct runs runs = {0};
    world_init(&w, &small, false, 0);
    assert_int_equal(image_extents(w.image, 100, 5 * CHUNK, note_run, &runs), 0);
    assert_int_equal(runs.count, 5);
    expect_run(&runs, 0, 100, CHUNK - 100, false);
    expect_run(&runs, 1, CHUNK, CHUNK, true);
    expect_run(&runs, 2, 2 * CHUNK, 2 * CHUNK, false);
    expect_run(&runs, 3, 4 * CHUNK, CHUNK, true);
    expect_run(&runs, 4, 5 * CHUNK, 100, false);
    runs = (struct runs){.stop_after = 1};
    assert_int_equal(image_extents(w.image, 0, small.size, note_run, &runs), 0);
    assert_int_equal(runs.count, 1);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1); /* the leaf alone, no chunk */
    world_release(&w);
}

static void test_image__a_subtree_of_holes_costs_nothing(void **state)
{
    struct world w;
    struct runs runs = {0};
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    world_init(&w, &large, false, 0);
    assert_int_equal(image_extents(w.image, leaf + 10, leaf - 10, note_run, &runs), 0);
    assert_int_equal(runs.count, 1);
    expect_run(&runs, 0, leaf + 10, leaf - 10, true);
    assert_int_equal(image_count(&w, "node_misses_total"), 1); /* the root */
    runs.count = 0;
    assert_int_equal(image_extents(w.image, 0, large.size, note_run, &runs), 0);
    expect_run(&runs, 0, 0, leaf, false);
    expect_run(&runs, 1, leaf, leaf, true);
    assert_int_equal(runs.count, 2 + 8);
    world_release(&w);

    const struct image_fake nothing = {.size = large.size, .chunk_size = CHUNK, .hole = all};
    runs.count = 0;
    world_init(&w, &nothing, false, 0);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    assert_int_equal(image_extents(w.image, 0, large.size, note_run, &runs), 0);
    expect_run(&runs, 0, 0, large.size, true);
    expect_read(&w, leaf - 5, 100);
    world_release(&w);
}

/* Open an image that has another root. */
static void open_with_root(struct world *w, const struct index_child *root)
{
    w->img.manifest.index_root = *root;
    image_close(w->image);
    open_image(w, 0, 0);
}

static struct index_child put_node(struct world *w, const struct bytes *node, const struct digest *content)
{
    char key[OBJECT_KEY_MAX];
    struct index_child child = {.digest = digest_of(node->data, node->len),
                                .content = *content,
                                .len = node->len,
                                .crc = crc32c(node->data, node->len)};
    store_fake_put(w->fake, object_key(OBJECT_INDEX, &child.digest, key), node->data, node->len);
    return child;
}

static struct index_child put_leaf(struct world *w, uint64_t first, uint32_t count)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    assert_int_equal(index_encode_leaf(&w->img.refs[first], count, &node, &content), 0);
    return put_node(w, &node, &content);
}

static struct index_child put_inner(struct world *w, const struct index_child *children, uint32_t count)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    struct digest content;
    assert_int_equal(index_encode_inner(1, children, count, &node, &content), 0);
    return put_node(w, &node, &content);
}

static void expect_refused(struct world *w, uint64_t off)
{
    uint8_t byte;
    assert_int_equal(image_read(w->image, &byte, off, 1), -EBADMSG);
    assert_non_null(strstr(error_text(), "does not fit its place"));
}

static void test_image__a_node_in_the_wrong_place_is_refused(void **state)
{
    struct world w;
    struct image_fake two_leaves = {
        .seed = 3, .size = (2 * INDEX_FANOUT) * (uint64_t)CHUNK - 4096, .chunk_size = CHUNK, .pack_chunks = 512};
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    world_init(&w, &two_leaves, false, 0);
    expect_read(&w, leaf - 100, 200);

    /* The last leaf, whose last chunk is short, at both places: right once is not right everywhere. */
    struct index_child last = put_leaf(&w, INDEX_FANOUT, INDEX_FANOUT), twice[2] = {last, last};
    struct index_child root = put_inner(&w, twice, 2);
    open_with_root(&w, &root);
    expect_read(&w, leaf, 100);
    uint64_t hits = image_count(&w, "node_hits_total");
    expect_refused(&w, 0);
    assert_int_equal(image_count(&w, "node_hits_total"), hits + 1); /* the root; the leaf in memory was of no use */

    /* A leaf of too few chunks; an inner node where a leaf should be. */
    struct index_child few[2] = {put_leaf(&w, 0, 5), last};
    root = put_inner(&w, few, 2);
    open_with_root(&w, &root);
    expect_refused(&w, 6 * CHUNK);
    struct index_child deep[2] = {root, last};
    root = put_inner(&w, deep, 2);
    open_with_root(&w, &root);
    expect_refused(&w, 0);
    root = put_inner(&w, twice, 1);
    open_with_root(&w, &root);
    expect_refused(&w, 0);
    world_release(&w);
}

static void test_image__damaged_index_and_chunk_are_errors_that_heal(void **state)
{
    struct world w;
    char key[OBJECT_KEY_MAX];
    uint8_t byte;
    world_init(&w, &small, false, 0);
    object_key(OBJECT_INDEX, &w.img.manifest.index_root.digest, key);
    assert_true(store_fake_flip(w.fake, key, 30));
    assert_int_equal(image_read(w.image, &byte, 0, 1), -EBADMSG);
    assert_non_null(strstr(error_text(), key));
    assert_true(store_fake_flip(w.fake, key, 30));
    expect_read(&w, 0, 1);

    object_key(OBJECT_PACK, &w.img.refs[2].object, key);
    assert_true(store_fake_flip(w.fake, key, w.img.refs[2].offset + 3));
    assert_int_equal(image_read(w.image, &byte, 2 * CHUNK, 1), -EBADMSG);
    assert_non_null(strstr(error_text(), key));
    expect_read(&w, 3 * CHUNK, 1);
    assert_true(store_fake_flip(w.fake, key, w.img.refs[2].offset + 3));
    expect_read(&w, 2 * CHUNK, 1);
    world_release(&w);
}

/* Chunks asked of the store so far, the index's not counted. */
static uint64_t fetched(struct world *w)
{
    counter_wait_zero(cache_counters, w->cache, "granary_fetch_in_flight");
    return cache_count(w, "fetch_demand_chunks_total") + cache_count(w, "fetch_readahead_chunks_total") - 1;
}

static void test_image__chunks_ahead_of_a_sequential_reader_are_fetched_before_it_asks(void **state)
{
    struct world w;
    const struct image_fake img = {.seed = 5, .size = 64 * CHUNK, .chunk_size = CHUNK, .pack_chunks = 16};
    world_init(&w, &img, true, 4 * CHUNK);
    for (uint64_t i = 0; i < 16; i++)
        expect_read(&w, i * CHUNK, CHUNK);
    assert_in_range(fetched(&w), 16 + 2, 16 + 4);
    assert_in_range(image_count(&w, "readahead_bytes_total"), 6 * CHUNK, 16 * CHUNK);
    assert_true(image_count(&w, "ahead_used_bytes_total") <= image_count(&w, "readahead_bytes_total"));
    assert_true(image_count(&w, "ahead_used_bytes_total") >= 2 * CHUNK);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    expect_read(&w, 16 * CHUNK, 2 * CHUNK); /* another pack than the reader was in */
    world_release(&w);
}

static void test_image__reads_here_and_there_fetch_what_they_touch_and_no_more(void **state)
{
    struct world w;
    const struct image_fake img = {.seed = 5, .size = 64 * CHUNK, .chunk_size = CHUNK, .pack_chunks = 16};
    world_init(&w, &img, true, 1 << 20);
    for (uint64_t i = 0; i < 8; i++)
        expect_read(&w, (i * 37 % 64) * CHUNK + 5, 1000);
    assert_int_equal(fetched(&w), 8);
    assert_int_equal(image_count(&w, "readahead_bytes_total"), 0);
    world_release(&w);
}

static void test_image__nothing_is_fetched_ahead_that_nothing_would_keep(void **state)
{
    struct world w;
    const struct image_fake img = {.seed = 5, .size = 64 * CHUNK, .chunk_size = CHUNK, .pack_chunks = 16};
    world_init(&w, &img, false, 1 << 20);
    for (uint64_t i = 0; i < 16; i++)
        expect_read(&w, i * CHUNK, CHUNK);
    assert_int_equal(image_count(&w, "readahead_bytes_total"), 0);
    assert_int_equal(cache_count(&w, "fetch_readahead_chunks_total"), 0);
    world_release(&w);
}

struct reader {
    struct world *w;
    uint64_t off;
};

static void *read_one(void *arg)
{
    struct reader *r = arg;
    expect_read(r->w, r->off, 100);
    return NULL;
}

static void test_image__hits_do_not_wait_behind_misses(void **state)
{
    enum { READERS = 30 };
    struct world w;
    struct reader readers[READERS];
    pthread_t threads[READERS];
    const struct image_fake img = {.seed = 8, .size = 64 * CHUNK, .chunk_size = CHUNK, .pack_chunks = 1};
    world_init(&w, &img, true, 0);
    assert_int_equal(image_prefetch(w.image, 0, 8 * CHUNK), 0);
    store_fake_hold(w.fake, FAKE_GET);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&w, (uint64_t)(10 + i) * CHUNK};
        assert_int_equal(pthread_create(&threads[i], NULL, read_one, &readers[i]), 0);
    }
    store_fake_wait_held(w.fake, 8); /* every worker is stuck */
    for (int i = 0; i < 50; i++)
        expect_read(&w, (uint64_t)(i % 8) * CHUNK + 17, 5000);
    store_fake_release(w.fake);
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    world_release(&w);
}

static void *read_at_random(void *arg)
{
    struct reader *r = arg;
    unsigned seed = (unsigned)r->off;
    uint64_t leaf = (uint64_t)INDEX_FANOUT * CHUNK;
    for (int i = 0; i < 20; i++) {
        /* Near the borders of leaves, so that many readers want the same few chunks. */
        uint64_t off = leaf * (1 + (unsigned)rand_r(&seed) % 2) - 3 * CHUNK + (unsigned)rand_r(&seed) % (6 * CHUNK);
        expect_read(r->w, off, (unsigned)rand_r(&seed) % (2 * CHUNK));
    }
    return NULL;
}

static void test_image__many_threads_read_right_within_little_index_memory(void **state)
{
    enum { READERS = 32 };
    struct world w;
    struct reader readers[READERS];
    pthread_t threads[READERS];
    world_init(&w, &large, true, 0);
    image_close(w.image);
    open_image(&w, 100 << 10, 2 * CHUNK);
    for (int i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&w, (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, &readers[i]), 0);
    }
    for (int i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image__every_kind_of_range_reads_right),
        cmocka_unit_test(test_image__what_reaches_behind_the_end_is_refused),
        cmocka_unit_test(test_image__two_levels_of_index_read_right),
        cmocka_unit_test(test_image__index_memory_is_a_limit_and_not_a_fault),
        cmocka_unit_test(test_image__the_table_of_nodes_grows_with_them),
        cmocka_unit_test(test_image__extents_cover_the_range_and_merge_neighbours),
        cmocka_unit_test(test_image__a_subtree_of_holes_costs_nothing),
        cmocka_unit_test(test_image__a_node_in_the_wrong_place_is_refused),
        cmocka_unit_test(test_image__damaged_index_and_chunk_are_errors_that_heal),
        cmocka_unit_test(test_image__chunks_ahead_of_a_sequential_reader_are_fetched_before_it_asks),
        cmocka_unit_test(test_image__reads_here_and_there_fetch_what_they_touch_and_no_more),
        cmocka_unit_test(test_image__nothing_is_fetched_ahead_that_nothing_would_keep),
        cmocka_unit_test(test_image__hits_do_not_wait_behind_misses),
        cmocka_unit_test(test_image__many_threads_read_right_within_little_index_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* What is to be warmed, in which order: each chunk once, where it was first asked for. */
#include "unit/cmocka_all.h"

#include "image/warm/warm_internal.h"
#include "unit/scratch.h"

#include "fake/image_fake.h"

enum { CHUNK = 64 << 10, CHUNKS = 1000, SHORT = 4096 /* bytes that the last chunk lacks */ };

struct world {
    char dir[SCRATCH_MAX];
    struct store_fake *fake;
    struct image_fake img;
    struct cache *cache;
    struct image *image;
    struct warm_plan plan;
};

static void world_init(struct world *w)
{
    *w = (struct world){.fake = store_fake_new()};
    w->img = (struct image_fake){.seed = 3, .size = (uint64_t)CHUNKS * CHUNK - SHORT, .chunk_size = CHUNK};
    image_fake_put(&w->img, w->fake, NULL);
    scratch_make(w->dir);
    const struct cache_config config = {
        .dirs = {{.path = w->dir, .size = 128 << 20}}, .dir_count = 1, .fetch = {.workers = 2}};
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    const struct image_config image = {
        .cache = w->cache, .store = store_fake_store(w->fake), .manifest = &w->img.manifest};
    assert_int_equal(image_open(&image, &w->img.digest, &w->image), 0);
    assert_int_equal(warm_plan_init(&w->plan, w->image), 0);
}

static void world_release(struct world *w)
{
    warm_plan_release(&w->plan);
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    scratch_remove(w->dir);
}

static void test_warm_plan__each_chunk_once_in_the_order_of_asking(void **state)
{
    struct world w;
    uint64_t chunks[WARM_BATCH];
    world_init(&w);
    assert_int_equal(warm_plan_batches(&w.plan), 0);
    assert_int_equal(warm_plan_add(&w.plan, 900, 910), 0);
    assert_int_equal(warm_plan_add(&w.plan, 5, 8), 0);
    assert_int_equal(warm_plan_add(&w.plan, 0, 1000), 0);
    assert_int_equal(warm_plan_add(&w.plan, 17, 20), 0);
    assert_int_equal(w.plan.chunks, CHUNKS);
    assert_int_equal(warm_plan_batches(&w.plan), (CHUNKS + WARM_BATCH - 1) / WARM_BATCH);
    bool seen[CHUNKS] = {false};
    uint64_t at = 0;
    for (size_t i = 0; i < warm_plan_batches(&w.plan); i++) {
        size_t n = warm_plan_batch(&w.plan, i, chunks);
        for (size_t k = 0; k < n; k++, at++) {
            uint64_t want = at < 10 ? 900 + at : at < 13 ? at - 5 : at < 18 ? at - 13 : at < 910 ? at - 10 : at;
            assert_int_equal(chunks[k], want);
            assert_false(seen[chunks[k]]);
            seen[chunks[k]] = true;
        }
    }
    assert_int_equal(at, CHUNKS);
    world_release(&w);
}

static void test_warm_plan__a_file_is_done_when_all_before_it_is(void **state)
{
    struct world w;
    world_init(&w);
    warm_plan_end_file(&w.plan); /* an empty one */
    assert_int_equal(w.plan.files_done, 1);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(warm_plan_add(&w.plan, i * WARM_BATCH, (i + 1) * WARM_BATCH), 0);
        warm_plan_end_file(&w.plan);
    }
    assert_int_equal(warm_plan_add(&w.plan, 0, 1), 0); /* shares a chunk */
    warm_plan_end_file(&w.plan);
    assert_int_equal(w.plan.files, 6);
    assert_int_equal(warm_plan_done(&w.plan, 1), 0);
    assert_int_equal(w.plan.files_done, 1);
    assert_int_equal(warm_plan_done(&w.plan, 0), 0);
    assert_int_equal(w.plan.files_done, 3);
    assert_int_equal(warm_plan_done(&w.plan, 3), 0);
    assert_int_equal(warm_plan_done(&w.plan, 2), 0);
    assert_int_equal(w.plan.files_done, 6);
    world_release(&w);
}

static void test_warm_plan__files_that_end_are_learnt_while_it_works(void **state)
{
    struct world w;
    world_init(&w);
    assert_int_equal(warm_plan_add(&w.plan, 900, 910), 0); /* in front, as metadata is */
    assert_int_equal(warm_plan_add(&w.plan, 0, CHUNKS), 0);
    const size_t batches = warm_plan_batches(&w.plan);
    warm_plan_end_file_at(&w.plan, 0); /* an empty one */
    assert_int_equal(w.plan.files_done, 1);
    warm_plan_end_file_at(&w.plan, 905);
    warm_plan_end_file_at(&w.plan, 3 * WARM_BATCH - 10); /* the last of the third batch */
    warm_plan_end_file_at(&w.plan, CHUNKS);
    assert_int_equal(w.plan.files_done, 1);
    assert_int_equal(warm_plan_done(&w.plan, 0), 0);
    assert_int_equal(w.plan.files_done, 2);
    assert_int_equal(warm_plan_done(&w.plan, 2), 0);
    assert_int_equal(w.plan.files_done, 2);
    assert_int_equal(warm_plan_done(&w.plan, 1), 0);
    assert_int_equal(w.plan.files_done, 3);
    warm_plan_end_file_at(&w.plan, 910); /* of what is done already */
    warm_plan_end_file_at(&w.plan, 3 * WARM_BATCH - 10);
    assert_int_equal(w.plan.files_done, 5);
    warm_plan_end_file_at(&w.plan, 3 * WARM_BATCH - 9);
    assert_int_equal(w.plan.files_done, 5);
    for (size_t i = 3; i < batches; i++)
        assert_int_equal(warm_plan_done(&w.plan, i), 0);
    assert_int_equal(w.plan.files_done, 7);
    world_release(&w);
}

static void test_warm_plan__chunks_by_number_are_cached_with_their_index(void **state)
{
    struct world w;
    const uint64_t wanted[] = {999, 3, 500, 501, 3}, beyond = CHUNKS;
    static uint8_t got[CHUNK], want[CHUNK];
    world_init(&w);
    assert_int_equal(image_prefetch_chunks(w.image, wanted, GR_ARRAY_SIZE(wanted)), 0);
    for (uint64_t i = 0; i < CHUNKS; i++)
        assert_int_equal(cache_has(w.cache, &w.img.refs[i].digest), i == 3 || i == 500 || i == 501 || i == 999);
    assert_int_equal(image_prefetch_chunks(w.image, &beyond, 1), -EINVAL);
    struct image_traffic traffic;
    image_traffic(w.image, &traffic);
    assert_int_equal(traffic.prefetch_bytes, GR_ARRAY_SIZE(wanted) * CHUNK - SHORT);
    store_fake_set_dead(w.fake, -EIO);
    for (size_t i = 0; i < GR_ARRAY_SIZE(wanted); i++) {
        size_t len = wanted[i] == CHUNKS - 1 ? CHUNK - SHORT : CHUNK;
        assert_int_equal(image_read(w.image, got, wanted[i] * CHUNK, len), 0);
        image_fake_bytes(&w.img, wanted[i] * CHUNK, want, len);
        assert_memory_equal(got, want, len);
    }
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_plan__each_chunk_once_in_the_order_of_asking),
        cmocka_unit_test(test_warm_plan__a_file_is_done_when_all_before_it_is),
        cmocka_unit_test(test_warm_plan__files_that_end_are_learnt_while_it_works),
        cmocka_unit_test(test_warm_plan__chunks_by_number_are_cached_with_their_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

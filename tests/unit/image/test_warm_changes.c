/* Of a new version exactly those chunks are warmed that the version before lacks, whatever the shapes of their trees.
 */
#include "unit/cmocka_all.h"

#include "fake/image_fake.h"
#include "image/warm/warm_internal.h"
#include "unit/scratch.h"

/* Three leaves and a root; every fiftieth chunk has data. */
enum { CHUNK = 64 << 10, CHUNKS = 3000, EVERY = 50, CHANGED = 100, MOVED = 1500, CAME_FROM = 2500, CLEARED = 2950 };

/* Two versions in one store and one cache. */
struct world {
    char dir[SCRATCH_MAX];
    struct store_fake *fake;
    struct image_fake before, after;
    struct cache *cache;
    struct image *old, *now;
};

static bool most_are_holes(uint64_t chunk)
{
    return chunk % EVERY;
}

static bool one_more_is_hole(uint64_t chunk)
{
    return chunk % EVERY || chunk == CLEARED;
}

static uint64_t one_changed(uint64_t chunk)
{
    return chunk == CHANGED ? 10000 : chunk;
}

/* One chunk has other bytes; one has those of another place, where there are others now. */
static uint64_t changed_and_moved(uint64_t chunk)
{
    return chunk == CHANGED ? 10000 : chunk == MOVED ? CAME_FROM : chunk == CAME_FROM ? 10001 : chunk;
}

static void open_image(struct world *w, const struct image_fake *img, struct image **out)
{
    const struct image_config config = {
        .cache = w->cache, .store = store_fake_store(w->fake), .manifest = &img->manifest};
    assert_int_equal(image_open(&config, &img->digest, out), 0);
}

/* Both versions, equal but for what a test changes before world_init. */
static struct world versions(void)
{
    struct world w = {
        .before = {.seed = 3, .size = (uint64_t)CHUNKS * CHUNK, .chunk_size = CHUNK, .hole = most_are_holes}};
    w.after = w.before;
    return w;
}

static void world_init(struct world *w)
{
    w->fake = store_fake_new();
    image_fake_put(&w->before, w->fake, NULL);
    image_fake_put(&w->after, w->fake, NULL);
    scratch_make(w->dir);
    const struct cache_config config = {
        .dirs = {{.path = w->dir, .size = 64 << 20}}, .dir_count = 1, .fetch = {.workers = 2}};
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    open_image(w, &w->before, &w->old);
    open_image(w, &w->after, &w->now);
}

static void world_release(struct world *w)
{
    image_close(w->old);
    image_close(w->now);
    cache_close(w->cache);
    image_fake_release(&w->before);
    image_fake_release(&w->after);
    store_fake_free(w->fake);
    scratch_remove(w->dir);
}

static int go_on(void *arg, const struct warm_report *t)
{
    return 0;
}

static int none_fails(void *arg, const char *path, size_t len, const char *why)
{
    fail_msg("%.*s: %s", (int)len, path, why);
    return 0;
}

/* Warm what `now` has and `old` lacks. */
static struct warm_result warm(struct world *w, bool dry)
{
    struct warm_result result;
    const struct warm_config config = {.img = w->now,
                                       .since = w->old,
                                       .store = store_fake_store(w->fake),
                                       .what = WARM_CHANGES,
                                       .dry = dry,
                                       .tell = go_on,
                                       .failed = none_fails};
    assert_int_equal(warm_run(&config, &result), 0);
    assert_int_equal(result.error.code, 0);
    return result;
}

static bool is_cached(struct world *w, uint64_t chunk)
{
    return cache_has(w->cache, &w->after.refs[chunk].digest);
}

static void test_warm_changes__what_changed_and_nothing_else(void **state)
{
    struct world w = versions();
    w.after.from = changed_and_moved;
    w.after.hole = one_more_is_hole;
    world_init(&w);
    struct warm_result r = warm(&w, true);
    assert_int_equal(r.before.chunks, 3); /* the superblock's, which is always wanted, and two new ones */
    assert_int_equal(r.before.missing, 3);
    for (uint64_t i = 0; i < CHUNKS; i += EVERY)
        assert_false(is_cached(&w, i));
    r = warm(&w, false);
    assert_int_equal(r.after.chunks, 3);
    assert_int_equal(r.after.missing, 0);
    for (uint64_t i = 0; i < CLEARED; i += EVERY)
        if (is_cached(&w, i) != (i == 0 || i == CHANGED || i == CAME_FROM))
            fail_msg("chunk %llu", (unsigned long long)i);
    world_release(&w);
}

static void test_warm_changes__equal_subtrees_are_not_fetched(void **state)
{
    struct world w = versions();
    w.after.from = one_changed;
    world_init(&w);
    warm(&w, false);
    CLEANUP(cleanup_node) struct node *root = NULL;
    const struct node_place top = {.level = 1, .number = 0};
    assert_int_equal(node_cache_get(w.now->nodes, &w.after.manifest.index_root, top, &root), 0);
    assert_int_equal(node_index(root)->count, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cache_has(w.cache, &node_index(root)->children[i].digest), i == 0);
    node_unref(steal_ptr(&root));
    world_release(&w);
}

static void test_warm_changes__of_the_same_image_there_are_none(void **state)
{
    struct world w = versions();
    world_init(&w);
    struct warm_result r = warm(&w, true);
    assert_int_equal(r.before.chunks, 1);
    assert_int_equal(store_fake_calls(w.fake, FAKE_ANY), 2); /* to the superblock's chunk: the root and a leaf */
    world_release(&w);
}

static void test_warm_changes__trees_of_different_heights(void **state)
{
    for (unsigned grows = 0; grows < 2; grows++) {
        struct world w = versions();
        (grows ? &w.before : &w.after)->size = UINT64_C(1024) * CHUNK;
        world_init(&w);
        struct warm_result r = warm(&w, false);
        assert_int_equal(r.after.chunks, 1 + (grows ? CHUNKS / EVERY - 1024 / EVERY - 1 : 0));
        assert_int_equal(r.after.missing, 0);
        world_release(&w);
    }
}

/* gc removes the index of an image that no tag names. */
static void test_warm_changes__an_earlier_index_that_is_gone_costs_only_bytes(void **state)
{
    struct world w = versions();
    char key[OBJECT_KEY_MAX];
    w.after.from = changed_and_moved;
    world_init(&w);
    store_fake_remove(w.fake, object_key(OBJECT_INDEX, &w.before.manifest.index_root.digest, key));
    struct warm_result r = warm(&w, false);
    assert_int_equal(r.after.chunks, CHUNKS / EVERY);
    assert_int_equal(r.after.missing, 0);
    world_release(&w);
}

static int give_up(void *arg, const struct warm_report *t)
{
    return error_set(-ECANCELED, "enough");
}

static void test_warm_changes__it_can_be_ended(void **state)
{
    struct world w = versions();
    struct warm_result result;
    w.after.from = changed_and_moved;
    world_init(&w);
    const struct warm_config config = {.img = w.now,
                                       .since = w.old,
                                       .store = store_fake_store(w.fake),
                                       .what = WARM_CHANGES,
                                       .tell = give_up,
                                       .failed = none_fails};
    assert_int_equal(warm_run(&config, &result), -ECANCELED);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_warm_changes__what_changed_and_nothing_else),
        cmocka_unit_test(test_warm_changes__equal_subtrees_are_not_fetched),
        cmocka_unit_test(test_warm_changes__of_the_same_image_there_are_none),
        cmocka_unit_test(test_warm_changes__trees_of_different_heights),
        cmocka_unit_test(test_warm_changes__an_earlier_index_that_is_gone_costs_only_bytes),
        cmocka_unit_test(test_warm_changes__it_can_be_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

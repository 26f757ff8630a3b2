/* A server has its images' metadata in the cache, held, soon after its start: also where the store comes back later;
 * and its end does not wait for a store that is away. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "server/server_internal.h"
#include "unit/control_world.h"
#include "unit/exports.h"

static struct control_world w;

static struct cache_chunk first_chunk(void)
{
    struct cache_chunk found;
    cache_query(stack_cache(w.stack), &w.img.refs[0].digest, 1, &found);
    return found;
}

static void wait_until_held(void)
{
    while (!first_chunk().held) /* ctest's limit ends it */
        usleep(10000);
}

static void move_store(bool away)
{
    static const char *const parts[] = {"packs", "indexes", "manifests"};
    for (size_t i = 0; i < 3; i++) {
        char there[SCRATCH_MAX + 32], gone[SCRATCH_MAX + 32];
        snprintf(there, sizeof there, "%s/%s", w.dir, parts[i]);
        snprintf(gone, sizeof gone, "%s/%s.away", w.dir, parts[i]);
        assert_int_equal(rename(away ? there : gone, away ? gone : there), 0);
    }
}

static void test_start_warm__metadata_is_cached_and_held(void **state)
{
    struct start_warm *warm;
    control_world_init(&w);
    assert_false(first_chunk().cached);
    assert_int_equal(start_warm_begin(w.stack, &warm), 0);
    wait_until_held();
    assert_false(cache_has(stack_cache(w.stack), &w.img.refs[1].digest));
    start_warm_end(warm);
    control_world_release(&w);
}

/* What is absent is not asked for again; reads bring it, and the next server holds it. */
static void test_start_warm__a_store_that_is_away_is_no_failure(void **state)
{
    struct start_warm *warm;
    uint8_t byte;
    control_world_init(&w);
    move_store(true);
    assert_int_equal(start_warm_begin(w.stack, &warm), 0);
    start_warm_end(warm);
    assert_false(first_chunk().cached);
    move_store(false);
    assert_int_equal(image_read(image_at(w.stack, 0), &byte, 0, 1), 0);
    assert_int_equal(start_warm_begin(w.stack, &warm), 0);
    wait_until_held();
    start_warm_end(warm);
    control_world_release(&w);
}

static uint64_t all_but_the_first_differ(uint64_t chunk)
{
    return chunk ? 10000 + chunk : 0;
}

/* Serve an image beside `faces` until its first chunk is held, and then no more. */
static bool is_held_after(struct added_exports *a, const struct image_fake *like)
{
    struct image_fake img = *like;
    struct store_fake *fake = store_fake_new();
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    struct cache_chunk found = {.held = false};
    char ref[SCRATCH_MAX + 16];
    bool removed;
    image_fake_put(&img, fake, "cars");
    image_fake_save(fake, w.dir);
    store_fake_free(fake);
    snprintf(ref, sizeof ref, "%s/cars", w.dir);
    assert_int_equal(
        added_exports_put(a, &(struct stack_image){.ref = ref, .export_name = "cars"}, ADDED_FOR_MOUNTS, NULL, &e), 0);
    while (!found.held) { /* ctest's limit ends it */
        usleep(10000);
        cache_query(stack_cache(w.stack), &img.refs[0].digest, 1, &found);
    }
    assert_int_equal(added_exports_remove(a, "cars", ADDED_FOR_MOUNTS, &removed), 0);
    assert_true(removed);
    cache_query(stack_cache(w.stack), &img.refs[0].digest, 1, &found);
    assert_true(found.cached);
    image_fake_release(&img);
    return found.held;
}

static void test_start_warm__metadata_is_held_as_long_as_an_export_has_it(void **state)
{
    struct added_exports *a;
    struct start_warm *warm;
    struct image_fake other = {.seed = 2, .size = CONTROL_CHUNKS * CONTROL_CHUNK, .chunk_size = CONTROL_CHUNK};
    control_world_init(&w);
    assert_int_equal(added_exports_open(w.stack, NULL, -1, &a), 0);
    assert_int_equal(start_warm_begin(w.stack, &warm), 0);
    wait_until_held();
    added_exports_warm(a, warm);
    assert_false(is_held_after(a, &other));
    other.seed = 1; /* the first chunk is that of `faces` */
    other.from = all_but_the_first_differ;
    assert_true(is_held_after(a, &other));
    assert_true(first_chunk().held);
    start_warm_end(warm);
    added_exports_close(a);
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_warm__metadata_is_cached_and_held),
        cmocka_unit_test(test_start_warm__a_store_that_is_away_is_no_failure),
        cmocka_unit_test(test_start_warm__metadata_is_held_as_long_as_an_export_has_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* A server has its images' metadata in the cache, held, soon after its start: also where the store comes back later;
 * and its end does not wait for a store that is away. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "image/warm/warm_run.h"
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

/* Serve an image beside `faces`, for a mount. */
static void add_image(struct added_exports *a, struct image_fake *img, const char *name, bool unwarmed)
{
    struct store_fake *fake = store_fake_new();
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    char ref[SCRATCH_MAX + 16];
    image_fake_put(img, fake, name);
    image_fake_save(fake, w.dir);
    store_fake_free(fake);
    snprintf(ref, sizeof ref, "%s/%s", w.dir, name);
    const struct stack_image image = {.ref = ref, .export_name = name, .unwarmed = unwarmed};
    assert_int_equal(added_exports_put(a, &image, ADDED_FOR_MOUNTS, NULL, &e), 0);
}

static void wait_until_held_of(const struct image_fake *img)
{
    struct cache_chunk found = {.held = false};
    while (!found.held) { /* ctest's limit ends it */
        usleep(10000);
        cache_query(stack_cache(w.stack), &img->refs[0].digest, 1, &found);
    }
}

/* Serve an image beside `faces` until its first chunk is held, and then no more. */
static bool is_held_after(struct added_exports *a, const struct image_fake *like)
{
    struct image_fake img = *like;
    struct cache_chunk found;
    bool removed;
    add_image(a, &img, "cars", false);
    wait_until_held_of(&img);
    assert_int_equal(added_exports_remove(a, "cars", ADDED_FOR_MOUNTS, &removed), 0);
    assert_true(removed);
    cache_query(stack_cache(w.stack), &img.refs[0].digest, 1, &found);
    assert_true(found.cached);
    image_fake_release(&img);
    return found.held;
}

/* Exports are warmed in the order in which they were added. */
static void test_start_warm__an_export_that_was_added_without_warming_is_passed_over(void **state)
{
    struct added_exports *a;
    struct start_warm *warm;
    struct image_fake cars = {.seed = 2, .size = CONTROL_CHUNKS * CONTROL_CHUNK, .chunk_size = CONTROL_CHUNK};
    struct image_fake boats = {.seed = 3, .size = CONTROL_CHUNKS * CONTROL_CHUNK, .chunk_size = CONTROL_CHUNK};
    control_world_init(&w);
    assert_int_equal(added_exports_open(w.stack, NULL, -1, &a), 0);
    add_image(a, &cars, "cars", true);
    add_image(a, &boats, "boats", false);
    assert_int_equal(start_warm_begin(w.stack, &warm), 0);
    wait_until_held_of(&boats);
    assert_false(cache_has(stack_cache(w.stack), &cars.refs[0].digest));
    start_warm_end(warm);
    added_exports_close(a);
    image_fake_release(&cars);
    image_fake_release(&boats);
    control_world_release(&w);
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
    /* an export's end pins nothing of others that was not pinned */
    cache_session_unpin(stack_cache(w.stack), &w.img.refs[0].digest);
    assert_false(is_held_after(a, &other));
    assert_false(first_chunk().held);
    assert_int_equal(cache_session_pin(stack_cache(w.stack), &w.img.refs[0].digest), 0);
    other.seed = 1; /* the first chunk is that of `faces` */
    other.from = all_but_the_first_differ;
    assert_true(is_held_after(a, &other));
    assert_true(first_chunk().held);
    start_warm_end(warm);
    added_exports_close(a);
    control_world_release(&w);
}

/* A run's report: what the image says of its warming is the same. */
static int compare_progress(void *arg, const struct warm_report *t)
{
    unsigned *told = arg;
    struct warm_progress p;
    bool warming = !strcmp(t->phase, "warming");
    if (warming && warm_progress(image_at(w.stack, 0), &p)) { /* else it is the look at the end */
        assert_int_equal(p.bytes_done, t->bytes_done);
        assert_int_equal(p.bytes_total, CONTROL_CHUNKS * CONTROL_CHUNK);
        ++*told;
    }
    return 0;
}

static int no_failure(void *arg, const char *path, size_t len, const char *why)
{
    fail_msg("%.*s: %s", (int)len, path, why);
    return 0;
}

static void test_start_warm__an_image_says_how_far_its_warming_is(void **state)
{
    struct warm_result result;
    struct warm_progress p;
    unsigned told = 0;
    control_world_init(&w);
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(w.stack, "");
    struct image *img = stack_export_image(e);
    CLEANUP(cleanup_store) struct store *store = NULL;
    assert_int_equal(stack_open_store(w.stack, e, 60000, NULL, &store), 0);
    assert_false(warm_progress(img, &p));
    const struct warm_config config = {.img = img,
                                       .store = store,
                                       .what = WARM_ALL,
                                       .bwlimit = 16 << 20, /* so that the run is looked at while it goes on */
                                       .tell = compare_progress,
                                       .failed = no_failure,
                                       .arg = &told};
    assert_int_equal(warm_run(&config, &result), 0);
    assert_int_equal(result.after.missing, 0);
    assert_true(told > 0);
    assert_false(warm_progress(img, &p));
    stack_put(steal_ptr(&e));
    store_close(steal_ptr(&store));
    control_world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_warm__metadata_is_cached_and_held),
        cmocka_unit_test(test_start_warm__a_store_that_is_away_is_no_failure),
        cmocka_unit_test(test_start_warm__an_export_that_was_added_without_warming_is_passed_over),
        cmocka_unit_test(test_start_warm__metadata_is_held_as_long_as_an_export_has_it),
        cmocka_unit_test(test_start_warm__an_image_says_how_far_its_warming_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

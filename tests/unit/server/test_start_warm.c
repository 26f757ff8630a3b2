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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_start_warm__metadata_is_cached_and_held),
        cmocka_unit_test(test_start_warm__a_store_that_is_away_is_no_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

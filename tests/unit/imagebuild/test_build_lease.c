/* What others do to a store while a build is under way: gc, when the build stood still.
 */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/lease.h"
#include "unit/rebuild_world.h"

/* How long the machine has slept since a test began. */
static uint64_t slept_ms;

int __wrap_lease_renew(struct lease_handle *l);
int __wrap_lease_renew(struct lease_handle *l)
{
    return lease_renew_at(l, clock_boot_ms() + slept_ms);
}

static int setup(void **state)
{
    static struct world w;
    slept_ms = 0;
    srand(1);
    open_world(&w, 100);
    w.fs = fs_of(state);
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, small_size());
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    store_fake_free(((struct world *)*state)->store);
    return 0;
}

static void assert_nothing_published(struct world *w)
{
    assert_int_equal(store_fake_count(w->store, "images/"), 0);
    assert_int_equal(store_fake_count(w->store, "builds/"), 0);
}

/* ------------------------------------------------------------------ the lease lapses */

/* When everything was looked at, the machine sleeps until the lease is dead, and a gc takes the root of the index. */
static void sleep_at_manifest(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    const struct build_result *r = arg;
    char root[OBJECT_KEY_MAX];
    if (op != FAKE_PUT || strncmp(key, "manifests/", 10) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    slept_ms = (LEASE_LIFE_MIN_S + 1) * 1000;
    assert_true(store_fake_remove(fake, object_key(OBJECT_INDEX, &r->manifest.index_root.digest, root)));
}

static void test_build_lease__what_it_put_is_looked_up_again_when_it_lapsed(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct build_result r;
    store_fake_set_hook(w->store, sleep_at_manifest, &r);
    assert_int_equal(run(w, w->store, &o, &r), -EAGAIN);
    assert_non_null(strstr(error_text(), "run the build again"));
    assert_nothing_published(w);
    slept_ms = 0;
    r = rebuild(w, &o);
    uint64_t size;
    compare_with_full(w, &r, &size);
}

static void sleep_at_tag(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strncmp(key, "images/", 7))
        slept_ms = (LEASE_LIFE_MIN_S + 1) * 1000;
}

static void test_build_lease__fails_when_it_lapsed_while_the_tags_were_put(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct build_result r;
    store_fake_set_hook(w->store, sleep_at_tag, NULL);
    assert_int_equal(run(w, w->store, &o, &r), -EAGAIN);
    assert_non_null(strstr(error_text(), "stood still"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_build_lease__##name, setup, teardown)

#define TEST_EXT4(name) cmocka_unit_test_prestate_setup_teardown(test_build_lease__##name, setup, teardown, &ext4)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_it_put_is_looked_up_again_when_it_lapsed),
        TEST(fails_when_it_lapsed_while_the_tags_were_put),
        TEST_EXT4(fails_when_it_lapsed_while_the_tags_were_put),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

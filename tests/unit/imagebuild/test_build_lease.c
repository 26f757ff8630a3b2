/* What others do to a store while a build is under way: gc when the build stood still, gc that finds the parent
 * unneeded, unnest.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "repository/lease.h"
#include "unit/rebuild_world.h"
#include "unit/threads.h"
#include "upkeep/upkeep.h"

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

static void only_sleep_at_manifest(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strncmp(key, "manifests/", 10))
        slept_ms = (LEASE_LIFE_MIN_S + 1) * 1000;
}

/* The second round finds the manifest that the first one put. */
static void test_build_lease__counts_the_same_when_it_lapsed_and_nothing_was_lost(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    CLEANUP(cleanup_store_fake) struct store_fake *other = store_fake_new();
    struct build_result r, straight;
    assert_int_equal(run(w, other, &o, &straight), 0);
    store_fake_set_hook(w->store, only_sleep_at_manifest, NULL);
    assert_int_equal(run(w, w->store, &o, &r), 0);
    assert_int_equal(r.objects_new, straight.objects_new);
    assert_int_equal(r.bytes_uploaded, straight.bytes_uploaded);
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

/* ------------------------------------------------------------------ the parent is found unneeded */

struct untagging {
    struct world *w;
    const struct build_result *parent;
    int64_t now;
};

static void untag(struct world *w, const struct build_result *r)
{
    struct store *s = store_fake_store(w->store);
    must(repository_remove_tag(s, "faces", "daily") == 0, "%s", error_text());
    must(repository_remove_tag(s, "faces", r->unique_tag) == 0, "%s", error_text());
}

static struct gc_result collect(struct world *w, int64_t now)
{
    const struct gc_options old = {.grace_s = 3600, .now = now};
    struct gc_result r;
    must(gc_run(store_fake_store(w->store), &old, &r) == 0, "%s", error_text());
    return r;
}

/* The parent loses its tags, and a gc marks its packs, but not its manifest, which is young. On a thread that uploads,
 * so neither this nor what it calls may use cmocka's assertions. */
static void untag_parent(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    const struct untagging *u = arg;
    char manifest[OBJECT_KEY_MAX];
    if (op != FAKE_PUT || strncmp(key, "catalogs/", 9) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    untag(u->w, u->parent);
    object_key(OBJECT_MANIFEST, &u->parent->image, manifest);
    must(store_fake_set_mtime(fake, manifest, u->now), "no manifest");
    must(collect(u->w, u->now).marked > 3, "nothing is marked");
}

struct keys {
    char keys[32][OBJECT_KEY_MAX];
    unsigned count;
};

static int note_key(void *arg, const struct store_item *item)
{
    struct keys *k = arg;
    assert_true(k->count < GR_ARRAY_SIZE(k->keys));
    snprintf(k->keys[k->count++], OBJECT_KEY_MAX, "%s", item->key);
    return 0;
}

static void test_build_lease__what_an_untagged_parent_gave_has_its_grace_period(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct build_result first = rebuild(w, &o);
    struct keys packs = {.count = 0};
    assert_int_equal(store_list(store_fake_store(w->store), "packs/", note_key, &packs), 0);
    struct untagging untagging = {.w = w, .parent = &first, .now = time(NULL) + 4000};
    store_fake_set_hook(w->store, untag_parent, &untagging);
    set_file(w, 5, 1000);
    struct build_result second = rebuild(w, &o);
    assert_true(digest_equal(&second.rebuild.parent, &first.image));
    /* The new image loses its tags too, before any gc has seen it: what it shares must wait anew. */
    untag(w, &second);
    collect(w, untagging.now + 4000);
    for (unsigned i = 0; i < packs.count; i++)
        assert_true(store_fake_has(w->store, packs.keys[i]));
}

/* A gc long after the build's packs were put, by this thread or the other that uploads: it may still be at some. As
 * untag_parent, without assertions of cmocka. */
static void collect_late(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    const struct untagging *u = arg;
    if (op != FAKE_PUT || strncmp(key, "catalogs/", 9) != 0)
        return;
    store_fake_set_hook(fake, NULL, NULL);
    for (unsigned ms = 0; store_fake_count(fake, "packs/") + store_fake_count(fake, "indexes/") < 4; ms++) {
        must(ms < 60000, "%zu objects", store_fake_count(fake, ""));
        sleep_ms(1);
    }
    must(collect(u->w, u->now).marked > 3, "nothing is marked");
}

/* The build takes longer than the grace period, so that a gc marks what it has put. */
static void test_build_lease__what_a_long_build_put_has_its_grace_period(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct untagging untagging = {.w = w, .now = time(NULL) + 4000};
    store_fake_set_hook(w->store, collect_late, &untagging);
    struct build_result built = rebuild(w, &o);
    untag(w, &built);
    assert_int_equal(collect(w, untagging.now + 4000).swept, 0);
}

/* ------------------------------------------------------------------ the store goes */

static void remove_store_at_manifest(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op == FAKE_PUT && !strncmp(key, "manifests/", 10))
        (void)store_fake_remove(fake, "granary.json");
}

static void test_build_lease__nothing_is_published_where_the_store_has_gone(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct build_result r;
    o.place.is_store = true;
    assert_int_equal(run(w, w->store, &o, &r), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
    assert_int_equal(store_fake_count(w->store, ""), 0); /* nor was it made anew */
    o.place.is_store = false;
    store_fake_set_hook(w->store, remove_store_at_manifest, NULL);
    assert_int_equal(run(w, w->store, &o, &r), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
    assert_nothing_published(w);
}

/* The machine sleeps while the parent is checked, and an unnest takes the store apart. */
static void sleep_and_remove_store(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    if (op != FAKE_GET_SMALL || strncmp(key, "indexes/", 8) != 0)
        return;
    slept_ms = (LEASE_LIFE_MIN_S + 1) * 1000;
    (void)store_fake_remove(fake, "granary.json");
}

static void test_build_lease__a_store_that_goes_under_it_is_no_damaged_parent(void **state)
{
    struct world *w = *state;
    struct build_options o = options();
    struct build_result r = rebuild(w, &o);
    o.place.is_store = true;
    store_fake_set_hook(w->store, sleep_and_remove_store, NULL);
    assert_int_equal(run(w, w->store, &o, &r), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_build_lease__##name, setup, teardown)
#define TEST_EXT4(name) cmocka_unit_test_prestate_setup_teardown(test_build_lease__##name, setup, teardown, &ext4)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_it_put_is_looked_up_again_when_it_lapsed),
        TEST(counts_the_same_when_it_lapsed_and_nothing_was_lost),
        TEST(fails_when_it_lapsed_while_the_tags_were_put),
        TEST(what_an_untagged_parent_gave_has_its_grace_period),
        TEST(what_a_long_build_put_has_its_grace_period),
        TEST_EXT4(what_an_untagged_parent_gave_has_its_grace_period),
        TEST(nothing_is_published_where_the_store_has_gone),
        TEST(a_store_that_goes_under_it_is_no_damaged_parent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

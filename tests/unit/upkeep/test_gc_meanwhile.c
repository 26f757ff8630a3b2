/* Garbage collection while builds begin and publish, upon a parent too, and while the user interrupts it. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "repository/gc_marks.h"
#include "unit/gc_world.h"

static const struct step no_step;

/* A build that begins while gc is at work: at the given operation it writes its lease, and publishes
 * an image that uses what is about to go. */
struct intruder {
    struct fixture *f;
    const char *at; /* key prefix */
    enum store_fake_op op;
    bool publish, came;
};

static void intrude(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct intruder *in = arg;
    if (in->came || op != in->op || strncmp(key, in->at, strlen(in->at)) != 0)
        return;
    in->came = true;
    if (in->publish) {
        struct tag t = {.digest = in->f->images[0].digest, .created = in->f->now};
        assert_int_equal(repository_publish(in->f->store, "faces", "latest", &t, false), 0);
    } else {
        store_fake_put(fake, "builds/new", "{}", 2);
    }
}

static void test_gc_meanwhile__gives_way_to_a_build_that_begins_meanwhile(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    /* after gc looked for leases the first time, before it announces its sweep */
    struct intruder in = {.f = f, .at = "packs/", .op = FAKE_LIST};
    store_fake_set_hook(f->fake, intrude, &in);
    struct gc_result r = run(f, 0, false);
    assert_true(in.came);
    assert_int_equal(r.live_leases, 1);
    assert_int_equal(r.swept, 0);
    assert_true(image_whole(f, 0));
    assert_false(store_fake_has(f->fake, "trash/sweeping"));
}

static void test_gc_meanwhile__gives_way_in_the_middle_of_a_sweep(void **state)
{
    struct fixture *f = *state;
    for (uint64_t seed = 1; seed < 10; seed++) {
        image_fake_release(&f->images[0]);
        put_image(f, 0, seed, NULL);
    }
    pass(f, GRACE);
    size_t marked = run(f, 0, false).marked;
    pass(f, GRACE);
    struct intruder in = {.f = f, .at = "indexes/", .op = FAKE_REMOVE};
    store_fake_set_hook(f->fake, intrude, &in);
    struct gc_result r = run(f, 0, false);
    assert_true(in.came);
    assert_int_equal(r.live_leases, 1);
    assert_true(r.swept > 0 && r.swept < marked);
    assert_int_equal(store_fake_count(f->fake, "packs/"), 9 * 4); /* packs go last */
}

/* The user interrupts at the given operation. */
struct interrupt {
    const char *at; /* key prefix */
    enum store_fake_op op;
    volatile int cancel;
    unsigned later; /* operations of the same kind that follow */
};

static void interrupt_at(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct interrupt *i = arg;
    if (op != i->op || strncmp(key, i->at, strlen(i->at)) != 0)
        return;
    i->later += i->cancel;
    i->cancel = 1;
}

/* In the walk of the images, in the listing and in the sweep. */
static void test_gc_meanwhile__ends_when_interrupted(void **state)
{
    struct fixture *f = *state;
    struct interrupt at[] = {{.at = "indexes/", .op = FAKE_GET_SMALL},
                             {.at = "manifests/", .op = FAKE_LIST},
                             {.at = "manifests/", .op = FAKE_REMOVE}};
    ripen(f);
    put_image(f, 1, 2, "kept");
    const size_t objects = object_count(f);
    for (size_t i = 0; i < GR_ARRAY_SIZE(at); i++) {
        const struct gc_options options = {.grace_s = GRACE, .now = f->now, .cancel = &at[i].cancel};
        struct gc_result r;
        store_fake_set_hook(f->fake, interrupt_at, &at[i]);
        assert_int_equal(gc_run(f->store, &options, &r), -ECANCELED);
        assert_string_equal(error_text(), "interrupted");
        assert_true(at[i].cancel);
        assert_int_equal(at[i].later, 0);
        assert_int_equal(r.swept, at[i].op == FAKE_REMOVE);
        assert_int_equal(object_count(f), objects - r.swept);
        assert_false(store_fake_has(f->fake, "trash/sweeping"));
    }
    store_fake_set_hook(f->fake, NULL, NULL);
    assert_true(run(f, 0, false).swept > 0);
    assert_true(image_whole(f, 1));
}

static void test_gc_meanwhile__sees_an_image_published_meanwhile(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    struct intruder in = {.f = f, .at = "packs/", .op = FAKE_LIST, .publish = true};
    store_fake_set_hook(f->fake, intrude, &in);
    struct gc_result r = run(f, 0, false);
    assert_true(in.came);
    assert_int_equal(r.swept, 0);
    assert_true(r.unmarked > 0);
    assert_true(image_whole(f, 0));
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
}

/* A build upon a parent whose tag is gone and whose objects are eligible: from the lease on nothing is swept, and
 * before it publishes the marks go, so that what it shares has its whole grace period again. */
static void test_gc_meanwhile__a_parent_outlives_the_build_upon_it(void **state)
{
    struct fixture *f = *state;
    struct lease_handle *l;
    ripen(f);
    assert_int_equal(lease_begin(f->store, &place, "x", NULL, &l), 0);
    assert_int_equal(run(f, 0, false).swept, 0);
    assert_int_equal(gc_hold_parent(f->store, &f->images[0].digest, true, &no_step), 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    lease_end(l);
    /* given up before gc saw it: marked anew, not swept */
    struct gc_result r = run(f, 0, false);
    assert_true(r.marked > 0);
    assert_int_equal(r.swept, 0);
    assert_true(image_whole(f, 0));
}

static int renew_after_long_sleep(void *lease)
{
    return lease_renew_at(lease, clock_boot_ms() + LEASE_LIFE_MIN_S * 1000);
}

/* The lease lapses while the parent is walked, and an unnest has taken the store apart: nothing of the parent is gone.
 */
static void test_gc_meanwhile__a_store_that_goes_is_no_parent_that_lacks_something(void **state)
{
    struct fixture *f = *state;
    CLEANUP(cleanup_lease_handle) struct lease_handle *l = NULL;
    put_image(f, 0, 1, NULL);
    assert_int_equal(lease_begin(f->store, &place, "x", NULL, &l), 0);
    assert_true(store_fake_remove(f->fake, "granary.json"));
    const struct step renew = {.call = renew_after_long_sleep, .arg = l};
    assert_int_equal(gc_hold_parent(f->store, &f->images[0].digest, true, &renew), -ESTALE);
    assert_non_null(strstr(error_text(), "is no longer a store"));
}

/* A build upon a parent whose tag has gone publishes while gc is marking that parent. */
struct publisher {
    struct fixture *f;
    bool came;
};

static void hold_and_publish(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    struct publisher *p = arg;
    if (p->came || op != FAKE_LIST || strncmp(key, "manifests/", 10) != 0)
        return;
    p->came = true; /* packs and index nodes have been marked */
    struct tag t = {.digest = p->f->images[0].digest, .created = p->f->now};
    assert_int_equal(gc_hold_parent(p->f->store, &p->f->images[0].digest, false, &no_step), 0);
    assert_int_equal(repository_publish(p->f->store, "faces", "next", &t, false), 0);
}

static void test_gc_meanwhile__races_a_build_that_publishes_upon_a_parent(void **state)
{
    struct fixture *f = *state;
    struct publisher p = {.f = f};
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    store_fake_set_hook(f->fake, hold_and_publish, &p);
    assert_int_equal(run(f, 0, false).swept, 0);
    assert_true(p.came);
    store_fake_set_hook(f->fake, NULL, NULL);
    pass(f, GRACE);
    assert_int_equal(run(f, 0, false).swept, 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    assert_true(image_whole(f, 0));
}

static void check_lost(struct fixture *f, uint64_t seed, enum object_kind kind, bool look)
{
    char key[OBJECT_KEY_MAX];
    image_fake_release(&f->images[0]);
    put_image(f, 0, seed, NULL);
    const struct image_fake *img = &f->images[0];
    const struct digest *lost = kind == OBJECT_MANIFEST ? &img->digest
                                : kind == OBJECT_PACK   ? &img->refs[9].object
                                                        : &img->manifest.index_root.digest;
    assert_int_equal(gc_hold_parent(f->store, &img->digest, true, &no_step), 0);
    assert_true(store_fake_remove(f->fake, object_key(kind, lost, key)));
    assert_int_equal(gc_hold_parent(f->store, &img->digest, look, &no_step), -EAGAIN);
    assert_non_null(strstr(error_text(), "nothing was published"));
}

static void test_gc_meanwhile__a_parent_that_lost_something_is_noticed(void **state)
{
    check_lost(*state, 1, OBJECT_MANIFEST, false);
    check_lost(*state, 2, OBJECT_MANIFEST, true);
    check_lost(*state, 3, OBJECT_PACK, true);
    check_lost(*state, 4, OBJECT_INDEX, true);
}

/* What granary tag does: an image that is eligible gets a name, loses it again, and has its grace period once more. */
static void test_gc_meanwhile__an_image_that_had_a_name_meanwhile_waits_anew(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    assert_true(store_fake_count(f->fake, "trash/") > 0);
    assert_int_equal(gc_unmark_image(f->store, &f->images[0].digest, &no_step), 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.swept, 0);
    assert_true(image_whole(f, 0));
    store_fake_reset_counters(f->fake);
    put_image(f, 1, 2, "latest");
    pass(f, GRACE);
    assert_true(run(f, 0, false).swept > 0); /* no marks are left: nothing is walked */
    store_fake_reset_counters(f->fake);
    assert_int_equal(gc_unmark_image(f->store, &f->images[1].digest, &no_step), 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_GET_SMALL), 0);
}

static void test_gc_meanwhile__announces_its_sweep(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    struct intruder in = {.f = f, .at = "trash/sweeping", .op = FAKE_PUT};
    store_fake_set_hook(f->fake, intrude, &in);
    run(f, 0, false);
    assert_true(in.came);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_gc_meanwhile__gives_way_to_a_build_that_begins_meanwhile),
        RUN(test_gc_meanwhile__gives_way_in_the_middle_of_a_sweep),
        RUN(test_gc_meanwhile__ends_when_interrupted),
        RUN(test_gc_meanwhile__sees_an_image_published_meanwhile),
        RUN(test_gc_meanwhile__a_parent_outlives_the_build_upon_it),
        RUN(test_gc_meanwhile__a_store_that_goes_is_no_parent_that_lacks_something),
        RUN(test_gc_meanwhile__races_a_build_that_publishes_upon_a_parent),
        RUN(test_gc_meanwhile__a_parent_that_lost_something_is_noticed),
        RUN(test_gc_meanwhile__an_image_that_had_a_name_meanwhile_waits_anew),
        RUN(test_gc_meanwhile__announces_its_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

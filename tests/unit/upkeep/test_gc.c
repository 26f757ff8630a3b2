/* Garbage collection: never what is needed, never on doubt. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "store/gc_marks.h"
#include "store/lease.h"
#include "store/read/index_read.h"
#include "store/repository.h"
#include "upkeep/gc.h"

enum { DAY = 24 * 3600, GRACE = 14 * DAY };
#define EPOCH INT64_C(2000000000) /* the tests' time begins here */

static const struct gc_step no_step;
static const struct nesting place = {.is_store = true};

struct fixture {
    struct store_fake *fake;
    struct store *store;
    struct image_fake images[3];
    int64_t now;
};

static void put_image(struct fixture *f, int i, uint64_t seed, const char *tag)
{
    struct image_fake *img = &f->images[i];
    *img = (struct image_fake){.seed = seed, .size = 1 << 20, .chunk_size = 64 << 10, .pack_chunks = 4};
    image_fake_put(img, f->fake, NULL);
    struct tag t = {.digest = img->digest, .content_root = img->manifest.content_root, .created = f->now};
    if (tag)
        assert_int_equal(repository_publish(f->store, "faces", tag, &t, false), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->fake = store_fake_new();
    f->store = store_fake_store(f->fake);
    f->now = EPOCH;
    store_fake_set_now(f->fake, f->now);
    *state = f;
    return repository_check(f->store, true);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++)
        image_fake_release(&f->images[i]);
    store_fake_free(f->fake);
    free(f);
    return 0;
}

static void pass(struct fixture *f, int64_t seconds)
{
    f->now += seconds;
    store_fake_set_now(f->fake, f->now);
}

static struct gc_result run(struct fixture *f, unsigned keep_last, bool dry_run)
{
    const struct gc_options options = {.grace_s = GRACE, .keep_last = keep_last, .dry_run = dry_run, .now = f->now};
    struct gc_result r;
    if (gc_run(f->store, &options, &r))
        fail_msg("%s", error_text());
    assert_int_equal(r.objects, r.kept + r.marked + r.swept);
    return r;
}

static int run_fails(struct fixture *f)
{
    const struct gc_options options = {.grace_s = 0, .keep_last = 1, .now = f->now};
    struct gc_result r;
    store_fake_reset_counters(f->fake);
    int rc = gc_run(f->store, &options, &r);
    assert_int_equal(store_fake_calls(f->fake, FAKE_PUT), 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_REMOVE), 0);
    return rc;
}

static int count_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    uint64_t *sum = arg;
    *sum += count;
    return 0;
}

/* Every chunk of the image can still be read. */
static bool image_whole(struct fixture *f, int i)
{
    const struct image_fake *img = &f->images[i];
    struct manifest m;
    uint64_t chunks = 0;
    const struct index_walk_ops ops = {.chunks = count_chunks};
    if (repository_manifest(f->store, &img->digest, &m) || index_walk(f->store, &m, &ops, &chunks))
        return false;
    assert_int_equal(chunks, manifest_chunk_count(&m));
    for (uint64_t c = 0; c < chunks; c++) {
        char key[OBJECT_KEY_MAX];
        if (!store_fake_has(f->fake, object_key(OBJECT_PACK, &img->refs[c].object, key)))
            return false;
    }
    return true;
}

static size_t object_count(struct fixture *f)
{
    size_t n = 0;
    for (int kind = 0; kind < OBJECT_KINDS; kind++)
        n += store_fake_count(f->fake, object_kind_prefix((enum object_kind)kind));
    return n;
}

static void test_gc__marks_then_sweeps_what_lost_its_tag(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, "old");
    size_t alone = object_count(f);
    put_image(f, 1, 2, "latest");
    size_t both = object_count(f);
    pass(f, GRACE);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.images, 2);
    assert_int_equal(r.kept, both);
    assert_int_equal(r.marked, 0);

    assert_int_equal(repository_remove_tag(f->store, "faces", "old"), 0);
    r = run(f, 0, false);
    assert_int_equal(r.marked, alone);
    assert_true(r.marked_bytes > 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), alone);
    pass(f, GRACE - 1);
    r = run(f, 0, false);
    assert_int_equal(r.swept, 0);
    assert_int_equal(r.marked, 0);
    assert_true(image_whole(f, 0)); /* its running readers are safe for the grace period */
    pass(f, 1);
    r = run(f, 0, false);
    assert_int_equal(r.swept, alone);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    assert_int_equal(object_count(f), both - alone);
    assert_false(image_whole(f, 0));
    assert_true(image_whole(f, 1));
    r = run(f, 0, false);
    assert_int_equal(r.objects, both - alone);
    assert_int_equal(r.kept, both - alone);
}

static void test_gc__what_is_young_is_not_marked(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, NULL);
    pass(f, GRACE - 1);
    assert_int_equal(run(f, 0, false).marked, 0);
    pass(f, 1);
    assert_true(run(f, 0, false).marked > 0);
}

static void test_gc__what_a_new_image_uses_again_is_unmarked(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    struct gc_result r = run(f, 0, false);
    size_t all = r.marked;
    pass(f, GRACE);
    /* the same image again: a build finds every object there and puts the tag alone */
    struct tag t = {.digest = f->images[0].digest, .created = f->now};
    assert_int_equal(repository_publish(f->store, "faces", "latest", &t, false), 0);
    r = run(f, 0, false);
    assert_int_equal(r.unmarked, all);
    assert_int_equal(r.swept, 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    assert_true(image_whole(f, 0));
}

static void test_gc__never_sweeps_under_a_lease(void **state)
{
    struct fixture *f = *state;
    struct lease_handle *l;
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    run(f, 0, false);
    pass(f, GRACE);
    assert_int_equal(lease_begin(f->store, &place, "x", NULL, &l), 0);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.live_leases, 1);
    assert_int_equal(r.swept, 0);
    assert_true(image_whole(f, 0));
    lease_end(l);
    assert_true(run(f, 0, false).swept > 0);
}

static void test_gc__forgets_dead_leases(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    run(f, 0, false);
    store_fake_put(f->fake, "builds/dead", "{}", 2);
    pass(f, GRACE);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.live_leases, 0);
    assert_true(r.swept > 0);
    assert_false(store_fake_has(f->fake, "builds/dead"));
}

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

static void ripen(struct fixture *f)
{
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    run(f, 0, false);
    pass(f, GRACE);
}

static void test_gc__gives_way_to_a_build_that_begins_meanwhile(void **state)
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

static void test_gc__gives_way_in_the_middle_of_a_sweep(void **state)
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
static void test_gc__ends_when_interrupted(void **state)
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

static void test_gc__sees_an_image_published_meanwhile(void **state)
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
static void test_gc__a_parent_outlives_the_build_upon_it(void **state)
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
static void test_gc__a_store_that_goes_is_no_parent_that_lacks_something(void **state)
{
    struct fixture *f = *state;
    CLEANUP(cleanup_lease_handle) struct lease_handle *l = NULL;
    put_image(f, 0, 1, NULL);
    assert_int_equal(lease_begin(f->store, &place, "x", NULL, &l), 0);
    assert_true(store_fake_remove(f->fake, "granary.json"));
    const struct gc_step renew = {.step = renew_after_long_sleep, .arg = l};
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

static void test_gc__races_a_build_that_publishes_upon_a_parent(void **state)
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

static void test_gc__a_parent_that_lost_something_is_noticed(void **state)
{
    check_lost(*state, 1, OBJECT_MANIFEST, false);
    check_lost(*state, 2, OBJECT_MANIFEST, true);
    check_lost(*state, 3, OBJECT_PACK, true);
    check_lost(*state, 4, OBJECT_INDEX, true);
}

/* What granary tag does: an image that is eligible gets a name, loses it again, and has its grace period once more. */
static void test_gc__an_image_that_had_a_name_meanwhile_waits_anew(void **state)
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

static void test_gc__announces_its_sweep(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    struct intruder in = {.f = f, .at = "trash/sweeping", .op = FAKE_PUT};
    store_fake_set_hook(f->fake, intrude, &in);
    run(f, 0, false);
    assert_true(in.came);
}

static void test_gc__nothing_is_touched_on_doubt(void **state)
{
    struct fixture *f = *state;
    char key[OBJECT_KEY_MAX];
    put_image(f, 0, 1, "latest");
    put_image(f, 1, 2, NULL);
    pass(f, GRACE);
    run(f, 0, false);
    pass(f, GRACE); /* image 1 is eligible now */

    object_key(OBJECT_INDEX, &f->images[0].manifest.index_root.digest, key);
    assert_true(store_fake_flip(f->fake, key, 30));
    assert_int_equal(run_fails(f), -EBADMSG);
    assert_non_null(strstr(error_text(), "faces:latest"));
    assert_true(store_fake_flip(f->fake, key, 30));

    object_key(OBJECT_MANIFEST, &f->images[0].digest, key);
    CLEANUP_BYTES manifest = BYTES_INIT(MANIFEST_MAX);
    assert_true(store_fake_get(f->fake, key, &manifest));
    assert_true(store_fake_flip(f->fake, key, 30));
    assert_int_equal(run_fails(f), -EBADMSG);
    assert_true(store_fake_remove(f->fake, key));
    assert_int_equal(run_fails(f), -EBADMSG);
    store_fake_put(f->fake, key, manifest.data, manifest.len);

    CLEANUP_BYTES tag = BYTES_INIT(TAG_DOC_MAX);
    assert_true(store_fake_get(f->fake, "images/faces/latest", &tag));
    store_fake_put(f->fake, "images/faces/latest", "{}", 2);
    assert_int_equal(run_fails(f), -EBADMSG);
    store_fake_put(f->fake, "images/faces/latest", tag.data, tag.len);

    const enum store_fake_op ops[] = {FAKE_GET_SMALL, FAKE_LIST};
    for (int i = 0; i < 2; i++)
        for (unsigned skip = 0; skip < 4; skip++) {
            store_fake_clear_faults(f->fake);
            store_fake_add_fault(f->fake,
                                 &(struct store_fake_fault){.op = ops[i], .skip = skip, .count = 1, .code = -EACCES});
            const struct gc_options options = {.grace_s = GRACE, .now = f->now};
            struct gc_result r;
            int rc = gc_run(f->store, &options, &r);
            if (rc)
                assert_int_equal(r.swept, 0);
            assert_true(image_whole(f, 0));
            if (!rc)
                break;
        }
    store_fake_clear_faults(f->fake);
    assert_true(image_whole(f, 0));
}

static void test_gc__random_faults_never_cost_a_needed_object(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, "latest");
    put_image(f, 1, 2, NULL);
    put_image(f, 2, 3, "other");
    const struct gc_options base = {.grace_s = GRACE};
    for (uint64_t seed = 1; seed < 60; seed++) {
        pass(f, GRACE / 3);
        store_fake_seed(f->fake, seed);
        store_fake_clear_faults(f->fake);
        store_fake_add_fault(f->fake, &(struct store_fake_fault){.op = FAKE_ANY, .permille = 60, .code = -EAGAIN});
        store_fake_add_fault(
            f->fake, &(struct store_fake_fault){.op = FAKE_ANY, .kind = FAKE_LOSE, .permille = 40, .code = -ETIMEDOUT});
        struct gc_options options = base;
        struct gc_result r;
        options.now = f->now;
        (void)!gc_run(f->store, &options, &r);
        store_fake_clear_faults(f->fake);
        assert_true(image_whole(f, 0));
        assert_true(image_whole(f, 2));
    }
    run(f, 0, false);
    pass(f, GRACE);
    run(f, 0, false);
    assert_false(image_whole(f, 1));
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
}

static void test_gc__dry_run_writes_nothing(void **state)
{
    struct fixture *f = *state;
    ripen(f);
    put_image(f, 1, 2, NULL);
    store_fake_put(f->fake, "builds/dead", "{}", 2);
    pass(f, GRACE);
    store_fake_reset_counters(f->fake);
    struct gc_result r = run(f, 0, true);
    assert_true(r.swept > 0 && r.marked > 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_PUT), 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_REMOVE), 0);
    assert_int_equal(r.swept, run(f, 0, false).swept);
}

static void publish_build(struct fixture *f, int i, uint64_t seed)
{
    char hex[DIGEST_HEX_SIZE], tag[64];
    put_image(f, i, seed, "latest");
    snprintf(tag, sizeof tag, "t%llu-%.12s", (unsigned long long)seed, digest_hex(&f->images[i].digest, hex));
    struct tag t = {.digest = f->images[i].digest, .created = f->now};
    assert_int_equal(repository_publish(f->store, "faces", tag, &t, false), 0);
    pass(f, 10);
}

static void test_gc__keep_last_gives_up_old_build_tags_only(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++)
        publish_build(f, i, (uint64_t)i + 1);
    struct tag mine = {.digest = f->images[0].digest, .created = 1};
    assert_int_equal(repository_publish(f->store, "faces", "prod", &mine, false), 0);
    pass(f, GRACE);
    assert_int_equal(store_fake_count(f->fake, "images/"), 5);
    struct gc_result r = run(f, 1, true);
    assert_int_equal(r.tags_removed, 2);
    uint64_t would = r.marked;
    r = run(f, 1, false);
    assert_int_equal(r.tags_removed, 2);
    assert_int_equal(r.marked, would);
    assert_true(would > 0);
    assert_int_equal(store_fake_count(f->fake, "images/"), 3);
    assert_int_equal(r.images, 2); /* prod's and latest's */
    pass(f, GRACE);
    run(f, 1, false);
    assert_true(image_whole(f, 0));
    assert_false(image_whole(f, 1));
    assert_true(image_whole(f, 2));
}

static void test_gc__of_builds_within_a_second_the_current_one_is_kept(void **state)
{
    struct fixture *f = *state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        publish_build(f, 0, 6 + seed);
        pass(f, -10);
        image_fake_release(&f->images[0]);
    }
    publish_build(f, 0, 5); /* the last, though its tag comes first */
    pass(f, GRACE);
    struct gc_result r = run(f, 1, false);
    assert_int_equal(r.tags_removed, 3);
    assert_int_equal(r.images, 1);
    pass(f, GRACE);
    run(f, 1, false);
    assert_true(image_whole(f, 0));
}

static void test_gc__leaves_what_it_does_not_know(void **state)
{
    struct fixture *f = *state;
    const char *const keys[] = {"packs/README", "packs/ab/short", "notes/x", "manifests/ab/cd", "trash/hello"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++)
        store_fake_put(f->fake, keys[i], "x", 1);
    for (int i = 0; i < 3; i++) {
        pass(f, GRACE);
        assert_int_equal(run(f, 0, false).objects, 0);
    }
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++)
        assert_true(store_fake_has(f->fake, keys[i]));
}

static void test_gc__a_mark_that_lies_or_is_torn_sweeps_nothing(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, NULL);
    char key[OBJECT_KEY_MAX], hex[DIGEST_HEX_SIZE];
    snprintf(key, sizeof key, "trash/%s", digest_hex(&f->images[0].digest, hex));
    store_fake_put(f->fake, key, "{", 1);
    pass(f, 3 * GRACE);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.swept, 0);
    /* marked long ago by the store's clock, yesterday by its own word */
    CLEANUP_BYTES doc = BYTES_INIT(4096);
    char object[OBJECT_KEY_MAX];
    assert_int_equal(bytes_printf(&doc, "{\"format\":\"granary-trash\",\"version\":1,\"key\":\"%s\",\"marked\":%lld}",
                                  object_key(OBJECT_MANIFEST, &f->images[0].digest, object), (long long)(f->now - DAY)),
                     0);
    store_fake_put(f->fake, key, doc.data, doc.len);
    store_fake_set_mtime(f->fake, key, EPOCH);
    assert_int_equal(run(f, 0, false).swept, 0);
    pass(f, GRACE);
    assert_true(run(f, 0, false).swept > 0);
}

static void test_gc__refuses_what_is_no_store(void **state)
{
    struct fixture *f = *state;
    assert_true(store_fake_remove(f->fake, "granary.json"));
    assert_int_equal(run_fails(f), -ENOENT);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_gc__marks_then_sweeps_what_lost_its_tag),
        RUN(test_gc__what_is_young_is_not_marked),
        RUN(test_gc__what_a_new_image_uses_again_is_unmarked),
        RUN(test_gc__never_sweeps_under_a_lease),
        RUN(test_gc__forgets_dead_leases),
        RUN(test_gc__gives_way_to_a_build_that_begins_meanwhile),
        RUN(test_gc__gives_way_in_the_middle_of_a_sweep),
        RUN(test_gc__ends_when_interrupted),
        RUN(test_gc__sees_an_image_published_meanwhile),
        RUN(test_gc__a_parent_outlives_the_build_upon_it),
        RUN(test_gc__a_store_that_goes_is_no_parent_that_lacks_something),
        RUN(test_gc__races_a_build_that_publishes_upon_a_parent),
        RUN(test_gc__a_parent_that_lost_something_is_noticed),
        RUN(test_gc__an_image_that_had_a_name_meanwhile_waits_anew),
        RUN(test_gc__announces_its_sweep),
        RUN(test_gc__nothing_is_touched_on_doubt),
        RUN(test_gc__random_faults_never_cost_a_needed_object),
        RUN(test_gc__dry_run_writes_nothing),
        RUN(test_gc__keep_last_gives_up_old_build_tags_only),
        RUN(test_gc__of_builds_within_a_second_the_current_one_is_kept),
        RUN(test_gc__leaves_what_it_does_not_know),
        RUN(test_gc__a_mark_that_lies_or_is_torn_sweeps_nothing),
        RUN(test_gc__refuses_what_is_no_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

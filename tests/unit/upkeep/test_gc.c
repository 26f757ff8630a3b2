/* Garbage collection: never what is needed, never on doubt. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "repository/gc_marks.h"
#include "repository/read/catalog_read.h"
#include "unit/gc_world.h"

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
    assert_int_equal(r.needed, both);
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
    assert_int_equal(r.waiting, alone);
    assert_int_equal(r.needed, both - alone);
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
    assert_int_equal(r.needed, both - alone);
}

static void test_gc__what_is_young_is_not_marked(void **state)
{
    struct fixture *f = *state;
    put_image(f, 0, 1, NULL);
    pass(f, GRACE - 1);
    struct gc_result r = run(f, 0, false);
    assert_int_equal(r.marked, 0);
    assert_int_equal(r.young, object_count(f));
    pass(f, 1);
    assert_int_equal(run(f, 0, false).marked, r.young);
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

/* ---- catalogs whose pages are deltas ---- */

enum { LISTED = 300 };

/* Put image i with a catalog of one page of entries, of which the first has content `version`. upon: the image whose
 * page it is a delta of; NULL: none. */
static void put_listed(struct fixture *f, int i, const struct image_fake *upon, unsigned version, const char *tag)
{
    static char paths[LISTED][8];
    struct catalog_entry entries[LISTED];
    for (unsigned e = 0; e < LISTED; e++) {
        size_t len = (size_t)snprintf(paths[e], sizeof paths[e], "%05u", e);
        uint32_t says[] = {e, e ? 0 : version};
        entries[e] = (struct catalog_entry){.path = paths[e], .path_len = len, .mode = S_IFREG | 0644};
        entries[e].content = digest_of(says, sizeof says);
    }
    struct image_fake *img = &f->images[i];
    *img = (struct image_fake){.seed = 7, .size = 1 << 20, .chunk_size = 64 << 10, .pack_chunks = 4};
    img->entries = entries;
    img->entry_count = LISTED;
    img->upon = upon;
    image_fake_put(img, f->fake, NULL);
    img->entries = NULL;
    struct tag t = {.digest = img->digest, .content_root = img->manifest.content_root, .created = f->now};
    if (tag)
        assert_int_equal(repository_publish(f->store, "faces", tag, &t, false), 0);
}

static int count_entry(void *arg, const struct catalog_entry *entry)
{
    ++*(unsigned *)arg;
    return 0;
}

/* Every entry of the catalog can be read. */
static bool catalog_whole(struct fixture *f, int i)
{
    unsigned entries = 0;
    return !catalog_walk(f->store, &f->images[i].manifest, NULL, 0, count_entry, &entries) && entries == LISTED;
}

/* Mark and sweep all that is not needed. */
static void collect(struct fixture *f)
{
    for (int i = 0; i < 3; i++) {
        pass(f, GRACE);
        run(f, 0, false);
    }
}

/* The base belongs to every image whose pages are deltas of it, after all others are gone. */
static void test_gc__a_delta_keeps_its_base(void **state)
{
    struct fixture *f = *state;
    put_listed(f, 0, NULL, 0, "first");
    put_listed(f, 1, &f->images[0], 1, "second");
    put_listed(f, 2, &f->images[1], 2, "third"); /* upon the same base: that of image 1 is none */
    assert_true(catalog_whole(f, 1) && catalog_whole(f, 2));
    assert_int_equal(repository_remove_tag(f->store, "faces", "first"), 0);
    assert_int_equal(repository_remove_tag(f->store, "faces", "second"), 0);
    collect(f);
    assert_int_equal(store_fake_count(f->fake, "manifests/"), 1);
    assert_int_equal(store_fake_count(f->fake, "catalogs/"), 3); /* root, delta, base */
    assert_true(catalog_whole(f, 2) && image_whole(f, 2));
    assert_int_equal(repository_remove_tag(f->store, "faces", "third"), 0);
    collect(f);
    assert_int_equal(object_count(f), 0);
}

/* A base that is marked, since only an image without a tag needs it, is unmarked with the image. */
static void test_gc__a_tag_unmarks_the_base(void **state)
{
    struct fixture *f = *state;
    put_listed(f, 0, NULL, 0, NULL);
    put_listed(f, 1, &f->images[0], 1, NULL);
    pass(f, GRACE);
    assert_true(run(f, 0, false).marked > 0);
    const struct step step = {.call = NULL};
    struct tag t = {.digest = f->images[1].digest, .created = f->now};
    assert_int_equal(gc_unmark_image(f->store, &t.digest, &step), 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 2); /* of image 0: its manifest and its own root page */
    assert_int_equal(repository_publish(f->store, "faces", "latest", &t, false), 0);
    collect(f);
    assert_true(catalog_whole(f, 1));
}

/* The same for chunks: the packs of the bases stay for the last image, and lose their marks with it. */
static void test_gc__deltas_of_chunks_keep_the_packs_of_their_bases(void **state)
{
    struct fixture *f = *state;
    const struct step step = {.call = NULL};
    put_image(f, 0, 1, "first");
    put_image_upon(f, 1, 2, &f->images[0], "second");
    assert_true(chunk_is_delta(&f->images[1].refs[0]));
    const size_t packs = store_fake_count(f->fake, "packs/");
    assert_int_equal(repository_remove_tag(f->store, "faces", "first"), 0);
    collect(f);
    assert_int_equal(store_fake_count(f->fake, "manifests/"), 1);
    assert_int_equal(store_fake_count(f->fake, "packs/"), packs);
    assert_true(image_whole(f, 1));
    assert_int_equal(repository_remove_tag(f->store, "faces", "second"), 0);
    pass(f, GRACE);
    assert_true(run(f, 0, false).marked > packs);
    struct tag t = {.digest = f->images[1].digest, .created = f->now};
    assert_int_equal(gc_unmark_image(f->store, &t.digest, &step), 0);
    assert_int_equal(store_fake_count(f->fake, "trash/"), 0);
    assert_int_equal(repository_publish(f->store, "faces", "latest", &t, false), 0);
    collect(f);
    assert_true(image_whole(f, 1));
    assert_int_equal(repository_remove_tag(f->store, "faces", "latest"), 0);
    collect(f);
    assert_int_equal(object_count(f), 0);
}

static void count_page_gets(void *arg, struct store_fake *fake, enum store_fake_op op, const char *key)
{
    bool is_get = op == FAKE_GET || op == FAKE_GET_SMALL;
    *(unsigned *)arg += is_get && !strncmp(key, "catalogs/", 9);
}

/* gc reads no page of entries, and so no base either. */
static void test_gc__finds_bases_without_reading_them(void **state)
{
    struct fixture *f = *state;
    unsigned gets = 0;
    put_listed(f, 0, NULL, 0, NULL);
    put_listed(f, 1, &f->images[0], 1, "latest");
    store_fake_set_hook(f->fake, count_page_gets, &gets);
    run(f, 0, true);
    store_fake_set_hook(f->fake, NULL, NULL);
    assert_int_equal(gets, 1); /* the root page */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_gc__marks_then_sweeps_what_lost_its_tag),
        RUN(test_gc__what_is_young_is_not_marked),
        RUN(test_gc__what_a_new_image_uses_again_is_unmarked),
        RUN(test_gc__never_sweeps_under_a_lease),
        RUN(test_gc__forgets_dead_leases),
        RUN(test_gc__nothing_is_touched_on_doubt),
        RUN(test_gc__random_faults_never_cost_a_needed_object),
        RUN(test_gc__dry_run_writes_nothing),
        RUN(test_gc__keep_last_gives_up_old_build_tags_only),
        RUN(test_gc__of_builds_within_a_second_the_current_one_is_kept),
        RUN(test_gc__leaves_what_it_does_not_know),
        RUN(test_gc__a_mark_that_lies_or_is_torn_sweeps_nothing),
        RUN(test_gc__refuses_what_is_no_store),
        RUN(test_gc__a_delta_keeps_its_base),
        RUN(test_gc__deltas_of_chunks_keep_the_packs_of_their_bases),
        RUN(test_gc__a_tag_unmarks_the_base),
        RUN(test_gc__finds_bases_without_reading_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Builds upon a parent of which the store has lost something: what they publish is whole.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "unit/counts.h"
#include "unit/rebuild_world.h"
#include "upkeep/upkeep.h"

/* ------------------------------------------------------------------ damage */

enum damage { MISSING, CUT, REPLACED, LONGER, DAMAGES };

struct keys {
    VEC(char *) list;
};

static void keys_release(struct keys *k)
{
    for (size_t i = 0; i < k->list.len; i++)
        free(k->list.items[i]);
    vec_release(&k->list);
}

static int collect_key(void *arg, const struct store_item *item)
{
    struct keys *keys = arg;
    assert_int_equal(vec_push(&keys->list, strdup(item->key)), 0);
    return 0;
}

static void damage(struct store_fake *store, const char *key, enum damage kind)
{
    CLEANUP_BYTES body = BYTES_INIT(1 << 30);
    uint8_t *more;
    assert_true(store_fake_get(store, key, &body));
    if (kind == MISSING)
        assert_true(store_fake_remove(store, key));
    if (kind == CUT)
        assert_true(store_fake_truncate(store, key, body.len - 1));
    for (size_t i = 0; kind == REPLACED && i < body.len; i++)
        body.data[i] = (uint8_t)rand();
    if (kind == LONGER)
        assert_int_equal(bytes_extend(&body, 5000, &more), 0);
    if (kind == REPLACED || kind == LONGER)
        store_fake_put(store, key, body.data, body.len);
}

/* One in `every` of the objects below the prefix, from the first on; returns how many. */
static unsigned damage_some(struct store_fake *store, const char *prefix, unsigned every, enum damage kind)
{
    struct keys keys CLEANUP(keys_release) = {0};
    struct store *s = store_fake_store(store);
    unsigned damaged = 0;
    assert_int_equal(store_list(s, prefix, collect_key, &keys), 0);
    for (size_t i = 0; i < keys.list.len; i += every) {
        damage(store, keys.list.items[i], kind);
        damaged++;
    }
    return damaged;
}

static void print_problem(void *arg, const char *sentence)
{
    fprintf(stderr, "verify: %s\n", sentence);
}

static void verify_whole(struct store_fake *store, const struct build_result *r)
{
    const struct verify_options deep = {.deep = true, .problem = print_problem};
    struct verify_result found;
    assert_int_equal(verify_image(store_fake_store(store), &r->manifest, &deep, &found), 0);
    assert_int_equal(found.problems, 0);
}

/* ------------------------------------------------------------------ packs */

/* What the store has lost of the parent is read from the source again, and no more than that. */
static void test_rebuild_damage__damaged_packs_are_read_again(void **state)
{
    static struct world w;
    for (enum damage kind = 0; kind < DAMAGES; kind++) {
        struct build_options o = options();
        uint64_t size;
        srand(11 + kind);
        open_world(&w, 600);
        w.fs = fs_of(state);
        for (unsigned i = 0; i < w.count; i++)
            set_file(&w, i, small_size());
        (void)rebuild(&w, &o);
        assert_true(damage_some(w.store, "packs/", 4, kind) > 2);
        set_file(&w, 9, 10000);
        struct build_result r = rebuild(&w, &o);
        verify_whole(w.store, &r);
        if (kind != LONGER) /* which compares names too */
            compare_with_full(&w, &r, &size);
        assert_int_equal(r.rebuild.unchanged + r.rebuild.healed, w.count - 1);
        assert_int_equal(r.rebuild.changed, 1);
        if (kind == LONGER) { /* what is needed is there */
            assert_int_equal(r.rebuild.packs_damaged, 0);
        } else {
            assert_true(r.rebuild.packs_damaged > 2);
            assert_true(r.rebuild.healed > 10 && r.rebuild.unchanged > 100);
        }
        assert_int_equal(r.bytes_read, r.rebuild.bytes_healed + 10000);
        /* and it is a parent as good as any */
        struct build_result next = rebuild(&w, &o);
        assert_int_equal(next.rebuild.packs_damaged, 0);
        assert_int_equal(next.bytes_read, 0);
        store_fake_free(w.store);
    }
}

/* The same image comes out, whose packs have the names of the damaged ones. */
static void test_rebuild_damage__an_unchanged_source_heals_its_packs(void **state)
{
    static struct world w;
    for (enum damage kind = 0; kind < LONGER; kind++) {
        struct build_options o = options();
        srand(3);
        open_world(&w, 300);
        for (unsigned i = 0; i < w.count; i++)
            set_file(&w, i, small_size());
        (void)rebuild(&w, &o);
        assert_true(damage_some(w.store, "packs/", 1, kind) > 2);
        struct build_result r = rebuild(&w, &o);
        assert_int_equal(r.rebuild.healed, w.count);
        verify_whole(w.store, &r);
        store_fake_free(w.store);
    }
}

/* ------------------------------------------------------------------ metadata */

struct metadata {
    uint64_t chunk;
    struct chunk_ref first;
};

static void note_metadata(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct metadata *m = arg;
    (void)plain;
    if (number == m->chunk)
        m->first = *ref;
}

/* Flip a byte of the first chunk of an image's metadata. Before a build only the last chunk of a pack is looked at. */
static void flip_metadata(struct world *w, const struct manifest *m)
{
    struct metadata found = {.chunk = m->metadata_offset / CHUNK};
    char key[OBJECT_KEY_MAX];
    read_back_node(w->store, &m->index_root, m->index_levels - 1, 0, note_metadata, &found);
    assert_true(found.first.stored_len > 0);
    object_key(OBJECT_PACK, &found.first.object, key);
    assert_true(store_fake_flip(w->store, key, found.first.offset));
}

/* An image of empty files, with several chunks of metadata in one pack. */
static struct build_result open_metadata(struct world *w, struct build_options *o)
{
    *o = options();
    o->zstd_level = 0;
    o->pack_size = 1 << 20;
    open_world(w, 2900);
    for (unsigned i = 0; i < w->count; i++)
        set_file(w, i, 0);
    return rebuild(w, o);
}

/* What is published upon damaged metadata refers to none of it, day after day. */
static void test_rebuild_damage__damaged_metadata_is_written_anew(void **state)
{
    static struct world w;
    struct build_options o;
    for (unsigned changed = 0; changed < 2; changed++) {
        struct build_result r = open_metadata(&w, &o);
        for (unsigned day = 0; day < 3; day++) {
            flip_metadata(&w, &r.manifest);
            if (changed)
                set_file(&w, w.count - 1, day + 1);
            r = rebuild(&w, &o);
            assert_int_equal(r.rebuild.packs_damaged, 0);
            assert_int_equal(r.rebuild.unchanged, w.count - changed);
            verify_whole(w.store, &r);
        }
        assert_true(damage_some(w.store, "packs/", 1, MISSING) > 0);
        r = rebuild(&w, &o);
        verify_whole(w.store, &r);
        store_fake_free(w.store);
    }
}

static void test_rebuild_damage__damaged_metadata_of_a_named_parent_ends_the_build(void **state)
{
    static struct world w;
    struct build_options o;
    struct image_ref parent;
    struct build_result r = open_metadata(&w, &o);
    assert_int_equal(image_ref_parse("/store/faces:daily", &parent), 0);
    o.parents = &parent;
    o.parent_count = 1;
    flip_metadata(&w, &r.manifest);
    assert_int_equal(run(&w, w.store, &o, &r), -EBADMSG);
    assert_non_null(strstr(error_text(), "--parent none"));
    store_fake_free(w.store);
}

/* ------------------------------------------------------------------ a damaged parent */

static const char *const describing[] = {"manifests/", "indexes/", "catalogs/"};

/* An image whose index and catalog have inner nodes: ext4 has one of 256 MiB, most of it holes. */
static struct build_result open_described(struct world *w)
{
    struct build_options o = options();
    o.chunk_size = 2 * CHUNK;
    open_world(w, 1100);
    w->fs = MANIFEST_EXT4;
    for (unsigned i = 0; i < w->count; i++)
        set_file(w, i, 1 + i % 1000);
    struct build_result r = rebuild(w, &o);
    assert_true(r.manifest.index_levels == 2 && r.manifest.catalog_levels == 2);
    return r;
}

/* Whatever object it is, the build goes on without a parent, and the next one has a parent again. */
static void test_rebuild_damage__a_damaged_parent_is_healed(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result first = open_described(&w), r;
    for (unsigned kind = 0; kind < GR_ARRAY_SIZE(describing); kind++) {
        struct keys keys CLEANUP(keys_release) = {0};
        assert_int_equal(store_list(store_fake_store(w.store), describing[kind], collect_key, &keys), 0);
        assert_true(keys.list.len >= (kind ? 2u : 1u));
        o.chunk_size = kind ? 0 : 2 * CHUNK; /* 0: the parent's, if its manifest can be read */
        for (size_t i = 0; i < keys.list.len; i++)
            for (enum damage how = 0; how < DAMAGES; how += full_or(1, 2)) {
                damage(w.store, keys.list.items[i], how);
                r = rebuild(&w, &o);
                assert_true(r.rebuild.parent_damaged && !r.rebuild.parents);
                assert_int_equal(r.bytes_read, w.listed);
                assert_true(digest_equal(&r.image, &first.image)); /* the source is as it was */
                assert_int_equal(r.objects_healed, how != MISSING);
                assert_int_equal(r.objects_new, 1);
                verify_whole(w.store, &r);
                r = rebuild(&w, &o);
                assert_true(!r.rebuild.parent_damaged && digest_equal(&r.rebuild.parent, &first.image));
            }
    }
    store_fake_free(w.store);
}

/* A store with an image of so many small files. */
static void open_small(struct world *w, unsigned files, struct build_options *o)
{
    srand(5);
    open_world(w, files);
    for (unsigned i = 0; i < w->count; i++)
        set_file(w, i, small_size());
    (void)rebuild(w, o);
}

/* A parent of another day has objects that no build from today's files makes again: it stays as it is. */
static void test_rebuild_damage__a_damaged_parent_of_another_day(void **state)
{
    static struct world w;
    for (unsigned kind = 0; kind < GR_ARRAY_SIZE(describing); kind++) {
        struct build_options o = options();
        struct build_result r;
        uint64_t size;
        open_small(&w, 400, &o);
        set_file(&w, 9, 10000);
        (void)rebuild(&w, &o);
        set_file(&w, 10, 10000);
        damage_some(w.store, describing[kind], 1, REPLACED);
        /* a new tag's parent is the name's newest image */
        assert_int_equal(run_as(&w, w.store, kind ? "/store/faces:daily" : "/store/faces:new", &o, &r), 0);
        assert_true(r.rebuild.parent_damaged);
        compare_with_full(&w, &r, &size);
        verify_whole(w.store, &r);
        store_fake_free(w.store);
    }
}

/* The user wants this parent and no other. */
static void test_rebuild_damage__a_named_parent_that_is_damaged_ends_the_build(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    struct image_ref parent;
    o.chunk_size = 0;
    assert_int_equal(image_ref_parse("/store/faces:daily", &parent), 0);
    for (unsigned kind = 0; kind < GR_ARRAY_SIZE(describing); kind++) {
        (void)open_described(&w);
        o.parents = &parent;
        o.parent_count = 1;
        damage_some(w.store, describing[kind], 1, kind ? REPLACED : MISSING);
        set_file(&w, 9, 10000);
        assert_int_equal(run(&w, w.store, &o, &r), -EBADMSG);
        assert_non_null(strstr(error_text(), "--parent none"));
        assert_int_equal(store_fake_count(w.store, "images/"), 2);
        store_fake_free(w.store);
    }
}

/* A store that gives no answer may give the right one later: nothing is read in full because of it. */
static void test_rebuild_damage__a_store_that_fails_is_no_damaged_parent(void **state)
{
    static const int codes[] = {-EAGAIN, -ETIMEDOUT, -EIO, -EACCES};
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    o.chunk_size = 0;
    (void)open_described(&w);
    set_file(&w, 9, 10000);
    for (unsigned i = 0; i < GR_ARRAY_SIZE(describing) * GR_ARRAY_SIZE(codes); i++) {
        const int code = codes[i / GR_ARRAY_SIZE(describing)];
        store_fake_add_fault(
            w.store, &(struct store_fake_fault){
                         .op = FAKE_GET_SMALL, .kind = FAKE_FAIL, .key_prefix = describing[i % 3], .code = code});
        assert_int_equal(run(&w, w.store, &o, &r), code);
        assert_true(!r.rebuild.parent_damaged);
        assert_int_equal(r.bytes_read, 0);
        assert_int_equal(store_fake_count(w.store, "images/"), 2);
        store_fake_clear_faults(w.store);
    }
    store_fake_free(w.store);
}

/* Objects that are lost while the build runs: whichever it reads first, the image is right, or there is none. */
static void test_rebuild_damage__a_parent_that_is_lost_on_the_way(void **state)
{
    static struct world w;
    unsigned gone = 0, healed = 0, ended = 0;
    for (unsigned skip = 0; !gone; skip++) {
        struct build_options o = options();
        struct build_result r;
        uint64_t size;
        open_small(&w, 300, &o);
        for (unsigned i = 0; i < w.count; i += 3)
            set_file(&w, i, 20000);
        o.compact_percent = 0; /* a moved file whose read fails is read from the source */
        store_fake_add_fault(w.store, &(struct store_fake_fault){.op = FAKE_GET_SMALL,
                                                                 .kind = FAKE_FAIL,
                                                                 .key_prefix = describing[1],
                                                                 .skip = skip,
                                                                 .count = 1,
                                                                 .code = -ENOENT});
        int rc = run(&w, w.store, &o, &r);
        if (rc) {
            assert_int_equal(rc, -EBADMSG);
            assert_non_null(strstr(error_text(), "--parent none"));
            assert_int_equal(store_fake_count(w.store, "images/"), 2);
            ended++;
        } else {
            compare_with_full(&w, &r, &size);
            healed += r.rebuild.parent_damaged;
            gone = !r.rebuild.parent_damaged; /* it is not read that often */
        }
        store_fake_free(w.store);
    }
    assert_true(healed > 0 && ended > 0);
}

/* Without a parent nothing that stands under an object's name passes for it, unless it is that long and ends so. */
static void test_rebuild_damage__a_full_build_replaces_what_is_damaged(void **state)
{
    static const char *const prefixes[] = {"packs/", "indexes/", "catalogs/"};
    static struct world w;
    for (unsigned i = 0; i < DAMAGES * GR_ARRAY_SIZE(prefixes); i++) {
        struct build_options o = options();
        srand(i);
        open_world(&w, 300);
        for (unsigned f = 0; f < w.count; f++)
            set_file(&w, f, small_size());
        o.no_parent = true;
        struct build_result first = rebuild(&w, &o);
        assert_true(damage_some(w.store, prefixes[i / DAMAGES], 1, i % DAMAGES) > 0);
        struct build_result r = rebuild(&w, &o);
        assert_true(digest_equal(&r.image, &first.image));
        verify_whole(w.store, &r);
        store_fake_free(w.store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rebuild_damage__damaged_packs_are_read_again),
        cmocka_unit_test_prestate(test_rebuild_damage__damaged_packs_are_read_again, &ext4),
        cmocka_unit_test(test_rebuild_damage__an_unchanged_source_heals_its_packs),
        cmocka_unit_test(test_rebuild_damage__damaged_metadata_is_written_anew),
        cmocka_unit_test(test_rebuild_damage__damaged_metadata_of_a_named_parent_ends_the_build),
        cmocka_unit_test(test_rebuild_damage__a_damaged_parent_is_healed),
        cmocka_unit_test(test_rebuild_damage__a_damaged_parent_of_another_day),
        cmocka_unit_test(test_rebuild_damage__a_named_parent_that_is_damaged_ends_the_build),
        cmocka_unit_test(test_rebuild_damage__a_store_that_fails_is_no_damaged_parent),
        cmocka_unit_test(test_rebuild_damage__a_parent_that_is_lost_on_the_way),
        cmocka_unit_test(test_rebuild_damage__a_full_build_replaces_what_is_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Erasure: what is left, after a build with --scrub, of the bytes of a file that is gone. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "unit/rebuild_world.h"
#include "upkeep/upkeep.h"

/* Do these bytes stand anywhere in the image's chunks? */
static bool image_holds(struct world *w, const struct build_result *r, const uint8_t *what, size_t len)
{
    struct image i = open_built(w->store, r);
    bool found = memmem(i.data, i.manifest.size, what, len) != NULL;
    close_built(&i);
    return found;
}

static void test_erasure__scrub_leaves_no_byte_of_what_is_gone(void **state)
{
    static struct world w;
    struct build_options o = options();
    uint8_t secret[64];
    uint64_t size;
    srand(3);
    open_world(&w, 200);
    w.fs = fs_of(state);
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, small_size());
    set_file(&w, 77, 3000);
    for (unsigned i = 0; i < sizeof secret; i++)
        secret[i] = source_fake_byte(w.paths[77].seed, 1000 + i);
    o.compact_percent = 0;
    struct build_result r = rebuild(&w, &o);
    assert_true(image_holds(&w, &r, secret, sizeof secret));
    w.paths[77].there = false;
    r = rebuild(&w, &o);
    assert_true(image_holds(&w, &r, secret, sizeof secret)); /* dead, beside the living */
    o.scrub = true;
    r = rebuild(&w, &o);
    assert_false(image_holds(&w, &r, secret, sizeof secret));
    assert_int_equal(r.bytes_read, 0);
    assert_int_equal(r.rebuild.chunks_scrubbed, 1);
    assert_in_range(r.rebuild.bytes_scrubbed, 2900, 3000); /* but zeros that were its own */
    assert_true(r.bytes_uploaded < 3 * o.pack_size);       /* with what stood in packs beside the dead */
    compare_with_full(&w, &r, &size);
    /* scrubbed again it is the same image, and nothing is stored */
    struct build_result again = rebuild(&w, &o);
    assert_true(digest_equal(&r.image, &again.image));
    assert_int_equal(again.bytes_uploaded, 0);
    assert_int_equal(again.rebuild.chunks_scrubbed, 0);
    store_fake_free(w.store);
}

struct search {
    struct store_fake *store;
    const uint8_t *what;
    size_t len;
    unsigned found;
    uint64_t pack_bytes;
};

static int search_object(void *arg, const struct store_item *item)
{
    struct search *s = arg;
    CLEANUP_BYTES object = BYTES_INIT(64 << 20);
    assert_true(store_fake_get(s->store, item->key, &object));
    s->found += memmem(object.data, object.len, s->what, s->len) != NULL;
    if (!strncmp(item->key, "packs/", 6))
        s->pack_bytes += object.len;
    return 0;
}

/* All objects, as they are stored. */
static struct search search_store(struct world *w, const uint8_t *what, size_t len)
{
    struct store *s = store_fake_store(w->store);
    struct search search = {.store = w->store, .what = what, .len = len};
    assert_int_equal(store_list(s, "", search_object, &search), 0);
    return search;
}

static void find_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct search *s = arg;
    char key[OBJECT_KEY_MAX];
    if (!memmem(plain->data, plain->len, s->what, s->len))
        return;
    s->found++;
    assert_true(store_fake_has(s->store, object_key(OBJECT_PACK, &ref->object, key)));
}

static unsigned chunks_with(struct world *w, const struct build_result *r, const uint8_t *what, size_t len)
{
    struct search s = {.store = w->store, .what = what, .len = len};
    read_back_node(w->store, &r->manifest.index_root, r->manifest.index_levels - 1, 0, find_chunk, &s);
    return s.found;
}

static void remove_tag(struct world *w, const char *tag)
{
    assert_int_equal(repository_remove_tag(store_fake_store(w->store), "faces", tag), 0);
}

static void collect(struct world *w)
{
    const struct gc_options options = {.grace_s = 0, .now = 4000000000};
    struct gc_result g;
    for (int i = 0; i < 2; i++)
        assert_int_equal(gc_run(store_fake_store(w->store), &options, &g), 0);
    assert_int_equal(g.images, 1);
    assert_true(g.swept > 0);
}

/* With the older tags gone nothing in the store holds a byte of it: neither the chunks of the image nor those beside
 * them in packs that it needs. What is compressed is known to be in the image, since the packs hold nothing else. */
static void erase_all(enum manifest_fs fs, int zstd_level)
{
    static struct world w;
    struct build_options o = options();
    uint8_t secrets[2][64]; /* of a file beside others in a chunk, of one that fills chunks */
    struct build_result days[3];
    srand(11);
    open_world(&w, 200);
    w.fs = fs;
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, small_size());
    set_file(&w, 77, 3000);
    set_file(&w, 78, 3 * CHUNK);
    for (unsigned i = 0; i < sizeof secrets[0]; i++) {
        secrets[0][i] = source_fake_byte(w.paths[77].seed, 1000 + i);
        secrets[1][i] = source_fake_byte(w.paths[78].seed, 3 * CHUNK / 2 + i);
    }
    o.compact_percent = 0;
    o.zstd_level = zstd_level;
    days[0] = rebuild(&w, &o);
    w.paths[77].there = w.paths[78].there = false;
    days[1] = rebuild(&w, &o);
    assert_true(others_bytes(&w, &days[1]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(chunks_with(&w, &days[0], secrets[i], 64), 1);
        assert_true(zstd_level || search_store(&w, secrets[i], 64).found);
    }
    o.scrub = true;
    days[2] = rebuild(&w, &o);
    assert_int_equal(others_bytes(&w, &days[2]), 0);
    remove_tag(&w, days[0].unique_tag);
    remove_tag(&w, days[1].unique_tag);
    collect(&w);
    for (int i = 0; i < 2; i++) {
        struct search all = search_store(&w, secrets[i], 64);
        assert_int_equal(all.found, 0);
        assert_int_equal(all.pack_bytes, days[2].manifest.stored_bytes);
        assert_int_equal(chunks_with(&w, &days[2], secrets[i], 64), 0);
    }
    struct build_result again = rebuild(&w, &o);
    assert_true(digest_equal(&days[2].image, &again.image));
    assert_int_equal(again.bytes_uploaded, 0);
    assert_int_equal(again.rebuild.packs_emptied, 0);
    store_fake_free(w.store);
}

static void test_erasure__scrub_and_gc_leave_nothing_in_the_store(void **state)
{
    erase_all(fs_of(state), 0);
    erase_all(fs_of(state), 1);
}

struct place {
    uint64_t number;
    struct chunk_ref ref;
};

static void note_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct place *p = arg;
    if (number == p->number)
        p->ref = *ref;
}

/* A chunk that cannot be copied out of its pack, since that is damaged, is read from the source again, and what shared
 * the pack is erased all the same. */
static void test_erasure__a_damaged_pack_is_erased_too(void **state)
{
    static struct world w;
    struct build_options o = options();
    uint8_t secret[64];
    uint64_t size;
    char key[OBJECT_KEY_MAX];
    srand(12);
    open_world(&w, 4);
    set_file(&w, 0, CHUNK);
    set_file(&w, 1, CHUNK);
    for (unsigned i = 0; i < sizeof secret; i++)
        secret[i] = source_fake_byte(w.paths[0].seed, 1000 + i);
    o.compact_percent = 0;
    struct build_result days[3] = {rebuild(&w, &o)};
    w.paths[0].there = false;
    days[1] = rebuild(&w, &o);
    assert_true(others_bytes(&w, &days[1]));
    struct place place = {.number = days[1].manifest.metadata_offset / CHUNK - 1}; /* file 1's */
    read_back_node(w.store, &days[1].manifest.index_root, days[1].manifest.index_levels - 1, 0, note_chunk, &place);
    assert_true(store_fake_flip(w.store, object_key(OBJECT_PACK, &place.ref.object, key), place.ref.offset + 20));
    o.scrub = true;
    days[2] = rebuild(&w, &o);
    assert_true(days[2].bytes_read >= CHUNK);
    assert_int_equal(others_bytes(&w, &days[2]), 0);
    remove_tag(&w, days[0].unique_tag);
    remove_tag(&w, days[1].unique_tag);
    collect(&w);
    assert_int_equal(search_store(&w, secret, sizeof secret).found, 0);
    compare_with_full(&w, &days[2], &size);
    store_fake_free(w.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_erasure__scrub_leaves_no_byte_of_what_is_gone),
        cmocka_unit_test_prestate(test_erasure__scrub_leaves_no_byte_of_what_is_gone, &ext4),
        cmocka_unit_test(test_erasure__scrub_and_gc_leave_nothing_in_the_store),
        cmocka_unit_test_prestate(test_erasure__scrub_and_gc_leave_nothing_in_the_store, &ext4),
        cmocka_unit_test(test_erasure__a_damaged_pack_is_erased_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

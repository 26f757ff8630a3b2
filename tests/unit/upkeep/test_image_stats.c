/* What inspect says: the numbers of an image, and its parents. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/repository.h"
#include "upkeep/upkeep.h"
#include "upkeep/upkeep_internal.h"

enum { CHUNK = 64 << 10, BLOCK = 4096 };

static bool third_is_hole(uint64_t chunk)
{
    return chunk == 2;
}

#define BODY(name, at, bytes)                                                                                          \
    {                                                                                                                  \
        .path = name, .path_len = 1, .mode = S_IFREG | 0644, .size = bytes,                                            \
        .extents = (const struct catalog_extent[]){{at, bytes}}, .extent_count = 1                                     \
    }

/* Eight chunks: 0 the superblock's, 1 bodies and a dead block, 2 a hole, 3 and 4 one body, 5 dead, 6 and 7 metadata. */
static const struct catalog_entry entries[] = {
    {.path = "", .mode = S_IFDIR | 0755},
    BODY("a", CHUNK, 5000),
    BODY("b", CHUNK + 3 * BLOCK, CHUNK - 3 * BLOCK),
    BODY("c", CHUNK, 5000), /* shares a's */
    {.path = "d", .path_len = 1, .mode = S_IFREG | 0644},
    BODY("e", 3 * CHUNK, 2 * CHUNK - 1),
    {.path = "f",
     .path_len = 1,
     .mode = S_IFREG | 0644,
     .hard_link = true,
     .size = 5000,
     .target = "a",
     .target_len = 1},
};

static struct image_fake put_image(struct store_fake *fake)
{
    struct image_fake image = {.seed = 3,
                               .size = 8 * CHUNK,
                               .chunk_size = CHUNK,
                               .pack_chunks = 2,
                               .hole = third_is_hole,
                               .entries = entries,
                               .entry_count = GR_ARRAY_SIZE(entries)};
    image_fake_put(&image, fake, NULL);
    image.manifest.metadata_offset = 6 * CHUNK;
    image.manifest.metadata_len = 2 * CHUNK;
    return image;
}

static void test_image_stats__counts_files_chunks_and_packs(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    struct image_fake image = put_image(fake);
    struct image_stats s;
    const struct image_stats_options options = {.threads = 2};
    uint64_t stored = 0;
    char key[OBJECT_KEY_MAX];
    for (uint64_t i = 0; i < 8; i++)
        stored += third_is_hole(i) ? 0 : image.refs[i].stored_len;
    assert_int_equal(image_stats(store_fake_store(fake), &image.manifest, &options, &s), 0);
    assert_int_equal(s.files, 5);
    assert_int_equal(s.file_bytes, 10000 + CHUNK - 3 * BLOCK + 2 * CHUNK - 1);
    assert_int_equal(s.contents, 3);
    assert_int_equal(s.content_bytes, s.file_bytes - 5000);
    assert_int_equal(s.padding, 2 * BLOCK - 5000 + 1);
    assert_int_equal(s.sizes[0].files, 1);
    assert_int_equal(s.sizes[13].files, 2); /* 4096 to 8191 */
    assert_int_equal(s.sizes[13].bytes, 10000);
    assert_int_equal(s.sizes[17].files, 1); /* 2^17 - 1 bytes */
    assert_int_equal(s.chunks, 8);
    assert_int_equal(s.holes, 1);
    assert_int_equal(s.plain_bytes, 7 * CHUNK);
    assert_int_equal(s.stored_bytes, stored);
    assert_int_equal(s.dead_bytes, BLOCK + CHUNK); /* between a and b, and chunk 5 */
    assert_int_equal(s.packs, store_fake_count(fake, "packs/"));
    assert_int_equal(s.pack_bytes, stored);
    assert_int_equal(s.foreign_bytes, 0);
    assert_int_equal(s.index_nodes, store_fake_count(fake, "indexes/"));

    CLEANUP_BYTES pack = BYTES_INIT(1 << 20);
    object_key(OBJECT_PACK, &image.refs[0].object, key);
    assert_true(store_fake_get(fake, key, &pack));
    assert_int_equal(bytes_append(&pack, "others", 6), 0); /* as if chunks of other images followed */
    store_fake_put(fake, key, pack.data, pack.len);
    assert_int_equal(image_stats(store_fake_store(fake), &image.manifest, &options, &s), 0);
    assert_int_equal(s.foreign_bytes, 6);
    assert_true(store_fake_remove(fake, object_key(OBJECT_PACK, &image.refs[7].object, key)));
    assert_int_equal(image_stats(store_fake_store(fake), &image.manifest, &options, &s), 0);
    assert_int_equal(s.packs_missing, 1);
    image_fake_release(&image);
}

static void test_image_stats__refuses_extents_outside_of_the_image(void **state)
{
    CLEANUP(cleanup_extent_sweep) struct extent_sweep *sweep = NULL;
    struct manifest m = {.size = 10 * BLOCK, .chunk_size = CHUNK};
    assert_int_equal(extent_sweep_new(&m, &sweep), 0);
    assert_int_equal(extent_sweep_add(sweep, 10 * BLOCK, 1), -EBADMSG);
    assert_int_equal(extent_sweep_add(sweep, UINT64_MAX, 2), -EBADMSG);
    assert_int_equal(extent_sweep_add(sweep, BLOCK, UINT64_MAX), -EBADMSG);
    assert_int_equal(extent_sweep_add(sweep, 9 * BLOCK, BLOCK), 0);
}

static uint64_t draw(uint64_t *seed)
{
    *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17;
    return *seed >> 11;
}

/* Random extents that overlap as they like, counted block by block. */
static void test_extent_sweep__agrees_with_a_bitmap(void **state)
{
    enum { BLOCKS = 16 * 64 };
    for (uint64_t seed = 1; seed < 200; seed++) {
        static bool used[BLOCKS];
        uint64_t s = seed, last = 0, live;
        struct manifest m = {.size = BLOCKS * BLOCK, .chunk_size = CHUNK};
        CLEANUP(cleanup_extent_sweep) struct extent_sweep *sweep = NULL;
        struct extent_totals totals;
        assert_int_equal(extent_sweep_new(&m, &sweep), 0);
        memset(used, 0, sizeof used);
        for (uint64_t n = draw(&s) % 40; n > 0; n--) {
            uint64_t at = 16 + draw(&s) % (BLOCKS - 200), len = 1 + draw(&s) % (40 * BLOCK);
            assert_int_equal(extent_sweep_add(sweep, at * BLOCK, len), 0);
            for (uint64_t b = at; b < at + (len + BLOCK - 1) / BLOCK; b++)
                used[b] = true;
            last = GR_MAX(last, at + (len + BLOCK - 1) / BLOCK);
        }
        m.metadata_offset = GR_ALIGN_UP(GR_MAX(last, UINT64_C(16)) * BLOCK, (uint64_t)CHUNK);
        m.metadata_len = m.size - m.metadata_offset;
        for (uint64_t b = 0; b < BLOCKS; b++)
            used[b] |= b < CHUNK / BLOCK || b >= m.metadata_offset / BLOCK;
        assert_int_equal(extent_sweep_sort(sweep), 0);
        for (uint64_t chunk = 0; chunk < BLOCKS / 16; chunk++) {
            uint64_t expected = 0;
            if (draw(&s) % 5 == 0)
                continue; /* a hole: nobody asks */
            for (uint64_t b = 0; b < 16; b++)
                expected += used[chunk * 16 + b] ? BLOCK : 0;
            assert_int_equal(extent_sweep_live(sweep, chunk * CHUNK, (chunk + 1) * CHUNK, &live), 0);
            assert_int_equal(live, expected);
        }
        assert_int_equal(extent_sweep_end(sweep, &totals), 0);
    }
}

static struct digest image_number(int n)
{
    return digest_of(&n, sizeof n);
}

static void put_tag(struct store_fake *fake, const char *tag, int image, int parent, int64_t created)
{
    struct tag t = {.digest = image_number(image), .created = created};
    if (parent)
        t.parent = image_number(parent);
    assert_int_equal(repository_check(store_fake_store(fake), true), 0);
    assert_int_equal(repository_publish(store_fake_store(fake), "faces", tag, &t, false), 0);
}

static void test_lineage__follows_the_tags(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    CLEANUP_LINEAGE by_tag = {0};
    CLEANUP_LINEAGE by_digest = {0};
    struct digest image = image_number(4), parent = image_number(3), none = {{0}};
    put_tag(fake, "latest", 4, 3, 400);
    put_tag(fake, "monday", 3, 3, 350); /* an unchanged source */
    put_tag(fake, "sunday", 3, 2, 300);
    put_tag(fake, "saturday", 2, 1, 200); /* 1 has no tag any more */
    assert_int_equal(lineage_read(store_fake_store(fake), "faces", &image, &parent, &by_tag), 0);
    assert_int_equal(by_tag.steps.len, 3);
    assert_string_equal(by_tag.steps.items[0].tag, "sunday");
    assert_int_equal(by_tag.steps.items[0].created, 300);
    assert_string_equal(by_tag.steps.items[1].tag, "saturday");
    assert_string_equal(by_tag.steps.items[2].tag, "");
    assert_int_equal(lineage_read(store_fake_store(fake), "faces", &image, &none, &by_digest), 0);
    assert_int_equal(by_digest.steps.len, 3);
}

static void test_lineage__ends_in_a_circle(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    CLEANUP_LINEAGE l = {0};
    struct digest image = image_number(1), parent = image_number(2);
    put_tag(fake, "a", 1, 2, 100);
    put_tag(fake, "b", 2, 1, 200);
    assert_int_equal(lineage_read(store_fake_store(fake), "faces", &image, &parent, &l), 0);
    assert_int_equal(l.steps.len, 1);
}

/* Images of one second: what was built upon the other is newer, whatever the names, which are listed in order. */
static void test_lineage__the_newest_image(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    struct store *s = store_fake_store(fake);
    char name[IMAGE_TAG_MAX + 1], build_name[TAG_BUILD_NAME_MAX];
    struct digest image = image_number(2), third = image_number(3);
    struct tag tag;
    bool other = true;
    assert_int_equal(lineage_newest(s, "faces", &(struct digest){{0}}, name, &tag, &other), -ENOENT);
    assert_false(other);
    put_tag(fake, "zebra", 1, 1, 100);
    put_tag(fake, "m", 3, 2, 100);
    put_tag(fake, "a", 4, 3, 100);
    put_tag(fake, "k", 2, 1, 100);
    assert_int_equal(lineage_newest(s, "faces", &(struct digest){{0}}, name, &tag, &other), 0);
    assert_string_equal(name, "a");
    put_tag(fake, "old", 5, 5, 99);
    put_tag(fake, tag_build_name(101, &image, build_name), 2, 1, 101);
    assert_int_equal(lineage_newest(s, "faces", &(struct digest){{0}}, name, &tag, &other), 0);
    assert_string_equal(name, "k"); /* the same image by the name that it was given */
    assert_true(digest_equal(&tag.digest, &image));
    put_tag(fake, "circle", 6, 7, 200);
    put_tag(fake, "square", 7, 6, 200);
    assert_int_equal(lineage_newest(s, "faces", &(struct digest){{0}}, name, &tag, &other), 0);
    assert_string_equal(name, "square");
    put_tag(fake, tag_build_name(300, &third, build_name), 3, 2, 300);
    assert_true(store_fake_remove(fake, "images/faces/m"));
    assert_int_equal(lineage_newest(s, "faces", &(struct digest){{0}}, name, &tag, &other), 0);
    assert_string_equal(name, build_name);
}

static void put_tag_of_source(struct store_fake *fake, const char *key, int image, const struct tag *named)
{
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = *named;
    t.digest = image_number(image);
    t.created = 100 + image;
    assert_int_equal(tag_encode(&t, &doc), 0);
    store_fake_put(fake, key, doc.data, doc.len);
}

/* Equal sizes and times mean nothing between two sources, nor is another name's image one of this name. */
static void test_lineage__the_newest_image_is_of_the_same_source(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
    struct store *s = store_fake_store(fake);
    struct digest here = digest_of("https://h/v1", 12), there = digest_of("https://h/v2", 12);
    char name[IMAGE_TAG_MAX + 1];
    struct tag tag;
    bool other;
    put_tag_of_source(fake, "images/dogs/a", 1, &(struct tag){.source = there, .name = "dogs", .tag = "a"});
    put_tag_of_source(fake, "images/faces/d", 4, &(struct tag){.source = here, .name = "dogs", .tag = "d"});
    assert_int_equal(lineage_newest(s, "faces", &here, name, &tag, &other), -ENOENT);
    assert_false(other);
    put_tag_of_source(fake, "images/faces/a", 1, &(struct tag){.source = here, .name = "faces", .tag = "a"});
    put_tag_of_source(fake, "images/faces/b", 2, &(struct tag){.source = there, .name = "faces", .tag = "b"});
    put_tag_of_source(fake, "images/faces/c", 3, &(struct tag){.name = "faces", .tag = "c"});
    assert_int_equal(lineage_newest(s, "faces", &here, name, &tag, &other), 0);
    assert_string_equal(name, "a");
    assert_int_equal(lineage_newest(s, "faces", &there, name, &tag, &other), 0);
    assert_string_equal(name, "b");
    assert_false(other);
    assert_true(store_fake_remove(fake, "images/faces/a"));
    assert_int_equal(lineage_newest(s, "faces", &here, name, &tag, &other), -ENOENT);
    assert_true(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_image_stats__counts_files_chunks_and_packs),
        cmocka_unit_test(test_image_stats__refuses_extents_outside_of_the_image),
        cmocka_unit_test(test_extent_sweep__agrees_with_a_bitmap),
        cmocka_unit_test(test_lineage__follows_the_tags),
        cmocka_unit_test(test_lineage__ends_in_a_circle),
        cmocka_unit_test(test_lineage__the_newest_image),
        cmocka_unit_test(test_lineage__the_newest_image_is_of_the_same_source),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

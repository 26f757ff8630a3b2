/* erofs images on both sides of 16 TiB, where block numbers get 48 bits. They have next to no bytes. */
#include "format/manifest.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "unit/erofs_image.h"

#define BORDER (UINT64_C(1) << 32) /* blocks */
#define FAR (UINT64_C(32) << 40)   /* bytes; bits 32 and above of its block number are 2 */

/* A symbolic link of this length takes a block, and 64 bytes of another one. */
enum { LINK = 4095 };
static char target[LINK + 1];

/* An image whose region begins 16 blocks before the border and has 1 + `links` blocks. */
static struct image make_at_border(unsigned links)
{
    struct image i = image_begin();
    char path[16];
    memset(target, 't', LINK);
    image_move(&i, BORDER * BLOCK - CHUNK);
    for (unsigned k = 0; k < links; k++) {
        snprintf(path, sizeof path, "s%02u", k);
        add_symlink(&i, path, target);
    }
    image_end(&i);
    assert_int_equal(i.result.metadata_offset, BORDER * BLOCK - CHUNK);
    return i;
}

static void test_fs_erofs_48bit__form_changes_at_the_border(void **state)
{
    static const struct {
        unsigned links;
        uint64_t blocks;
        bool wide;
    } cases[] = {
        {12, BORDER - 3, false}, {13, BORDER - 2, false}, /* all ones is no block, nor is it their number */
        {14, BORDER - 1, true},  {15, BORDER, true},      {16, BORDER + 1, true},
    };
    for (size_t k = 0; k < GR_ARRAY_SIZE(cases); k++) {
        struct image i = make_at_border(cases[k].links);
        const struct manifest m = {.fs = MANIFEST_EROFS, .size = i.result.image_size};
        char path[16];
        assert_int_equal(i.result.image_size, cases[k].blocks * BLOCK);
        assert_int_equal(is_wide(&i), cases[k].wide);
        assert_int_equal(manifest_erofs_48bit(&m), cases[k].wide);
        assert_string_equal(manifest_linux(&m), cases[k].wide ? "6.15" : "5.4");
        for (unsigned s = 0; s < cases[k].links; s++) {
            snprintf(path, sizeof path, "s%02u", s);
            const uint64_t at = lookup(&i, path);
            assert_int_equal(le64_get(image_at(&i, at) + 8), LINK);
            assert_memory_equal(inode_data(&i, at, 0), target, LINK);
        }
        image_free(&i);
    }
}

/* File data from FAR on, something of every kind, and a directory with blocks of its own. */
static struct image make_far(void)
{
    struct image i = image_begin();
    char path[300];
    image_move(&i, FAR);
    for (int k = 0; k < 300; k++) {
        snprintf(path, sizeof path, "many/%d", k);
        add_file(&i, path, k % 3 ? 0 : 100, 'a');
    }
    add_symlink(&i, "link", "many/7");
    add(&i, "device", S_IFBLK | 0660)->node.rdev = 0x10305;
    image_end(&i);
    return i;
}

static void test_fs_erofs_48bit__superblock(void **state)
{
    struct image i = make_far();
    uint8_t *sb = image_at(&i, 1024);
    const uint32_t crc = le32_get(sb + 4);
    const uint64_t blocks = i.result.image_size / BLOCK;
    assert_int_equal(i.result.metadata_offset, FAR + 7 * CHUNK); /* 100 blocks of file data, 16 a chunk */
    assert_int_equal(le32_get(sb), 0xE0F5E1E2);
    assert_int_equal(le16_get(sb + 14), 2); /* no root, but the upper bits of the number of blocks */
    assert_int_equal(le32_get(sb + 36), (uint32_t)blocks);
    assert_int_equal(blocks >> 32, 2);
    assert_int_equal(le32_get(sb + 40), 0);
    assert_int_equal(le32_get(sb + 80), 0x80);
    assert_int_equal(le64_get(sb + 112), i.result.metadata_offset / 32 + 1);
    assert_int_equal(erofs_super_root(sb, i.result.metadata_offset), 1);
    assert_int_equal(erofs_super_root(sb, i.result.metadata_offset - CHUNK), CHUNK / 32 + 1);
    le32_put(sb + 4, 0);
    assert_int_equal(crc32c_raw(UINT32_MAX, sb, BLOCK - 1024), crc);
    image_free(&i);
}

static void test_fs_erofs_48bit__inodes(void **state)
{
    struct image i = make_far();
    const uint8_t *inode = image_at(&i, lookup(&i, "many/0"));
    assert_int_equal(le16_get(inode), 1);
    assert_int_equal(le16_get(inode + 6), 2);
    assert_int_equal(le32_get(inode + 16), 0);
    inode = image_at(&i, lookup(&i, "many/1")); /* empty: no block */
    assert_int_equal(le16_get(inode + 6), 0xFFFF);
    assert_int_equal(le32_get(inode + 16), 0xFFFFFFFF);
    inode = image_at(&i, lookup(&i, "device"));
    assert_int_equal(le16_get(inode + 6), 0);
    assert_int_equal(le32_get(inode + 16), 0x10305);
    assert_int_equal(*inode_data(&i, lookup(&i, "many/3"), 99), 'a');
    assert_memory_equal(inode_data(&i, lookup(&i, "link"), 0), "many/7", 6);
    image_free(&i);
}

/* The bytes of one image, pinned: its first chunk, its data and its metadata. */
static void test_fs_erofs_48bit__golden_image(void **state)
{
    static const char expected[] = "addeeee794a3f1a5890014092e9273f3444c4b813dd7e0efbd4db3296a1d7d1c";
    struct image i = make_far();
    char hex[DIGEST_HEX_SIZE];
    struct digest d = digest_of(i.data, CHUNK + (i.result.image_size - FAR));
    assert_string_equal(digest_hex(&d, hex), expected);
    image_free(&i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fs_erofs_48bit__form_changes_at_the_border),
        cmocka_unit_test(test_fs_erofs_48bit__superblock),
        cmocka_unit_test(test_fs_erofs_48bit__inodes),
        cmocka_unit_test(test_fs_erofs_48bit__golden_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

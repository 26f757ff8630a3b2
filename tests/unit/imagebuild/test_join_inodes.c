/* What a join reads of a filesystem's inodes and superblock: damaged bytes are refused. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/le.h"
#include "imagebuild/join/join_internal.h"

/* Attributes with any length cut off or changed are decoded or refused, and nothing beyond them is read. */
static void test_join_inodes__damaged_attributes_are_refused(void **state)
{
    static const uint8_t erofs[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 0, 'n', 'v', 'v', 0};
    static const uint8_t ext4_entries[] = {1, 1, 24,  0, 0, 0, 0, 0, 2, 0, 0,   0,   0, 0,
                                           0, 0, 'n', 0, 0, 0, 0, 0, 0, 0, 'v', 'v', 0, 0};
    for (size_t len = 0; len <= sizeof erofs; len++) {
        CLEANUP_BYTES out = BYTES_INIT(1 << 16);
        uint8_t *copy = malloc(len + !len); /* so that a sanitizer sees the end */
        memcpy(copy, erofs, len);
        const int rc = inode_erofs_xattrs(copy, len, &out);
        assert_int_equal(rc, len == 12 || len >= 19 ? 0 : -EBADMSG);
        free(copy);
    }
    for (size_t len = 4; len <= sizeof ext4_entries; len++) {
        CLEANUP_BYTES out = BYTES_INIT(1 << 16);
        uint8_t *copy = malloc(len);
        memcpy(copy, ext4_entries, len);
        const int rc = inode_ext4_xattrs(copy, len, 0, 0, &out);
        assert_int_equal(rc, len >= 26 ? 0 : -EBADMSG);
        free(copy);
    }
}

/* An image below 16 TiB and one above: no bit of the fields that the manifest determines may be another one. */
static void test_join_inodes__a_superblock_that_does_not_fit_is_refused(void **state)
{
    static const struct {
        uint64_t blocks;
        uint32_t first, incompat; /* the first block of inodes, as written; features */
    } forms[] = {{(UINT64_C(1) << 32) - 2, 0x10000, 0}, {(UINT64_C(5) << 32) + 7, 0, 0x80}};
    static const struct {
        unsigned at, len;
        bool only_wide;
    } fields[] = {{0, 4, false}, {16, 8, false}, {36, 4, false}, {40, 4, false}, {80, 4, false}, {14, 2, true}};
    for (size_t form = 0; form < GR_ARRAY_SIZE(forms); form++) {
        const struct manifest m = {.fs = MANIFEST_EROFS,
                                   .size = forms[form].blocks * 4096,
                                   .metadata_offset = UINT64_C(0x10000) * 4096,
                                   .catalog_entries = 9,
                                   .counts.hard_links = 2};
        uint8_t super[128] = {0};
        le32_put(super, 0xE0F5E1E2);
        le64_put(super + 16, 7);
        le16_put(super + 14, form ? 5 : 1);
        le32_put(super + 36, (uint32_t)forms[form].blocks);
        le32_put(super + 40, forms[form].first);
        le32_put(super + 80, forms[form].incompat);
        assert_true(inode_erofs_super_fits(super, &m));
        for (size_t f = 0; f < GR_ARRAY_SIZE(fields); f++) {
            for (unsigned bit = 0; bit < 8 * fields[f].len && (form || !fields[f].only_wide); bit++) {
                super[fields[f].at + bit / 8] ^= (uint8_t)(1 << bit % 8);
                assert_false(inode_erofs_super_fits(super, &m));
                super[fields[f].at + bit / 8] ^= (uint8_t)(1 << bit % 8);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join_inodes__damaged_attributes_are_refused),
        cmocka_unit_test(test_join_inodes__a_superblock_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* Choose the size of an ext4 image and the places of its tables. The number of groups decides everything in front of
 * the file data. It is chosen well above what the listing needs: unused groups cost nothing, and a rebuild that keeps
 * the number keeps every address. Arithmetic only; any thread.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_GEOMETRY_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "imagebuild/fs/ext4/ext4_space.h"
#include "imagebuild/fs/fs.h"

enum {
    EXT4_BLOCK = EXT4_SPACE_BLOCK,
    EXT4_INODE = 256,
    EXT4_BLOCK_INODES = EXT4_BLOCK / EXT4_INODE,
    EXT4_GROUP_BLOCKS = 8 * EXT4_BLOCK, /* 128 MiB: what one block of bitmap covers */
    EXT4_FIRST_INODE = EXT2_GOOD_OLD_FIRST_INO,
};

/* Everything follows from the number of groups. In blocks:
 *
 *   superblock | descriptors | block bitmaps | inode bitmaps | inode tables | file data ...
 *              1             ^ block_bitmaps ^ inode_bitmaps ^ inode_tables ^ front_end
 */
struct ext4_geometry {
    uint64_t groups;
    uint32_t inodes_per_group;
    uint64_t descriptor_blocks;
    uint64_t block_bitmaps, inode_bitmaps, inode_tables, front_end; /* block numbers */
};

/* Choose the geometry for what config says was listed. *out_keeps: it is the parent's, so the parent's data can stay.
 * -EFBIG: over the limit of 128 TiB. */
GR_MUST_CHECK int ext4_geometry_choose(const struct fs_config *config, struct ext4_geometry *out, bool *out_keeps);
/* Return the first address of file data, and the address that no file data may end behind, because the rest is for
 * metadata. */
uint64_t ext4_geometry_data(const struct ext4_geometry *g, const struct fs_config *config);
uint64_t ext4_geometry_data_max(const struct ext4_geometry *g, const struct fs_config *config);

#endif

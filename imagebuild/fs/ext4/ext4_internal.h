/* Shared by the parts of the ext4 writer (fs_ext4.c); private to them. docs/reference/format-ext4.md describes the
 * image. One thread. */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_INTERNAL_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_INTERNAL_H

#include <ext2fs/ext2fs.h>

#include "imagebuild/fs/ext4/ext4_geometry.h"
#include "imagebuild/fs/ext4/ext4_space.h"
#include "imagebuild/fs/fs.h"

enum {
    EXT4_EXTENT_BLOCKS = 1 << 15, /* the most that one extent can have */
    EXT4_LINKS_MAX = 65000,       /* names of a file, at most; a directory with more subdirectories states 1 */
};

/* The filesystem being written. config.dir is the caller's. */
struct ext4 {
    struct fs fs;
    struct fs_config config;
    struct ext4_geometry geometry;
    ext2_filsys e2; /* NULL outside of finish */
    struct ext4_space space;
    uint64_t next; /* next free block of the metadata region */
    uint64_t xattrs_skipped;
};

/* Turn a result of libext2fs into 0 or -errno: the space's own error if there is one, else a sentence with the
 * library's message. */
GR_MUST_CHECK int ext4_check(struct ext4 *e, errcode_t code);
/* Take the next block of the region, and mark it as used. -EFBIG: the region is full. */
GR_MUST_CHECK int ext4_take_block(struct ext4 *e, uint64_t *out);
/* Call config.step every 65,536 nodes, and return what it returns. */
GR_MUST_CHECK int ext4_step(struct ext4 *e, uint64_t done);

/* Return the inode number of the file whose first name has this rank. */
static inline ext2_ino_t ext4_ino(uint32_t rank)
{
    return rank == NODE_ROOT ? EXT2_ROOT_INO : EXT4_FIRST_INODE - 1 + rank;
}

/* Writes directories. Entries are sorted by (directory, hash of the name), so that each directory is written from
 * front to back and none is held in memory. */
struct ext4_dirs;

/* A directory that was written. */
struct ext4_dir {
    uint32_t rank;
    uint32_t links;         /* as the inode states them */
    uint64_t block, blocks; /* first block; number of blocks, contiguous */
};

/* -ENOMEM; errors of sorter and scratch. */
GR_MUST_CHECK int ext4_dirs_new(struct ext4 *e, struct ext4_dirs **out);
void ext4_dirs_free(struct ext4_dirs *d); /* NULL is allowed */
DEFINE_CLEANUP(ext4_dirs, struct ext4_dirs *, ext4_dirs_free)
/* Add every node once, then write all directories. -EFBIG: a directory is too large; -ENOMEM; -EIO: a bug; others
 * come from sorter, scratch and step. */
GR_MUST_CHECK int ext4_dirs_add(struct ext4_dirs *d, const struct node *n);
GR_MUST_CHECK int ext4_dirs_write(struct ext4_dirs *d);
/* Return the next directory that was written, in the order of ranks; it must have this rank. */
GR_MUST_CHECK int ext4_dirs_next(struct ext4_dirs *d, uint32_t rank, struct ext4_dir *out);

/* Write the inode of a node that is its file's first name, with all that belongs to it: extent tree, attribute block,
 * block of a long symbolic link. links: as the inode states them. dir: for a directory, else NULL. -EFBIG: over a
 * limit of ext4; -ENOMEM; -EIO: a bug; others come from the scratch. */
GR_MUST_CHECK int ext4_inode_write(struct ext4 *e, const struct node *n, uint32_t links, const struct ext4_dir *dir);

enum { EXT4_XATTR_ROOM = EXT4_INODE - 128 - 32 }; /* bytes behind the fields of an inode */

/* Place extended attributes: what fits goes behind the inode's fields, what fits of the rest into a block. Returns
 * how many fit nowhere. xattrs: as in struct node. room and block are zeros before; *out_block_used: the block holds
 * any. */
uint64_t ext4_xattrs_place(const void *xattrs, size_t len, uint8_t room[EXT4_XATTR_ROOM], uint8_t block[EXT4_BLOCK],
                           bool *out_block_used);

#endif

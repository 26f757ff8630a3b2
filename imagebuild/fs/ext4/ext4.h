/* Parts of the ext4 writer (fs_ext4.c), private to it: what they share and what each does.
 * docs/reference/format-ext4.md. */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_H

#include <ext2fs/ext2fs.h>

#include "imagebuild/fs/ext4/ext4_geometry.h"
#include "imagebuild/fs/ext4/ext4_space.h"
#include "imagebuild/fs/fs.h"

enum {
    EXT4_EXTENT_BLOCKS = 1 << 15, /* of one extent */
    EXT4_LINKS_MAX = 65000,       /* names of a file; a directory with more subdirectories says 1 */
};

struct ext4 {
    struct fs fs;
    struct fs_config config;
    struct ext4_geometry geometry;
    ext2_filsys e2; /* NULL outside of finish */
    struct ext4_space space;
    uint64_t next; /* the next free block of the metadata region */
    uint64_t xattrs_skipped;
};

/* 0, or what went wrong: the space's own error, else a sentence with the library's words. */
GR_MUST_CHECK int ext4_check(struct ext4 *e, errcode_t code);
/* The next block of the region, in use from now on. */
GR_MUST_CHECK int ext4_take_block(struct ext4 *e, uint64_t *out);
/* Call config.step now and then. */
GR_MUST_CHECK int ext4_step(struct ext4 *e, uint64_t done);

/* The inode of the file whose first name has this rank. */
static inline ext2_ino_t ext4_ino(uint32_t rank)
{
    return rank == NODE_ROOT ? EXT2_ROOT_INO : EXT4_FIRST_INODE - 1 + rank;
}

/* Directories, sorted by (directory, hash of the name) so that each is written from front to back and none is held. */
struct ext4_dirs;

struct ext4_dir {
    uint32_t rank;
    uint32_t links; /* as the inode says it */
    uint64_t block, blocks;
};

GR_MUST_CHECK int ext4_dirs_new(struct ext4 *e, struct ext4_dirs **out);
void ext4_dirs_free(struct ext4_dirs *d); /* NULL is allowed */
DEFINE_CLEANUP(ext4_dirs, struct ext4_dirs *, ext4_dirs_free)
/* Every node once, then write them all. */
GR_MUST_CHECK int ext4_dirs_add(struct ext4_dirs *d, const struct node *n);
GR_MUST_CHECK int ext4_dirs_write(struct ext4_dirs *d);
/* What was written, in the order of ranks: of the directory `rank`, which is the next one. */
GR_MUST_CHECK int ext4_dirs_next(struct ext4_dirs *d, uint32_t rank, struct ext4_dir *out);

/* The inode of a node that is the first name of its file, and what belongs to it: tree of extents, block of attributes,
 * a long symbolic link's block. dir: of directories, else NULL. */
GR_MUST_CHECK int ext4_inode_write(struct ext4 *e, const struct node *n, uint32_t links, const struct ext4_dir *dir);

enum { EXT4_XATTR_ROOM = EXT4_INODE - 128 - 32 }; /* behind the fields of an inode */

/* Extended attributes: what fits goes behind the inode's fields, what fits of the rest into a block of its own; returns
 * how many did not. xattrs: the sequence of struct node. block must be zeros; *out_block_used: it holds any. */
uint64_t ext4_xattrs_place(const void *xattrs, size_t len, uint8_t room[EXT4_XATTR_ROOM], uint8_t block[EXT4_BLOCK],
                           bool *out_block_used);

#endif

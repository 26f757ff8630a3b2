/* Shared by the parts of the ext4 writer (fs_ext4.c); private to them. docs/reference/format-ext4.md describes the
 * image. One thread. */
#ifndef GRANARY_IMAGEBUILD_FS_EXT4_EXT4_INTERNAL_H
#define GRANARY_IMAGEBUILD_FS_EXT4_EXT4_INTERNAL_H

#include <ext2fs/ext2fs.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/spill/scratch.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/sink/sink.h"

/* ---- the blocks of the metadata (ext4_space.c) ---- */

/* The metadata blocks of an ext4 image: the front, from block 0 on, and the region after the file data. They lie in
 * scratches, so that libext2fs can write them in any order and read them again, until they go to the sink in
 * ascending order. libext2fs uses the space through an io_manager; the io_channel's private_data is the space.
 *
 *   block 0 .. front_end       -> scratch `front`
 *   front_end .. region_begin  -> file data: neither read nor written here
 *   region_begin .. region_end -> scratch `region`
 *
 * One thread. The first failure is kept, because libext2fs passes on only numbers.
 */

enum { EXT4_BLOCK = 4096 }; /* bytes */

/* `block` caches one block, written back if dirty. */
struct ext4_space {
    struct scratch *front, *region;
    uint64_t front_end, region_begin, region_end; /* block numbers; set by the owner */
    uint64_t held;                                /* number of the cached block; UINT64_MAX: none */
    bool dirty;
    struct error failed; /* the first one */
    uint8_t block[EXT4_BLOCK];
};

/* Initialize a space whose members are all zero. -ENOMEM; errors of scratch_new. */
GR_MUST_CHECK int ext4_space_init(struct ext4_space *s, const struct scratch_config *config);
void ext4_space_release(struct ext4_space *s);

/* The io_manager. Its channels fail until private_data is set to a space. */
extern struct struct_io_manager ext4_space_manager;

/* Write every block that is not zeros to the sink. *out_front_len: bytes from address 0 to the end of the last such
 * block of the front. Errors of scratch and sink; -ENOMEM. */
GR_MUST_CHECK int ext4_space_emit(struct ext4_space *s, struct sink *sink, uint64_t *out_front_len);

/* ---- the size of the image and the places of its tables (chosen in fs_ext4.c) ---- */

enum {
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

/* ---- the writer's state, and what its parts share (ext4_space.c) ---- */

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

/* ---- directories (ext4_dir.c) ---- */

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

/* ---- inodes (ext4_inode.c) ---- */

/* Write the inode of a node that is its file's first name, with all that belongs to it: extent tree, attribute block,
 * block of a long symbolic link. links: as the inode states them. dir: for a directory, else NULL. -EFBIG: over a
 * limit of ext4; -ENOMEM; -EIO: a bug; others come from the scratch. */
GR_MUST_CHECK int ext4_inode_write(struct ext4 *e, const struct node *n, uint32_t links, const struct ext4_dir *dir);

#endif

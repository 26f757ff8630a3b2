/* The erofs on-disk format as far as Granary writes it: plain layout, 4096-byte blocks, extended inodes, inline
 * extended attributes (Linux 5.4 and later). docs/reference/format-erofs.md draws the image.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_FORMAT_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_FORMAT_H

#include <stdint.h>

enum {
    EROFS_BLOCK = 4096,
    EROFS_BLOCK_BITS = 12,
    EROFS_SUPER_OFFSET = 1024,
    EROFS_NID_UNIT = 32,   /* an inode's number is its offset in the metadata region in these units */
    EROFS_NID_ROOT = 1,    /* not 0: C libraries pass over directory entries with that inode number */
    EROFS_INODE_SIZE = 64, /* extended */
    EROFS_DIRENT_SIZE = 12,
    EROFS_XATTR_HEADER = 12,
    EROFS_XATTR_ENTRY = 4,
    EROFS_NAME_MAX = 255,
};

#define EROFS_MAGIC UINT32_C(0xE0F5E1E2)
#define EROFS_NO_BLOCK UINT32_MAX

/* Superblock features, compatible: its checksum is valid; an inode's time is its mtime. */
enum { EROFS_COMPAT_CHECKSUM = 1, EROFS_COMPAT_MTIME = 2 };

/* Where an inode's bytes lie: all in blocks; or whole blocks, and the tail behind the inode. */
enum erofs_data_layout { EROFS_FLAT_PLAIN = 0, EROFS_FLAT_INLINE = 2 };

#endif

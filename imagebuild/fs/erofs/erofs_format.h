/* The part of the erofs on-disk format that Granary writes: flat data layouts, 4096-byte blocks, extended inodes,
 * inline extended attributes; readable by Linux 5.4 and later. Follows the kernel's fs/erofs/erofs_fs.h.
 * docs/reference/format-erofs.md draws the image.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_FORMAT_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_FORMAT_H

#include <stdint.h>

enum {
    EROFS_BLOCK = 4096,
    EROFS_BLOCK_BITS = 12,
    EROFS_SUPER_OFFSET = 1024,
    EROFS_NID_UNIT = 32,   /* an inode's number is its offset in the metadata region, in units of this */
    EROFS_NID_ROOT = 1,    /* not 0: C libraries skip directory entries with inode number 0 */
    EROFS_INODE_SIZE = 64, /* of an extended inode */
    EROFS_DIRENT_SIZE = 12,
    EROFS_XATTR_HEADER = 12,
    EROFS_XATTR_ENTRY = 4,
    EROFS_NAME_MAX = 255,
};

#define EROFS_MAGIC UINT32_C(0xE0F5E1E2)
#define EROFS_NO_BLOCK UINT32_MAX

/* Compatible features in the superblock: its checksum is valid; an inode's time is its mtime. */
enum { EROFS_COMPAT_CHECKSUM = 1, EROFS_COMPAT_MTIME = 2 };

/* Where an inode's data lies: all in blocks; or whole blocks, with the tail behind the inode. */
enum erofs_data_layout { EROFS_FLAT_PLAIN = 0, EROFS_FLAT_INLINE = 2 };

#endif

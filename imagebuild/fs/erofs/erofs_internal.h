/* Walk a sequence of nodes as erofs inodes: each inode once, a directory twice, first on entering, then when its
 * entries are complete. Memory: the directories whose paths are prefixes of the current path, 8 KiB and a few words
 * each. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_INTERNAL_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_INTERNAL_H

#include "imagebuild/fs/erofs/erofs_format.h"
#include "imagebuild/tree/nodes.h"

/* An inode, as far as it is known (struct erofs_walk_ops). */
struct erofs_inode {
    uint32_t rank, parent; /* as in struct node */
    uint16_t mode;
    uint32_t uid, gid, rdev, nlink, mtime_nsec;
    int64_t mtime;
    uint64_t size;       /* of a directory: full blocks, plus the last block up to the end of its names */
    uint64_t address;    /* of a file's data */
    uint32_t xattr_size; /* bytes of its attributes in erofs' form */
    uint32_t tail;       /* bytes of a directory or symbolic link that lie behind inode and attributes */
    uint64_t blocks;     /* of a directory or symbolic link: number of blocks in the metadata region */
};

/* Callbacks; a non-zero result ends the walk with that value. */
struct erofs_walk_ops {
    /* An inode that is not a directory; nlink is 1, to be corrected by the callback. */
    int (*leaf)(void *arg, struct erofs_inode *inode, const struct node *node);
    /* A further name of an inode that was visited. */
    int (*again)(void *arg, const struct node *node);
    /* A directory begins: nlink, size, tail and blocks are not known yet. */
    int (*enter)(void *arg, const struct erofs_inode *dir, const struct node *node);
    /* A complete block of a directory, not its last. NULL: no blocks are formed. */
    int (*block)(void *arg, const struct erofs_inode *dir, uint64_t number, const uint8_t block[EROFS_BLOCK]);
    /* A directory is complete. last: its last block; NULL without `block`. */
    int (*leave)(void *arg, const struct erofs_inode *dir, const uint8_t *last);
};

/* Walk all nodes. nids: inode numbers by rank, for the entries in directory blocks; NULL without ops->block. -ENOMEM;
 * -EIO: a bug; errors of the scratch and the callbacks. */
GR_MUST_CHECK int erofs_walk(const struct nodes *nodes, const uint32_t *nids, const struct erofs_walk_ops *ops,
                             void *arg);

/* Return the bytes that must lie together: inode, attributes, tail. */
static inline uint32_t erofs_inode_need(const struct erofs_inode *inode)
{
    return EROFS_INODE_SIZE + inode->xattr_size + inode->tail;
}

#endif

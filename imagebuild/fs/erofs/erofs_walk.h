/* A sequence of nodes seen as erofs inodes: each once, a directory twice, when it begins and when all that is in it is
 * known. Memory: the directories whose names begin the current path, 8 KiB and a few words each.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_WALK_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_WALK_H

#include "imagebuild/fs/erofs/erofs_format.h"
#include "imagebuild/tree/nodes.h"

struct erofs_inode {
    uint32_t rank, parent; /* as in struct node */
    uint16_t mode;
    uint32_t uid, gid, rdev, nlink, mtime_nsec;
    int64_t mtime;
    uint64_t size;       /* of a directory: its blocks, the last one as long as its entries are */
    uint64_t address;    /* a file's body */
    uint32_t xattr_size; /* of its attributes as erofs has them */
    uint32_t tail;       /* bytes of a directory or symbolic link behind the inode and its attributes */
    uint64_t blocks;     /* of a directory or symbolic link: blocks in the metadata region */
};

/* Not 0 ends the walk with that value. */
struct erofs_walk_ops {
    /* An inode that is no directory; nlink is 1. */
    int (*leaf)(void *arg, struct erofs_inode *inode, const struct node *node);
    /* Another name of an inode that was visited. */
    int (*again)(void *arg, const struct node *node);
    /* A directory: nlink, size, tail and blocks are not known yet. */
    int (*enter)(void *arg, const struct erofs_inode *dir, const struct node *node);
    /* A complete block of it, not the last. NULL: the walk does not form blocks. */
    int (*block)(void *arg, const struct erofs_inode *dir, uint64_t number, const uint8_t block[EROFS_BLOCK]);
    /* All of it is known; last: its last block, NULL without `block`. */
    int (*leave)(void *arg, const struct erofs_inode *dir, const uint8_t *last);
};

/* nids: inode numbers by rank, for the directories' blocks; NULL without ops->block. */
GR_MUST_CHECK int erofs_walk(const struct nodes *nodes, const uint32_t *nids, const struct erofs_walk_ops *ops,
                             void *arg);

/* Bytes that stand together: inode, attributes, tail. */
static inline uint32_t erofs_inode_need(const struct erofs_inode *inode)
{
    return EROFS_INODE_SIZE + inode->xattr_size + inode->tail;
}

#endif

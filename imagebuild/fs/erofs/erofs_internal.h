/* The on-disk format, the walk that both passes of the erofs writer (fs_erofs.c) make over the nodes, the plan, and an
 * earlier image's directories. */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_INTERNAL_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/le.h"
#include "base/spill/scratch.h"
#include "base/vec.h"
#include "imagebuild/fs/fs.h"
#include "imagebuild/tree/nodes.h"

/* ---- the format ---- */

/* The part of the erofs on-disk format that Granary writes: flat data layouts, 4096-byte blocks, extended inodes,
 * inline extended attributes; readable by Linux 5.4 and later, above 16 TiB by Linux 6.15 and later. Follows the
 * kernel's fs/erofs/erofs_fs.h. docs/reference/format-erofs.md draws the image.
 */

enum {
    EROFS_BLOCK = 4096,
    EROFS_BLOCK_BITS = 12,
    EROFS_SUPER_OFFSET = 1024,
    EROFS_SUPER_SIZE = 128,
    EROFS_NID_UNIT = 32,   /* an inode's number is its offset in the metadata region, in units of this */
    EROFS_NID_ROOT = 1,    /* not 0: C libraries skip directory entries with inode number 0 */
    EROFS_INODE_SIZE = 64, /* of an extended inode */
    /* Offset in an inode of its 32-bit running number (inode_running in fs_erofs.c). The root's is the number of
     * inodes; if it is 0, the others mean nothing. */
    EROFS_INODE_RUNNING = 20,
    EROFS_DIRENT_SIZE = 12,
    EROFS_XATTR_HEADER = 12,
    EROFS_XATTR_ENTRY = 4,
};

#define EROFS_MAGIC UINT32_C(0xE0F5E1E2)
/* All bits of a block number: no block. */
#define EROFS_NO_BLOCK UINT32_MAX
#define EROFS_NO_BLOCK_48BIT ((UINT64_C(1) << 48) - 1)

/* Compatible features in the superblock: its checksum is valid; an inode's time is its mtime. */
enum { EROFS_COMPAT_CHECKSUM = 1, EROFS_COMPAT_MTIME = 2 };

/* Incompatible feature: block numbers have 48 bits, and the root's inode number 64. */
enum { EROFS_INCOMPAT_48BIT = 0x80 };

/* Return whether a superblock has this feature. */
static inline bool erofs_super_is_wide(const uint8_t super[EROFS_SUPER_SIZE])
{
    return le32_get(super + 80) & EROFS_INCOMPAT_48BIT;
}

/* Where an inode's data lies: all in blocks; or whole blocks, with the tail after the inode. */
enum erofs_data_layout { EROFS_FLAT_PLAIN = 0, EROFS_FLAT_INLINE = 2 };

/* ---- the walk (erofs_walk.c) ---- */

/* Walk a sequence of nodes as erofs inodes: each inode once, a directory twice, first on entering, then when its
 * entries are complete. Memory: the directories whose paths are prefixes of the current path, 8 KiB and a few words
 * each. One thread.
 */

/* An inode, as far as it is known (struct erofs_walk_ops). */
struct erofs_inode {
    uint32_t rank, parent; /* as in struct node */
    uint16_t mode;
    uint32_t uid, gid, rdev, nlink, mtime_nsec;
    int64_t mtime;
    uint64_t size;       /* of a directory: full blocks, plus the last block up to the end of its names */
    uint64_t address;    /* of a file's data */
    uint32_t xattr_size; /* bytes of its attributes in erofs' form */
    uint32_t tail;       /* bytes of a directory or symbolic link that lie after inode and attributes */
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

/* Inode numbers, for the entries in directory blocks: base + by_rank[rank]. by_rank NULL: none are known yet. */
struct erofs_nids {
    uint64_t base;
    const uint32_t *by_rank;
};

/* Walk all nodes; nids.by_rank is NULL without ops->block. -ENOMEM; -EIO: a bug; errors of the scratch and the
 * callbacks. */
GR_MUST_CHECK int erofs_walk(const struct nodes *nodes, struct erofs_nids nids, const struct erofs_walk_ops *ops,
                             void *arg);

/* Return the bytes that must lie together: inode, attributes, tail. */
static inline uint32_t erofs_inode_need(const struct erofs_inode *inode)
{
    return EROFS_INODE_SIZE + inode->xattr_size + inode->tail;
}

/* ---- an earlier image (erofs_tree.c) ---- */

/* Which inodes the paths of an image have. Memory: 256 KiB, and 4 KiB for each directory above the current path. One
 * thread. */
struct erofs_tree;

/* Return the number of the root's inode, counted from the metadata region at this address. Any bytes are safe. */
uint64_t erofs_super_root(const uint8_t super[EROFS_SUPER_SIZE], uint64_t metadata);

/* from: the image's first block, and after it its metadata region, which the image has at address `metadata`; the
 * caller's, outlives *out. Any bytes are safe. Inode numbers count from the region. *out NULL: it is no image of erofs.
 * -ENOMEM; errors of the scratch. */
GR_MUST_CHECK int erofs_tree_new(struct scratch *from, uint64_t metadata, struct erofs_tree **out);
void erofs_tree_free(struct erofs_tree *t); /* NULL is allowed */
DEFINE_CLEANUP(erofs_tree, struct erofs_tree *, erofs_tree_free)
/* Return the bytes of the region. */
uint64_t erofs_tree_len(const struct erofs_tree *t);

/* Find the number of the inode that a path has; 0: none. Paths ascend; a path may be left out, and then nothing below
 * it is found. -ENOMEM; errors of the scratch. */
GR_MUST_CHECK int erofs_tree_find(struct erofs_tree *t, const char *path, size_t len, uint32_t *out);
/* Find the bytes that an inode has: itself, attributes, tail. Errors of the scratch. */
GR_MUST_CHECK int erofs_tree_need(struct erofs_tree *t, uint32_t nid, uint32_t *out);
/* Find the first block of an inode with blocks, as erofs_plan_block counts them; 0: it has none. Errors of the scratch.
 */
GR_MUST_CHECK int erofs_tree_blocks(struct erofs_tree *t, uint32_t nid, uint64_t *out);
/* Copy bytes of the region; after its end are zeros. Errors of the scratch. */
GR_MUST_CHECK int erofs_tree_read(struct erofs_tree *t, uint64_t at, void *dst, size_t len);

/* ---- the plan (erofs_plan.c) ---- */

/* Block numbers have 48 bits at most; all bits set is no block. */
#define EROFS_IMAGE_MAX ((EROFS_NO_BLOCK_48BIT - 1) * EROFS_BLOCK)
#define EROFS_LIMIT "1 EiB, the limit of erofs with 4096-byte blocks"

/* A sum over all inodes of a pass, to check that two passes agree. */
struct erofs_tally {
    uint64_t inodes, sum;
};

/* A hard-linked file, by the rank of its first name. */
struct erofs_linked {
    uint32_t rank, names;
};

/* An inode with blocks in the region: large directories, long symbolic links. */
struct erofs_placed {
    uint32_t rank, block; /* the first block, counted from the start of the region */
};

/* Where everything lies in the region. Positions count from its start. Begins as all zero. */
struct erofs_plan {
    VEC(struct erofs_linked) links;  /* ascending by rank */
    VEC(struct erofs_placed) blocks; /* likewise */
    VEC(uint32_t) plain;             /* likewise: directories whose tail is a block of its own */
    uint32_t *nids;                  /* inode numbers by rank; 0: no inode has this rank */
    uint64_t *kept;                  /* upon a parent, a bit for each rank: the inode is where the parent has it */
    uint64_t end, used;              /* bytes: end of the region; what is in use in any layout */
    uint64_t room;                   /* bytes to leave free if all directories got a new place upon a parent */
    uint64_t directories;
    bool upon;  /* things stay where the parent has them */
    bool moved; /* something is new or has moved, so inodes may be in another order, with blocks between them */
    struct erofs_tally tally;
};

/* Make the plan; *p is zero before. parent: an earlier image in which things stay where they are, as long as that is
 * worth it; NULL: all is laid out anew. -EFBIG: over a limit of erofs, which the sentence names; -ENOMEM; errors of
 * sorter, scratch and step. Release *p in any case. */
GR_MUST_CHECK int erofs_plan_make(struct erofs_plan *p, const struct nodes *nodes, struct erofs_tree *parent,
                                  const struct fs_config *config);
void erofs_plan_release(struct erofs_plan *p); /* *p is zero afterwards */

/* Return how many names the file has whose first name is node `rank`. */
uint32_t erofs_plan_names(const struct erofs_plan *p, uint32_t rank);
/* Return the number of the first block of an inode that has some, counted from the start of the region. */
uint64_t erofs_plan_block(const struct erofs_plan *p, uint32_t rank);

/* Return whether an inode is where the parent has it. */
bool erofs_plan_is_kept(const struct erofs_plan *p, uint32_t rank);
/* Return whether a directory's tail becomes a block, though it would fit beside the inode. */
bool erofs_plan_is_plain(const struct erofs_plan *p, uint32_t rank);

/* Add an inode, in each pass, as the walk gives it. Now and then calls config->step. */
GR_MUST_CHECK int erofs_tally_add(struct erofs_tally *t, const struct erofs_inode *i, const struct fs_config *config);
/* Set the sentence and return -EFBIG. */
GR_MUST_CHECK int erofs_too_large(void);

/* ---- extended attributes (erofs_walk.c) ---- */

/* Encode extended attributes as they lie after an erofs inode. */

/* Return the encoded size of a node's attributes in bytes, a multiple of 4; 0: there are none. xattrs: as in struct
 * node. */
uint32_t erofs_xattr_size(const void *xattrs, size_t len);

/* Append exactly erofs_xattr_size bytes to *out. -ENOMEM. */
GR_MUST_CHECK int erofs_xattr_encode(const void *xattrs, size_t len, struct bytes *out);

/* Return the value of the inode's field that states this size; and the size that an inode states. */
uint16_t erofs_xattr_count_field(uint32_t size);
uint32_t erofs_xattr_bytes(const uint8_t *inode);

#endif

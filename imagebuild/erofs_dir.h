/* Directories in the form erofs has them: blocks of entries sorted by the names' bytes over the whole directory (the
 * dot entries stand in their places among them), each block filled with as many as fit.
 */
#ifndef GRANARY_IMAGEBUILD_EROFS_DIR_H
#define GRANARY_IMAGEBUILD_EROFS_DIR_H

#include "imagebuild/erofs_format.h"
#include "imagebuild/tree.h"

/* A position in a directory's entries. */
struct erofs_dir {
    const struct tree *tree;
    node_id dir;
    const node_id *children;
    uint32_t count, next;
    unsigned dots; /* of "." and "..", how many are behind */
};

void erofs_dir_begin(struct erofs_dir *d, const struct tree *t, node_id dir);

/* Bytes of the whole directory: full blocks of 4096, the last one as long as its entries are. */
uint64_t erofs_dir_size(const struct tree *t, node_id dir);

/* Pass over the next block's entries: the bytes used of it, 0 at the end. */
uint32_t erofs_dir_skip(struct erofs_dir *d);

/* The same, written to out; what the entries do not use is zero. nids: inode numbers by node. */
uint32_t erofs_dir_block(struct erofs_dir *d, const uint32_t *nids, uint8_t out[EROFS_BLOCK]);

#endif

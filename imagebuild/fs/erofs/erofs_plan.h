/* Where erofs' inodes and their blocks go, before any is written. Positions count from the begin of the metadata
 * region. Memory: 8 bytes a node, 8 more for each file of several names; while it is made, a sorter and the open
 * directories (erofs_walk.h).
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_PLAN_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_PLAN_H

#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_walk.h"
#include "imagebuild/fs/fs.h"

/* Block numbers have 32 bits. */
#define EROFS_IMAGE_MAX ((uint64_t)(UINT32_MAX - 1) * EROFS_BLOCK)
#define EROFS_LIMIT "16 TiB, the limit of erofs with 4096-byte blocks"
int erofs_too_large(void); /* -EFBIG */

/* What a pass says about the inodes, to be compared with what another said. */
struct erofs_tally {
    uint64_t inodes, sum;
};

/* Every inode, in each pass; calls config->step now and then. */
GR_MUST_CHECK int erofs_tally_add(struct erofs_tally *t, const struct erofs_inode *i, const struct fs_config *config);

/* A file of several names, by its first. */
struct erofs_linked {
    uint32_t rank, names;
};

struct erofs_plan {
    VEC(struct erofs_linked) links; /* by rank */
    uint32_t *nids, *blocks;        /* by rank; blocks: the first one, counted from the first behind the inodes */
    uint64_t inodes_end, end;       /* of the inodes, of all of it */
    struct erofs_tally tally;
};

/* *p is zero. -EFBIG: a limit of erofs, which the sentence names. In every case erofs_plan_release. */
GR_MUST_CHECK int erofs_plan_make(struct erofs_plan *p, const struct nodes *nodes, const struct fs_config *config);
/* How many names the file has whose first one is that of the node `rank`. */
uint32_t erofs_plan_names(const struct erofs_plan *p, uint32_t rank);
void erofs_plan_release(struct erofs_plan *p);

#endif

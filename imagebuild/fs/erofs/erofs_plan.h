/* Plan where erofs' inodes and blocks go, before any is written. Positions are bytes from the start of the metadata
 * region. Memory: 8 bytes a node, and 8 for each hard-linked file; while the plan is made, also a sorter and the open
 * directories (erofs_walk.h). One thread.
 */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_PLAN_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_PLAN_H

#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/fs/fs.h"

/* Block numbers have 32 bits. */
#define EROFS_IMAGE_MAX ((uint64_t)(UINT32_MAX - 1) * EROFS_BLOCK)
#define EROFS_LIMIT "16 TiB, the limit of erofs with 4096-byte blocks"
int erofs_too_large(void); /* sets the sentence and returns -EFBIG */

/* A sum over all inodes of a pass, to check that two passes agree. */
struct erofs_tally {
    uint64_t inodes, sum;
};

/* Add an inode, in each pass. Now and then calls config->step, and returns what that returns. */
GR_MUST_CHECK int erofs_tally_add(struct erofs_tally *t, const struct erofs_inode *i, const struct fs_config *config);

/* A hard-linked file, by the rank of its first name. */
struct erofs_linked {
    uint32_t rank, names;
};

/* The plan. nids and blocks are indexed by rank. */
struct erofs_plan {
    VEC(struct erofs_linked) links; /* ascending by rank */
    uint32_t *nids, *blocks;        /* inode number; first block, counted from the first one behind the inodes */
    uint64_t inodes_end, end;       /* bytes: end of the inodes; end of the region */
    struct erofs_tally tally;
};

/* Make the plan; *p is zero before. -EFBIG: over a limit of erofs, which the sentence names; -ENOMEM; errors of
 * sorter, scratch and step. Release *p in any case. */
GR_MUST_CHECK int erofs_plan_make(struct erofs_plan *p, const struct nodes *nodes, const struct fs_config *config);
/* Return how many names the file has whose first name is node `rank`. */
uint32_t erofs_plan_names(const struct erofs_plan *p, uint32_t rank);
void erofs_plan_release(struct erofs_plan *p);

#endif

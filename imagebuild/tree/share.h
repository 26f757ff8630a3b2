/* A share of a listing, for builds of parts of a source on several machines: the shares of all machines together are
 * the listing, and each path but the directories is in one of them. One thread. */
#ifndef GRANARY_IMAGEBUILD_TREE_SHARE_H
#define GRANARY_IMAGEBUILD_TREE_SHARE_H

#include "base/step.h"
#include "imagebuild/tree/listing.h"
#include "imagebuild/tree/nodes.h"

/* SHARE_LARGE: bytes of a file that is shared out by itself. SHARE_RUN: mean number of the other paths that stay
 * together. */
enum { SHARE_LARGE = 1 << 20, SHARE_RUN = 256, SHARES_MAX = 10000 };

/* Share `number`, from 0, of `count`, at most SHARES_MAX. */
struct share {
    unsigned number, count;
};

/* Make *out the nodes of one share: all directories, and every other path that is of the share. A hard-linked file is
 * where its first name is. The counts of paths and bytes in *stats become those of *out, which is the caller's. Memory:
 * a bit for each node. -ENOMEM; errors of the scratch; what step returns. */
GR_MUST_CHECK int share_take(const struct share *share, const struct nodes *from, const struct scratch_config *scratch,
                             const struct step *step, struct nodes **out, struct listing_stats *stats);

#endif

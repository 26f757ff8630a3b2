/* What a rebuild does with each file: one pass over the listing and the parent's catalog, both in path order.
 *
 * A regular file that stands in both at the same path, with the same size and the same validator, is kept (NODE_KEEP):
 * its bytes stay at the parent's address, its content digest is the catalog's, unless they lie in a damaged pack.
 * Everything else is read, unless it was
 * written with the listing already. Mode, owner, mtime and extended attributes are always the listing's.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PLAN_H
#define GRANARY_IMAGEBUILD_REBUILD_PLAN_H

#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/rebuild/parent_check.h"
#include "imagebuild/tree/nodes.h"
#include "store/store.h"

struct plan_config {
    const struct nodes *listed;
    struct store *store;                /* the parent's */
    const struct manifest *parent;      /* of the filesystem and chunk size that are built */
    struct live_map *live;              /* of the parent's size, empty: is told what is kept */
    const struct parent_damage *damage; /* what cannot be kept; NULL: nothing */
    struct scratch_config scratch;      /* for the planned nodes */
    /* Called every PLAN_STEP nodes; not 0 ends the pass with that value. NULL: nobody asks. */
    int (*step)(void *arg);
    void *step_arg;
};

enum { PLAN_STEP = 4096 };

/* Regular files; of a hard-linked one the first name counts. */
struct plan_counts {
    uint64_t unchanged, added, changed, removed;
    uint64_t healed;                               /* unchanged, but read: they lay in damaged packs */
    uint64_t bytes_kept, bytes_read, bytes_healed; /* sizes of unchanged, of all other files, of healed ones */
};

/* *out is the caller's: the listed nodes with their plans. Further names of a hard-linked file are NODE_READ without
 * bytes of their own, as in the listing. -EBADMSG and other errors of the parent's catalog: the sentence names
 * --parent none. */
GR_MUST_CHECK int plan_make(const struct plan_config *config, struct nodes **out, struct plan_counts *counts);

#endif

/* Decide what a rebuild does with each file: one pass over the listing and the parent's catalog, both in path order.
 *
 * A regular file that both have at the same path, with the same size and validator, is kept (NODE_KEEP): its data stays
 * at the parent's address, and its digest is the catalog's. But if the data lies in a damaged pack, the file is read.
 * Every other file is read too, unless it was written with the listing already. Mode, owner, mtime and extended
 * attributes always come from the listing. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_REBUILD_INTERNAL_H
#define GRANARY_IMAGEBUILD_REBUILD_REBUILD_INTERNAL_H

#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/rebuild/parent_check.h"
#include "imagebuild/tree/nodes.h"
#include "store/store.h"

/* All pointers are the caller's. */
struct plan_config {
    const struct nodes *listed;
    struct store *store;                /* the parent's */
    const struct manifest *parent;      /* same filesystem and chunk size as the build's */
    struct live_map *live;              /* empty, of the parent's size; gets the kept files */
    const struct parent_damage *damage; /* NULL: nothing is damaged */
    struct scratch_config scratch;      /* for the planned nodes */
    /* Called every PLAN_STEP nodes; non-zero ends the pass with that value. NULL: not called. */
    int (*step)(void *arg);
    void *step_arg;
};

enum { PLAN_STEP = 4096 };

/* Regular files; a hard-linked file counts by its first name. */
struct plan_counts {
    uint64_t unchanged, added, changed, removed;
    uint64_t healed;                               /* unchanged, but read because they lay in damaged packs */
    uint64_t bytes_kept, bytes_read, bytes_healed; /* sizes of unchanged, of all other, of healed files */
};

/* Plan the listed nodes; *out is the caller's. Further names of a hard-linked file are NODE_READ without bytes, as in
 * the listing. -EBADMSG and other errors of the parent's catalog name --parent none; others come from scratch and
 * step. */
GR_MUST_CHECK int plan_make(const struct plan_config *config, struct nodes **out, struct plan_counts *counts);

#endif

/* What parent.c plans with: what to do with each file, compaction, and the check of the parent's packs. */
#ifndef GRANARY_IMAGEBUILD_REBUILD_REBUILD_INTERNAL_H
#define GRANARY_IMAGEBUILD_REBUILD_REBUILD_INTERNAL_H

#include <stdbool.h>

#include "base/map.h"
#include "base/step.h"
#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/tree/nodes.h"
#include "store/store.h"

/* ---- the plan (plan.c) ---- */

/* Decide what a rebuild does with each file: one pass over the listing and the parent's catalog, both in path order.
 *
 * A regular file that both have at the same path, with the same size and validator, is kept (NODE_KEEP): its data stays
 * at the parent's address, and its digest is the catalog's. But if the data lies in a damaged pack, the file is read.
 * Of several images, the first one that has the file in this version counts.
 * Every other file is read too, unless it was written with the listing already. Mode, owner, mtime and extended
 * attributes always come from the listing. One thread.
 */

/* All pointers are the caller's. */
struct plan_config {
    const struct nodes *listed;
    struct store *store;                /* the parent's */
    const struct parent_image *images;  /* the parent's: same filesystem and chunk size as the build's */
    size_t image_count;                 /* at least 1 */
    struct live_map *live;              /* empty, of the parent's size; gets the kept files */
    const struct parent_damage *damage; /* NULL: nothing is damaged */
    struct scratch_config scratch;      /* for the planned nodes */
    struct step step;                   /* called every PLAN_STEP nodes */
};

enum { PLAN_STEP = 4096 };

/* Plan the listed nodes; *out is the caller's. Further names of a hard-linked file are NODE_READ without bytes, as in
 * the listing. PARENT_DAMAGED: the catalog is; other errors come from the store, scratch and step. */
GR_MUST_CHECK int plan_make(const struct plan_config *config, struct nodes **out, struct plan_counts *counts);

/* ---- compaction (plan.c) ---- */

/* Compaction: when the chunks that a rebuild keeps have too many dead blocks, files are moved out of the chunks with
 * the most dead blocks, and these chunks become free. A moved file is read from the parent's image and written like a
 * new one. The choice depends only on the live-block map and on the budget. One thread.
 */

enum {
    COMPACT_DEAD_PERCENT = 10, /* percent of the live bytes that may be dead in kept chunks */
    COMPACT_GAP_PERCENT = 12,  /* and more where a build leaves gaps, which the map does not tell from dead blocks */
};

struct compact;

/* Choose the chunks to be emptied, so that the files to be moved have at most `budget` bytes, in whole blocks. gaps: as
 * in struct alloc_config. *out NULL: nothing is to be moved. Memory: one bit a chunk. -ENOMEM. */
GR_MUST_CHECK int compact_choose(const struct live_map *live, bool gaps, uint64_t budget, struct compact **out);
void compact_free(struct compact *c); /* NULL is allowed */
DEFINE_CLEANUP(compact, struct compact *, compact_free)

struct compact_config {
    const struct nodes *planned;
    struct live_map *live; /* loses the files that are moved */
    struct scratch_config scratch;
    struct step step; /* as in struct plan_config */
};

/* Return in *out the planned nodes, in which kept files that lie in a chosen chunk became NODE_MOVE; the caller's.
 * Errors of the nodes' scratch, and what step returns. */
GR_MUST_CHECK int compact_apply(const struct compact *c, const struct compact_config *config, struct nodes **out,
                                struct compact_counts *counts);

/* ---- the parent's packs (parent_check.c) ---- */

/* Check that the store still has the packs that a build reuses from its parent. The build reads the files in damaged
 * packs from the source again.
 *
 * From every pack, the last chunk that the parent needs is read and verified. This one small read a pack finds packs
 * that are missing, too short, or replaced by other bytes. Only reading a whole pack finds damage in its middle:
 * `granary verify --deep`.
 */

enum { PARENT_CHECK_THREADS = 16 };

struct parent_check_config {
    struct store *store;
    const struct parent_image *images; /* the parent's */
    size_t image_count;                /* at least 1 */
    uint64_t size;                     /* bytes of the parent, all images together */
    struct step step;
};

/* Read and verify the parent's whole index and one chunk of each pack. Logs damaged packs, the first few by name.
 * PARENT_DAMAGED: the index is. Others come from the store and step; a failing store ends the build, since its packs
 * may be whole. Memory: 150 bytes a pack, a chunk a thread, and with damage a bit for each chunk. */
GR_MUST_CHECK int parent_check(const struct parent_check_config *config, struct parent_damage *out);

#endif

/* Compaction: when the chunks that a rebuild keeps have too many dead blocks, files are moved out of the chunks with
 * the most dead blocks, and these chunks become free. A moved file is read from the parent's image and written like a
 * new one. The choice depends only on the live-block map and on the budget. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_COMPACT_H
#define GRANARY_IMAGEBUILD_REBUILD_COMPACT_H

#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/tree/nodes.h"

enum {
    COMPACT_DEAD_PERCENT = 10, /* percent of the live bytes that may be dead in kept chunks */
};

struct compact;

/* Choose the chunks to be emptied, so that the files to be moved have at most `budget` bytes, in whole blocks. *out
 * NULL: nothing is to be moved. Memory: one bit a chunk. -ENOMEM. */
GR_MUST_CHECK int compact_choose(const struct live_map *live, uint64_t budget, struct compact **out);
void compact_free(struct compact *c); /* NULL is allowed */
DEFINE_CLEANUP(compact, struct compact *, compact_free)

struct compact_config {
    const struct nodes *planned;
    struct live_map *live; /* loses the files that are moved */
    struct scratch_config scratch;
    int (*step)(void *arg); /* as in struct plan_config */
    void *step_arg;
};

struct compact_counts {
    uint64_t chunks, files, bytes; /* emptied; moved */
};

/* Return in *out the planned nodes, in which kept files that lie in a chosen chunk became NODE_MOVE; the caller's.
 * Errors of the nodes' scratch, and what step returns. */
GR_MUST_CHECK int compact_apply(const struct compact *c, const struct compact_config *config, struct nodes **out,
                                struct compact_counts *counts);

#endif

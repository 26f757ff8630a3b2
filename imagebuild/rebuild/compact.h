/* Compaction: when too much of the chunks that a rebuild keeps is dead, files are moved out of the deadest ones, which
 * become free. A moved file's bytes are read from the parent's image and written like a new one's. Which ones is a
 * function of what is kept and of the budget.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_COMPACT_H
#define GRANARY_IMAGEBUILD_REBUILD_COMPACT_H

#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/tree/nodes.h"

enum {
    COMPACT_DEAD_PERCENT = 10, /* of the live bytes: so much may be dead in chunks that are kept */
};

struct compact;

/* Choose the chunks to be emptied, so that the files to be moved have at most `budget` bytes (rounded up to 4 KiB
 * each). *out NULL: nothing is to be moved. Memory: one bit a chunk. */
GR_MUST_CHECK int compact_choose(const struct live_map *live, uint64_t budget, struct compact **out);
void compact_free(struct compact *c); /* NULL is allowed */
DEFINE_CLEANUP(compact, struct compact *, compact_free)

struct compact_config {
    const struct nodes *planned;
    struct live_map *live; /* is told what is not kept after all */
    struct scratch_config scratch;
    int (*step)(void *arg); /* as in struct plan_config */
    void *step_arg;
};

struct compact_counts {
    uint64_t chunks, files, bytes; /* emptied; moved */
};

/* *out is the caller's: the planned nodes, the kept files that lie in a chosen chunk made NODE_MOVE. */
GR_MUST_CHECK int compact_apply(const struct compact *c, const struct compact_config *config, struct nodes **out,
                                struct compact_counts *counts);

#endif

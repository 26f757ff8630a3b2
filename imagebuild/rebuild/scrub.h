/* Erasure: the chunks that a rebuild keeps of its parent, and that have dead blocks, are read and written again with
 * those blocks zero. Where nothing but zeros was dead the sink finds the parent's chunk in them, and nothing is stored.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_SCRUB_H
#define GRANARY_IMAGEBUILD_REBUILD_SCRUB_H

#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/sink/sink.h"

struct scrub_config {
    struct store *store;           /* the parent's */
    const struct manifest *parent; /* likewise */
    const struct live_map *live;   /* as it will be: after compaction */
    struct sink *sink;
    const volatile int *cancel; /* may be NULL */
    /* Called for every chunk; not 0 ends the scrub with that value. NULL: nobody asks. */
    int (*step)(void *arg);
    void *step_arg;
};

/* Chunks in which something was erased, and how many bytes that were not zero. */
struct scrub_counts {
    uint64_t chunks, bytes;
};

/* Writes through SINK_SCRUB. */
GR_MUST_CHECK int scrub_run(const struct scrub_config *config, struct scrub_counts *counts);

#endif

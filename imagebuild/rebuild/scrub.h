/* Scrubbing: kept chunks of the parent that have dead blocks are read, and written again with zeros in these blocks. If
 * the dead blocks held only zeros, the sink recognizes the parent's chunk and stores nothing. */
#ifndef GRANARY_IMAGEBUILD_REBUILD_SCRUB_H
#define GRANARY_IMAGEBUILD_REBUILD_SCRUB_H

#include "format/manifest.h"
#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/sink/sink.h"

/* All pointers are the caller's. */
struct scrub_config {
    struct store *store;           /* the parent's */
    const struct manifest *parent; /* likewise */
    const struct live_map *live;   /* as it will be: after compaction */
    struct sink *sink;
    const volatile int *cancel; /* NULL is allowed */
    /* Called for every chunk that is rewritten; non-zero ends the scrub with that value. NULL: not called. */
    int (*step)(void *arg);
    void *step_arg;
};

/* Chunks in which something was erased; erased bytes that were not zero. */
struct scrub_counts {
    uint64_t chunks, bytes;
};

/* Scrub, writing through SINK_SCRUB in ascending order. Errors of the parent's chunks name --parent none; others come
 * from the sink and step; -ECANCELED. */
GR_MUST_CHECK int scrub_run(const struct scrub_config *config, struct scrub_counts *counts);

#endif

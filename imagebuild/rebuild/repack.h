/* Repacking: kept chunks that stand in packs of which little else is used by this image are copied, as stored, into new
 * packs, so that the old ones can go when no other image needs them. Without it every pack would live as long as the
 * longest-lived chunk in it, and a store of daily builds would grow.
 *
 * Nothing is done as long as the packs' dead bytes are at most REPACK_DEAD_PERCENT of what is kept. Else the packs of
 * which at most REPACK_LIVE_PERCENT is live give up their chunks, the deadest first, within the budget. What is chosen
 * depends on the parent, what is kept of it and the store's packs of these names alone.
 *
 * For erasure every pack that holds anything else than what stays gives up its chunks, whatever that costs.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_REPACK_H
#define GRANARY_IMAGEBUILD_REBUILD_REPACK_H

#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/packer.h"

enum { REPACK_DEAD_PERCENT = 10, REPACK_LIVE_PERCENT = 50 };

struct repack_config {
    const struct sink_parent *parent;
    struct parent_index *index; /* the parent's */
    struct packer *packer;      /* takes the copies, under their numbers */
    struct upload *upload;      /* whose step is taken meanwhile */
    uint64_t budget;            /* stored bytes copied at most, unless erase */
    bool erase;                 /* every pack with anything dead; a chunk that cannot be read fails the build */
};

struct repack_counts {
    uint64_t packs, chunks, bytes; /* given up; copied, as stored */
};

/* Every chunk that is copied is proved on the way, its plain bytes included. Reads the whole index of the parent;
 * memory: 40 to 80 bytes for each pack of the parent. */
GR_MUST_CHECK int repack_run(const struct repack_config *config, struct repack_counts *out);

#endif

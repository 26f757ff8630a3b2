/* Repacking: copy kept chunks, as stored, into new packs, out of packs that this image uses little of. gc can remove
 * the old packs once no other image needs them. Without this, a pack would live as long as the longest-lived chunk in
 * it, and a store of daily builds would grow.
 *
 * Nothing is done while the packs' dead bytes are at most REPACK_DEAD_PERCENT of the kept bytes. Beyond that, packs
 * with at most REPACK_LIVE_PERCENT live bytes are emptied, those with the smallest live part first, within the budget.
 * The choice depends only on the parent, on its kept chunks, and on the sizes of its packs in the store.
 *
 * With `erase`, every pack that holds anything but kept chunks is emptied, at any cost. One thread.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_REPACK_H
#define GRANARY_IMAGEBUILD_SINK_REPACK_H

#include "imagebuild/rebuild/parent_index.h"
#include "imagebuild/sink/packer.h"

enum { REPACK_DEAD_PERCENT = 10, REPACK_LIVE_PERCENT = 50 };

/* All pointers are the caller's. */
struct repack_config {
    const struct sink_parent *parent;
    struct parent_index *index; /* the parent's */
    struct packer *packer;      /* receives the copies under their numbers */
    struct upload *upload;      /* its step is called meanwhile */
    uint64_t budget;            /* stored bytes copied, at most; not used with erase */
    bool erase;                 /* empty every pack with dead bytes; a chunk that cannot be read fails the build */
};

struct repack_counts {
    uint64_t packs, chunks, bytes; /* packs emptied; chunks and stored bytes copied */
};

/* Choose the packs and copy their kept chunks. Each chunk is verified, its plain bytes included. Reads the parent's
 * whole index. Memory: 40 to 80 bytes for each pack of the parent. Without `erase`, a chunk that cannot be read ends
 * the copying with a warning, and the result is 0. Errors come from the parent's index, the store, the packer and step.
 */
GR_MUST_CHECK int repack_run(const struct repack_config *config, struct repack_counts *out);

#endif

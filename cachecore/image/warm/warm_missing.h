/* Which of a set of an image's chunks are not cached. */
#ifndef GRANARY_IMAGE_WARM_WARM_MISSING_H
#define GRANARY_IMAGE_WARM_WARM_MISSING_H

#include "image/warm/select.h"

/* Bytes are of the plain chunks, but fetch_bytes: of the missing ones, as stored (0 for those of which the index is not
 * at hand), with the index nodes on the way to chunks that are not cached. Holes are no chunks. */
struct missing_sums {
    uint64_t chunks, bytes, missing, missing_bytes, fetch_bytes;
};

/* step: at every chunk; its non-zero result ends the walk and is returned. */
typedef int missing_step(void *arg, uint64_t chunk);

/* Look `chosen` up, in its order. *out: those missing, and those of which the index node is not at hand; in every case
 * chunk_set_release. store: for index nodes that are not cached, an error of which is returned; NULL: such nodes are
 * not at hand. No chunk is read. */
GR_MUST_CHECK int warm_missing(struct image *img, struct store *store, const struct chunk_set *chosen,
                               missing_step *step, void *arg, struct chunk_set *out, struct missing_sums *sums);

#endif

/* Find out which of a set of an image's chunks are not cached. */
#ifndef GRANARY_IMAGE_WARM_WARM_MISSING_H
#define GRANARY_IMAGE_WARM_WARM_MISSING_H

#include "image/warm/select.h"

/* Counts and bytes; holes do not count. Bytes are of the plain chunks, except for fetch_bytes: the missing chunks as
 * stored (0 for chunks whose index node is unknown), with the missing index nodes on the way to the chosen chunks. */
struct missing_sums {
    uint64_t chunks, bytes, missing, missing_bytes, fetch_bytes;
};

/* Called at every chunk; a non-zero result ends the walk and is returned. */
typedef int missing_step(void *arg, uint64_t chunk);

/* Look the chosen chunks up, in ascending order; reads no chunk. *out: the missing ones, and those whose index node
 * is not available; call chunk_set_release in every case. store: for index nodes that are not cached, whose errors
 * are returned; NULL: such nodes are not available. -ENOMEM. */
GR_MUST_CHECK int warm_missing(struct image *img, struct store *store, const struct chunk_set *chosen,
                               missing_step *step, void *arg, struct chunk_set *out, struct missing_sums *sums);

#endif

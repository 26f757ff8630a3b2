/* Warm an image's index too: then the first read of each 64 MiB (at 64 KiB a chunk) waits only for its data. */
#ifndef GRANARY_IMAGE_WARM_WARM_INDEX_H
#define GRANARY_IMAGE_WARM_WARM_INDEX_H

#include "image/warm/select.h"

/* Bring the index nodes that describe the chosen chunks into the cache, level by level, several of a level at a time.
 * Missing ones are fetched from `store`. step(arg) is called now and then; its non-zero result ends the work and is
 * returned. Else returns 0 or the error of a node. *out_fetched: bytes fetched. */
GR_MUST_CHECK int warm_index_of(struct image *img, struct store *store, const struct chunk_set *chosen,
                                int (*step)(void *arg), void *arg, uint64_t *out_fetched);

/* Return how many leaves are worth fetching with the metadata: all of them, or 0 for an image whose nodes take more
 * than half of its index memory. */
uint64_t warm_index_leaves(const struct image *img);
/* Bring a leaf, and the nodes above it, into the cache and into memory. Any thread. */
GR_MUST_CHECK int warm_index_leaf(struct image *img, uint64_t leaf);

#endif

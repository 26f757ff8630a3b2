/* An image's index beside its metadata: the first read of each 64 MiB (at 64 KiB a chunk) then waits for its bytes
 * alone.
 */
#ifndef GRANARY_IMAGE_WARM_WARM_INDEX_H
#define GRANARY_IMAGE_WARM_WARM_INDEX_H

#include "image/warm/select.h"

/* Have the nodes that describe the chosen chunks in the cache, a level after the other and several of one at a time:
 * what is missing is asked of `store`. step(arg) is called now and then, and what it returns ends the work. Returns
 * that, or the failure of a node. *out_fetched: bytes. */
GR_MUST_CHECK int warm_index_of(struct image *img, struct store *store, const struct chunk_set *chosen,
                                int (*step)(void *arg), void *arg, uint64_t *out_fetched);

/* How many leaves are worth having beside the metadata: all, or of an image whose nodes are more than half of what its
 * index-memory= holds, none. */
uint64_t warm_index_leaves(const struct image *img);
/* Have a leaf, and what is above it, in the cache and in memory. Any thread. */
GR_MUST_CHECK int warm_index_leaf(struct image *img, uint64_t leaf);

#endif

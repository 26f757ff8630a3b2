/* An image's index beside its metadata: the first read of each 64 MiB (at 64 KiB a chunk) then waits for its bytes
 * alone.
 */
#ifndef GRANARY_IMAGE_WARM_WARM_INDEX_H
#define GRANARY_IMAGE_WARM_WARM_INDEX_H

#include "image/image.h"

/* Have all nodes of the index in the cache and in memory, several at a time; of an image whose nodes are more than half
 * of what its index-memory= holds, none. step(arg) is called now and then, and what it returns ends the work. Returns
 * that, or the failure of a node: the rest may be missing then, and is fetched when it is read. */
GR_MUST_CHECK int warm_index(struct image *img, int (*step)(void *arg), void *arg);

#endif

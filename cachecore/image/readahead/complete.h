/* Completing a leaf of an image's index: the missing chunks are fetched one unit at a time, next to the chunks that
 * clients miss, in the order of the packs. */
#ifndef GRANARY_IMAGE_READAHEAD_COMPLETE_H
#define GRANARY_IMAGE_READAHEAD_COMPLETE_H

#include "image/image_internal.h"

enum { COMPLETE_BYTES = 1 << 20, COMPLETE_CHUNKS = 16 }; /* bounds of a unit, which has at least one chunk */

/* Return from which credit on (in chunks) a unit of the leaf is worth a GET. A short last leaf has a lower bar. */
uint32_t complete_worth(const struct image *img, uint64_t leaf);

/* Fetch one unit of a leaf, as far as its credit allows, and wait until the unit is in the cache. shared: the served
 * images do not fit into the cache together, so only free space is used. Blocks; not for threads that serve reads. 0
 * also if nothing was missing. -EDQUOT, -ENODEV (no sentence): the cache cannot hold the image, or takes no more of it
 * now. Else the error of a fetch; after one that error_of_one_thing() is true for, the unit stays claimed and is not
 * tried again. */
GR_MUST_CHECK int complete_some(struct image *img, uint64_t leaf, bool shared);

#endif

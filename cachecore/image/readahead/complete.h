/* Completing an image: what is missing of a leaf of its index is fetched a unit at a time, beside the chunks that
 * readers miss and in the order of the packs.
 */
#ifndef GRANARY_IMAGE_READAHEAD_COMPLETE_H
#define GRANARY_IMAGE_READAHEAD_COMPLETE_H

#include "image/image_internal.h"

enum { COMPLETE_BYTES = 1 << 20, COMPLETE_CHUNKS = 16 }; /* a unit at most, but a chunk in any case */

/* Chunks of a unit. */
uint32_t complete_unit(const struct image *img);

/* Credit of which a unit of the leaf is worth fetching. */
uint32_t complete_worth(const struct image *img, uint64_t leaf);

/* Fetch one unit of a leaf for which there is credit, and wait until it is in the cache. shared: the images that are
 * served do not fit the cache together, so only free room is used. Blocks; any thread but a reader's. -EDQUOT, -ENODEV
 * (no sentence): the cache cannot hold the image, or takes no more of it now; errors of a fetch: after one of
 * error_of_one_thing the unit is not fetched ahead again. */
GR_MUST_CHECK int complete_some(struct image *img, uint64_t leaf, bool shared);

#endif

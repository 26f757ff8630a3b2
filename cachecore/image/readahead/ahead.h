/* Completion in the background: while readers miss chunks of an image here and there, threads fetch what is missing
 * beside them, as far as demand.h allows, so that the first epoch over a shuffled dataset goes as fast as the link and
 * not as fast as its round trips. Nothing is fetched for an image that the cache cannot hold, or that nobody reads.
 */
#ifndef GRANARY_IMAGE_READAHEAD_AHEAD_H
#define GRANARY_IMAGE_READAHEAD_AHEAD_H

#include "image/image.h"

struct ahead;

/* -ENOMEM. No thread is made. */
GR_MUST_CHECK int ahead_new(unsigned threads, struct ahead **out);
/* An image to watch, of which a reference is held; before anybody reads it. -ENOMEM. */
GR_MUST_CHECK int ahead_add(struct ahead *a, struct image *img);
/* Nothing is begun for it any more; what is in flight is not waited for. */
void ahead_remove(struct ahead *a, struct image *img);
GR_MUST_CHECK int ahead_start_threads(struct ahead *a);
/* Waits for the gets in flight. NULL is allowed. */
void ahead_free(struct ahead *a);

#endif

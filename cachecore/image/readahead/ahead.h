/* Completion in the background: while clients miss chunks of an image here and there, threads fetch the missing chunks
 * around them, within the credit of demand.h. The first epoch over a shuffled dataset then runs at the speed of the
 * link instead of one round trip per file. Nothing is fetched for an image that the cache cannot hold, or that nobody
 * reads.
 *
 * Threads: any thread may call the functions, unless said otherwise.
 */
#ifndef GRANARY_IMAGE_READAHEAD_AHEAD_H
#define GRANARY_IMAGE_READAHEAD_AHEAD_H

#include "image/image.h"

struct ahead;

/* Create without threads; `threads` is how many ahead_start_threads will start. -ENOMEM. */
GR_MUST_CHECK int ahead_new(unsigned threads, struct ahead **out);
/* Watch an image and take a reference to it. Call it before the image's first read. -ENOMEM. */
GR_MUST_CHECK int ahead_add(struct ahead *a, struct image *img);
/* Stop watching an image; no further unit of it is begun. Units in flight are not waited for: the last of them drops
 * the reference. Does nothing if the image is not watched. */
void ahead_remove(struct ahead *a, struct image *img);
/* Start the threads. On failure those that were started run until ahead_free. -ENOMEM, or the negative errno of
 * pthread_create. */
GR_MUST_CHECK int ahead_start_threads(struct ahead *a);
/* Stop, wait for the units in flight, and free. NULL is allowed. */
void ahead_free(struct ahead *a);

#endif

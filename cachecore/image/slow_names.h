/* Which file a slow read was of: a line of the log a moment after the read's own. The names of an image are in its
 * catalog, in the order of paths: to find one by its offset is a pass over all of it, so that one read at a time is
 * looked for, by a thread, and one a minute at most; the others' lines have their offset, for `granary ls --at`.
 */
#ifndef GRANARY_IMAGE_SLOW_NAMES_H
#define GRANARY_IMAGE_SLOW_NAMES_H

#include "image/image.h"

enum { SLOW_NAMES_ENTRIES_MAX = 1 << 20 }; /* of images whose catalogs are read for it: some 80 MB at the most */

struct slow_names;

/* From now on the slow reads of s are asked about. s: outlives it. -ENOMEM. No thread is made. */
GR_MUST_CHECK int slow_names_new(struct slow_reads *s, struct slow_names **out);
GR_MUST_CHECK int slow_names_start_thread(struct slow_names *n);
/* After the last read of the images; waits for a get in the air. NULL is allowed. */
void slow_names_free(struct slow_names *n);

#endif

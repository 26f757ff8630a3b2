/* Which file a slow read was of: a line of the log a moment after the read's own. The catalog is in
 * the order of paths, so that finding a file by its offset takes a pass over all of it: a thread looks for one read at
 * a time, and for one a minute at most. The lines of the others have an offset, for `granary ls --at`.
 */
#ifndef GRANARY_IMAGE_SLOW_NAMES_H
#define GRANARY_IMAGE_SLOW_NAMES_H

#include "image/image.h"

enum { SLOW_NAMES_ENTRIES_MAX = 1 << 20 }; /* of images whose catalogs are read for it: some 80 MB at the most */

struct slow_names;

/* From now on the slow reads of s are asked about. s: outlives it. -ENOMEM. No thread is made. */
GR_MUST_CHECK int slow_names_new(struct slow_reads *s, struct slow_names **out);
GR_MUST_CHECK int slow_names_start_thread(struct slow_names *n);
/* After the last read of the images; waits for a get in flight. NULL is allowed. */
void slow_names_free(struct slow_names *n);

#endif

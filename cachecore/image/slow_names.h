/* Name the file of a slow read, in a log line shortly after the read's own. The catalog is in the order of paths, so
 * finding a file by offset takes a pass over all of it. Therefore a thread looks for one read at a time, and for at
 * most one a minute. The log lines of the other reads have an offset, for `granary ls --at`. */
#ifndef GRANARY_IMAGE_SLOW_NAMES_H
#define GRANARY_IMAGE_SLOW_NAMES_H

#include "image/image.h"

enum {
    SLOW_NAMES_ENTRIES_MAX = 1 << 20
}; /* images with more files are not searched; some 80 MB of catalog at the most */

struct slow_names;

/* Attach to the slow reads of s, which must outlive it. Starts no thread. -ENOMEM. */
GR_MUST_CHECK int slow_names_new(struct slow_reads *s, struct slow_names **out);
GR_MUST_CHECK int slow_names_start_thread(struct slow_names *n);
/* Detach and free; call it after the last read of the images. Waits for a get in flight. NULL is allowed. */
void slow_names_free(struct slow_names *n);

#endif

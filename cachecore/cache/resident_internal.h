/* What the files of resident images share (resident.c, resident_check.c, resident_share.c). */
#ifndef GRANARY_CACHE_RESIDENT_INTERNAL_H
#define GRANARY_CACHE_RESIDENT_INTERNAL_H

#include "cache/resident.h"

/* Open DIR/resident if it is safe. make: make it where it is missing. out_path: its path. -ENOENT; errors of
 * safe_dir_open. */
GR_MUST_CHECK int resident_dir_open(const char *dir, bool make, char out_path[PATH_MAX], int *out_fd);

/* safe_file_open of a file there. */
GR_MUST_CHECK int resident_file_open(int dir_fd, const char *place, const char *name, int flags, int *out_fd);

/* Is the file open elsewhere, too? */
bool resident_in_use(int fd);

/* Take a complete file, open as fd, out of use. If the name is another file's by now, that one stays. 0 or -errno,
 * without a sentence. */
GR_MUST_CHECK int resident_rename_bad(int dir_fd, int fd, const char *name);

#endif

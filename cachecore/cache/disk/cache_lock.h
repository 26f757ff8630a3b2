/* The lock of a cache directory: one process owns the directory, and a dead owner blocks nobody. */
#ifndef GRANARY_CACHE_DISK_CACHE_LOCK_H
#define GRANARY_CACHE_DISK_CACHE_LOCK_H

#include <stdbool.h>

#include "base/compiler.h"

/* Take the lock of directory dir_fd (safe_dir_open), called `dir` in messages. *out_fd: close it to release the lock.
 * make: create the lock file if it is missing, else -ENOENT; without make, a directory on a read-only filesystem can
 * be locked too. -EBUSY: another process holds it (the message names its pid); -EPERM: another user could change the
 * file.
 */
GR_MUST_CHECK int cache_lock_take(int dir_fd, const char *dir, bool make, int *out_fd);
/* Write this process's pid into the lock file; call it again after a fork. */
void cache_lock_sign(int fd, const char *dir);

#endif

/* The lock of a cache directory: one process owns it, and a dead owner blocks nobody. */
#ifndef GRANARY_CACHE_DISK_CACHE_LOCK_H
#define GRANARY_CACHE_DISK_CACHE_LOCK_H

#include <stdbool.h>

#include "base/compiler.h"

/* Take the lock of directory dir_fd (safe_dir_open), called dir in sentences; *out_fd: close it to give the lock back.
 * make: create the lock file where it is missing, else -ENOENT; without make a directory on a read-only filesystem is
 * locked too. -EBUSY: the sentence names the pid that holds it. */
GR_MUST_CHECK int cache_lock_take(int dir_fd, const char *dir, bool make, int *out_fd);
/* Note this process as the owner (again after a fork). */
void cache_lock_sign(int fd, const char *dir);

#endif

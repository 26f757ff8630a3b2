/* What of /run/granary is for one process at a time. All of these locks end with their process. */
#ifndef GRANARY_ATTACH_NODE_LOCK_H
#define GRANARY_ATTACH_NODE_LOCK_H

#include <stdbool.h>

#include "base/compiler.h"

/* To look and to change which servers and mounts there are: for moments, or as long as a server takes to end. Waits, at
 * most a minute. *out_fd: close. */
GR_MUST_CHECK int node_lock(int *out_fd);

/* To mount on, or unmount, what the run directory stands for. The directory is made if it is missing. -EBUSY: another
 * process is about it. wait: only after a while; others have it for a moment to see whether something is left there.
 * *out_fd: close. */
GR_MUST_CHECK int node_lock_mount(const char *run_dir, bool wait, int *out_fd);

#endif

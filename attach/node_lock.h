/* Locks on parts of /run/granary. The kernel drops each with the process that holds it. */
#ifndef GRANARY_ATTACH_NODE_LOCK_H
#define GRANARY_ATTACH_NODE_LOCK_H

#include <stdbool.h>

#include "base/compiler.h"

/* Lock the set of servers and mounts of this machine, to read or change it. Held briefly, or as long as a server takes
 * to end. Waits a minute at most. *out_fd: close it to unlock. -EBUSY: another process held it all the time. */
GR_MUST_CHECK int node_lock(int *out_fd);

/* Lock a mount point by its run directory, to mount or unmount there. The directory is created if it is missing. wait:
 * try for 20 s, since others lock it briefly to check for leftovers. *out_fd: close it to unlock. -EBUSY: another
 * process mounts or unmounts there. */
GR_MUST_CHECK int node_lock_mount(const char *run_dir, bool wait, int *out_fd);

#endif

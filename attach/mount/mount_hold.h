/* A mount in the foreground: a process that stands for it, for containers and service managers. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_HOLD_H
#define GRANARY_ATTACH_MOUNT_MOUNT_HOLD_H

#include "attach/state.h"

/* Stay while the mount is there: says READY=1 to the service manager, starts the device's keeper again when it died.
 * SIGTERM or SIGINT (or *cancel, set before) takes the mount down: 0. While it is in use that is tried again and again;
 * a second signal ends the tries: -EBUSY, and everything is left as it is. -ENOENT: others unmounted it, and what was
 * left of it is taken down; -EIO: nothing answers behind it any more, and it is taken down under its readers. Blocks
 * those signals and SIGCHLD in the calling thread and reaps all children; call it from a process's only thread. */
GR_MUST_CHECK int mount_hold(const struct mount_state *state, const volatile int *cancel);

#endif

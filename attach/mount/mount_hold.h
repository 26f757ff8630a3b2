/* A mount in the foreground: a process that lasts as long as the mount, for containers and service managers. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_HOLD_H
#define GRANARY_ATTACH_MOUNT_MOUNT_HOLD_H

#include "attach/state.h"

/* Stay while the mount exists: send READY=1 to the service manager, and restart the device's keeper or server when they
 * die. SIGTERM or SIGINT (or *cancel, set before) takes the mount down: 0. While it is in use that is tried again; a
 * second signal stops trying: -EBUSY, and everything is left as it is. -ENOENT: another process unmounted it, and the
 * rest was taken down; -EIO: nothing answers its reads any more, and it was taken down under its readers. Blocks these
 * signals and SIGCHLD and reaps all children; call it from a process with one thread. */
GR_MUST_CHECK int mount_hold(const struct mount_state *state, const volatile int *cancel);

#endif

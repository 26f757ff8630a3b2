/* Takes down the parts of a mount, in whatever state they are. Nothing here hangs. */
#ifndef GRANARY_ATTACH_MOUNT_UNMOUNT_H
#define GRANARY_ATTACH_MOUNT_UNMOUNT_H

#include "attach/state.h"

/* Unmount the filesystem, if it is mounted; another mount in its place is left alone. -EBUSY: it is in use, or stuck
 * because its server is gone; nothing was changed. force: in these cases detach the device first, so that its readers
 * get EIO, and at last unmount lazily. The caller has node_lock_mount, also for unmount_take_down. */
GR_MUST_CHECK int unmount(struct mount_state *s, bool force);

/* Take down everything but the mount: device, keeper, the server or the export at it, the files. force: after a forced
 * unmount; a loop device that others still use is left to detach itself. */
GR_MUST_CHECK int unmount_take_down(struct mount_state *s, bool force);

/* Take down what killed mounts left, unless a process works on it or has the device mounted, in any namespace. The
 * mount with id but_id is left alone. Failures are logged as warnings. */
void unmount_stale(const char *but_id);

#endif

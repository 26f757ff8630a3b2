/* The block device of a mount: kernel nbd with its keeper, or a loop device on a file of granary-fuse. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_DEVICE_H
#define GRANARY_ATTACH_MOUNT_MOUNT_DEVICE_H

#include "attach/mount/mount.h"

/* To the server, as configured or as is usual of such a device. */
unsigned mount_device_connections(const struct mount_config *config);

/* Attach the image that the server of the state has; each step is in the state, and that in its file, before the next.
 * What a failure leaves is for mount_device_take_down. *out_fd: a loop device goes with its last user, so keep this
 * open until it is mounted, and close it; -1 of nbd. */
GR_MUST_CHECK int mount_device_make(const struct mount_config *config, struct mount_state *state, int *out_fd);

/* A keeper in place of one that died. 1: it was needed, 0: not, or there is none for such a device. */
GR_MUST_CHECK int mount_device_tend(const struct mount_state *state);

/* The device is the one that was attached for this mount, still. */
bool mount_device_attached(const struct mount_state *state);

/* Reads that are stuck end in EIO: nothing answers behind the device any more. */
GR_MUST_CHECK int mount_device_cut(const struct mount_state *state);

/* Detach it and end what kept it; it is not mounted any more.
 * force: after a forced unmount; a device that its last user takes along is left to him. */
GR_MUST_CHECK int mount_device_take_down(const struct mount_state *state, bool force);

#endif

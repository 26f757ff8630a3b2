/* The block device of a mount: kernel nbd with its keeper, or a loop device on a file of granary-fuse. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_DEVICE_H
#define GRANARY_ATTACH_MOUNT_MOUNT_DEVICE_H

#include "attach/mount/mount.h"

/* Return the number of connections to the server: as configured, or the default. */
unsigned mount_device_connections(const struct mount_config *config);

/* Attach the image that the state's server has. Each step is saved in the state before the next. After a failure:
 * mount_device_take_down. *out_fd: a loop device detaches itself at its last close, so keep this open until it is
 * mounted, then close it; -1 for nbd. */
GR_MUST_CHECK int mount_device_make(const struct mount_config *config, struct mount_state *state, int *out_fd);

/* Replace a keeper that died. Returns 1 when it did; 0 when the keeper is alive, or the device has none. */
GR_MUST_CHECK int mount_device_tend(const struct mount_state *state);

/* Whether the device is still the one that was attached for this mount. */
bool mount_device_attached(const struct mount_state *state);

/* Make stuck reads fail with EIO: nothing will answer them any more. */
GR_MUST_CHECK int mount_device_cut(const struct mount_state *state);

/* End the keeper and detach the device, which is not mounted any more. force: after a forced unmount; a loop device
 * that others still use is left to detach itself. */
GR_MUST_CHECK int mount_device_take_down(const struct mount_state *state, bool force);

#endif

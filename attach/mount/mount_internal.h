/* The parts of a mount: the server, the block device, and taking all of it down. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_INTERNAL_H
#define GRANARY_ATTACH_MOUNT_MOUNT_INTERNAL_H

#include "attach/mount/mount.h"

/* ---- the server: one that all mounts with the same options share and that ends with the last of them, or one that a
 * user started (mount_server.c) ---- */

/* Have a running or a new server serve the image. Each step is saved in the state before it is taken. s->export_name
 * becomes the name that the image is served by. */
GR_MUST_CHECK int mount_server_have(const struct mount_config *config, struct mount_state *s);

/* Have the server of a mount use these keys for the mount's export. A server of mounts that has died is started again
 * first. */
GR_MUST_CHECK int mount_server_give_keys(struct mount_state *s, const char *pinned, const struct bytes *keys,
                                         const volatile int *cancel);

/* Cache the metadata, which readers need first and which cache-only mode requires. A failure is logged as a warning.
 * -ECANCELED. */
GR_MUST_CHECK int mount_server_warm(const struct mount_config *config, const struct mount_state *s);

/* Put the last error of a server that mounts started into the sentence of rc; return rc. */
int mount_server_explain(const struct mount_state *s, int rc);

/* Restart a server of mounts that died under an nbd device. Returns 1 when it did, 0 when there was nothing to do. */
GR_MUST_CHECK int mount_server_tend(const struct mount_state *s);

/* Whether a process can still answer the mount's reads. */
bool mount_server_answers(const struct mount_state *s);

/* End this mount's use of the server, after its mount and device are gone: remove the export, or end the server if this
 * was its last mount. */
GR_MUST_CHECK int mount_server_leave(struct mount_state *s);

/* End servers that no mount uses any more. The caller has node_lock. */
void mount_servers_sweep_locked(void);

/* ---- the device: kernel nbd with its reconnect daemon, ublk, or a loop device on a file of granary-fuse
 * (mount_device.c) ---- */

/* Attach the image that the state's server has. Each step is saved in the state before the next. After a failure:
 * mount_device_take_down. *out_fd: a loop device detaches itself at its last close, so keep this open until it is
 * mounted, then close it; -1 for the others. */
GR_MUST_CHECK int mount_device_make(const struct mount_config *config, struct mount_state *state, int *out_fd);

/* Replace a reconnect daemon that died. Returns 1 when it did; 0 when the daemon is alive, or the device has none. */
GR_MUST_CHECK int mount_device_tend(const struct mount_state *state);

/* Make stuck reads fail with EIO: nothing will answer them any more. */
GR_MUST_CHECK int mount_device_cut(const struct mount_state *state);

/* End the reconnect daemon and detach the device, which is not mounted any more. force: after a forced unmount; a loop
 * device that others still use is left to detach itself. */
GR_MUST_CHECK int mount_device_take_down(const struct mount_state *state, bool force);

/* The kernel's erofs has refused an image of this size (EINVAL): say why if it is known, and return -EINVAL; else 0. */
GR_MUST_CHECK int mount_erofs_explain(uint64_t size);

/* Mount the config's image_file (mount_direct.c). */
GR_MUST_CHECK int mount_direct(const struct mount_config *config, struct mount_state *s);

/* ---- taking down the parts of a mount, in whatever state they are; nothing here hangs (unmount.c) ---- */

/* Call umount2 with a time limit. Returns 0 also when nothing was mounted. -EBUSY; -ETIMEDOUT, without a sentence. */
GR_MUST_CHECK int umount_soon(const char *dir, int flags);

/* Unmount the filesystem, if it is mounted; another mount in its place is left alone. -EBUSY: it is in use, or stuck
 * because its server is gone; nothing was changed. force: in these cases detach the device first, so that its readers
 * get EIO, and at last unmount lazily. The caller has node_lock_mount, also for unmount_take_down. */
GR_MUST_CHECK int unmount(struct mount_state *s, bool force);

/* Take down everything but the mount: device, reconnect daemon, the server or the export at it, the files. force: after
 * a forced unmount; a loop device that others still use is left to detach itself. */
GR_MUST_CHECK int unmount_take_down(struct mount_state *s, bool force);

/* Take down what killed mounts left, unless a process works on it or has the device mounted, in any namespace. The
 * mount with id but_id is left alone. Failures are logged as warnings. */
void unmount_stale(const char *but_id);

#endif

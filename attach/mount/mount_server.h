/* The server behind a mount: one that all mounts with the same options share and that ends with the last of them, or
 * one that a user started. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_SERVER_H
#define GRANARY_ATTACH_MOUNT_MOUNT_SERVER_H

#include "attach/mount/mount.h"

/* Have a running or a new server serve the image. Each step is saved in the state before it is taken. s->export_name
 * becomes the name that the image is served by. */
GR_MUST_CHECK int mount_server_have(const struct mount_config *config, struct mount_state *s);

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

#endif

/* The server behind a mount: one that mounts of the same options share, which ends with the last of them, or one that
 * a user started. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_SERVER_H
#define GRANARY_ATTACH_MOUNT_MOUNT_SERVER_H

#include "attach/mount/mount.h"

/* Have the image served, by a server that is there or is started now; all of it is in the state, and that in its file,
 * before it is done. s->export_name is the name it is served by. */
GR_MUST_CHECK int mount_server_have(const struct mount_config *config, struct mount_state *s);

/* Put the server's last words, when it is one of the mounts', into the sentence of rc; rc. */
int mount_server_explain(const struct mount_state *s, int rc);

/* Start one of the mounts' again that has died under an nbd device. 1: that was done; 0: there is nothing to do. */
GR_MUST_CHECK int mount_server_tend(const struct mount_state *s);

/* Whether anything can still answer reads of the mount. */
bool mount_server_answers(const struct mount_state *s);

/* The mount needs it no more, and has neither device nor mount left: the server is told, or ends with the last. */
GR_MUST_CHECK int mount_server_leave(struct mount_state *s);

/* End servers of mounts that are no mount's any more. The caller has node_lock. */
void mount_servers_sweep_locked(void);

#endif

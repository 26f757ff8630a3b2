/* A FUSE mount whose /dev/fuse a supervisor holds: the process that answers for it may die and be replaced, and readers
 * wait meanwhile. */
#ifndef GRANARY_ATTACH_MOUNT_FUSE_MOUNT_H
#define GRANARY_ATTACH_MOUNT_FUSE_MOUNT_H

#include "base/compiler.h"

/* Mount on dir (made if missing), for this user alone. A mount there that has lost its server is taken away first.
 * *out_fd: of /dev/fuse, close-on-exec; when the last copy is closed all its reads fail. -ENODEV, -EPERM, -EBUSY: with
 * the remedy. */
GR_MUST_CHECK int fuse_mount_open(const char *dir, int *out_fd);

/* The process that answered has died: the kernel keeps what that had taken for the next one. -EOPNOTSUPP: this kernel
 * cannot, those reads would wait for ever. */
GR_MUST_CHECK int fuse_mount_give_back(int fd);

/* Take it away from dir, whoever still uses it. It not being there is no failure. */
void fuse_mount_clear(const char *dir);

#endif

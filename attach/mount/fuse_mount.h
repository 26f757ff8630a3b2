/* A FUSE mount whose /dev/fuse a supervisor holds. The process that answers its requests may die and be replaced;
 * readers wait meanwhile. */
#ifndef GRANARY_ATTACH_MOUNT_FUSE_MOUNT_H
#define GRANARY_ATTACH_MOUNT_FUSE_MOUNT_H

#include "base/compiler.h"

/* Mount on dir, which is made if it is missing, for this user only. A mount there that has lost its server is removed
 * first. *out_fd: /dev/fuse, close-on-exec; all reads fail when the last copy is closed. -ENODEV: no FUSE; -EPERM: not
 * root; -EBUSY: dir is a mount point. Each sentence has the remedy. */
GR_MUST_CHECK int fuse_mount_open(const char *dir, int *out_fd);

/* Have the kernel keep, for the next process, the requests that a dead process had taken. -EOPNOTSUPP: this kernel
 * cannot, and those reads would wait for ever. */
GR_MUST_CHECK int fuse_mount_give_back(int fd);

/* Unmount dir lazily, even if it is in use. A missing mount is no failure. */
void fuse_mount_clear(const char *dir);

#endif

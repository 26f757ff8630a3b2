/* What is mounted in this mount namespace, as the kernel lists it; and libmount's list, by which umount(8) calls
 * umount.granary. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNTINFO_H
#define GRANARY_ATTACH_MOUNT_MOUNTINFO_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/compiler.h"

/* A mount. The kernel reuses ids, but hardly ever for the same device. */
struct mountinfo {
    int id; /* -1: any */
    dev_t device;
};

/* Return the mount that a directory is in. -ENOTSUP: the kernel does not tell. */
GR_MUST_CHECK int mountinfo_of(const char *dir, struct mountinfo *out);

/* Return 1 if something is mounted on the directory, *out its device; 0 if nothing is; or -errno. Does not contact the
 * filesystem, whose server may be dead. */
GR_MUST_CHECK int mountinfo_at(const char *dir, dev_t *out);

/* Whether the mount that is seen at a path of this namespace, absolute and without symlinks, is of that source: what
 * mount(2) was given. */
bool mountinfo_is_of(const char *path, const char *source);

/* Count the mounts at a path of this namespace, absolute and without symlinks: each covers the one before. -ENOMEM;
 * -EIO: the list cannot be read. */
GR_MUST_CHECK int mountinfo_stacked(const char *path, size_t *out);

/* Return 1 when the mount is still listed, 0 when not, or -errno. */
GR_MUST_CHECK int mountinfo_lists(const struct mountinfo *m);

/* Write the type ("ext4") of the filesystem that a directory is in. -ENOENT: the kernel lists no such mount; -ENOMEM,
 * also where the list cannot be read; -ENOTSUP, and errors of open. */
enum { MOUNTINFO_TYPE_MAX = 64 };
GR_MUST_CHECK int mountinfo_type(const char *dir, char out[MOUNTINFO_TYPE_MAX]);

/* Have umount(8) call umount.granary, which takes down the device and the server too: add the mount to libmount's table
 * (/run/mount/utab), or remove it. Failures are ignored: umount(8) then removes only the mount, and the next call of
 * granary the rest. */
void utab_add(const char *device, const char *dir);
void utab_remove(const char *dir);

#endif

/* The directories that kubelet names, and the mounts there. A path is used only if it lies where kubelet keeps the
 * directories of this driver's volumes, and no symbolic link is followed on it. Private to csi. */
#ifndef GRANARY_CSI_PLACE_H
#define GRANARY_CSI_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/compiler.h"

#define DRIVER_NAME "csi.granary.io"

enum place_kind {
    PLACE_STAGING, /* below KUBELET/plugins/kubernetes.io/csi/csi.granary.io/ */
    PLACE_TARGET,  /* below KUBELET/pods/POD/volumes/kubernetes.io~csi/ */
};

/* A directory, by its parent: it may be missing, and what is mounted there may have lost its server. */
struct place {
    const char *path; /* as given */
    int parent;
    const char *name; /* in path */
};

/* Open the parent of a directory; place_close it, in any case. path stays the caller's. -EINVAL: it is not where
 * kubelet keeps such directories, or a symbolic link is on it; -ENOENT: its parent is missing. */
GR_MUST_CHECK int place_open(const char *kubelet_dir, enum place_kind kind, const char *path, struct place *out);

static inline void place_close(struct place *p)
{
    if (p->path && p->parent >= 0)
        close(p->parent);
}
#define CLEANUP_PLACE CLEANUP(place_close) struct place

/* Open the directory itself, with O_PATH. -ENOENT; -EINVAL: it is no directory. */
GR_MUST_CHECK int place_open_dir(const struct place *p, int *out_fd);

/* Return 1 if something is mounted there, *out its device; 0: nothing is; -ENOENT: there is no such directory. Does not
 * contact the filesystem. */
GR_MUST_CHECK int place_mounted(const struct place *p, dev_t *out);

/* Find the mount by granary that has this device. False: the device is none of granary's. */
bool place_is_ours(dev_t device, struct mount_state *out);

/* Find the directory that follows a tag, by the device of the tmpfs on it. path: where it should be; NULL: anywhere.
 * False: there is none. */
bool place_follows(const char *path, dev_t device, struct follow_state *out);
/* Make a place of what a followed directory shows; place_close it, in any case. path is that of the directory. Errors
 * of place_open_dir. */
GR_MUST_CHECK int place_shown(const struct place *p, struct place *out);

/* Mount what is mounted on `from` on `to` too, where nothing is mounted. It is read-only, as `from` is. -EINVAL also:
 * it was unmounted meanwhile. */
GR_MUST_CHECK int place_bind(const struct place *from, const struct place *to);
/* Unmount what is mounted there. */
GR_MUST_CHECK int place_unmount(const struct place *p);

#endif

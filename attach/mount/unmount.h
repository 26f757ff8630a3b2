/* Taking down what mounts are made of, in whatever state they are. None of it hangs. */
#ifndef GRANARY_ATTACH_MOUNT_UNMOUNT_H
#define GRANARY_ATTACH_MOUNT_UNMOUNT_H

#include "attach/state.h"

/* The mount itself, where it is there; what others have mounted in its place is left. -EBUSY: in use, or stuck with its
 * server gone; nothing was touched. force: the device is detached first then, so that what reads from it gets EIO, and
 * at last the mount goes lazily. The caller has node_lock_mount, as for the next. */
GR_MUST_CHECK int unmount(struct mount_state *s, bool force);

/* Everything but the mount: device and keeper, the server or the part in it, the files. force: after such an unmount;
 * a device that its last user takes along is left to him. */
GR_MUST_CHECK int unmount_take_down(struct mount_state *s, bool force);

/* Take down what killed mounts have left, as far as no process is about it and nobody has the device mounted, anywhere;
 * but leave the mount of that id alone. What fails is warned of. */
void unmount_stale(const char *but_id);

#endif

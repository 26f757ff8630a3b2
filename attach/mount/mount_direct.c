/* A mount of a file with the image's bytes: erofs reads it by itself, so there is neither a server nor a device.
 * mount(8) would put a loop device on the file first. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "attach/device/device_internal.h"
#include "attach/mount/mount_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/error.h"

bool mount_is_direct(const struct mount_state *s)
{
    return *s->image_file;
}

static int say_failed(const struct mount_config *c, const struct mount_state *s, int code)
{
    char remedy[MODULE_REMEDY_MAX];
    int rc = code == EINVAL ? mount_erofs_explain(c->size) : 0;
    if (rc)
        return rc;
    if (code == ENODEV)
        return error_set(-ENODEV, "this kernel has no erofs module (%s)", module_remedy_here("erofs", remedy));
    if (code == ENOTBLK || code == EINVAL)
        return error_set(-ENOTSUP,
                         "the kernel does not mount the file %s as erofs: that takes Linux 6.12 or later with "
                         "CONFIG_EROFS_FS_BACKED_BY_FILE, a cache on ext4 or xfs, and an undamaged file ('granary "
                         "cache resident DIR --check')",
                         s->image_file);
    return error_set(-code, "cannot mount %s on %s: %s", s->image_file, s->dir, strerror(code));
}

/* With directio the image's pages are in memory once, not once more as the file's. */
int mount_direct(const struct mount_config *c, struct mount_state *s)
{
    unsigned long flags = MS_RDONLY | MS_NODEV | MS_NOSUID | (c->noexec ? MS_NOEXEC : 0);
    struct stat st;
    if (!realpath(c->image_file, s->image_file) ||
        stat(s->image_file, &st)) /* the list of mounts has it as mount(2) was given it */
        return error_set(-errno, "%s: %s", c->image_file, strerror(errno));
    s->image_inode = st.st_ino;
    int rc = state_save(s);
    if (rc)
        return rc;
    if (mount(s->image_file, s->dir, "erofs", flags, "directio") &&
        (errno != EINVAL || mount(s->image_file, s->dir, "erofs", flags, NULL)))
        return say_failed(c, s, errno);
    s->mounted = true;
    utab_add(s->image_file, s->dir);
    return state_save(s);
}

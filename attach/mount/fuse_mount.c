/* The kernel remembers for each request by which open file of /dev/fuse it was read. When the process that read it
 * dies, the request stays with the file, as long as that is open elsewhere: here in the supervisor. FUSE_NOTIFY_RESEND
 * (Linux 6.9) queues such requests again, for the next process. */
#include "attach/mount/fuse_mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

enum { READ_MAX = 1 << 20, NOTIFY_RESEND = 7 /* Debian 12's header is older */, OPTIONS_SIZE = 160 }; /* bytes */

/* Make the directory. A dead FUSE mount on it (ENOTCONN) is removed. */
static int make_place(const char *dir)
{
    struct statx st;
    if (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st)) {
        if (errno == ENOTCONN)
            fuse_mount_clear(dir);
        else if (errno != ENOENT)
            return error_set(-errno, "%s: %s", dir, strerror(errno));
    } else if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return error_set(-EBUSY, "%s is a mount point already; give another directory", dir);
    return io_mkdirs(dir);
}

/* Mounted by mount(2), not by fusermount: the supervisor is root and keeps the descriptor. */
int fuse_mount_open(const char *dir, int *out_fd)
{
    char options[OPTIONS_SIZE];
    CLEANUP_FD int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return error_set(errno == ENOENT ? -ENODEV : -errno,
                         "cannot open /dev/fuse: %s; load the module (modprobe fuse), and be root", strerror(errno));
    int rc = make_place(dir);
    if (rc)
        return rc;
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=%u,group_id=%u,max_read=%d", fd, S_IFDIR, geteuid(),
             getegid(), READ_MAX);
    if (mount("granary", dir, "fuse.granary", MS_RDONLY | MS_NODEV | MS_NOSUID, options))
        return error_set(-errno, "cannot mount FUSE on %s: %s%s", dir, strerror(errno),
                         errno == EPERM ? "; that needs root" : "");
    *out_fd = steal_fd(&fd);
    return 0;
}

int fuse_mount_give_back(int fd)
{
    const struct fuse_out_header notice = {.len = sizeof notice, .error = NOTIFY_RESEND};
    if (write(fd, &notice, sizeof notice) == sizeof notice)
        return 0;
    return error_set(-EOPNOTSUPP, "this kernel keeps no requests for another process (%s; Linux 6.9 does)",
                     strerror(errno));
}

/* Lazily: readers that still have it open must not prevent the next start. */
void fuse_mount_clear(const char *dir)
{
    (void)umount2(dir, UMOUNT_NOFOLLOW | MNT_DETACH);
}

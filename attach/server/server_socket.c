/* What clients reach: a socket, or in its place a FUSE mount. The supervisor holds it, and passes it to each child.
 *
 * The owners of a unix socket are resolved before a server starts, so that a misspelt name is reported at once. They
 * are applied after the socket is bound with mode 0600, so that it is never accessible to more users than intended.
 *
 * FUSE: the kernel remembers for each request by which open file of /dev/fuse it was read. When the process that read
 * it dies, the request stays with the file, as long as that is open elsewhere: here in the supervisor.
 * FUSE_NOTIFY_RESEND (Linux 6.9) queues such requests again, for the next process. */
#include "attach/server/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accounts.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "net/listen.h"

/* ---- access to a unix socket ---- */

/* Resolve a user or group, by name first, then by number. */
static int socket_access_find(const char *what, const char *kind, const char *name,
                              bool (*by_name)(const char *, uint32_t *), uint32_t *out)
{
    uint64_t number;
    if (by_name(name, out))
        return 0;
    if (text_parse_uint(what, name, 0, UINT32_MAX - 1, &number))
        return error_set(-EINVAL, "%s: there is no %s '%s' on this machine", what, kind, name);
    *out = (uint32_t)number;
    return 0;
}

int socket_access_parse(const char *option, const char *mode, const char *owner, struct socket_access *out)
{
    char what[48];
    *out = (struct socket_access){0};
    CLEANUP_FREE char *user = owner ? strdup(owner) : NULL;
    char *group = user ? strchr(user, ':') : NULL;
    int rc = 0;
    if (owner && !user)
        return error_no_memory();
    if (group)
        *group++ = 0;
    snprintf(what, sizeof what, "--%s-owner", option);
    out->has_owner = user && *user;
    out->has_group = group && *group;
    if (out->has_owner)
        rc = socket_access_find(what, "user", user, account_user, &out->owner);
    if (!rc && out->has_group)
        rc = socket_access_find(what, "group", group, account_group, &out->group);
    snprintf(what, sizeof what, "--%s-mode", option);
    if (out->has_group)
        out->mode = 0660;
    return !rc && mode ? text_parse_mode(what, mode, 0777, &out->mode) : rc;
}

/* In a directory that others may write, the name may lead to another file by now: what is changed is one that was
 * looked at. fchmod takes no O_PATH descriptor, chmod its name in /proc. */
int socket_access_apply(const struct socket_access *a, const char *path)
{
    char opened[32];
    struct stat st;
    uid_t owner = a->has_owner ? a->owner : (uid_t)-1;
    gid_t group = a->has_group ? a->group : (gid_t)-1;
    if (!a->mode && !a->has_owner && !a->has_group)
        return 0;
    CLEANUP_FD int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return error_set(-errno, "cannot open the socket %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode) || (st.st_uid != geteuid() && st.st_uid != owner) || st.st_nlink != 1)
        return error_set(-EPERM,
                         "%s is not the socket that was made there; choose a directory that only this user may "
                         "write",
                         path);
    snprintf(opened, sizeof opened, "/proc/self/fd/%d", fd);
    if ((a->has_owner || a->has_group) && fchownat(fd, "", owner, group, AT_EMPTY_PATH))
        return error_set(-errno, "cannot give the socket %s the owner asked for: %s", path, strerror(errno));
    if (a->mode && chmod(opened, a->mode))
        return error_set(-errno, "cannot give the socket %s the mode asked for: %s", path, strerror(errno));
    return 0;
}

/* ---- a FUSE mount ---- */

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

/* ---- either ---- */

int server_socket_open(const struct server_config *c, char where[PATH_MAX], int *out_fd)
{
    if (c->fuse) {
        snprintf(where, PATH_MAX, "%s", c->fuse);
        return fuse_mount_open(c->fuse, out_fd);
    }
    if (c->socket) {
        snprintf(where, PATH_MAX, "%s", c->socket);
        int rc = listen_unix(c->socket, out_fd);
        return rc ? rc : socket_access_apply(&c->socket_access, c->socket);
    }
    unsigned port = 0;
    int rc = listen_tcp(c->listen, out_fd, &port);
    if (!rc)
        snprintf(where, PATH_MAX, "%.*s:%u", (int)(strrchr(c->listen, ':') - c->listen), c->listen, port);
    return rc;
}

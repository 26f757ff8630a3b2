/* Walks /proc as fuser(1) does, but asks only statx with AT_STATX_DONT_SYNC, which does not reach the filesystem: that
 * may hang. */
#include "attach/mount/mount_users.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/io.h"

enum { NAMED_MAX = 3 }; /* processes that are named; the others are "others" */

/* Whether a link of /proc leads into the filesystem of device. */
static bool leads_into(int at, const char *link, dev_t device)
{
    struct statx st;
    return !statx(at, link, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE, &st) &&
           makedev(st.stx_dev_major, st.stx_dev_minor) == device;
}

/* Whether a process has its directory, root, program or an open file there. */
static bool uses(int proc, const char *pid, dev_t device)
{
    static const char *const links[] = {"cwd", "root", "exe"};
    char path[300];
    bool found = false;
    for (size_t i = 0; !found && i < GR_ARRAY_SIZE(links); i++) {
        snprintf(path, sizeof path, "%s/%s", pid, links[i]);
        found = leads_into(proc, path, device);
    }
    snprintf(path, sizeof path, "/proc/%s/fd", pid);
    DIR *fds = found ? NULL : opendir(path);
    for (struct dirent *e; fds && !found && (e = readdir(fds));)
        found = *e->d_name != '.' && leads_into(dirfd(fds), e->d_name, device);
    if (fds)
        closedir(fds);
    return found;
}

/* Read a process's name; "?" when it is gone. */
static void name_of(const char *pid, char out[64])
{
    char path[300];
    CLEANUP_BYTES text = BYTES_INIT(64);
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    bool known = !io_read_file(path, &text) && bytes_string(&text);
    snprintf(out, 64, "%.*s", known ? (int)strcspn((char *)text.data, "\n") : 1, known ? (char *)text.data : "?");
}

/* Without CAP_SYS_PTRACE only the caller's own processes are found; the text is then empty. */
void mount_users(dev_t device, char *out, size_t size)
{
    size_t named = 0, len = 0;
    *out = 0;
    DIR *proc = opendir("/proc");
    for (struct dirent *e; proc && named <= NAMED_MAX && (e = readdir(proc));) {
        char name[64];
        if (strspn(e->d_name, "0123456789") != strlen(e->d_name) || !uses(dirfd(proc), e->d_name, device))
            continue;
        name_of(e->d_name, name);
        if (++named > NAMED_MAX)
            snprintf(out + len, size - len, " and others");
        else
            len += (size_t)snprintf(out + len, size - len, "%sprocess %s (%s)", len ? ", " : "", e->d_name, name);
        len = GR_MIN(len, size - 1);
    }
    if (proc)
        closedir(proc);
}

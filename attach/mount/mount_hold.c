/* One loop over a signalfd and the kernel's list of mounts.
 *
 *   up --(SIGTERM, SIGINT)--> ending --(unmounted, taken down)--> done
 *                             ending --(in use)--> ending; tried again twice a second, until a second signal
 *   up --(unmounted by others, or the server of a FUSE mount died)--> taken down, failed
 *   up --(the reconnect daemon died)--> up, with another one
 *   up --(a shared server of an nbd device died)--> up; it is restarted, and readers wait
 */
#include "attach/mount/mount_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/mount/mountinfo.h"
#include "attach/server/service.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    LOOK_MS = 1000,
    BUSY_MS = 500,
    CLEAR_MS = 30000,
    START_PAUSE_MAX_MS = 30000,
    USERS_MAX = 256, /* bytes */
    NAMED_MAX = 3    /* users of the mount that are named; the others are "others" */
};

/* The process's one mount. */
struct hold {
    const struct mount_state *state;
    struct mountinfo mount;
    int signal_fd, mounts_fd;
    unsigned signals; /* SIGTERM and SIGINT received */
    struct mount_tending tending;
};

/* Wait for a signal, a change in the list of mounts, or ms. Count signals and reap children: in a container this
 * process may be the parent of all orphans. */
static void mount_hold_pause_for(struct hold *h, int ms)
{
    struct pollfd fds[] = {{.fd = h->signal_fd, .events = POLLIN}, {.fd = h->mounts_fd, .events = POLLPRI}};
    struct signalfd_siginfo info;
    (void)poll(fds, GR_ARRAY_SIZE(fds), ms);
    while (read(h->signal_fd, &info, sizeof info) == sizeof info)
        h->signals += info.ssi_signo != SIGCHLD;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

/* ---- while it is up ---- */

/* Restart the server if it died. One that dies again and again is restarted with growing pauses; one that lived for a
 * while resets them. */
static void tend_server(struct mount_tending *t, const struct mount_state *s)
{
    uint64_t now = clock_now_ms();
    if (now < t->start_at_ms)
        return;
    int rc = mount_server_tend(s);
    if (!rc)
        return;
    if (rc > 0)
        log_limited(&t->limit, LOG_LEVEL_WARNING, "%s: its server was gone; it is started again", s->dir);
    else
        log_limited(&t->limit, LOG_LEVEL_WARNING, "%s: its server is gone, and is not started again: %s", s->dir,
                    error_text());
    bool lived = now - t->start_at_ms > START_PAUSE_MAX_MS;
    t->start_pause_ms = lived ? LOOK_MS : GR_MIN(2 * t->start_pause_ms, (uint64_t)START_PAUSE_MAX_MS);
    t->start_at_ms = now + t->start_pause_ms;
}

int mount_tend(struct mount_tending *t, const struct mount_state *s)
{
    if (*s->fuse_file && s->server.pid && !process_alive(&s->server))
        return error_set(-EIO, "process %d, which answered the reads of %s, is gone", (int)s->server.pid, s->dir);
    int rc = mount_device_tend(s);
    if (rc > 0)
        log_warning("%s: its reconnect daemon had ended; another one is running", s->device);
    else if (rc)
        log_limited(&t->limit, LOG_LEVEL_WARNING, "%s: its reconnect daemon has ended, and no other can be started: %s",
                    s->device, error_text());
    tend_server(t, s);
    return 0;
}

/* Check that the mount is there, and tend it. Returns 0, or the reason to take it down. */
static int mount_hold_look(struct hold *h)
{
    int listed = mountinfo_lists(&h->mount);
    if (listed < 0)
        return listed;
    if (!listed)
        return error_set(-ENOENT, "%s was unmounted by others", h->state->dir);
    return mount_tend(&h->tending, h->state);
}

/* ---- the processes that use it, for the message that says why it is not unmounted ----
 *
 * Walks /proc as fuser(1) does, but asks only statx with AT_STATX_DONT_SYNC, which does not reach the filesystem: that
 * may hang. */

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

/* Write "process 12 (python3), process 13 (bash) and others": the processes with an open file, a directory or their
 * program in the filesystem. Without CAP_SYS_PTRACE only the caller's own are found. Empty: none. Files that are only
 * mapped into memory are not found. */
static void mount_users(dev_t device, char *out, size_t size)
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

/* ---- the end ---- */

/* Unmount, trying again while the mount is in use, until another signal. Returns 0 also when others unmounted it. */
static int end(struct hold *h)
{
    unsigned before = h->signals;
    bool reported = false;
    notify("STOPPING=1");
    for (;;) {
        int rc = mount_remove(h->state->dir, false, NULL);
        if (rc != -EBUSY)
            return rc == -ENOENT ? 0 : rc;
        if (!reported) {
            char users[USERS_MAX];
            mount_users(h->mount.device, users, sizeof users);
            log_warning("%s is in use%s%s; it is unmounted as soon as it is not", h->state->dir, *users ? " by " : "",
                        users);
        }
        reported = true;
        if (h->signals > before)
            return rc;
        mount_hold_pause_for(h, BUSY_MS);
    }
}

/* Take down the rest after the mount failed, and return the error of rc. With -EIO the readers have lost their server
 * and are cut off. The kernel may hold the device for a while after the mount has left its list. */
static int clear_away(struct hold *h, int rc)
{
    struct error first;
    bool force = rc == -EIO;
    uint64_t deadline = clock_now_ms() + CLEAR_MS;
    error_take(&first, rc);
    while ((rc = mount_remove(h->state->dir, force, NULL)) == -EBUSY && clock_now_ms() < deadline && !h->signals)
        mount_hold_pause_for(h, BUSY_MS);
    if (rc && rc != -ENOENT)
        log_warning("while taking down the rest: %s", error_text());
    return error_restore(&first);
}

/* The loop wakes for signals and changes of the mount list, and once a second to check reconnect daemon and server. */
int mount_hold(const struct mount_state *state, const volatile int *cancel)
{
    struct hold h = {.state = state, .signal_fd = -1, .mounts_fd = -1, .tending = MOUNT_TENDING_INIT};
    int rc = mountinfo_of(state->dir, &h.mount);
    if (!rc)
        rc = service_signals(&h.signal_fd);
    if (!rc) { /* poll(2) reports changes of the list of mounts as POLLPRI */
        h.mounts_fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
        rc = h.mounts_fd >= 0 ? 0 : error_set(-errno, "cannot watch the mount: %s", strerror(errno));
    }
    if (!rc)
        notify("READY=1");
    while (!rc && !*cancel && !h.signals) {
        mount_hold_pause_for(&h, LOOK_MS);
        if (!h.signals)
            rc = mount_hold_look(&h);
    }
    rc = rc ? clear_away(&h, rc) : end(&h);
    if (h.signal_fd >= 0)
        close(h.signal_fd);
    if (h.mounts_fd >= 0)
        close(h.mounts_fd);
    return rc;
}

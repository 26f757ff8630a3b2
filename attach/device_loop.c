/* nbdfuse and the loop device on its file. Direct I/O keeps requests parallel and large: a buffered
 * loop reads one at a time. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/device.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "net/http.h"

enum { FUSE_WAIT_MS = 30000, FUSE_END_MS = 3000, LOOP_WAIT_MS = 5000, LOOP_TRIES = 16, STEP_US = 20000 };

/* ---- nbdfuse ---- */

static int make_uri(const char *socket, const char *export_name, struct bytes *out)
{
    int rc = bytes_printf(out, "nbd+unix:///");
    if (!rc)
        rc = http_percent_encode(out, export_name, strlen(export_name), false);
    if (!rc)
        rc = bytes_printf(out, "?socket=");
    if (!rc)
        rc = http_percent_encode(out, socket, strlen(socket), true);
    return rc || !bytes_string(out) ? error_set(-ENOMEM, "out of memory") : 0;
}

/* The directory of file, which nbdfuse mounts on. *out: free. */
static int directory_of(const char *file, char **out)
{
    *out = strdup(file);
    if (!*out)
        return error_set(-ENOMEM, "out of memory");
    char *slash = strrchr(*out, '/');
    if (slash)
        *slash = 0;
    return 0;
}

static int wait_for_file(const char *file, const struct process *nbdfuse, const volatile int *cancel)
{
    uint64_t deadline = clock_now_ms() + FUSE_WAIT_MS;
    while (access(file, R_OK)) {
        if (cancel && *cancel)
            return error_set(-ECANCELED, "interrupted");
        if (!process_alive(nbdfuse))
            return error_set(-EIO, "nbdfuse ended at once");
        if (clock_now_ms() > deadline)
            return error_set(-ETIMEDOUT, "nbdfuse did not show %s", file);
        usleep(STEP_US);
    }
    return 0;
}

int device_fuse_start(const char *socket, const char *export_name, unsigned connections, const char *file, int output,
                      const volatile int *cancel, struct process *out)
{
    CLEANUP_FREE char *dir = NULL;
    CLEANUP_BYTES uri = BYTES_INIT(16384);
    char count[16];
    pid_t pid;
    int rc = make_uri(socket, export_name, &uri);
    if (!rc)
        rc = directory_of(file, &dir);
    if (!rc)
        rc = io_mkdirs(dir);
    if (rc)
        return rc;
    snprintf(count, sizeof count, "%u", connections);
    const char *const argv[] = {"nbdfuse", "-r", "-C", count, file, (const char *)uri.data, NULL};
    struct process_spec spec = {.argv = argv, .output = output, .listen_fd = -1, .session = true};
    rc = process_spawn(&spec, &pid);
    if (rc) {
        rmdir(dir);
        return rc == -ENOENT ? error_set(rc, "nbdfuse is not installed; install it (Debian: libnbd-bin)") : rc;
    }
    *out = process_identify(pid);
    rc = wait_for_file(file, out, cancel);
    if (rc) {
        struct error first;
        error_take(&first, rc);
        if (device_fuse_stop(file, out))
            log_warning("%s", error_text());
        rc = error_restore(&first);
    }
    return rc;
}

int device_fuse_stop(const char *file, const struct process *nbdfuse)
{
    CLEANUP_FREE char *dir = NULL;
    int rc = directory_of(file, &dir);
    if (rc)
        return rc;
    /* nbdfuse ends when its mount goes; where that is refused its end makes the mount go */
    if (umount2(dir, UMOUNT_NOFOLLOW) && errno != EINVAL && errno != ENOENT)
        umount2(dir, UMOUNT_NOFOLLOW | MNT_DETACH);
    rc = process_end(nbdfuse, FUSE_END_MS);
    umount2(dir, UMOUNT_NOFOLLOW | MNT_DETACH);
    if (rmdir(dir) && errno != ENOENT && !rc)
        rc = error_set(-errno, "cannot remove %s: %s", dir, strerror(errno));
    return rc;
}

/* ---- the loop device ---- */

static int free_loop(void)
{
    CLEANUP_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0)
        return error_set(-errno, "cannot get a loop device: %s", strerror(errno));
    return number;
}

/* -EBUSY: somebody else took that number first. */
static int configure(int number, int file_fd, char out[DEVICE_NAME_MAX], int *out_fd)
{
    snprintf(out, DEVICE_NAME_MAX, "/dev/loop%d", number);
    CLEANUP_FD int fd = open(out, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", out, strerror(errno));
    struct loop_config config = {
        .fd = (uint32_t)file_fd,
        .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR,
    };
    if (ioctl(fd, LOOP_CONFIGURE, &config))
        return error_set(-errno, "cannot set up %s: %s", out, strerror(errno));
    *out_fd = steal_fd(&fd);
    return 0;
}

int device_loop_attach(const char *file, char out[DEVICE_NAME_MAX], int *out_fd)
{
    CLEANUP_FD int file_fd = open(file, O_RDONLY | O_CLOEXEC);
    if (file_fd < 0)
        return error_set(-errno, "cannot open %s: %s", file, strerror(errno));
    int rc = -EBUSY;
    for (int i = 0; i < LOOP_TRIES && rc == -EBUSY; i++) {
        int number = free_loop();
        if (number < 0)
            return number;
        rc = configure(number, file_fd, out, out_fd);
    }
    return rc;
}

static bool stands_on(const char *device, const char *file)
{
    char path[96];
    CLEANUP_BYTES text = BYTES_INIT(8192);
    snprintf(path, sizeof path, "/sys/block/%.20s/loop/backing_file", device + strlen("/dev/"));
    if (io_read_file(path, &text) || !bytes_string(&text))
        return false;
    return !strncmp((char *)text.data, file, strlen(file));
}

int device_loop_detach(const char *device, const char *file)
{
    uint64_t deadline = clock_now_ms() + LOOP_WAIT_MS;
    while (stands_on(device, file)) { /* the kernel clears it a moment after the last close */
        if (clock_now_ms() > deadline) {
            CLEANUP_FD int fd = open(device, O_RDONLY | O_CLOEXEC);
            if (fd < 0 || ioctl(fd, LOOP_CLR_FD))
                return error_set(-errno, "cannot detach %s: %s", device, strerror(errno));
            return 0;
        }
        usleep(STEP_US);
    }
    return 0;
}

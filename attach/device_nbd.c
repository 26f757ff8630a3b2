/* Kernel nbd by nbd-client over netlink. The free device is chosen under a lock file, so that two
 * mounts of Granary do not choose the same; anybody else's attach in between makes nbd-client fail,
 * never attach twice.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "attach/device.h"
#include "attach/state.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    CLIENT_TIMEOUT_MS = 30000,
    REQUEST_TIMEOUT_S = 10, /* the kernel's, for one request; never 0: it would wait for ever */
    SIZE_WAIT_MS = 5000,
};

static bool have_nbd(void)
{
    return !access("/sys/block/nbd0", F_OK);
}

int device_nbd_available(void)
{
    if (have_nbd())
        return 0;
    const char *const argv[] = {"modprobe", "nbd", NULL};
    if (process_run(argv, CLIENT_TIMEOUT_MS) || !have_nbd())
        return error_set(-ENODEV, "this kernel has no nbd module; install it (Debian: linux-modules of your kernel), "
                                  "or mount with --fuse");
    return 0;
}

static bool in_use(const char *name)
{
    char path[64];
    CLEANUP_BYTES size = BYTES_INIT(64);
    snprintf(path, sizeof path, "/sys/block/%.20s/pid", name);
    if (!access(path, F_OK))
        return true;
    snprintf(path, sizeof path, "/sys/block/%.20s/size", name);
    return io_read_file(path, &size) || !bytes_string(&size) || strtoull((char *)size.data, NULL, 10) != 0;
}

static int number_of(const char *name)
{
    char *end;
    if (strncmp(name, "nbd", 3) || name[3] < '0' || name[3] > '9')
        return -1;
    long n = strtol(name + 3, &end, 10);
    return *end || n > 4096 ? -1 : (int)n;
}

void device_nbd_mark(const char *device, char out[DEVICE_MARK_MAX])
{
    char path[64];
    CLEANUP_BYTES text = BYTES_INIT(64);
    *out = 0;
    snprintf(path, sizeof path, "/sys/block/%.20s/pid", device + strlen("/dev/"));
    if (!io_read_file(path, &text) && bytes_string(&text))
        snprintf(out, DEVICE_MARK_MAX, "%.*s", (int)strcspn((char *)text.data, "\n"), (char *)text.data);
}

/* The free device of the lowest number. */
static int choose(char out[DEVICE_NAME_MAX])
{
    int best = -1;
    DIR *dir = opendir("/sys/block");
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int n = number_of(e->d_name);
        if (n >= 0 && (best < 0 || n < best) && !in_use(e->d_name))
            best = n;
    }
    if (dir)
        closedir(dir);
    if (best < 0)
        return error_set(-EBUSY, "every nbd device is in use; unmount something, or load the module with more devices "
                                 "(modprobe nbd nbds_max=64)");
    snprintf(out, DEVICE_NAME_MAX, "/dev/nbd%d", best);
    return 0;
}

static int wait_for_size(const char *device, uint64_t want)
{
    uint64_t deadline = clock_now_ms() + SIZE_WAIT_MS, size = 0;
    do {
        CLEANUP_FD int fd = open(device, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && !ioctl(fd, BLKGETSIZE64, &size) && size == want)
            return 0;
        usleep(20000);
    } while (clock_now_ms() < deadline);
    return error_set(-EIO, "%s has %llu bytes after the attach, the image has %llu", device, (unsigned long long)size,
                     (unsigned long long)want);
}

int device_nbd_attach(const char *socket, const char *export_name, unsigned connections, uint64_t size,
                      char out[DEVICE_NAME_MAX])
{
    CLEANUP_FD int lock = open(STATE_ROOT "/nbd.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX))
        return error_set(-errno, "cannot lock %s/nbd.lock: %s", STATE_ROOT, strerror(errno));
    char count[16], timeout[16];
    int rc = choose(out);
    if (rc)
        return rc;
    snprintf(count, sizeof count, "%u", connections);
    snprintf(timeout, sizeof timeout, "%d", REQUEST_TIMEOUT_S);
    const char *const argv[] = {"nbd-client", "-unix", socket, out,     "-N", export_name,
                                "-C",         count,   "-t",   timeout, "-R", NULL};
    rc = process_run(argv, CLIENT_TIMEOUT_MS);
    if (rc)
        return rc;
    rc = wait_for_size(out, size);
    if (rc) {
        struct error first;
        error_take(&first, rc);
        char mark[DEVICE_MARK_MAX];
        device_nbd_mark(out, mark);
        if (device_nbd_detach(out, mark))
            log_warning("%s", error_text());
        rc = error_restore(&first);
    }
    return rc;
}

/* Whether /proc/self/mountinfo names the device. */
static int is_mounted(const char *device)
{
    struct stat st;
    char want[32], *line = NULL;
    size_t size = 0;
    bool found = false;
    if (stat(device, &st) || !S_ISBLK(st.st_mode))
        return 0;
    snprintf(want, sizeof want, "%u:%u", major(st.st_rdev), minor(st.st_rdev));
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return error_set(-errno, "cannot read the mounts: %s", strerror(errno));
    while (!found && getline(&line, &size, f) > 0) {
        char id[32] = "";
        found = sscanf(line, "%*s %*s %31s", id) == 1 && !strcmp(id, want);
    }
    free(line);
    fclose(f);
    return found;
}

int device_nbd_detach(const char *device, const char *mark)
{
    char now[DEVICE_MARK_MAX];
    device_nbd_mark(device, now);
    if (!in_use(device + strlen("/dev/")) || strcmp(now, mark))
        return 0;
    int mounted = is_mounted(device);
    if (mounted)
        return mounted < 0 ? mounted : error_set(-EBUSY, "%s is still mounted", device);
    const char *const argv[] = {"nbd-client", "-d", device, NULL};
    return process_run(argv, CLIENT_TIMEOUT_MS);
}

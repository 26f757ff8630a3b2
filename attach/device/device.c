/* What all block devices share (queue settings, page cache, whether a mount has them), and loop devices.
 *
 * A loop device stands on a file that granary-fuse shows. Direct I/O keeps requests large and parallel; a buffered loop
 * device reads one page range at a time. Autoclear detaches it at its last close, so a killed mount leaves none behind.
 */
#include "attach/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "base/bytes.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    READ_AHEAD_KB = 4096,
    MAX_SECTORS_KB = 1024,
    WARM_STEP = 1 << 20, /* bytes of one read */
    WARM_SHARE = 4,      /* warm at most this part of the available memory */
    CLAIM_LOOKS = 20,    /* CLAIM_STEP_US apart */
    CLAIM_STEP_US = 50000,
    LOOP_WAIT_MS = 5000,
    LOOP_TRIES = 16,
    LOOP_STEP_US = 20000
};

bool device_kernel_older(unsigned major, unsigned minor, struct utsname *out)
{
    unsigned is_major, is_minor;
    if (uname(out) || sscanf(out->release, "%u.%u", &is_major, &is_minor) != 2)
        return false;
    return is_major < major || (is_major == major && is_minor < minor);
}

bool device_attribute(const char *device, const char *name, struct bytes *out)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/block/%.20s/%s", device + strlen("/dev/"), name);
    return !io_read_file(path, out) && bytes_string(out);
}

/* Write one of the device's queue settings. */
static void set_queue(const char *device, const char *name, int value)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/block/%.20s/queue/%s", device + strlen("/dev/"), name);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || dprintf(fd, "%d\n", value) < 0)
        log_debug("%s stays as it is: %s", path, strerror(errno));
}

/* Large requests, for the server fetches whole chunks anyway; see docs/internals/attachment.md. Failures are ignored,
 * since the defaults work too. */
void device_tune(const char *device)
{
    set_queue(device, "read_ahead_kb", READ_AHEAD_KB);
    set_queue(device, "max_sectors_kb", MAX_SECTORS_KB);
}

/* A mount opens its device exclusively, in every namespace. So do, for a moment, another caller of this function and
 * the kernel after an umount; hence the looks over a second. */
bool device_claimed(const char *device)
{
    for (int i = 0; i < CLAIM_LOOKS; i++) {
        CLEANUP_FD int fd = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
        if (fd >= 0 || errno != EBUSY)
            return false;
        usleep(CLAIM_STEP_US);
    }
    return true;
}

/* Return the memory available without swapping, in bytes; 0: unknown. */
static uint64_t available_memory(void)
{
    CLEANUP_BYTES text = BYTES_INIT(64 << 10);
    if (io_read_file("/proc/meminfo", &text) || !bytes_string(&text))
        return 0;
    const char *line = strstr((char *)text.data, "MemAvailable:");
    return line ? strtoull(line + strlen("MemAvailable:"), NULL, 10) * 1024 : 0;
}

/* Through the page cache, which is what readers of the filesystem use. The amount is bounded: the pages would displace
 * others, and be evicted themselves. */
int device_warm(int fd, const char *device, uint64_t off, uint64_t len, const volatile int *cancel)
{
    CLEANUP_FREE void *block = malloc(WARM_STEP);
    uint64_t most = available_memory() / WARM_SHARE;
    if (!block)
        return error_no_memory();
    if (len > most) {
        log_info("%llu bytes of metadata are not read ahead: that is over a quarter of the memory available",
                 (unsigned long long)(len - most));
        len = most;
    }
    for (uint64_t done = 0; done < len;) {
        int rc = cancel_check(cancel);
        if (rc)
            return rc;
        size_t n = GR_MIN(len - done, (uint64_t)WARM_STEP);
        ssize_t got = io_pread_full(fd, block, n, off + done);
        if (got < 0)
            return error_set((int)got, "cannot read the metadata through %s: %s", device, strerror((int)-got));
        if ((size_t)got < n)
            return error_set(-EIO, "%s ends before the image's metadata does", device);
        done += n;
    }
    return 0;
}

/* ---- loop devices ---- */

/* LOOP_CTL_GET_FREE makes a device if none is free. Another process may take it before it is configured (-EBUSY): try
 * again. */
int device_loop_attach(const char *file, char out[DEVICE_NAME_MAX], int *out_fd)
{
    CLEANUP_FD int file_fd = open(file, O_RDONLY | O_CLOEXEC);
    if (file_fd < 0)
        return error_set(-errno, "cannot open %s: %s", file, strerror(errno));
    const struct loop_config config = {
        .fd = (uint32_t)file_fd,
        .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_DIRECT_IO | LO_FLAGS_AUTOCLEAR,
    };
    for (int i = 1;; i++) {
        CLEANUP_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return error_set(-errno, "cannot get a loop device: %s", strerror(errno));
        snprintf(out, DEVICE_NAME_MAX, "/dev/loop%d", number);
        CLEANUP_FD int fd = open(out, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            return error_set(-errno, "cannot open %s: %s", out, strerror(errno));
        if (!ioctl(fd, LOOP_CONFIGURE, &config)) {
            *out_fd = steal_fd(&fd);
            return 0;
        }
        if (errno != EBUSY || i == LOOP_TRIES)
            return error_set(-errno, "cannot set up %s: %s", out, strerror(errno));
    }
}

/* A prefix is enough: the kernel appends " (deleted)" to a file that is gone. */
bool device_loop_stands_on(const char *device, const char *file)
{
    CLEANUP_BYTES text = BYTES_INIT(DEVICE_ATTRIBUTE_MAX);
    return device_attribute(device, "loop/backing_file", &text) && !strncmp((char *)text.data, file, strlen(file));
}

/* Normally the autoclear flag does the work. A device that some process still has open is cleared by hand, after
 * LOOP_WAIT_MS. */
int device_loop_detach(const char *device, const char *file)
{
    uint64_t deadline = clock_now_ms() + LOOP_WAIT_MS;
    while (device_loop_stands_on(device, file)) { /* the kernel clears it a moment after the last close */
        if (clock_now_ms() > deadline) {
            CLEANUP_FD int fd = open(device, O_RDONLY | O_CLOEXEC);
            if (fd < 0 || ioctl(fd, LOOP_CLR_FD))
                return error_set(-errno, "cannot detach %s: %s", device, strerror(errno));
            return 0;
        }
        usleep(LOOP_STEP_US);
    }
    return 0;
}

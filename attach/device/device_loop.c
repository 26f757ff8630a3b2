/* A loop device on a file that granary-fuse shows. Direct I/O keeps requests large and parallel; a buffered loop device
 * reads one page range at a time. Autoclear detaches it at its last close, so a killed mount leaves none behind. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "attach/device/device.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

enum { LOOP_WAIT_MS = 5000, LOOP_TRIES = 16, STEP_US = 20000 };

/* Return the number of a free loop device, which the kernel makes if there is none. Another process may take it first.
 */
static int free_loop(void)
{
    CLEANUP_FD int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);
    if (number < 0)
        return error_set(-errno, "cannot get a loop device: %s", strerror(errno));
    return number;
}

/* Attach loop device `number`. -EBUSY: another process took it between LOOP_CTL_GET_FREE and here. */
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

/* The search for a free device and its configuration are two steps, between which another process may take it: try
 * again. */
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

/* A prefix is enough: the kernel appends " (deleted)" to a file that is gone. */
bool device_loop_stands_on(const char *device, const char *file)
{
    char path[96];
    CLEANUP_BYTES text = BYTES_INIT(8192);
    snprintf(path, sizeof path, "/sys/block/%.20s/loop/backing_file", device + strlen("/dev/"));
    if (io_read_file(path, &text) || !bytes_string(&text))
        return false;
    return !strncmp((char *)text.data, file, strlen(file));
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
        usleep(STEP_US);
    }
    return 0;
}

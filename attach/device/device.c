/* What all block devices share: their queue settings, their page cache, and whether a mount has them. */
#include "attach/device/device.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    READ_AHEAD_KB = 4096,
    MAX_SECTORS_KB = 1024,
    WARM_STEP = 1 << 20, /* bytes of one read */
    WARM_SHARE = 4,      /* warm at most this part of the available memory */
    CLAIM_LOOKS = 20,    /* CLAIM_STEP_US apart */
    CLAIM_STEP_US = 50000
};

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
        if (cancel && *cancel)
            return error_set(-ECANCELED, "interrupted");
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

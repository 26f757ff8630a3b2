/* Which images this kernel's erofs mounts. The kernel's own answer, EINVAL, does not say why. */
#include <errno.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "attach/mount/mount_internal.h"
#include "base/error.h"
#include "format/manifest.h"

bool mount_erofs_fits(void)
{
    struct utsname kernel;
    return sysconf(_SC_PAGESIZE) == 4096 || !device_kernel_older(6, 4, &kernel);
}

/* Is the kernel's erofs without 48-bit block numbers? *out: as of device_kernel_older. */
static bool lacks_48bit(struct utsname *out)
{
    return device_kernel_older(6, 15, out);
}

bool mount_erofs_large_fits(void)
{
    struct utsname kernel;
    return !lacks_48bit(&kernel);
}

int mount_erofs_explain(uint64_t size)
{
    struct utsname kernel;
    if (!mount_erofs_fits())
        return error_set(-EINVAL,
                         "this kernel's pages have %ld bytes, and its erofs cannot mount images before Linux 6.4; "
                         "build with --fs ext4 for this machine",
                         sysconf(_SC_PAGESIZE));
    if (size > MANIFEST_EROFS_32BIT_MAX && lacks_48bit(&kernel))
        return error_set(-EINVAL,
                         "the image has more than 16 TiB, and the erofs of Linux %.64s has 32-bit block numbers: boot "
                         "Linux 6.15 or later, or build several images, or with --fs ext4",
                         kernel.release);
    return 0;
}

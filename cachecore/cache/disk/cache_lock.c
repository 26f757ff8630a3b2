/* An flock on the file "lock", which the kernel releases when its owner dies. The file holds the owner's pid, for
 * messages only. */
#include "cache/disk/cache_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"

void cache_lock_sign(int fd, const char *dir)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* Do not truncate to 0 first: ext4 would flush such a file when it is closed, and wait for the disk. */
    if (io_pwrite_full(fd, text, (size_t)n, 0) || ftruncate(fd, n))
        log_debug("cache: cannot note the pid in %s/lock", dir);
}

static int open_lock(int dir_fd, const char *dir, bool make, int *out_fd)
{
    int rc = safe_file_open(dir_fd, dir, "lock", O_RDWR | (make ? O_CREAT : 0), out_fd);
    return rc == -EROFS && !make ? safe_file_open(dir_fd, dir, "lock", O_RDONLY, out_fd) : rc;
}

/* Open and flock the file. If another process holds it, the pid for the message is read from the file. */
int cache_lock_take(int dir_fd, const char *dir, bool make, int *out_fd)
{
    CLEANUP_FD int fd = -1;
    int rc = open_lock(dir_fd, dir, make, &fd);
    if (rc == -ENOENT && !make)
        return error_set(rc, "cache: there is no cache in %s", dir);
    if (rc == -EPERM)
        return error_prefix(rc, "cache");
    if (rc)
        return error_set(rc, "cache: cannot open %s/lock: %s; the directory must be writable", dir, strerror(-rc));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        cache_lock_sign(fd, dir);
        *out_fd = steal_fd(&fd);
        return 0;
    }
    if (errno != EWOULDBLOCK)
        return error_set(-errno, "cache: cannot lock %s: %s", dir, strerror(errno));
    char text[32] = "";
    ssize_t n = io_pread_full(fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    return error_set(
        -EBUSY, "cache: %s is in use by process %ld; stop that one, attach to it, or give another directory", dir, pid);
}

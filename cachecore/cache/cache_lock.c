/* flock on the file "lock", which holds the owner's process id for messages. */
#include "cache/cache_lock.h"

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

void cache_lock_sign(int fd, const char *dir)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* Not cut to nothing first: ext4 would write such a file out when it is closed, and wait for the disk. */
    if (io_pwrite_full(fd, text, (size_t)n, 0) || ftruncate(fd, n))
        log_debug("cache: cannot note the pid in %s/lock", dir);
}

static int open_lock(const char *dir, bool make)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/lock", dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0), 0600);
    if (fd < 0 && !make && errno == EROFS)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int cache_lock_take(const char *dir, bool make, int *out_fd)
{
    CLEANUP_FD int fd = open_lock(dir, make);
    if (fd == -ENOENT && !make)
        return error_set(fd, "cache: there is no cache in %s", dir);
    if (fd < 0)
        return error_set(fd, "cache: cannot open %s/lock: %s; the directory must be writable", dir, strerror(-fd));
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

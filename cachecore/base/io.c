/* Loops around read and write, and files replaced by rename. A file that must survive power loss is synced before the
 * rename, else the new name could point at missing data; its directory is synced after it, else the old name could come
 * back.
 */
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"

/* Read at *off, or at the descriptor's current position if off is NULL. */
static ssize_t read_full(int fd, void *out, size_t len, const uint64_t *off)
{
    size_t done = 0;
    while (done < len) {
        char *to = (char *)out + done;
        ssize_t n = off ? pread(fd, to, len - done, (off_t)(*off + done)) : read(fd, to, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

ssize_t io_pread_full(int fd, void *out, size_t len, uint64_t off)
{
    return read_full(fd, out, len, &off);
}

ssize_t io_read_full(int fd, void *out, size_t len)
{
    return read_full(fd, out, len, NULL);
}

/* off as in read_full. */
static int write_full(int fd, const void *data, size_t len, const uint64_t *off)
{
    size_t done = 0;
    while (done < len) {
        const char *from = (const char *)data + done;
        ssize_t n = off ? pwrite(fd, from, len - done, (off_t)(*off + done)) : write(fd, from, len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n ? -errno : -EIO; /* 0 bytes and no errno: do not loop forever */
        done += (size_t)n;
    }
    return 0;
}

int io_pwrite_full(int fd, const void *data, size_t len, uint64_t off)
{
    return write_full(fd, data, len, &off);
}

int io_write_full(int fd, const void *data, size_t len)
{
    return write_full(fd, data, len, NULL);
}

/* Read to the end and not to st_size: files in /proc and pipes have none. */
int io_read_rest(int fd, const char *path, struct bytes *out)
{
    char block[65536];
    for (;;) {
        ssize_t n = io_read_full(fd, block, sizeof block);
        if (n < 0)
            return error_set((int)n, "cannot read %s: %s", path, strerror((int)-n));
        int rc = bytes_append(out, block, (size_t)n);
        if (rc)
            return error_set(rc, "%s is larger than the %zu bytes allowed", path, out->max);
        if ((size_t)n < sizeof block)
            return 0;
    }
}

int io_read_file(const char *path, struct bytes *out)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
    return io_read_rest(fd, path, out);
}

/* Sync the directory of path, which makes a rename in it durable. */
static int sync_parent(const char *path)
{
    CLEANUP_FREE char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    CLEANUP_FD int dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 || fsync(dir) ? -errno : 0;
}

/* mkostemp and io_write_file_owned make the file with mode 0600; readers are other users' processes too. */
static int io_write_temporary(int fd, const void *data, size_t len, bool sync)
{
    int rc = io_write_full(fd, data, len);
    if (rc)
        return rc;
    if (fchmod(fd, 0644))
        return -errno;
    return sync && fsync(fd) ? -errno : 0;
}

/* Write data to the temporary file fd and rename it to path; on failure remove it. */
static int write_and_rename(int fd, const char *temporary, const char *path, const void *data, size_t len, bool sync)
{
    int rc = io_write_temporary(fd, data, len, sync);
    if (!rc && rename(temporary, path))
        rc = -errno;
    if (rc) {
        unlink(temporary);
        return error_set(rc, "cannot write %s: %s", path, strerror(-rc));
    }
    rc = sync ? sync_parent(path) : 0;
    return rc ? error_set(rc, "cannot sync the directory of %s: %s", path, strerror(-rc)) : 0;
}

int io_write_file_atomic(const char *path, const void *data, size_t len, bool sync)
{
    CLEANUP_FREE char *temporary = NULL;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        return error_no_memory();
    }
    CLEANUP_FD int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot create %s: %s", temporary, strerror(errno));
    return write_and_rename(fd, temporary, path, data, len, sync);
}

int io_write_file_owned(const char *path, const void *data, size_t len)
{
    CLEANUP_FREE char *temporary = NULL;
    if (asprintf(&temporary, "%s.new", path) < 0) {
        temporary = NULL;
        return error_no_memory();
    }
    /* O_EXCL with O_NOFOLLOW below: the file is new, and no link of another user's is followed. */
    if (unlink(temporary) && errno != ENOENT)
        return error_set(-errno, "cannot remove %s: %s", temporary, strerror(errno));
    CLEANUP_FD int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return error_set(-errno, "cannot create %s: %s", temporary, strerror(errno));
    return write_and_rename(fd, temporary, path, data, len, true);
}

int io_mkdirs(const char *path)
{
    CLEANUP_FREE char *copy = strdup(path);
    if (!copy)
        return error_no_memory();
    for (char *p = copy + 1;; p++) {
        if (*p && *p != '/')
            continue;
        char c = *p; /* cut the path here for one mkdir, then restore it */
        *p = 0;
        if (*copy && mkdir(copy, 0755) && errno != EEXIST)
            return error_set(-errno, "cannot make the directory %s: %s", copy, strerror(errno));
        *p = c;
        if (!c)
            return 0;
    }
}

int io_random(void *out, size_t len)
{
    return getrandom(out, len, 0) == (ssize_t)len ? 0 : error_set(-EIO, "the system gives no random bytes");
}

/* Extended attributes relative to a directory's descriptor. Linux has no such call before 6.13, so llistxattr and
 * lgetxattr get the path /proc/self/fd/DIR/NAME, whose last component they do not follow if it is a symbolic link.
 *
 * Most files have no attributes. On new kernels listxattrat says so in a fifth of the time, since it looks up no
 * path in /proc.
 *
 * Sizes and values come from two calls each, and may change in between (ERANGE): the pair is then repeated.
 */
#include "imagebuild/source/source_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/le.h"

#ifndef SYS_listxattrat
#define SYS_listxattrat 465 /* the C library's headers may be older than the kernel */
#endif

enum { PATH_ROOM = 32 + NAME_MAX + 1, TRIES = 8 };

int local_xattrs_possible(void)
{
    if (access("/proc/self/fd", X_OK))
        return error_set(-ENOENT, "source: extended attributes are read through /proc, which is not mounted here");
    return 0;
}

/* Return whether the kernel says that the path has no attributes. On false there may be some; the kernel may not
 * have listxattrat, or a seccomp filter may forbid it. */
static bool has_none(int dir, const char *name)
{
    return syscall(SYS_listxattrat, dir, name, AT_SYMLINK_NOFOLLOW, NULL, 0) == 0;
}

/* Return the names, each with a NUL, in *out, which the caller frees, and their length; or -errno. */
static ssize_t list_names(const char *path, char **out)
{
    for (int i = 0; i < TRIES; i++) {
        ssize_t size = llistxattr(path, NULL, 0);
        if (size <= 0)
            return size ? -errno : 0;
        CLEANUP_FREE char *names = malloc((size_t)size);
        if (!names)
            return -ENOMEM;
        ssize_t n = llistxattr(path, names, (size_t)size);
        if (n >= 0) {
            *out = steal_ptr(&names);
            return n;
        }
        if (errno != ERANGE)
            return -errno;
    }
    return -ERANGE;
}

/* Append one attribute to *out. Return 0 as well if it is gone by now, or if this process may not read it: trusted.*
 * is for root alone. */
static int append_value(const char *path, const char *name, struct bytes *out)
{
    size_t name_len = strlen(name), start = out->len;
    for (int i = 0; i < TRIES; i++) {
        ssize_t size = lgetxattr(path, name, NULL, 0);
        if (size < 0)
            return errno == ENODATA || errno == EPERM || errno == EACCES ? 0 : -errno;
        uint8_t *p;
        int rc = bytes_extend(out, 6 + name_len + (size_t)size, &p);
        if (rc)
            return rc;
        ssize_t n = lgetxattr(path, name, p + 6 + name_len, (size_t)size);
        if (n >= 0 && n <= size) { /* the value may have shrunk */
            le16_put(p, (uint16_t)name_len);
            le32_put(p + 2, (uint32_t)n);
            memcpy(p + 6, name, name_len);
            out->len = start + 6 + name_len + (size_t)n;
            return 0;
        }
        out->len = start;
        if (n < 0 && errno != ERANGE)
            return errno == ENODATA ? 0 : -errno;
    }
    return -ERANGE;
}

int local_xattrs_read(int dir, const char *name, struct bytes *out)
{
    char path[PATH_ROOM];
    CLEANUP_FREE char *names = NULL;
    bytes_clear(out);
    if (has_none(dir, name))
        return 0;
    if ((size_t)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", dir, name) >= sizeof path)
        return -ENAMETOOLONG;
    ssize_t len = list_names(path, &names);
    if (len < 0)
        /* a filesystem without attributes, or attributes that this user may not list */
        return len == -ENOTSUP || len == -EACCES ? 0 : (int)len;
    for (const char *p = names; p < names + len; p += strlen(p) + 1) {
        int rc = append_value(path, p, out);
        if (rc)
            return rc;
    }
    return 0;
}

/* The temporary file is in the target's directory, because rename cannot cross filesystems. A process that is killed
 * leaves it behind. */
#include "base/replace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

/* Refuse a target that is not a regular file: rename would replace a device or a symbolic link. */
static int check_target(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : error_set(-errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(-EINVAL, "%s exists and is not a regular file; give a new name", path);
    return 0;
}

int replacement_begin(const char *path, struct replacement *out)
{
    CLEANUP_FREE char *temporary = NULL;
    int rc = check_target(path);
    if (rc)
        return rc;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        return error_no_memory();
    }
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot create %s: %s; its directory must be there and writable", path,
                         strerror(errno));
    *out = (struct replacement){.path = path, .temporary = steal_ptr(&temporary), .fd = fd};
    return 0;
}

int replacement_finish(struct replacement *r)
{
    if (fchmod(r->fd, 0644) || fsync(r->fd) || rename(r->temporary, r->path))
        return error_set(-errno, "cannot finish %s: %s", r->path, strerror(errno));
    free(steal_ptr(&r->temporary));
    return 0;
}

void replacement_release(struct replacement *r)
{
    if (r->temporary)
        unlink(r->temporary);
    free(steal_ptr(&r->temporary));
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
}

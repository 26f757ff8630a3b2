/* Writes an image to a file or a pipe. chunk_stream delivers chunks in address order, so one loop serves both: a file
 * is written by pwrite and keeps its holes, a pipe gets zeros.
 *
 * A file is written under a temporary name beside the target, synced and renamed, so a crash leaves the old file, and
 * perhaps a temporary one. */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "repository/read/chunk_read.h"

/* One export. */
struct exporting {
    const struct manifest *m;
    const struct export_options *options;
    const char *name;
    int fd;
    bool sparse; /* a regular file: leave holes out */
};

static int write_zeros(int fd, uint64_t len)
{
    static const uint8_t zeros[64 << 10];
    while (len) {
        size_t n = GR_MIN(len, sizeof zeros);
        int rc = io_write_full(fd, zeros, n);
        if (rc)
            return rc;
        len -= n;
    }
    return 0;
}

/* Write one chunk or a run of holes. */
static int write_item(void *arg, const struct chunk_item *item)
{
    struct exporting *e = arg;
    uint64_t begin = item->number * e->m->chunk_size;
    uint64_t end = GR_MIN(e->m->size, begin + item->count * e->m->chunk_size);
    int rc = 0;
    if (item->rc)
        return item->rc;
    if (item->data && e->sparse)
        rc = io_pwrite_full(e->fd, item->data, end - begin, begin);
    else if (item->data)
        rc = io_write_full(e->fd, item->data, end - begin);
    else if (!e->sparse)
        rc = write_zeros(e->fd, end - begin);
    if (rc)
        return error_set(rc, "cannot write %s: %s", e->name, strerror(-rc));
    if (e->options->progress)
        e->options->progress(e->options->progress_arg, end, e->m->size);
    return 0;
}

static int export_run(struct store *s, struct exporting *e)
{
    struct chunk_stream_options options = {.threads = e->options->threads, .cancel = e->options->cancel};
    return chunk_stream(s, e->m, &options, write_item, e);
}

int export_stream(struct store *s, const struct manifest *m, int fd, const char *name,
                  const struct export_options *options)
{
    struct exporting e = {.m = m, .options = options, .name = name, .fd = fd};
    return export_run(s, &e);
}

/* Refuse a target that is not a regular file: rename would replace a device or a symbolic link. */
static int check_target(const char *path)
{
    struct stat st;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : error_set(-errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return error_set(-EINVAL, "%s exists and is not a regular file; give a new name, or - for standard output",
                         path);
    return 0;
}

/* Fill the temporary file, sync it and give it its name. */
static int export_fill(struct store *s, struct exporting *e, const char *temporary, const char *path)
{
    /* Now the file has its size even if it ends with a hole, and holes need no writes. */
    if (ftruncate(e->fd, (off_t)e->m->size))
        return error_set(-errno, "cannot size %s: %s", temporary, strerror(errno));
    int rc = export_run(s, e);
    if (rc)
        return rc;
    if (fchmod(e->fd, 0644) || fsync(e->fd) || rename(temporary, path))
        return error_set(-errno, "cannot finish %s: %s", path, strerror(errno));
    return 0;
}

int export_file(struct store *s, const struct manifest *m, const char *path, const struct export_options *options)
{
    CLEANUP_FREE char *temporary = NULL;
    int rc = check_target(path);
    if (rc)
        return rc;
    if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
        temporary = NULL;
        return error_no_memory();
    }
    /* In the target's directory, because rename cannot cross filesystems. */
    CLEANUP_FD int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot create %s: %s; its directory must be there and writable", path,
                         strerror(errno));
    struct exporting e = {.m = m, .options = options, .name = path, .fd = fd, .sparse = true};
    rc = export_fill(s, &e, temporary, path);
    if (rc)
        unlink(temporary);
    return rc;
}

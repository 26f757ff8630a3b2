/* Writes an image to a file or a pipe. chunk_stream delivers chunks in address order, so one loop serves both: a file
 * is written by pwrite and keeps its holes, a pipe gets zeros.
 *
 * A file gets its name when it is whole (base/replace.h). */
#include "upkeep/upkeep.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "base/replace.h"
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

/* Fill the temporary file. */
static int export_fill(struct store *s, struct exporting *e)
{
    /* Now the file has its size even if it ends with a hole, and holes need no writes. */
    if (ftruncate(e->fd, (off_t)e->m->size))
        return error_set(-errno, "cannot size %s: %s", e->name, strerror(errno));
    return export_run(s, e);
}

int export_file(struct store *s, const struct manifest *m, const char *path, const struct export_options *options)
{
    CLEANUP_REPLACEMENT file = REPLACEMENT_NONE;
    int rc = replacement_begin(path, &file);
    if (rc)
        return rc;
    struct exporting e = {.m = m, .options = options, .name = path, .fd = file.fd, .sparse = true};
    rc = export_fill(s, &e);
    return rc ? rc : replacement_finish(&file);
}

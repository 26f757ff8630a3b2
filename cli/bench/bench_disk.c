/* A disk by itself: an unnamed file, so that nothing is left however the process ends. Its bytes are written before
 * they are read: a filesystem answers reads of reserved space without its disk. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/bench/bench.h"

/* Open it with or without O_DIRECT. */
static int open_unnamed(const char *dir, bool direct, int *out_fd)
{
    *out_fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0), 0600);
    return *out_fd < 0 ? -errno : 0;
}

int bench_disk_init(struct bench_disk *out, const char *dir, uint64_t size)
{
    *out = (struct bench_disk){.dir = dir, .fd = -1, .direct = true, .size = size};
    int rc = open_unnamed(dir, true, &out->fd);
    if (rc == -EINVAL) {
        out->direct = false;
        rc = open_unnamed(dir, false, &out->fd);
    }
    if (!rc && fallocate(out->fd, 0, 0, (off_t)size))
        rc = -errno;
    if (rc == -EOPNOTSUPP || rc == -EISDIR)
        return error_set(-EOPNOTSUPP, "%s: its filesystem cannot reserve space, or has no unnamed files", dir);
    return rc ? error_set(rc, "%s: %s", dir, strerror(-rc)) : 0;
}

void bench_disk_release(struct bench_disk *d)
{
    cleanup_fd_(&d->fd);
}

/* Return the place of the i-th operation among `places`: in order, or scattered over all of them. */
static uint64_t place_of(const struct bench_disk *d, size_t i, uint64_t places)
{
    return (d->len == BENCH_PIECE ? i : i * 0x9E3779B97F4A7C15u >> 20) % places;
}

static int one_operation(void *arg, size_t i)
{
    struct bench_disk *d = arg;
    CLEANUP_BUF struct buf *b = buf_new(d->len);
    uint64_t off = place_of(d, i, atomic_load(&d->written) / d->len) * d->len;
    int rc = b ? 0 : -ENOMEM;
    if (!rc && d->writes) {
        memset(b->data, (int)i | 1, d->len);
        rc = io_pwrite_full(d->fd, b->data, d->len, off);
    } else if (!rc) {
        ssize_t n = io_pread_full(d->fd, b->data, d->len, off);
        rc = n == (ssize_t)d->len ? 0 : n < 0 ? (int)n : -EIO;
    }
    atomic_fetch_add(&d->ops, 1);
    return rc ? error_set(rc, "%s: %s", d->dir, strerror(-rc)) : 0;
}

/* Threads write pieces in ascending order, so at most as many are unwritten below `written` as there are threads, and
 * only until bench_disk_fill returns. */
static int fill_piece(void *arg, size_t i)
{
    struct bench_disk *d = arg;
    CLEANUP_BUF struct buf *b = buf_new(BENCH_PIECE);
    if ((i + 1) * BENCH_PIECE > d->size)
        return BENCH_DONE;
    int rc = b ? 0 : -ENOMEM;
    if (!rc) {
        memset(b->data, (int)i | 1, BENCH_PIECE);
        rc = io_pwrite_full(d->fd, b->data, BENCH_PIECE, i * BENCH_PIECE);
    }
    if (rc)
        return error_set(rc, "%s: %s", d->dir, strerror(-rc));
    atomic_fetch_add(&d->written, BENCH_PIECE);
    return 0;
}

int bench_disk_fill(struct bench_disk *d, unsigned threads, uint64_t ms, double *out)
{
    const struct bench_work work = {.threads = threads, .ms = ms, .item = fill_piece, .arg = d};
    uint64_t us, start = clock_now_us();
    int rc = bench_run(&work, &us);
    if (!rc && fdatasync(d->fd))
        rc = error_set(-errno, "%s: %s", d->dir, strerror(errno));
    if (!rc && !atomic_load(&d->written))
        rc = error_set(-ETIMEDOUT, "%s: its disk wrote nothing within %u ms", d->dir, (unsigned)ms);
    *out = bench_rate(atomic_load(&d->written), clock_now_us() - start);
    return rc;
}

int bench_disk_run(struct bench_disk *d, bool writes, uint32_t len, unsigned threads, uint64_t ms, double *out)
{
    const struct bench_work work = {.threads = threads, .ms = ms, .item = one_operation, .arg = d};
    uint64_t us;
    d->writes = writes;
    d->len = len;
    atomic_store(&d->ops, 0);
    int rc = bench_run(&work, &us);
    *out = bench_rate(atomic_load(&d->ops), us);
    return rc;
}

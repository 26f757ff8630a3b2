/* Versions of an image have most chunks in common, and at the same offsets, since a build leaves inodes and data where
 * the parent has them. Where the filesystem has reflink (xfs), a new file takes these ranges from another version's
 * file instead of writing them. The caller compares what it reads there with the chunk's digest before it takes the
 * range: a complete file does not change, so the range that is taken has these bytes. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "cache/resident_internal.h"

static int clone_range(int from, int to, uint64_t off, uint64_t len)
{
    const struct file_clone_range range = {.src_fd = from, .src_offset = off, .src_length = len, .dest_offset = off};
    return ioctl(to, FICLONERANGE, &range) ? -errno : 0;
}

enum { BLOCK = 64 << 10 /* of any filesystem at most */, HALF_PERCENT = 50 };

/* Whether the filesystem has reflink. The file is empty afterwards, as it was before, or *failed is set. */
static bool can_share(const struct resident_filling *f, int from, int *failed)
{
    bool can = !clone_range(from, f->fd, 0, BLOCK);
    if (ftruncate(f->fd, 0) || ftruncate(f->fd, (off_t)f->size))
        *failed = error_set(-errno, "cannot make room for %s/%s: %s", f->dir, f->name, strerror(errno));
    return can && !*failed;
}

/* The best file so far. */
struct choice {
    struct resident_filling *f;
    const struct resident_id *id;
    resident_likes *likes;
    void *arg;
    unsigned best;
    int failed; /* the file is not empty any more; with a sentence */
};

static int weigh(void *arg, const struct resident_entry *e)
{
    struct choice *c = arg;
    CLEANUP_FD int fd = -1;
    if (e->state != RESIDENT_COMPLETE || e->id.chunk_size != c->id->chunk_size || e->id.size < BLOCK ||
        resident_file_open(c->f->dir_fd, c->f->dir, e->name, O_RDONLY | O_NOATIME, &fd))
        return 0;
    if (!can_share(c->f, fd, &c->failed))
        return -EOPNOTSUPP;                           /* nor will it for the next */
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* no pages ahead of what resident_share_peek asks for */
    unsigned likes = c->likes(c->arg, fd);
    if (likes <= c->best)
        return 0;
    c->best = likes;
    if (c->f->from >= 0)
        close(c->f->from);
    c->f->from = steal_fd(&fd);
    return 0;
}

int resident_share_from(struct resident_filling *f, const char *dir, const struct resident_id *id,
                        resident_likes *likes, void *arg)
{
    struct choice c = {.f = f, .id = id, .likes = likes, .arg = arg, .best = HALF_PERCENT};
    (void)!resident_each(dir, weigh, &c);
    return c.failed;
}

/* Pages in memory, left by the file's writer for example, may be good where the blocks on disk, which would be shared,
 * are not. Afterwards they are of no use: readers read the new file. */
bool resident_share_peek(int from, uint64_t off, void *dst, size_t len)
{
    (void)posix_fadvise(from, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
    bool got = io_pread_full(from, dst, len, off) == (ssize_t)len;
    (void)posix_fadvise(from, (off_t)off, (off_t)len, POSIX_FADV_DONTNEED);
    return got;
}

int resident_share(const struct resident_filling *f, uint64_t off, size_t len)
{
    return clone_range(f->from, f->fd, off, len);
}

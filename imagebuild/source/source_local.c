/* A local directory as a source; local_walk.c lists it. Files are opened beneath its descriptor, as there.
 *
 * A version of a file is its size, mtime, ctime and inode: taken before and after reading. A write
 * within one tick of the file system's clock that leaves the size alone goes unseen.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/io.h"
#include "imagebuild/source/local_walk.h"
#include "imagebuild/source/openat2.h"
#include "imagebuild/source/source_kinds.h"

struct source_local {
    struct source base;
    char *url;
    int root;
    bool openat2;
    const struct rules *rules;
    struct source_counts counts;
};

static struct source_local *local_of(struct source *s)
{
    return (struct source_local *)s;
}

/* ------------------------------------------------------------------ listing */

static struct local_walk walk_of(struct source_local *s, source_visit *visit, void *arg)
{
    return (struct local_walk){.root = s->root,
                               .openat2 = s->openat2,
                               .url = s->base.url,
                               .rules = s->rules,
                               .visit = visit,
                               .arg = arg,
                               .counts = &s->counts};
}

static void local_counts(struct source *s, struct source_counts *out)
{
    source_counts_add(out, &local_of(s)->counts);
}

static int local_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_local *s = local_of(base);
    const struct local_walk walk = walk_of(s, visit, arg);
    s->counts = (struct source_counts){0};
    return local_walk_run(&walk);
}

static int removed(const struct source_local *s, const char *path, size_t len)
{
    return error_set(-ENOENT, "source: %s/%.*s is not there (any more)", s->base.url, (int)GR_MIN(len, 300u), path);
}

static int local_look(struct source *base, const struct source_ask *ask, source_visit *visit, void *arg)
{
    struct source_local *s = local_of(base);
    const struct local_walk walk = walk_of(s, visit, arg);
    int rc = local_walk_look(&walk, ask);
    return rc == -ENOENT ? removed(s, ask->path, ask->path_len) : rc;
}

/* ------------------------------------------------------------------ reading */

static int file_failed(const struct source_local *s, const char *path, size_t len, int code)
{
    return error_set(code, "source: cannot read %s/%.*s: %s%s", s->base.url, (int)GR_MIN(len, 300u), path,
                     strerror(-code), code == -EACCES ? "; run as a user who may read it" : "");
}

/* Open a regular file. O_NOATIME is the owner's privilege; O_NONBLOCK: a fifo in its place must not
 * hold us. */
static int open_file(const struct source_local *s, const char *path, size_t len, struct stat *st)
{
    int flags = O_RDONLY | O_NONBLOCK | O_NOATIME;
    int fd = openat2_beneath(s->root, s->openat2, path, len, flags);
    if (fd == -EPERM)
        fd = openat2_beneath(s->root, s->openat2, path, len, flags & ~O_NOATIME);
    if (local_is_removed(fd) || fd == -ENXIO)
        return removed(s, path, len);
    if (fd < 0)
        return file_failed(s, path, len, fd);
    int rc = fstat(fd, st) ? file_failed(s, path, len, -errno) : S_ISREG(st->st_mode) ? 0 : removed(s, path, len);
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

static bool is_version(const struct stat *st, const struct source_read *r)
{
    char now[SOURCE_VALIDATOR_MAX + 1];
    size_t len = local_validator(st, now);
    return len == r->validator_len && !memcmp(now, r->validator, len);
}

/* pread that does not fetch what the file system knows to be a hole. */
static ssize_t read_data(int fd, uint8_t *dst, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        off_t data = lseek(fd, (off_t)(off + done), SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return io_pread_full(fd, dst, len, off); /* no such question here */
        size_t hole = data < 0 ? len - done : (size_t)GR_MIN((uint64_t)data - off - done, len - done);
        memset(dst + done, 0, hole);
        done += hole;
        if (done == len)
            break;
        off_t end = lseek(fd, data, SEEK_HOLE);
        size_t n = end > data ? (size_t)GR_MIN((uint64_t)(end - data), len - done) : len - done;
        ssize_t got = io_pread_full(fd, dst + done, n, off + done);
        if (got < 0)
            return got;
        done += (size_t)got;
        if ((size_t)got < n)
            break;
    }
    return (ssize_t)done;
}

static int local_read(struct source *base, const struct source_read *r)
{
    const struct source_local *s = local_of(base);
    struct stat before, after;
    CLEANUP_FD int fd = open_file(s, r->path, r->path_len, &before);
    if (fd < 0)
        return fd;
    bool sparse = (uint64_t)before.st_blocks * 512 < (uint64_t)before.st_size;
    ssize_t n = 0;
    if (is_version(&before, r)) {
        n = sparse ? read_data(fd, r->dst, r->len, r->offset) : io_pread_full(fd, r->dst, r->len, r->offset);
        if (n < 0)
            return file_failed(s, r->path, r->path_len, (int)n);
        if (fstat(fd, &after))
            return file_failed(s, r->path, r->path_len, -errno);
        if ((uint64_t)n == r->len && local_same_version(&before, &after))
            return 0;
    }
    return error_set(-ESTALE, "source: %s/%.*s changed while it was read", s->base.url, (int)GR_MIN(r->path_len, 300u),
                     r->path);
}

static int local_stat(struct source *base, const char *path, size_t path_len, struct source_version *out)
{
    const struct source_local *s = local_of(base);
    CLEANUP_FD int fd = openat2_beneath(s->root, s->openat2, path, path_len, O_PATH);
    struct stat st;
    if (local_is_removed(fd))
        return removed(s, path, path_len);
    if (fd < 0 || fstat(fd, &st))
        return file_failed(s, path, path_len, fd < 0 ? fd : -errno);
    if (!S_ISREG(st.st_mode))
        return removed(s, path, path_len);
    *out = (struct source_version){.size = (uint64_t)st.st_size,
                                   .mtime = st.st_mtim.tv_sec,
                                   .mtime_nsec = (uint32_t)st.st_mtim.tv_nsec,
                                   .have_owner = true,
                                   .mode = st.st_mode,
                                   .uid = st.st_uid,
                                   .gid = st.st_gid};
    out->validator_len = local_validator(&st, out->validator);
    return 0;
}

/* ------------------------------------------------------------------ life */

static void local_close(struct source *base)
{
    struct source_local *s = local_of(base);
    if (s->root >= 0)
        close(s->root);
    free(s->url);
    free(s);
}

static void cleanup_local(struct source_local **s)
{
    if (*s)
        local_close(&(*s)->base);
}

int source_local_open(const char *url, const char *path, const struct source_options *options, struct source **out)
{
    static const struct source_ops ops = {.list = local_list,
                                          .counts = local_counts,
                                          .look = local_look,
                                          .read = local_read,
                                          .stat = local_stat,
                                          .close = local_close};
    CLEANUP(cleanup_local) struct source_local *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->root < 0)
        return error_set(-errno, "source: cannot open the directory %s: %s", path, strerror(errno));
    s->openat2 = openat2_is_supported(s->root);
    s->rules = options->rules;
    s->url = strdup(url);
    if (!s->url)
        return error_no_memory();
    size_t len = strlen(s->url);
    while (len > 1 && s->url[len - 1] == '/')
        s->url[--len] = 0;
    s->base.ops = &ops;
    s->base.url = s->url;
    s->base.near = true;
    struct source *done = &s->base;
    s = NULL;
    *out = done;
    return 0;
}

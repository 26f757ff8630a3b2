/* granary bench MOUNT: a sample of a mounted image's files is read twice through the mount, each time without what the
 * kernel's page cache has of them. The first read fetches what the server has not cached, the second finds it there.
 * For the raw figure the same bytes are then read from the mount's block device with O_DIRECT, at the addresses that
 * the filesystem tells (FIEMAP): the front end alone, without the filesystem above it. That needs root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/buf.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/bench/bench.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/servers.h"

enum {
    FILES_MAX = 2000,        /* of a sample */
    SAMPLE_MAX = 256 << 20,  /* bytes */
    FILE_MAX = 4 << 20,      /* bytes that are read of a file */
    DIRECTORIES_MAX = 10000, /* that are searched for files */
    READERS = 8,             /* threads */
    EXTENTS_MAX = 8,         /* of a file, from the device; an image's file has one */
    SHARES = 3               /* of the time: two reads, and the device */
};

/* The files, by paths below the mount point. */
struct sample {
    int root, device; /* device: O_DIRECT; -1: not open */
    string_list files;
    size_t count;  /* of files that were read the first time; later reads are of these */
    uint64_t size; /* bytes of all */
    bool again;    /* stop at count */
    _Atomic uint64_t files_read, bytes_read;
};

/* ---- choosing ---- */

/* Add the files and directories of a directory. */
static int choose_in(struct sample *s, const char *path, string_list *dirs, dev_t dev)
{
    CLEANUP_FD int fd = openat(s->root, *path ? path : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;
    int rc = 0;
    if (!dir)
        return 0; /* a path that is too long, or a directory that this user may not read */
    (void)steal_fd(&fd);
    while (!rc && s->files.len < FILES_MAX && s->size < SAMPLE_MAX && (e = readdir(dir))) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || st.st_dev != dev)
            continue;
        if (S_ISDIR(st.st_mode) && dirs->len < DIRECTORIES_MAX)
            rc = string_list_add(dirs, "%s%s%s", path, *path ? "/" : "", e->d_name);
        if (!S_ISREG(st.st_mode) || !st.st_size)
            continue;
        s->size += GR_MIN((uint64_t)st.st_size, (uint64_t)FILE_MAX);
        rc = string_list_add(&s->files, "%s%s%s", path, *path ? "/" : "", e->d_name);
    }
    closedir(dir);
    return rc;
}

/* Choose the first files below the mount point, level by level. */
static int choose(struct sample *s, const char *dir)
{
    CLEANUP_STRING_LIST dirs = {0};
    struct stat st;
    if (fstat(s->root, &st))
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    int rc = string_list_add(&dirs, "%s", "");
    for (size_t i = 0; !rc && i < dirs.len && s->files.len < FILES_MAX && s->size < SAMPLE_MAX; i++) {
        rc = cancel_check(interrupt_flag());
        if (!rc)
            rc = choose_in(s, dirs.items[i], &dirs, st.st_dev);
    }
    if (!rc && !s->files.len)
        return error_set(-ENODATA, "%s has no file with contents that this user may read", dir);
    return rc;
}

/* ---- reading ---- */

/* Read a file's first FILE_MAX bytes. A file that cannot be read is a failure of the mount, unless this user may not
 * read it. */
static int read_file(void *arg, size_t i)
{
    struct sample *s = arg;
    if (i >= (s->again ? s->count : s->files.len))
        return BENCH_DONE;
    const char *path = s->files.items[i];
    CLEANUP_BUF struct buf *b = buf_new(FILE_MAX);
    if (!b)
        return error_no_memory();
    CLEANUP_FD int fd = openat(s->root, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == EACCES ? 0 : error_set(-errno, "%s: %s", path, strerror(errno));
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ssize_t n = io_pread_full(fd, b->data, FILE_MAX, 0);
    if (n < 0)
        return error_set((int)n, "%s: %s; granary status says why", path, strerror((int)-n));
    atomic_fetch_add(&s->files_read, 1);
    atomic_fetch_add(&s->bytes_read, (uint64_t)n);
    return 0;
}

/* Read the same bytes from the device. */
static int read_device(void *arg, size_t i)
{
    struct sample *s = arg;
    union {
        struct fiemap map;
        uint8_t room[sizeof(struct fiemap) + EXTENTS_MAX * sizeof(struct fiemap_extent)];
    } q = {.map = {.fm_length = FILE_MAX, .fm_extent_count = EXTENTS_MAX}};
    if (i >= s->count)
        return BENCH_DONE;
    CLEANUP_BUF struct buf *b = buf_new(FILE_MAX);
    if (!b)
        return error_no_memory();
    CLEANUP_FD int fd = openat(s->root, s->files.items[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || ioctl(fd, FS_IOC_FIEMAP, &q.map))
        return error_set(-errno, "%s: %s", s->files.items[i], strerror(errno));
    for (unsigned k = 0; k < q.map.fm_mapped_extents; k++) {
        const struct fiemap_extent *e = &q.map.fm_extents[k];
        uint64_t from = e->fe_physical / 4096 * 4096, to = (e->fe_physical + e->fe_length + 4095) / 4096 * 4096;
        ssize_t n = io_pread_full(s->device, b->data, GR_MIN(to - from, (uint64_t)FILE_MAX), from);
        if (n < 0)
            return error_set((int)n, "the device: %s", strerror((int)-n));
        atomic_fetch_add(&s->bytes_read, GR_MIN(e->fe_length, (uint64_t)FILE_MAX));
    }
    atomic_fetch_add(&s->files_read, 1);
    return 0;
}

/* Rates of one read of the sample. */
struct rates {
    double files, bytes;
};

static int bench_mount_measure(struct sample *s, int (*item)(void *, size_t), uint64_t ms, struct rates *out)
{
    const struct bench_work work = {.threads = READERS, .ms = ms, .item = item, .arg = s};
    uint64_t us;
    atomic_store(&s->files_read, 0);
    atomic_store(&s->bytes_read, 0);
    int rc = bench_run(&work, &us);
    out->files = bench_rate(atomic_load(&s->files_read), us);
    out->bytes = bench_rate(atomic_load(&s->bytes_read), us);
    return rc;
}

/* ---- the server ---- */

/* Return how many bytes the mount's server has fetched so far; BENCH_NONE: it does not tell. */
static double fetched(const struct mount_state *m)
{
    json_t *status = NULL;
    double sum = BENCH_NONE;
    if (*m->control && !control_status(m->control, &status))
        sum = (double)server_status_counter(status, "granary_fetch_bytes_total");
    json_decref(status);
    return sum;
}

/* The device is read last, when what it reads is cached. */
static int measure_all(struct bench_report *r, struct sample *s, const struct mount_state *m, uint64_t ms)
{
    struct rates first, again, raw = {BENCH_NONE, BENCH_NONE};
    double before = fetched(m);
    int rc = bench_mount_measure(s, read_file, ms / SHARES, &first);
    double after = fetched(m);
    s->count = atomic_load(&s->files_read);
    s->again = true;
    if (!rc && !s->count)
        rc = error_set(-ETIMEDOUT, "no file could be read within %u ms", (unsigned)(ms / SHARES));
    if (!rc)
        rc = bench_mount_measure(s, read_file, ms / SHARES, &again);
    if (!rc && s->device >= 0)
        rc = bench_mount_measure(s, read_device, ms / SHARES, &raw);
    if (rc)
        return rc;
    bench_add(r, "first_files", "files, first read", BENCH_PER_S, BENCH_NONE, first.files);
    bench_add(r, "first_bytes", "bytes, first read", BENCH_BYTES_PER_S, BENCH_NONE, first.bytes);
    bench_add(r, "again_files", "files, read again", BENCH_PER_S, raw.files, again.files);
    bench_add(r, "again_bytes", "bytes, read again", BENCH_BYTES_PER_S, raw.bytes, again.bytes);
    if (before >= 0 && after >= before)
        bench_add(r, "first_fetched", "fetched during the first read", BENCH_BYTES, BENCH_NONE, after - before);
    return 0;
}

int bench_mount(struct bench_report *r, const char *dir, uint64_t ms)
{
    struct mount_state m = {.dir = ""};
    CLEANUP_FD int root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CLEANUP_FD int device = -1;
    struct sample s = {.root = root, .device = -1};
    r->kind = "mount";
    if (root < 0)
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    if (!mount_find(dir, &m)) {
        snprintf(r->image, sizeof r->image, "%s", m.image);
        device = open(m.device, O_RDONLY | O_DIRECT | O_CLOEXEC);
        s.device = device;
    } else {
        m = (struct mount_state){.dir = ""};
    }
    if (device < 0)
        bench_note(r, "raw: not measured, since only root can read the mount's device and the state of its server");
    int rc = choose(&s, dir);
    if (!rc)
        rc = measure_all(r, &s, &m, ms);
    string_list_release(&s.files);
    return rc;
}

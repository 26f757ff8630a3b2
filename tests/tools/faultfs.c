/* faultfs BACKING MOUNTPOINT    a directory seen through FUSE, with faults that are switched while it runs
 *
 * In the foreground until it is unmounted or gets SIGTERM. Each line written to MOUNTPOINT/.faults is a command:
 *
 *   KIND [FILE]   a fault from now on, for files of that name (last part of the path) or for all
 *   off           all faults end; what hangs goes on
 *
 *   read-eio, write-eio, write-enospc   the call fails
 *   read-hang, write-hang               the call waits until the fault is off; every other call goes on
 *   read-flip=N                         one bit of every Nth read (over all files it is for) is turned over
 *   readonly                            everything that changes something fails with EROFS
 *
 * Reading .faults gives a line for each fault there is: the command, and how many calls met it. No page cache
 * stands before it (direct_io): every read and write of a file is a call here. Locks are the kernel's own.
 */
#define FUSE_USE_VERSION 35
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum kind { READ_EIO, WRITE_EIO, WRITE_ENOSPC, READ_HANG, WRITE_HANG, READ_FLIP, READONLY, KINDS };

enum { FAULTS_MAX = 16, NAME_SIZE = 64, CONTROL_SIZE = 4096, WAITING_MAX = 4096 };

static const char *const names[KINDS] = {"read-eio",   "write-eio", "write-enospc", "read-hang",
                                         "write-hang", "read-flip", "readonly"};

struct fault {
    enum kind kind;
    char file[NAME_SIZE]; /* "": any */
    unsigned every;       /* READ_FLIP */
    uint64_t hits;
};

struct faultfs {
    int root; /* the backing directory */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fault faults[FAULTS_MAX];
    unsigned count;
    uint64_t generation; /* one more with each off */
};

struct handle {
    int fd; /* -1: the control file */
    char name[NAME_SIZE];
};

static struct faultfs *self(void)
{
    return fuse_get_context()->private_data;
}

static struct handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

/* Paths come as "/a/b"; *at() functions want them relative. */
static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static const char *last_part(const char *path)
{
    return strrchr(path, '/') + 1;
}

static bool is_control(const char *path)
{
    return path && !strcmp(path, "/.faults");
}

static int result(int rc)
{
    return rc < 0 ? -errno : rc;
}

/* ---- faults ---- */

static struct fault *find_locked(struct faultfs *fs, enum kind kind, const char *file)
{
    for (unsigned i = 0; i < fs->count; i++)
        if (fs->faults[i].kind == kind && (!fs->faults[i].file[0] || !strcmp(fs->faults[i].file, file)))
            return &fs->faults[i];
    return NULL;
}

/* Does a fault of the kind apply to this call? Counts it. */
static bool meets(enum kind kind, const char *file)
{
    struct faultfs *fs = self();
    pthread_mutex_lock(&fs->lock);
    struct fault *f = find_locked(fs, kind, file);
    bool hit = f && (kind != READ_FLIP || ++f->hits % f->every == 0);
    if (f && kind != READ_FLIP)
        f->hits++;
    pthread_mutex_unlock(&fs->lock);
    return hit;
}

/* Wait while the fault is on; also ends with the filesystem. */
static void hang(enum kind kind, const char *file)
{
    struct faultfs *fs = self();
    struct fuse_session *session = fuse_get_session(fuse_get_context()->fuse);
    if (!meets(kind, file))
        return;
    pthread_mutex_lock(&fs->lock);
    uint64_t generation = fs->generation;
    while (fs->generation == generation && !fuse_session_exited(session)) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec++;
        pthread_cond_timedwait(&fs->changed, &fs->lock, &until);
    }
    pthread_mutex_unlock(&fs->lock);
}

static int change(const char *path)
{
    return meets(READONLY, path ? last_part(path) : "") ? -EROFS : 0;
}

/* ---- the control file ---- */

static int add_locked(struct faultfs *fs, const char *command)
{
    struct fault f = {.every = 1};
    char kind[NAME_SIZE] = "";
    if (sscanf(command, "%63s %63s", kind, f.file) < 1)
        return -EINVAL;
    if (!strcmp(kind, "off")) {
        fs->count = 0;
        fs->generation++;
        pthread_cond_broadcast(&fs->changed);
        return 0;
    }
    char *value = strchr(kind, '=');
    if (value) {
        *value = 0;
        f.every = (unsigned)strtoul(value + 1, NULL, 10);
    }
    while (f.kind < KINDS && strcmp(names[f.kind], kind) != 0)
        f.kind++;
    if (f.kind == KINDS || !f.every || (value && f.kind != READ_FLIP) || fs->count == FAULTS_MAX)
        return -EINVAL;
    fs->faults[fs->count++] = f;
    return 0;
}

static int control_write(const char *data, size_t len)
{
    struct faultfs *fs = self();
    char text[CONTROL_SIZE], *rest = text, *line;
    if (len >= sizeof text)
        return -EINVAL;
    memcpy(text, data, len);
    text[len] = 0;
    int rc = 0;
    pthread_mutex_lock(&fs->lock);
    while (!rc && (line = strsep(&rest, "\n")))
        rc = *line ? add_locked(fs, line) : 0;
    pthread_mutex_unlock(&fs->lock);
    return rc ? rc : (int)len;
}

static int control_read(char *out, size_t size, off_t off)
{
    struct faultfs *fs = self();
    char text[CONTROL_SIZE];
    size_t len = 0;
    pthread_mutex_lock(&fs->lock);
    for (unsigned i = 0; i < fs->count; i++) {
        const struct fault *f = &fs->faults[i];
        len += (size_t)snprintf(text + len, sizeof text - len, "%s%s%s %llu\n", names[f->kind], *f->file ? " " : "",
                                f->file, (unsigned long long)f->hits);
    }
    pthread_mutex_unlock(&fs->lock);
    if (off < 0 || (size_t)off >= len)
        return 0;
    len -= (size_t)off;
    len = len < size ? len : size;
    memcpy(out, text + off, len);
    return (int)len;
}

/* ---- files ---- */

static int op_open_any(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    bool writes = (fi->flags & O_ACCMODE) != O_RDONLY || fi->flags & (O_TRUNC | O_CREAT);
    int rc = writes && !is_control(path) ? change(path) : 0;
    if (rc)
        return rc;
    struct handle *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    snprintf(h->name, sizeof h->name, "%s", last_part(path));
    /* O_DIRECT ends here: libfuse's buffers are not aligned. What is read anew is read anew of this. */
    h->fd = is_control(path) ? -1 : openat(self()->root, below(path), (fi->flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (h->fd < 0 && !is_control(path)) {
        rc = -errno;
        free(h);
        return rc;
    }
    fi->fh = (uintptr_t)h;
    fi->direct_io = 1;
    return 0;
}

static int op_open(const char *path, struct fuse_file_info *fi)
{
    return op_open_any(path, 0, fi);
}

static int op_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    fi->flags |= O_CREAT;
    return op_open_any(path, mode, fi);
}

static int op_release(const char *path, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (h->fd >= 0)
        close(h->fd);
    free(h);
    return 0;
}

static int op_read(const char *path, char *out, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (h->fd < 0)
        return control_read(out, size, off);
    hang(READ_HANG, h->name);
    if (meets(READ_EIO, h->name))
        return -EIO;
    ssize_t n = pread(h->fd, out, size, off);
    if (n > 0 && meets(READ_FLIP, h->name))
        out[n / 2] ^= 1;
    return result((int)n);
}

static int op_write(const char *path, const char *data, size_t size, off_t off, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (h->fd < 0)
        return control_write(data, size);
    hang(WRITE_HANG, h->name);
    if (meets(READONLY, h->name))
        return -EROFS;
    if (meets(WRITE_EIO, h->name))
        return -EIO;
    if (meets(WRITE_ENOSPC, h->name))
        return -ENOSPC;
    return result((int)pwrite(h->fd, data, size, off));
}

static int op_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    if (is_control(path) || (fi && handle_of(fi)->fd < 0))
        return 0; /* a shell's > */
    if (meets(READONLY, fi ? handle_of(fi)->name : last_part(path)))
        return -EROFS;
    if (fi)
        return result(ftruncate(handle_of(fi)->fd, size));
    int fd = openat(self()->root, below(path), O_WRONLY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : result(ftruncate(fd, size));
    if (fd >= 0)
        close(fd);
    return rc;
}

static int op_fallocate(const char *path, int mode, off_t off, off_t len, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (meets(READONLY, h->name))
        return -EROFS;
    return meets(WRITE_ENOSPC, h->name) ? -ENOSPC : result(fallocate(h->fd, mode, off, len));
}

static int op_fsync(const char *path, int data_only, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    if (h->fd < 0)
        return 0;
    hang(WRITE_HANG, h->name);
    if (meets(WRITE_EIO, h->name))
        return -EIO;
    return result(data_only ? fdatasync(h->fd) : fsync(h->fd));
}

/* ---- names ---- */

static int op_getattr(const char *path, struct stat *out, struct fuse_file_info *fi)
{
    if (is_control(path) || (fi && handle_of(fi)->fd < 0)) {
        *out = (struct stat){.st_mode = S_IFREG | 0600, .st_nlink = 1};
        return 0;
    }
    if (fi)
        return result(fstat(handle_of(fi)->fd, out));
    return result(fstatat(self()->root, below(path), out, AT_SYMLINK_NOFOLLOW));
}

static int op_opendir(const char *path, struct fuse_file_info *fi)
{
    int fd = openat(self()->root, below(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    fi->fh = (uintptr_t)dir;
    return dir ? 0 : -errno;
}

static int op_readdir(const char *path, void *out, fuse_fill_dir_t fill, off_t off, struct fuse_file_info *fi,
                      enum fuse_readdir_flags flags)
{
    DIR *dir = (DIR *)(uintptr_t)fi->fh;
    rewinddir(dir);
    for (struct dirent *e; (e = readdir(dir));)
        fill(out, e->d_name, NULL, 0, 0);
    return 0;
}

static int op_releasedir(const char *path, struct fuse_file_info *fi)
{
    return result(closedir((DIR *)(uintptr_t)fi->fh));
}

static int op_unlink(const char *path)
{
    int rc = change(path);
    return rc ? rc : result(unlinkat(self()->root, below(path), 0));
}

static int op_rmdir(const char *path)
{
    int rc = change(path);
    return rc ? rc : result(unlinkat(self()->root, below(path), AT_REMOVEDIR));
}

static int op_mkdir(const char *path, mode_t mode)
{
    int rc = change(path);
    return rc ? rc : result(mkdirat(self()->root, below(path), mode));
}

static int op_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    int rc = change(path);
    return rc ? rc : result(fchmodat(self()->root, below(path), mode, 0));
}

static int op_fsyncdir(const char *path, int data_only, struct fuse_file_info *fi)
{
    return 0;
}

static int op_rename(const char *from, const char *to, unsigned flags)
{
    int rc = change(from);
    return rc ? rc : result(renameat2(self()->root, below(from), self()->root, below(to), flags));
}

static int op_statfs(const char *path, struct statvfs *out)
{
    return result(fstatvfs(self()->root, out));
}

static void *op_init(struct fuse_conn_info *conn, struct fuse_config *config)
{
    config->use_ino = 1;
    config->hard_remove = 1; /* an unlinked file lives on by its handle */
    config->nullpath_ok = 1;
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    conn->max_background = conn->congestion_threshold = WAITING_MAX; /* those that hang hold up nobody else */
    return self();
}

static const struct fuse_operations operations = {
    .init = op_init,
    .open = op_open,
    .create = op_create,
    .release = op_release,
    .read = op_read,
    .write = op_write,
    .truncate = op_truncate,
    .fallocate = op_fallocate,
    .fsync = op_fsync,
    .getattr = op_getattr,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .releasedir = op_releasedir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .mkdir = op_mkdir,
    .rename = op_rename,
    .chmod = op_chmod,
    .fsyncdir = op_fsyncdir,
    .statfs = op_statfs,
};

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: faultfs BACKING MOUNTPOINT\n");
        return 2;
    }
    struct faultfs fs = {.root = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (fs.root < 0) {
        fprintf(stderr, "faultfs: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    pthread_mutex_init(&fs.lock, NULL);
    pthread_cond_init(&fs.changed, NULL);
    char threads[96];
    snprintf(threads, sizeof threads, "fsname=faultfs,max_idle_threads=16,max_threads=%d",
             WAITING_MAX); /* one waits in each that hangs */
    char *args[] = {argv[0], "-f", "-o", threads, argv[2], NULL};
    return fuse_main(5, args, &operations, &fs);
}

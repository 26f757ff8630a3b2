/* A file's name is its state, so no record can contradict it: bytes are synced, then the file is renamed, then the
 * directory is synced. Whatever moment a crash or a kill chooses, a file under its final name is whole.
 *
 * Whether a file is in use is asked of the kernel, by a lease: a write lease is refused while anybody else has the file
 * open, and a mount of the file has. While this process holds the lease, a new opener waits in open(2), and finds a
 * file without a name afterwards. Breaking a lease sends a signal, by default a deadly one, so another is chosen. */
#include "cache/resident.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/safe_dir.h"
#include "cache/resident_internal.h"

enum { TRIES = 100, LEASE_TRIES = 5, STEP_US = 20000 };

static const char filling_suffix[] = ".filling", bad_suffix[] = ".bad";

/* ---- names ---- */

static void name_of(const struct resident_id *id, char out[NAME_MAX + 1])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, NAME_MAX + 1, "%s-%u", digest_hex(&id->content_root, hex), id->chunk_size);
}

/* Whether a name ends so: .bad and the number of its inode. */
static bool is_bad(const char *suffix)
{
    size_t len = strlen(bad_suffix);
    return !strncmp(suffix, bad_suffix, len) && suffix[len] == '.' && suffix[len + 1] &&
           !suffix[len + 1 + strspn(suffix + len + 1, "0123456789")];
}

/* false: no name of ours. The size is the file's. */
static bool parse_name(const char *name, struct resident_entry *out)
{
    char digits[16];
    uint64_t chunk_size;
    const char *from = name + DIGEST_HEX_SIZE;
    if (strlen(name) <= DIGEST_HEX_SIZE || name[DIGEST_HEX_SIZE - 1] != '-' ||
        digest_parse(name, DIGEST_HEX_SIZE - 1, &out->id.content_root))
        return false;
    size_t len = strspn(from, "0123456789");
    if (!len || len >= sizeof digits)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)len, from);
    chunk_size = strtoull(digits, NULL, 10);
    out->state = !from[len] ? RESIDENT_COMPLETE : !strcmp(from + len, filling_suffix) ? RESIDENT_FILLING : RESIDENT_BAD;
    out->id.chunk_size = (uint32_t)chunk_size;
    snprintf(out->name, sizeof out->name, "%s", name);
    return chunk_size && chunk_size <= UINT32_MAX && (out->state != RESIDENT_BAD || is_bad(from + len));
}

/* ---- files ---- */

int resident_check_place(const char *dir)
{
    struct statfs fs;
    static const long unfit[] = {TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC, FUSE_SUPER_MAGIC, NFS_SUPER_MAGIC};
    for (size_t i = 0; !statfs(dir, &fs) && i < GR_ARRAY_SIZE(unfit); i++)
        if ((long)fs.f_type == unfit[i])
            return error_set(
                -ENOTSUP,
                "%s is on a filesystem (tmpfs, overlay, FUSE or NFS) whose files the kernel does not mount; "
                "have the cache on ext4 or xfs",
                dir);
    return 0;
}

int resident_dir_open(const char *dir, bool make, char out_path[PATH_MAX], int *out_fd)
{
    if (snprintf(out_path, PATH_MAX, "%s/" RESIDENT_DIR, dir) >= PATH_MAX)
        return error_set(-ENAMETOOLONG, "the path of the cache directory %s is too long", dir);
    return safe_dir_open(out_path, make ? SAFE_DIR_MAKE : 0, out_fd);
}

/* Guard a file against an accidental write or removal, or take the guard away. Not every filesystem has it. */
static void set_immutable(int fd, bool on)
{
    int flags = 0;
    if (ioctl(fd, FS_IOC_GETFLAGS, &flags))
        return;
    flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

/* Take the lease; false: somebody else has the file open. It ends when fd is closed. */
static bool take_lease(int fd)
{
    return !fcntl(fd, F_SETSIG, SIGURG) && !fcntl(fd, F_SETLEASE, F_WRLCK);
}

/* Another process that only looks whether the file is in use has a lease on it for a moment. */
int resident_file_open(int dir_fd, const char *place, const char *name, int flags, int *out_fd)
{
    int rc;
    for (int tries = 0; (rc = safe_file_open(dir_fd, place, name, flags, out_fd)) == -EAGAIN && tries < TRIES; tries++)
        usleep(STEP_US);
    return rc;
}

bool resident_in_use(int fd)
{
    if (!take_lease(fd))
        return true;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
}

/* Whether the name still leads to the open file. */
static bool is_named(int dir_fd, const char *name, int fd)
{
    struct stat there, opened;
    return !fstatat(dir_fd, name, &there, AT_SYMLINK_NOFOLLOW) && !fstat(fd, &opened) &&
           there.st_ino == opened.st_ino && there.st_dev == opened.st_dev;
}

/* The inode's number keeps an earlier bad file, which may be mounted, from being replaced. */
int resident_rename_bad(int dir_fd, int fd, const char *name)
{
    char bad[2 * NAME_MAX];
    struct stat st;
    if (fstat(fd, &st))
        return -errno;
    snprintf(bad, sizeof bad, "%s%s.%llu", name, bad_suffix, (unsigned long long)st.st_ino);
    for (int tries = 0; is_named(dir_fd, name, fd); tries++) { /* else it is out of use already */
        set_immutable(fd, false);
        if (!renameat2(dir_fd, name, dir_fd, bad, RENAME_NOREPLACE))
            return fsync(dir_fd) ? -errno : 0;
        if (errno != EPERM || tries >= TRIES)
            return -errno;
        usleep(STEP_US); /* a mount that notes its time has set the flag again */
    }
    return 0;
}

/* Without the capability for the flag the time of writing cannot be set, while that of reading changes by itself, once
 * a day where atime is as usual. A mount's own reads keep it up to date. */
static void note_use(int fd)
{
    char byte;
    set_immutable(fd, false);
    if (futimens(fd, NULL))
        (void)!pread(fd, &byte, 1, 0);
    set_immutable(fd, true);
}

int resident_open(const char *dir, const struct resident_id *id, char out_path[PATH_MAX], int *out_fd)
{
    struct stat st;
    char name[NAME_MAX + 1], place[PATH_MAX];
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    name_of(id, name);
    int rc = resident_dir_open(dir, false, place, &dir_fd);
    if (!rc)
        rc = resident_file_open(dir_fd, place, name, O_RDONLY, &fd);
    if (rc)
        return rc;
    if (fstat(fd, &st))
        return error_set(-errno, "cannot look at %s/%s: %s", place, name, strerror(errno));
    if (snprintf(out_path, PATH_MAX, "%s/%s", place, name) >= PATH_MAX)
        return error_set(-ENAMETOOLONG, "%s/%s cannot be used: its path is too long", place, name);
    if ((uint64_t)st.st_size != id->size) {
        rc = resident_rename_bad(dir_fd, fd, name);
        return error_set(-EBADMSG, "%s does not have the size of its image%s", out_path,
                         rc ? "" : ", and is not used again");
    }
    note_use(fd);
    *out_fd = steal_fd(&fd);
    return 0;
}

/* ---- filling ---- */

/* The file's name until it is complete. */
static void filling_name(const struct resident_filling *f, char out[2 * NAME_MAX])
{
    snprintf(out, 2 * NAME_MAX, "%s%s", f->name, filling_suffix);
}

/* Open the file and lock it. A writer that was killed has left it with its bytes, of which nothing is known. */
static int lock_filling(struct resident_filling *f)
{
    char name[2 * NAME_MAX];
    filling_name(f, name);
    int rc = resident_file_open(f->dir_fd, f->dir, name, O_RDWR | O_CREAT, &f->fd);
    if (rc)
        return error_prefix(rc, "%s", f->dir);
    if (flock(f->fd, LOCK_EX | LOCK_NB) || !is_named(f->dir_fd, name, f->fd)) {
        close(steal_fd(&f->fd));
        return error_set(-EBUSY, "%s/%s is being written by another process", f->dir, name);
    }
    return 0;
}

int resident_begin(const char *dir, const struct resident_id *id, struct resident_filling *out)
{
    struct stat st;
    *out = (struct resident_filling)RESIDENT_FILLING_NONE;
    out->size = id->size;
    name_of(id, out->name);
    int rc = resident_dir_open(dir, true, out->dir, &out->dir_fd);
    if (rc)
        return rc;
    if (!fstatat(out->dir_fd, out->name, &st, AT_SYMLINK_NOFOLLOW))
        return error_set(-EEXIST, "%s/%s is complete already", out->dir, out->name);
    rc = lock_filling(out);
    if (!rc && (ftruncate(out->fd, 0) || ftruncate(out->fd, (off_t)id->size)))
        rc = error_set(-errno, "cannot make room for %s/%s: %s", out->dir, out->name, strerror(errno));
    return rc;
}

int resident_write(const struct resident_filling *f, uint64_t off, const void *data, size_t len)
{
    int rc = io_pwrite_full(f->fd, data, len, off);
    return rc ? error_set(rc, "cannot write %s/%s: %s", f->dir, f->name, strerror(-rc)) : 0;
}

int resident_finish(struct resident_filling *f)
{
    char name[2 * NAME_MAX];
    struct stat st;
    filling_name(f, name);
    if (!fstat(f->fd, &st) && (uint64_t)st.st_size != f->size)
        return error_set(-EIO, "%s/%s has another size than its image", f->dir, f->name);
    if (fchmod(f->fd, 0400) || fsync(f->fd) || renameat2(f->dir_fd, name, f->dir_fd, f->name, RENAME_NOREPLACE) ||
        fsync(f->dir_fd))
        return error_set(-errno, "cannot complete %s/%s: %s", f->dir, f->name, strerror(errno));
    set_immutable(f->fd, true);
    close(steal_fd(&f->fd));
    return 0;
}

void resident_release(struct resident_filling *f)
{
    char name[2 * NAME_MAX];
    filling_name(f, name);
    if (f->fd >= 0) {
        (void)unlinkat(f->dir_fd, name, 0);
        close(f->fd);
    }
    if (f->dir_fd >= 0)
        close(f->dir_fd);
    if (f->from >= 0)
        close(f->from);
    f->fd = f->dir_fd = f->from = -1;
}

/* ---- what is there ---- */

/* The pin is the file's sticky bit, which has no other meaning for a file, so no record can contradict it. */
static bool is_pinned(const struct resident_entry *e, const struct stat *st)
{
    return e->state == RESIDENT_COMPLETE && st->st_mode & S_ISVTX;
}

/* Look at a file. -EAGAIN, without a sentence: it is none of ours, or another user's. */
static int look(int dir_fd, const char *place, const char *name, struct resident_entry *out)
{
    struct stat st;
    CLEANUP_FD int fd = -1;
    if (!parse_name(name, out) || resident_file_open(dir_fd, place, name, O_RDONLY, &fd) || fstat(fd, &st))
        return -EAGAIN;
    out->id.size = (uint64_t)st.st_size;
    out->inode = st.st_ino;
    out->bytes = (uint64_t)st.st_blocks * 512;
    out->used_s = GR_MAX(st.st_mtime, st.st_atime);
    out->in_use = resident_in_use(fd);
    out->pinned = is_pinned(out, &st);
    return 0;
}

int resident_each(const char *dir, resident_visit *visit, void *arg)
{
    char place[PATH_MAX];
    CLEANUP_FD int fd = -1;
    int rc = resident_dir_open(dir, false, place, &fd);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    DIR *all = fdopendir(fd);
    if (!all)
        return error_set(-errno, "cannot list %s: %s", place, strerror(errno));
    (void)steal_fd(&fd); /* closedir closes it */
    for (struct dirent *e; !rc && (e = readdir(all));) {
        struct resident_entry entry;
        if (!look(dirfd(all), place, e->d_name, &entry))
            rc = visit(arg, &entry);
    }
    closedir(all);
    return rc;
}

uint64_t resident_bytes(const char *dir)
{
    char place[PATH_MAX];
    uint64_t sum = 0;
    struct stat st;
    if (snprintf(place, sizeof place, "%s/" RESIDENT_DIR, dir) >= PATH_MAX)
        return 0;
    int fd = open(place, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC); /* a time would be a write to a busy disk */
    DIR *all = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !all)
        close(fd);
    for (struct dirent *e; all && (e = readdir(all));)
        if (!fstatat(dirfd(all), e->d_name, &st, AT_SYMLINK_NOFOLLOW) && S_ISREG(st.st_mode))
            sum += (uint64_t)st.st_blocks * 512;
    if (all)
        closedir(all);
    return sum;
}

static int count_it(void *arg, const struct resident_entry *e)
{
    struct resident_counts *sums = arg;
    sums->complete += e->state == RESIDENT_COMPLETE;
    sums->bad += e->state == RESIDENT_BAD;
    sums->in_use += e->state != RESIDENT_FILLING && e->in_use;
    sums->pinned += e->pinned;
    return 0;
}

struct resident_counts resident_count(const char *dir)
{
    struct resident_counts sums = {0};
    (void)!resident_each(dir, count_it, &sums);
    return sums;
}

/* ---- removing and pinning ---- */

/* Open a file by its name. out: what the name says. */
static int open_named(const char *dir, const char *name, char place[PATH_MAX], int *out_dir_fd, int *out_fd,
                      struct resident_entry *out)
{
    if (!parse_name(name, out))
        return error_set(-EINVAL, "'%s' is not the name of a resident image", name);
    int rc = resident_dir_open(dir, false, place, out_dir_fd);
    if (!rc)
        rc = resident_file_open(*out_dir_fd, place, name, O_RDONLY, out_fd);
    return rc == -ENOENT ? error_set(rc, "%s has no resident image %s", dir, name) : rc;
}

int resident_pin(const char *dir, const char *name, bool on)
{
    struct resident_entry e;
    char place[PATH_MAX];
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    int rc = open_named(dir, name, place, &dir_fd, &fd, &e);
    if (rc)
        return rc;
    if (e.state != RESIDENT_COMPLETE)
        return error_set(-EINVAL, "%s/%s is not complete: only what can be mounted is pinned", place, name);
    set_immutable(fd, false);
    rc = fchmod(fd, on ? S_ISVTX | 0400 : 0400) || fsync(fd) ? -errno : 0;
    set_immutable(fd, true);
    return rc ? error_set(rc, "cannot %s %s/%s: %s", on ? "pin" : "unpin", place, name, strerror(-rc)) : 0;
}

/* Take the lease, though others may have it for a moment each, to see whether the file is in use. */
static bool take_lease_of_free(int fd)
{
    bool taken = take_lease(fd);
    for (unsigned tries = 1; !taken && tries < LEASE_TRIES; tries++) {
        usleep(STEP_US);
        taken = take_lease(fd);
    }
    return taken;
}

/* Nobody can pin the file while this process has the lease. */
int resident_evict(const char *dir, const char *name)
{
    struct resident_entry e;
    struct stat st;
    char place[PATH_MAX];
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    int rc = open_named(dir, name, place, &dir_fd, &fd, &e);
    if (rc)
        return rc;
    if (flock(fd, LOCK_EX | LOCK_NB) || !take_lease_of_free(fd) || !is_named(dir_fd, name, fd))
        return error_set(-EBUSY, "%s/%s is in use: it is mounted, being checked or being written", place, name);
    if (fstat(fd, &st))
        return error_set(-errno, "cannot look at %s/%s: %s", place, name, strerror(errno));
    if (is_pinned(&e, &st))
        return error_set(-EBUSY, "%s/%s is pinned; 'granary cache resident DIR --unpin ROOT' ends that", place, name);
    set_immutable(fd, false);
    if (unlinkat(dir_fd, name, 0))
        return error_set(-errno, "cannot remove %s/%s: %s", place, name, strerror(errno));
    return 0;
}

/* The sum of all files, and the next to go. */
struct oldest {
    const struct digest *but;
    uint64_t sum;
    struct resident_entry entry; /* name "": none can go */
};

/* What is of no use goes before what can be mounted. */
static bool goes_before(const struct resident_entry *a, const struct resident_entry *b)
{
    bool useless = a->state != RESIDENT_COMPLETE, other_useless = b->state != RESIDENT_COMPLETE;
    return useless != other_useless ? useless : a->used_s < b->used_s;
}

static int find_oldest(void *arg, const struct resident_entry *e)
{
    struct oldest *o = arg;
    bool stays = e->in_use || e->pinned || (e->state == RESIDENT_COMPLETE && digest_equal(&e->id.content_root, o->but));
    o->sum += e->bytes;
    if (!stays && (!*o->entry.name || goes_before(e, &o->entry)))
        o->entry = *e;
    return 0;
}

int resident_make_room(const char *dir, uint64_t most, const struct digest *but, uint64_t *out_left)
{
    for (;;) {
        struct oldest o = {.but = but};
        int rc = resident_each(dir, find_oldest, &o);
        *out_left = o.sum;
        if (rc || o.sum <= most || !*o.entry.name)
            return rc;
        rc = resident_evict(dir, o.entry.name);
        if (rc && rc != -EBUSY && rc != -ENOENT) /* mounted, pinned or gone since: look again */
            return rc;
    }
}

static int remove_torn(void *arg, const struct resident_entry *e)
{
    if (e->state == RESIDENT_FILLING && !e->in_use)
        (void)!resident_evict(arg, e->name); /* else the next image that needs the room removes it */
    return 0;
}

void resident_sweep(const char *dir)
{
    (void)!resident_each(dir, remove_torn, (void *)dir);
}

/* Writes and removes objects of a directory.
 *
 * A put writes a temporary file in .granary-tmp/ (same filesystem, never listed), syncs it and moves it into place, so
 * that a reader, or a crash, sees the old object, the new one or none:
 *
 *   ALWAYS     rename(2)
 *   IF_ABSENT  link(2), which refuses an existing name atomically
 *   IF_MATCH   compare and rename under an exclusive flock(2) on .granary-tmp/lock; ALWAYS and remove hold the
 *              same lock shared, so that nothing changes between compare and rename
 *
 * The lock file is opened for each operation, because a flock belongs to an open file, not to a thread. A version is
 * the SHA-256 of the contents. After the rename the directory is synced, so that a put which returned survives a power
 * failure.
 *
 * The first put makes the store's directory, but not its parent: a missing parent is a typing error or a filesystem
 * that is not mounted. Files left in .granary-tmp/ by a crash are removed by a later process's first put once they are
 * a day old. */
#include "store/backend/store_file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

/* Older than any put that may still be running. */
enum { TMP_AGE_MAX_S = 24 * 3600 };

/* Sync a directory, and so the names in it. 0 or -errno without a sentence. */
static int sync_dir(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) ? -errno : 0;
}

/* Make one directory and sync its name in the parent. 0, also if it exists, or -errno without a sentence. */
static int make_dir(char *dir)
{
    if (mkdir(dir, 0755))
        return errno == EEXIST ? 0 : -errno;
    char *slash = strrchr(dir, '/');
    if (slash == dir)
        return sync_dir("/");
    *slash = 0;
    int rc = sync_dir(dir);
    *slash = '/';
    return rc;
}

/* Make dir, a path at or below the root that may be modified meanwhile, and the missing directories between it and the
 * root. 0 or -errno without a sentence. */
static int make_dirs(const struct store_file *f, char *dir)
{
    int rc = make_dir(dir);
    if (rc != -ENOENT || strlen(dir) <= strlen(f->root))
        return rc;
    char *slash = strrchr(dir, '/');
    *slash = 0;
    rc = make_dirs(f, dir);
    *slash = '/';
    return rc ? rc : make_dir(dir);
}

/* Make the directory of a path. */
static int make_parent(const struct store_file *f, const char *key, const char *path)
{
    CLEANUP_FREE char *dir = strdup(path);
    if (!dir)
        return error_no_memory();
    *strrchr(dir, '/') = 0;
    int rc = make_dirs(f, dir);
    if (rc == -ENOENT)
        return error_set(rc, "store %s: the directory it should be made in does not exist; make it first or mount it",
                         f->base.url);
    return rc ? store_file_fail(f, "make the directory of", key, -rc) : 0;
}

/* Remove temporary files of processes that were killed. Failures are ignored: a later process tries again. */
static void sweep_temporary(struct store_file *f, const char *tmp_dir)
{
    if (atomic_exchange(&f->swept, true))
        return;
    DIR *d = opendir(tmp_dir);
    if (!d)
        return;
    time_t oldest = time(NULL) - TMP_AGE_MAX_S;
    struct dirent *e;
    struct stat st;
    while ((e = readdir(d)))
        if (strncmp(e->d_name, "put-", 4) == 0 && !fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) &&
            st.st_mtim.tv_sec < oldest)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
}

/* Write the data in pieces, as the rate allows. 0 or -errno; only -EAGAIN comes with a sentence. */
static int write_pieces(const struct store_file *f, int fd, const struct store_put *put)
{
    int rc = 0;
    size_t n;
    for (size_t done = 0; !rc && done < put->len; done += n) {
        n = GR_MIN(put->len - done, (size_t)STORE_FILE_PIECE);
        rc = io_write_full(fd, (const uint8_t *)put->data + done, n);
        if (!rc)
            rc = store_file_pay(f, n);
    }
    return rc;
}

/* Write the data to a new, synced file in STORE_FILE_TMP_DIR. The caller moves or unlinks *out_path, and frees it. */
static int store_file_write_temporary(struct store_file *f, const struct store_put *put, char **out_path)
{
    CLEANUP_FREE char *path = store_file_path(f, STORE_FILE_TMP_DIR "/put-XXXXXX");
    if (!path)
        return -ENOMEM;
    int rc = make_parent(f, put->key, path);
    if (rc)
        return rc;
    CLEANUP_FREE char *dir = store_file_path(f, STORE_FILE_TMP_DIR);
    if (dir)
        sweep_temporary(f, dir);
    CLEANUP_FD int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return store_file_fail(f, "write", put->key, errno);
    rc = write_pieces(f, fd, put);
    if (!rc && (fchmod(fd, 0644) || fsync(fd)))
        rc = -errno;
    if (rc) {
        unlink(path);
        return rc == -EAGAIN ? rc : store_file_fail(f, "write", put->key, -rc);
    }
    *out_path = steal_ptr(&path);
    return 0;
}

/* Take the store's lock; closing *out_fd releases it. */
static int lock(const struct store_file *f, int how, const char *key, int *out_fd)
{
    CLEANUP_FREE char *path = store_file_path(f, STORE_FILE_TMP_DIR "/lock");
    if (!path)
        return -ENOMEM;
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 && errno == ELOOP)
        return error_set(-EPERM, "store %s: %s is a symbolic link; remove it", f->base.url, path);
    if (fd < 0)
        return store_file_fail(f, "lock", key, errno);
    while (flock(fd, how))
        if (errno != EINTR)
            return store_file_fail(f, "lock", key, errno);
    *out_fd = steal_fd(&fd);
    return 0;
}

/* The sentence for a condition that did not hold. */
static int changed(const struct store_file *f, const struct store_put *put)
{
    if (put->mode == STORE_PUT_IF_ABSENT)
        return error_set(-EEXIST, "store %s: %s exists already", f->base.url, put->key);
    return error_set(-EEXIST, "store %s: %s was changed or removed by somebody else", f->base.url, put->key);
}

/* Check a put's version against the object's, under the exclusive lock. -EEXIST: another, or none. */
static int version_matches(struct store_file *f, const struct store_put *put)
{
    enum { MUTABLE_MAX = 16 << 20 }; /* tags and leases are far smaller */
    CLEANUP_BYTES now = BYTES_INIT(MUTABLE_MAX);
    char version[STORE_VERSION_MAX];
    int rc = store_file_get_small(&f->base, put->key, &now, version);
    if (rc == -ENOENT)
        return changed(f, put);
    if (rc)
        return rc;
    return strcmp(version, put->version) ? changed(f, put) : 0;
}

/* Move a file unless the target exists, by link(2), or by renameat2(2) on a filesystem without hard links. */
static int move_if_absent(const char *from, const char *to)
{
    if (link(from, to) == 0) {
        unlink(from);
        return 0;
    }
    if (errno != EPERM && errno != EOPNOTSUPP)
        return -errno;
    return renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) ? -errno : 0;
}

/* Move the temporary file to its key, as the put's mode demands. */
static int move_into_place(struct store_file *f, const struct store_put *put, const char *from, const char *to)
{
    if (put->mode == STORE_PUT_IF_ABSENT) {
        int rc = move_if_absent(from, to);
        return rc == -EEXIST ? changed(f, put) : rc ? store_file_fail(f, "write", put->key, -rc) : 0;
    }
    CLEANUP_FD int held = -1;
    bool conditional = put->mode == STORE_PUT_IF_MATCH;
    int rc = lock(f, conditional ? LOCK_EX : LOCK_SH, put->key, &held);
    if (!rc && conditional)
        rc = version_matches(f, put);
    if (rc)
        return rc;
    return rename(from, to) ? store_file_fail(f, "write", put->key, errno) : 0;
}

int store_file_put(struct store *s, const struct store_put *put)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FREE char *path = NULL, *temporary = NULL;
    int rc = store_file_locate(f, put->key, &path);
    if (rc)
        return rc;
    /* only saves writing a pack that is there; move_into_place decides */
    if (put->mode == STORE_PUT_IF_ABSENT && access(path, F_OK) == 0)
        return changed(f, put);
    rc = store_file_write_temporary(f, put, &temporary);
    if (rc)
        return rc;
    /* Only now, so that a failed write leaves no empty directory. */
    rc = make_parent(f, put->key, path);
    if (!rc)
        rc = move_into_place(f, put, temporary, path);
    if (rc) {
        unlink(temporary);
        return rc;
    }
    *strrchr(path, '/') = 0;
    rc = sync_dir(path);
    return rc ? store_file_fail(f, "write", put->key, -rc) : 0;
}

int store_file_remove(struct store *s, const char *key)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FREE char *path = NULL;
    CLEANUP_FD int held = -1;
    int rc = store_file_locate(f, key, &path);
    if (rc)
        return rc;
    /* Without this, removing from a store that does not exist would fail to take the lock. */
    if (access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    rc = lock(f, LOCK_SH, key, &held);
    if (rc)
        return rc;
    return unlink(path) && errno != ENOENT ? store_file_fail(f, "remove", key, errno) : 0;
}

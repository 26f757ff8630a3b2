/* A store in a directory: a key is a path below it.
 *
 * Put writes a temporary file in .granary-tmp/ (same filesystem, never listed), syncs it and moves
 * it into place, so that a reader and a crash see the old object, the new one or none:
 *   ALWAYS     rename(2)
 *   IF_ABSENT  link(2), which refuses an existing name whoever made it
 *   IF_MATCH   compare and rename under an exclusive flock(2) on .granary-tmp/lock; ALWAYS and
 *              remove hold the same lock shared, so that nothing slips between compare and rename
 * The lock is opened for each operation: a flock belongs to an open file, not to a thread. A version
 * is the SHA-256 of the contents.
 *
 * The directory itself is made by the first put, but not its parent: a missing parent is a typing
 * error or a filesystem that is not mounted. What a crash leaves in .granary-tmp/ is removed by a
 * later put's process once it is a day old.
 */
#include "store/store_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

enum { PIECE = 256 << 10, LIST_DEPTH_MAX = 32, TMP_AGE_MAX_S = 24 * 3600 };

#define TMP_DIR ".granary-tmp"

struct store_file {
    struct store base;
    char *root;
    _Atomic bool swept; /* TMP_DIR was looked through */
};

static struct store_file *file_of(struct store *s)
{
    return (struct store_file *)s;
}

/* One sentence for a system call that failed on a key: what was tried, why it failed, what helps. */
static int fail(const struct store_file *f, const char *doing, const char *key, int err)
{
    const char *url = f->base.url;
    switch (err) {
    case ENOSPC:
    case EDQUOT:
        return error_set(-ENOSPC, "store %s: cannot %s %s: %s; free some space there or use another store", url, doing,
                         key, strerror(err));
    case EROFS:
    case EACCES:
    case EPERM:
        return error_set(-EACCES, "store %s: cannot %s %s: %s; check the directory's owner, mode and mount options",
                         url, doing, key, strerror(err));
    case ENOENT:
    case ENOTDIR:
        if (access(f->root, F_OK))
            return error_set(-ENOENT, "store %s: there is no such directory", url);
        return error_set(-ENOENT, "store %s: %s is not there", url, key);
    case ESTALE:
    case EMFILE:
    case ENFILE:
        return error_set(-EAGAIN, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    default:
        return error_set(-err, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    }
}

static char *path_of(const struct store_file *f, const char *key)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", f->root, key) < 0) {
        (void)error_set(-ENOMEM, "out of memory in store %s", f->base.url);
        return NULL;
    }
    return path;
}

/* Check the key and make its path. */
static int locate(const struct store_file *f, const char *key, char **out_path)
{
    int rc = store_key_check(&f->base, key);
    if (rc)
        return rc;
    if (strncmp(key, TMP_DIR, strlen(TMP_DIR)) == 0)
        return error_set(-EINVAL, "store %s: keys that begin with " TMP_DIR " are the store's own", f->base.url);
    *out_path = path_of(f, key);
    return *out_path ? 0 : -ENOMEM;
}

static int open_object(const struct store_file *f, const char *key, int *out_fd, struct stat *st)
{
    CLEANUP_FREE char *path = NULL;
    int rc = locate(f, key, &path);
    if (rc)
        return rc;
    /* O_NONBLOCK: a fifo in our way must not stop us */
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, st))
        return fail(f, "read", key, errno);
    if (!S_ISREG(st->st_mode))
        return fail(f, "read", key, ENOENT); /* "packs" is a directory, not an object */
    *out_fd = steal_fd(&fd);
    return 0;
}

static int file_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct store_file *f = file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st;
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    uint64_t size = (uint64_t)st.st_size;
    if (off > size || len > size - off)
        return error_set(-EBADMSG, "store %s: %s has %llu bytes, %llu at %llu were asked for: it is damaged", s->url,
                         key, (unsigned long long)size, (unsigned long long)len, (unsigned long long)off);
    CLEANUP_FREE void *piece = malloc(GR_MAX((size_t)GR_MIN(len, (uint64_t)PIECE), (size_t)1));
    if (!piece)
        return error_set(-ENOMEM, "out of memory in store %s", s->url);
    for (uint64_t done = 0; done < len;) {
        size_t want = (size_t)GR_MIN(len - done, (uint64_t)PIECE);
        ssize_t n = io_pread_full(fd, piece, want, off + done);
        if (n < 0)
            return fail(f, "read", key, (int)-n);
        if ((size_t)n < want)
            return error_set(-EBADMSG, "store %s: %s became shorter while it was read", s->url, key);
        rc = sink(arg, piece, want);
        if (rc)
            return rc;
        done += want;
    }
    return 0;
}

static void version_of(const void *data, size_t len, char version[STORE_VERSION_MAX])
{
    struct digest d = digest_of(data, len);
    digest_hex(&d, version);
}

static int file_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct store_file *f = file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st;
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    if (out->len > out->max || (uint64_t)st.st_size > out->max - out->len)
        return error_set(-EMSGSIZE, "store %s: %s has %lld bytes, more than the %zu it may have", s->url, key,
                         (long long)st.st_size, out->max);
    size_t before = out->len, size = (size_t)st.st_size;
    uint8_t *into = NULL;
    rc = bytes_extend(out, size, &into);
    if (rc)
        return rc;
    ssize_t n = io_pread_full(fd, into, size, 0);
    out->len = n < 0 ? before : before + (size_t)n;
    if (n < 0)
        return fail(f, "read", key, (int)-n);
    if (version)
        version_of(into, (size_t)n, version);
    return 0;
}

static int file_stat(struct store *s, const char *key, struct store_item *out)
{
    struct store_file *f = file_of(s);
    CLEANUP_FREE char *path = NULL;
    int rc = locate(f, key, &path);
    if (rc)
        return rc;
    struct stat st;
    if (stat(path, &st))
        return fail(f, "look at", key, errno);
    if (!S_ISREG(st.st_mode))
        return fail(f, "look at", key, ENOENT);
    *out = (struct store_item){.key = key, .size = (uint64_t)st.st_size, .mtime = st.st_mtim.tv_sec};
    return 0;
}

static int sync_dir(const char *path)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) ? -errno : 0;
}

/* Make one directory, and its name last. 0 or -errno without a sentence. */
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

/* Make dir (an owned path at or below the root) and what is missing between it and the root. 0 or -errno without a
 * sentence. */
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

static int make_parent(const struct store_file *f, const char *key, const char *path)
{
    CLEANUP_FREE char *dir = strdup(path);
    if (!dir)
        return error_set(-ENOMEM, "out of memory in store %s", f->base.url);
    *strrchr(dir, '/') = 0;
    int rc = make_dirs(f, dir);
    if (rc == -ENOENT)
        return error_set(rc, "store %s: the directory it should be made in does not exist; make it first or mount it",
                         f->base.url);
    return rc ? fail(f, "make the directory of", key, -rc) : 0;
}

/* Temporary files of processes that were killed. Their removal is nobody's duty: failures are
 * ignored. */
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

/* Write data to a new synced file in TMP_DIR; *out_path is the caller's to move or unlink, and
 * free. */
static int write_temporary(struct store_file *f, const struct store_put *put, char **out_path)
{
    CLEANUP_FREE char *path = path_of(f, TMP_DIR "/put-XXXXXX");
    if (!path)
        return -ENOMEM;
    int rc = make_parent(f, put->key, path);
    if (rc)
        return rc;
    CLEANUP_FREE char *dir = path_of(f, TMP_DIR);
    if (dir)
        sweep_temporary(f, dir);
    CLEANUP_FD int fd = mkostemp(path, O_CLOEXEC);
    if (fd < 0)
        return fail(f, "write", put->key, errno);
    rc = io_write_full(fd, put->data, put->len);
    if (!rc && (fchmod(fd, 0644) || fsync(fd)))
        rc = -errno;
    if (rc) {
        unlink(path);
        return fail(f, "write", put->key, -rc);
    }
    *out_path = steal_ptr(&path);
    return 0;
}

/* Take the store's lock; *out_fd: close it to unlock. */
static int lock(const struct store_file *f, int how, const char *key, int *out_fd)
{
    CLEANUP_FREE char *path = path_of(f, TMP_DIR "/lock");
    if (!path)
        return -ENOMEM;
    CLEANUP_FD int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail(f, "lock", key, errno);
    while (flock(fd, how))
        if (errno != EINTR)
            return fail(f, "lock", key, errno);
    *out_fd = steal_fd(&fd);
    return 0;
}

static int changed(const struct store_file *f, const struct store_put *put)
{
    if (put->mode == STORE_PUT_IF_ABSENT)
        return error_set(-EEXIST, "store %s: %s exists already", f->base.url, put->key);
    return error_set(-EEXIST, "store %s: %s was changed or removed by somebody else", f->base.url, put->key);
}

static int version_matches(struct store_file *f, const struct store_put *put)
{
    enum { MUTABLE_MAX = 16 << 20 }; /* tags and leases are far smaller */
    CLEANUP_BYTES now = BYTES_INIT(MUTABLE_MAX);
    char version[STORE_VERSION_MAX];
    int rc = file_get_small(&f->base, put->key, &now, version);
    if (rc == -ENOENT)
        return changed(f, put);
    if (rc)
        return rc;
    return strcmp(version, put->version) ? changed(f, put) : 0;
}

/* link(2), or its like where the filesystem knows no hard links. */
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

static int move_into_place(struct store_file *f, const struct store_put *put, const char *from, const char *to)
{
    if (put->mode == STORE_PUT_IF_ABSENT) {
        int rc = move_if_absent(from, to);
        return rc == -EEXIST ? changed(f, put) : rc ? fail(f, "write", put->key, -rc) : 0;
    }
    CLEANUP_FD int held = -1;
    bool conditional = put->mode == STORE_PUT_IF_MATCH;
    int rc = lock(f, conditional ? LOCK_EX : LOCK_SH, put->key, &held);
    if (!rc && conditional)
        rc = version_matches(f, put);
    if (rc)
        return rc;
    return rename(from, to) ? fail(f, "write", put->key, errno) : 0;
}

static int file_put(struct store *s, const struct store_put *put)
{
    struct store_file *f = file_of(s);
    CLEANUP_FREE char *path = NULL, *temporary = NULL;
    int rc = locate(f, put->key, &path);
    if (rc)
        return rc;
    /* spares the writing of a pack that is there; move_into_place decides */
    if (put->mode == STORE_PUT_IF_ABSENT && access(path, F_OK) == 0)
        return changed(f, put);
    rc = write_temporary(f, put, &temporary);
    if (rc)
        return rc;
    rc = make_parent(f, put->key, path);
    if (!rc)
        rc = move_into_place(f, put, temporary, path);
    if (rc) {
        unlink(temporary);
        return rc;
    }
    *strrchr(path, '/') = 0;
    rc = sync_dir(path);
    return rc ? fail(f, "write", put->key, -rc) : 0;
}

static int file_remove(struct store *s, const char *key)
{
    struct store_file *f = file_of(s);
    CLEANUP_FREE char *path = NULL;
    CLEANUP_FD int held = -1;
    int rc = locate(f, key, &path);
    if (rc)
        return rc;
    if (access(path, F_OK) && (errno == ENOENT || errno == ENOTDIR))
        return 0;
    rc = lock(f, LOCK_SH, key, &held);
    if (rc)
        return rc;
    return unlink(path) && errno != ENOENT ? fail(f, "remove", key, errno) : 0;
}

/* A listing: the key under construction and whom to tell. */
struct walk {
    struct store_file *f;
    const char *prefix;
    store_visit *visit;
    void *arg;
    char key[STORE_KEY_MAX + 1];
    unsigned depth;
};

/* Whether keys below w->key can begin with the prefix, or this key itself does. */
static bool on_the_way(const struct walk *w, size_t key_len)
{
    return strncmp(w->key, w->prefix, GR_MIN(key_len, strlen(w->prefix))) == 0;
}

static int walk_dir(struct walk *w, int parent, const char *name, size_t key_len);

static int walk_entry(struct walk *w, int dir, const char *name, size_t key_len)
{
    int n = snprintf(w->key + key_len, sizeof w->key - key_len, "%s%s", key_len ? "/" : "", name);
    size_t len = key_len + (size_t)n;
    if (len >= sizeof w->key || !on_the_way(w, len))
        return 0; /* a name that long was not made by a put */
    struct stat st;
    if (fstatat(dir, name, &st, 0))
        return errno == ENOENT ? 0 : fail(w->f, "list", w->key, errno);
    if (S_ISDIR(st.st_mode))
        return walk_dir(w, dir, name, len);
    if (!S_ISREG(st.st_mode) || len < strlen(w->prefix))
        return 0;
    struct store_item item = {.key = w->key, .size = (uint64_t)st.st_size, .mtime = st.st_mtim.tv_sec};
    return w->visit(w->arg, &item);
}

static int walk_dir(struct walk *w, int parent, const char *name, size_t key_len)
{
    if (w->depth >= LIST_DEPTH_MAX)
        return error_set(-ELOOP, "store %s: directories below %.200s are nested too deeply", w->f->base.url, w->key);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT && key_len ? 0 : fail(w->f, "list", key_len ? w->key : "it", errno);
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return error_set(-ENOMEM, "out of memory in store %s", w->f->base.url);
    }
    w->depth++;
    int rc = 0;
    struct dirent *e;
    while (!rc && (errno = 0, e = readdir(d))) {
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, TMP_DIR))
            rc = walk_entry(w, fd, e->d_name, key_len);
        w->key[key_len] = 0;
    }
    if (!e && !rc && errno)
        rc = fail(w->f, "list", w->key, errno);
    w->depth--;
    closedir(d);
    return rc;
}

static int file_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct walk w = {.f = file_of(s), .prefix = prefix, .visit = visit, .arg = arg};
    int rc = store_prefix_check(s, prefix);
    return rc ? rc : walk_dir(&w, AT_FDCWD, w.f->root, 0);
}

static int file_probe_conditional(struct store *s, bool *out)
{
    *out = true;
    return 0;
}

static void file_close(struct store *s)
{
    struct store_file *f = file_of(s);
    free(f->root);
    free((char *)f->base.url);
    free(f);
}

static struct store_file *new_store(const char *root)
{
    static const struct store_ops ops = {
        .get = file_get,
        .get_small = file_get_small,
        .put = file_put,
        .stat = file_stat,
        .list = file_list,
        .remove = file_remove,
        .probe_conditional = file_probe_conditional,
        .close = file_close,
    };
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/')
        len--;
    struct store_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->base.ops = &ops;
    f->root = strndup(root, len);
    char *url = NULL;
    if (f->root && asprintf(&url, "file://%s", f->root) >= 0) {
        f->base.url = url;
        return f;
    }
    free(f->root);
    free(f);
    return NULL;
}

int store_file_open(const char *url, struct store **out)
{
    const char *root = strncmp(url, "file://", 7) == 0 ? url + 7 : url;
    if (root[0] != '/')
        return error_set(-EINVAL, "store %s: the directory must be absolute, as in file:///srv/store", url);
    struct stat st;
    if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
        return error_set(-EINVAL, "store %s: this is not a directory", url);
    struct store_file *f = new_store(root);
    if (!f)
        return error_set(-ENOMEM, "out of memory while opening store %s", url);
    *out = &f->base;
    return 0;
}

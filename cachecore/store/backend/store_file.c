/* A store in a directory: a key is a path below it, an object a regular file.
 *
 * A put writes a temporary file in .granary-tmp/ (same filesystem, never listed), syncs it and moves it into place, so
 * that a reader, or a crash, sees the old object, the new one or none, and a file that is open never changes under its
 * reader:
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
 * a day old.
 *
 * A listing walks the tree depth first and enters only directories that can hold the prefix. It has no order, so there
 * is no list_after, and store_retry does not resume a listing that fails after its first key. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
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
#include "base/pages.h"
#include "base/text.h"
#include "store/store_internal.h"

/* Where objects are written before they are moved into place. */
#define TMP_DIR ".granary-tmp"

enum {
    PIECE = 128 << 10,         /* bytes between two payments to the rate */
    LIST_DEPTH_MAX = 32,       /* bounds a listing's recursion and descriptors; keys have two slashes at most */
    TMP_AGE_MAX_S = 24 * 3600, /* older than any put that may still be running */
};

/* A store in a directory. Constant after opening, except swept, so any thread may use it. */
struct store_file {
    struct store base;
    char *root;                 /* absolute path, without a final slash */
    struct rate *rate;          /* NULL: no limit */
    const volatile int *cancel; /* interrupts waiting for the rate; may be NULL */
    _Atomic bool swept;         /* this process has removed old files from TMP_DIR */
};

static struct store_file *store_file_of(struct store *s)
{
    return (struct store_file *)s;
}

/* Set the sentence for a system call that failed on a key: what was tried, why it failed (err, an errno), what helps.
 * Return the -errno of store.h that fits: -EACCES, -ENOSPC, -ENOENT, -EAGAIN for stale handles and a lack of
 * descriptors, otherwise -err. */
static int store_file_fail(const struct store_file *f, const char *doing, const char *key, int err)
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
    /* ESTALE: NFS, the file was replaced on the server; opening it again helps. The others pass, too. */
    case ESTALE:
    case EMFILE:
    case ENFILE:
        return error_set(-EAGAIN, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    default:
        return error_set(-err, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    }
}

/* Wait as the rate demands for n bytes read or written. -EAGAIN: interrupted. */
static int store_file_pay(const struct store_file *f, uint64_t n)
{
    return rate_take(f->rate, n, f->cancel) ? 0 : error_set(-EAGAIN, "store %s: interrupted", f->base.url);
}

/* Return the path of a key or of one of the store's own files, for the caller to free; NULL: out of memory, with a
 * sentence. */
static char *store_file_path(const struct store_file *f, const char *key)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", f->root, key) < 0) {
        (void)error_no_memory();
        return NULL;
    }
    return path;
}

/* The same for a caller's key. -EINVAL: the key is reserved for the store's own files; -ENOMEM. */
static int store_file_locate(const struct store_file *f, const char *key, char **out_path)
{
    if (strncmp(key, TMP_DIR, strlen(TMP_DIR)) == 0)
        return error_set(-EINVAL, "store %s: keys that begin with " TMP_DIR " are the store's own", f->base.url);
    *out_path = store_file_path(f, key);
    return *out_path ? 0 : -ENOMEM;
}

/* ---- reading ---- */

/* Open the file of a key. -ENOENT if it is not a regular file. */
static int open_object(const struct store_file *f, const char *key, int *out_fd, struct stat *st)
{
    CLEANUP_FREE char *path = NULL;
    int rc = store_file_locate(f, key, &path);
    if (rc)
        return rc;
    /* O_NONBLOCK: opening a fifo must not block */
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, st))
        return store_file_fail(f, "read", key, errno);
    if (!S_ISREG(st->st_mode))
        return store_file_fail(f, "read", key, ENOENT); /* "packs" is a directory, not an object */
    *out_fd = steal_fd(&fd);
    return 0;
}

static int file_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st = {0};
    store_note_try(s, context);
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    uint64_t size = (uint64_t)st.st_size;
    if (off > size || len > size - off)
        return error_set(-EBADMSG, "store %s: %s has %llu bytes, %llu at %llu were asked for: it is damaged", s->url,
                         key, (unsigned long long)size, (unsigned long long)len, (unsigned long long)off);
    /* Pieces instead of one buffer, because a get may cover a whole pack. */
    CLEANUP_PAGES piece = {.len = (size_t)GR_MIN(len, (uint64_t)PIECE)};
    piece.data = pages_get(piece.len);
    if (!piece.data)
        return error_no_memory();
    for (uint64_t done = 0; done < len;) {
        size_t want = (size_t)GR_MIN(len - done, (uint64_t)PIECE);
        ssize_t n = io_pread_full(fd, piece.data, want, off + done);
        if (n < 0)
            return store_file_fail(f, "read", key, (int)-n);
        if ((size_t)n < want)
            return error_set(-EBADMSG, "store %s: %s became shorter while it was read", s->url, key);
        rc = store_file_pay(f, want);
        if (!rc)
            rc = sink(arg, piece.data, want);
        if (rc)
            return rc;
        done += want;
    }
    return 0;
}

static int file_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st = {0};
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    if (out->len > out->max || (uint64_t)st.st_size > out->max - out->len)
        return -EMSGSIZE;
    size_t before = out->len, size = (size_t)st.st_size;
    uint8_t *into = NULL;
    rc = bytes_extend(out, size, &into);
    if (rc)
        return rc;
    /* Fewer bytes, if another program truncated the file, are left to the caller's decoder. */
    ssize_t n = io_pread_full(fd, into, size, 0);
    if (n < 0)
        return store_file_fail(f, "read", key, (int)-n);
    out->len = before + (size_t)n;
    if (version) { /* the SHA-256 of the contents, in hex */
        struct digest d = digest_of(into, (size_t)n);
        digest_hex(&d, version);
    }
    return store_file_pay(f, (uint64_t)n);
}

static int file_stat(struct store *s, const char *key, struct store_item *out)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FREE char *path = NULL;
    int rc = store_file_locate(f, key, &path);
    if (rc)
        return rc;
    struct stat st;
    if (stat(path, &st))
        return store_file_fail(f, "look at", key, errno);
    if (!S_ISREG(st.st_mode))
        return store_file_fail(f, "look at", key, ENOENT);
    *out = (struct store_item){.key = key, .size = (uint64_t)st.st_size, .mtime = st.st_mtim.tv_sec};
    return 0;
}

/* ---- writing ---- */

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
        n = GR_MIN(put->len - done, (size_t)PIECE);
        rc = io_write_full(fd, (const uint8_t *)put->data + done, n);
        if (!rc)
            rc = store_file_pay(f, n);
    }
    return rc;
}

/* Write the data to a new, synced file in TMP_DIR. The caller moves or unlinks *out_path, and frees it. */
static int store_file_write_temporary(struct store_file *f, const struct store_put *put, char **out_path)
{
    CLEANUP_FREE char *path = store_file_path(f, TMP_DIR "/put-XXXXXX");
    if (!path)
        return -ENOMEM;
    int rc = make_parent(f, put->key, path);
    if (rc)
        return rc;
    CLEANUP_FREE char *dir = store_file_path(f, TMP_DIR);
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
    CLEANUP_FREE char *path = store_file_path(f, TMP_DIR "/lock");
    if (!path)
        return -ENOMEM;
    int rc = make_parent(f, key, path); /* a store that was copied may have none */
    if (rc)
        return rc;
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
    int rc = file_get_small(&f->base, put->key, &now, version);
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

static int file_put(struct store *s, const struct store_put *put)
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

static int file_remove(struct store *s, const char *key)
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

/* ---- listing ---- */

/* A listing: the key under construction, and the visitor. */
struct walk {
    struct store_file *f;
    const char *prefix;
    store_visit *visit;
    void *arg;
    char key[STORE_KEY_MAX + 1];
    unsigned depth; /* directories that are open */
};

/* Can w->key, or keys below it, begin with the prefix? */
static bool on_the_way(const struct walk *w, size_t key_len)
{
    return strncmp(w->key, w->prefix, GR_MIN(key_len, strlen(w->prefix))) == 0;
}

static int walk_dir(struct walk *w, int parent, const char *name, size_t key_len);

/* Visit one directory entry. Entries that vanish meanwhile are skipped: others write to the store. */
static int walk_entry(struct walk *w, int dir, const char *name, size_t key_len)
{
    int n = snprintf(w->key + key_len, sizeof w->key - key_len, "%s%s", key_len ? "/" : "", name);
    size_t len = key_len + (size_t)n;
    if (len >= sizeof w->key || !on_the_way(w, len))
        return 0; /* no put makes a key that long */
    struct stat st;
    if (fstatat(dir, name, &st, 0))
        return errno == ENOENT ? 0 : store_file_fail(w->f, "list", w->key, errno);
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
    /* A directory that was removed meanwhile is empty; a missing root is an error. */
    if (fd < 0)
        return errno == ENOENT && key_len ? 0 : store_file_fail(w->f, "list", key_len ? w->key : "it", errno);
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return error_no_memory();
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
        rc = store_file_fail(w->f, "list", w->key, errno);
    w->depth--;
    closedir(d);
    return rc;
}

static int file_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct walk w = {.f = store_file_of(s), .prefix = prefix, .visit = visit, .arg = arg};
    return walk_dir(&w, AT_FDCWD, w.f->root, 0);
}

/* ---- life ---- */

/* link(2) and flock(2) provide the conditions. */
static int file_probe_conditional(struct store *s, bool *out)
{
    *out = true;
    return 0;
}

static void file_close(struct store *s)
{
    struct store_file *f = store_file_of(s);
    free(f->root);
    free((char *)f->base.url);
    free(f);
}

int store_file_open(const char *url, const struct store_options *options, struct store **out)
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
    const char *root = url + (text_begins_with(url, "file://") ? strlen("file://") : 0);
    if (root[0] != '/')
        return error_set(-EINVAL, "store %s: the directory must be absolute, as in file:///srv/store", url);
    struct stat st;
    if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
        return error_set(-EINVAL, "store %s: this is not a directory", url);
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/')
        len--;
    CLEANUP_FREE struct store_file *f = calloc(1, sizeof *f);
    CLEANUP_FREE char *directory = strndup(root, len), *name = NULL;
    if (!f || !directory || asprintf(&name, "file://%s", directory) < 0) {
        name = NULL; /* asprintf leaves it undefined */
        return error_no_memory();
    }
    *f = (struct store_file){.base = {.ops = &ops, .url = steal_ptr(&name)}, .root = steal_ptr(&directory)};
    if (options) {
        f->rate = options->rate;
        f->cancel = options->cancel;
    }
    *out = &steal_ptr(&f)->base;
    return 0;
}

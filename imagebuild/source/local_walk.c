/* One descriptor and a stack of directories still to visit; since the stack is last in first out, what is left of the
 * path buffer up to an item's parent_len always is its parent.
 */
#include "imagebuild/source/local_walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "format/catalog.h"
#include "imagebuild/source/local_xattr.h"
#include "imagebuild/source/openat2.h"
#include "imagebuild/source/source_kinds.h"

enum { TARGET_MAX = 4096, PENDING_MAX = 1 << 30 };

bool local_is_removed(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP;
}

/* ------------------------------------------------------------------ versions */

static uint64_t nanoseconds(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

/* %llx, which takes as long as a system call for every file. */
static char *put_hex(char *p, uint64_t v)
{
    int shift = v ? (63 - __builtin_clzll(v)) / 4 * 4 : 0;
    for (; shift >= 0; shift -= 4)
        *p++ = "0123456789abcdef"[v >> shift & 15];
    return p;
}

size_t local_validator(const struct stat *st, char out[SOURCE_VALIDATOR_MAX + 1])
{
    const uint64_t numbers[] = {(uint64_t)st->st_size, nanoseconds(&st->st_mtim), nanoseconds(&st->st_ctim),
                                (uint64_t)st->st_ino};
    char *p = out;
    for (size_t i = 0; i < GR_ARRAY_SIZE(numbers); i++) {
        if (i)
            *p++ = '-';
        p = put_hex(p, numbers[i]);
    }
    *p = 0;
    return (size_t)(p - out);
}

bool local_same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && nanoseconds(&a->st_mtim) == nanoseconds(&b->st_mtim) &&
           nanoseconds(&a->st_ctim) == nanoseconds(&b->st_ctim) && a->st_ino == b->st_ino;
}

/* ------------------------------------------------------------------ listing */

/* Packed stack of directories: name, then {u32 parent_len, u32 name_len}. */
struct pending {
    uint32_t parent_len, name_len;
};

struct walk {
    const struct local_walk *config;
    struct bytes path;    /* of the directory being read, then of the entry */
    struct bytes pending; /* stack */
    struct bytes xattrs;
    char target[TARGET_MAX];
};

/* The path at which the listing is. */
static int vanished(struct walk *w)
{
    if (source_counts_vanished(w->config->counts, (const char *)w->path.data, w->path.len))
        source_warn_vanished((const char *)w->path.data, w->path.len);
    return 0;
}

static int failed(const struct walk *w, const char *what, int code)
{
    return error_set(code, "source: cannot %s %s/%.*s: %s%s", what, w->config->url, (int)GR_MIN(w->path.len, 300u),
                     w->path.len ? (const char *)w->path.data : "", strerror(-code),
                     code == -EACCES || code == -EPERM ? "; run as a user who may read it" : "");
}

static int local_walk_push(struct walk *w, size_t parent_len, const char *name)
{
    struct pending p = {.parent_len = (uint32_t)parent_len, .name_len = (uint32_t)strlen(name)};
    int rc = bytes_append(&w->pending, name, p.name_len);
    return rc ? rc : bytes_append(&w->pending, &p, sizeof p);
}

/* Set path to the parent's first len bytes plus "/name". */
static int set_path(struct walk *w, size_t len, const void *name, size_t name_len)
{
    w->path.len = len;
    int rc = len ? bytes_append(&w->path, "/", 1) : 0;
    if (!rc)
        rc = bytes_append(&w->path, name, name_len);
    return rc == -EMSGSIZE ? error_set(-EINVAL, "source: a path below %s is over 65535 bytes", w->config->url) : rc;
}

static int pop(struct walk *w)
{
    struct pending p;
    memcpy(&p, w->pending.data + w->pending.len - sizeof p, sizeof p);
    const uint8_t *name = w->pending.data + w->pending.len - sizeof p - p.name_len;
    int rc = p.name_len ? set_path(w, p.parent_len, name, p.name_len) : 0;
    w->pending.len -= sizeof p + p.name_len;
    return rc;
}

/* The text of the link `name` in dir. */
static int read_target(struct walk *w, int dir, const char *name, struct source_entry *e)
{
    ssize_t n = readlinkat(dir, name, w->target, sizeof w->target);
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? -ENOENT : failed(w, "read the link", -errno);
    e->target = w->target;
    e->target_len = (size_t)n;
    return 0;
}

/* Hand on one path; name is "." for the directory itself. *out_away: it went away meanwhile, and was not. */
static int local_walk_emit(struct walk *w, int dir, const char *name, const struct stat *st, bool *out_away)
{
    char validator[SOURCE_VALIDATOR_MAX + 1];
    struct source_entry e = {.path = (const char *)w->path.data,
                             .path_len = w->path.len,
                             .mode = st->st_mode,
                             .uid = st->st_uid,
                             .gid = st->st_gid,
                             .rdev = st->st_rdev,
                             .size = (uint64_t)st->st_size,
                             .mtime = st->st_mtim.tv_sec,
                             .mtime_nsec = (uint32_t)st->st_mtim.tv_nsec};
    int rc = 0;
    if (!e.path)
        e.path = "";
    if (S_ISREG(st->st_mode)) {
        e.validator = validator;
        e.validator_len = local_validator(st, validator);
    } else if (S_ISLNK(st->st_mode)) {
        rc = read_target(w, dir, name, &e);
    }
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
        e.link_dev = st->st_dev;
        e.link_ino = st->st_ino;
    }
    if (!rc)
        rc = local_xattrs_read(dir, name, &w->xattrs);
    *out_away = rc == -ENOENT;
    if (rc)
        return *out_away ? 0 : failed(w, "read the attributes of", rc);
    e.xattrs = w->xattrs.data;
    e.xattrs_len = w->xattrs.len;
    rc = w->config->visit(w->config->arg, &e);
    return rc == -EINVAL ? error_prefix(rc, "source: %s", w->config->url) : rc;
}

static int list_entry(struct walk *w, int dir, size_t dir_len, const char *name)
{
    struct stat st;
    bool away;
    int rc = set_path(w, dir_len, name, strlen(name));
    if (rc)
        return rc;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? vanished(w) : failed(w, "look at", -errno);
    if (S_ISDIR(st.st_mode) && !rules_take(w->config->rules, (const char *)w->path.data, w->path.len, true))
        return 0; /* nor anything below it */
    rc = local_walk_emit(w, dir, name, &st, &away);
    if (!rc && away)
        return vanished(w);
    return !rc && S_ISDIR(st.st_mode) ? local_walk_push(w, dir_len, name) : rc;
}

static void cleanup_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* The directory at path: its entries, subdirectories onto the stack. */
static int list_directory(struct walk *w)
{
    int fd = openat2_beneath(w->config->root, w->config->openat2, (const char *)w->path.data, w->path.len,
                             O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return local_is_removed(fd) ? vanished(w) : failed(w, "open", fd);
    CLEANUP(cleanup_dir) DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return failed(w, "open", -ENOMEM);
    }
    size_t dir_len = w->path.len;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry) {
            w->path.len = dir_len;
            return errno ? failed(w, "read", -errno) : 0;
        }
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        int rc = list_entry(w, dirfd(d), dir_len, name);
        if (rc)
            return rc;
    }
}

static int list_all(struct walk *w, const void *unused)
{
    struct stat st;
    bool away;
    if (fstat(w->config->root, &st))
        return failed(w, "look at", -errno);
    int rc = local_xattrs_possible();
    if (!rc)
        rc = local_walk_emit(w, w->config->root, ".", &st, &away);
    if (!rc)
        rc = local_walk_push(w, 0, "");
    while (!rc && w->pending.len) {
        rc = pop(w);
        if (!rc)
            rc = list_directory(w);
    }
    return rc;
}

static int local_walk_look_at(struct walk *w, const void *arg)
{
    const struct source_ask *ask = arg;
    const char *slash = memrchr(ask->path, '/', ask->path_len);
    size_t parent_len = slash ? (size_t)(slash - ask->path) : 0;
    struct stat st;
    bool away;
    int rc = set_path(w, 0, ask->path, ask->path_len);
    if (rc)
        return rc;
    CLEANUP_FD int dir =
        openat2_beneath(w->config->root, w->config->openat2, ask->path, parent_len, O_RDONLY | O_DIRECTORY);
    if (local_is_removed(dir))
        return -ENOENT;
    if (dir < 0)
        return failed(w, "open the directory of", dir);
    const char *name = !ask->path_len ? "." : (const char *)bytes_string(&w->path) + (slash ? parent_len + 1 : 0);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? -ENOENT : failed(w, "look at", -errno);
    rc = local_walk_emit(w, dir, name, &st, &away);
    return !rc && away ? -ENOENT : rc;
}

static int local_walk_run_with(const struct local_walk *config, int (*work)(struct walk *w, const void *arg),
                               const void *arg)
{
    CLEANUP_FREE struct walk *w = calloc(1, sizeof *w);
    if (!w)
        return error_no_memory();
    w->config = config;
    w->path.max = CATALOG_PATH_MAX;
    w->pending.max = PENDING_MAX;
    w->xattrs.max = LOCAL_XATTRS_MAX;
    int rc = work(w, arg);
    bytes_release(&w->path);
    bytes_release(&w->pending);
    bytes_release(&w->xattrs);
    return rc;
}

int local_walk_run(const struct local_walk *walk)
{
    return local_walk_run_with(walk, list_all, NULL);
}

int local_walk_look(const struct local_walk *walk, const struct source_ask *ask)
{
    return local_walk_run_with(walk, local_walk_look_at, ask);
}

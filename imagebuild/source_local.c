/* A local directory as a source. Everything is opened relative to the root's descriptor without
 * following a link, so that whoever may write below it cannot lead the build out of it. Mounts below
 * it are crossed.
 *
 * A version of a file is its size, mtime, ctime and inode: taken before and after reading. A write
 * within one tick of the file system's clock that leaves the size alone goes unseen.
 *
 * Listing keeps one descriptor and a stack of directories still to visit; since the stack is last in
 * first out, what is left of the path buffer up to an item's parent_len always is its parent.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/io.h"
#include "format/catalog.h"
#include "imagebuild/beneath.h"
#include "imagebuild/local_xattr.h"
#include "imagebuild/rules.h"
#include "imagebuild/source_kinds.h"

enum { TARGET_MAX = 4096, PENDING_MAX = 1 << 30 };

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

static bool is_gone(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP;
}

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

/* "size-mtime-ctime-inode", times in nanoseconds, all in hex; its length. */
static size_t print_validator(const struct stat *st, char out[SOURCE_VALIDATOR_MAX + 1])
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

/* ------------------------------------------------------------------ listing */

/* Packed stack of directories: name, then {u32 parent_len, u32 name_len}. */
struct pending {
    uint32_t parent_len, name_len;
};

struct listing {
    struct source_local *s;
    source_visit *visit;
    void *arg;
    struct bytes path;    /* of the directory being read, then of the entry */
    struct bytes pending; /* stack */
    struct bytes xattrs;
    char target[TARGET_MAX];
};

/* The path at which the listing is. */
static int vanished(struct listing *l)
{
    source_counts_vanished(&l->s->counts, (const char *)l->path.data, l->path.len);
    return 0;
}

static int failed(const struct listing *l, const char *what, int code)
{
    return error_set(code, "source: cannot %s %s/%.*s: %s%s", what, l->s->base.url, (int)GR_MIN(l->path.len, 300u),
                     l->path.len ? (const char *)l->path.data : "", strerror(-code),
                     code == -EACCES || code == -EPERM ? "; run as a user who may read it" : "");
}

static int push(struct listing *l, size_t parent_len, const char *name)
{
    struct pending p = {.parent_len = (uint32_t)parent_len, .name_len = (uint32_t)strlen(name)};
    int rc = bytes_append(&l->pending, name, p.name_len);
    return rc ? rc : bytes_append(&l->pending, &p, sizeof p);
}

/* Set path to the parent's first len bytes plus "/name". */
static int set_path(struct listing *l, size_t len, const void *name, size_t name_len)
{
    l->path.len = len;
    int rc = len ? bytes_append(&l->path, "/", 1) : 0;
    if (!rc)
        rc = bytes_append(&l->path, name, name_len);
    return rc == -EMSGSIZE ? error_set(-EINVAL, "source: a path below %s is over 65535 bytes", l->s->base.url) : rc;
}

static int pop(struct listing *l)
{
    struct pending p;
    memcpy(&p, l->pending.data + l->pending.len - sizeof p, sizeof p);
    const uint8_t *name = l->pending.data + l->pending.len - sizeof p - p.name_len;
    int rc = p.name_len ? set_path(l, p.parent_len, name, p.name_len) : 0;
    l->pending.len -= sizeof p + p.name_len;
    return rc;
}

/* The text of the link `name` in dir. */
static int read_target(struct listing *l, int dir, const char *name, struct source_entry *e)
{
    ssize_t n = readlinkat(dir, name, l->target, sizeof l->target);
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? -ENOENT : failed(l, "read the link", -errno);
    e->target = l->target;
    e->target_len = (size_t)n;
    return 0;
}

/* Hand on one path; name is "." for the directory itself. *out_away: it went away meanwhile, and was not. */
static int emit(struct listing *l, int dir, const char *name, const struct stat *st, bool *out_away)
{
    char validator[SOURCE_VALIDATOR_MAX + 1];
    struct source_entry e = {.path = (const char *)l->path.data,
                             .path_len = l->path.len,
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
        e.validator_len = print_validator(st, validator);
    } else if (S_ISLNK(st->st_mode)) {
        rc = read_target(l, dir, name, &e);
    }
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
        e.link_dev = st->st_dev;
        e.link_ino = st->st_ino;
    }
    if (!rc)
        rc = local_xattrs_read(dir, name, &l->xattrs);
    *out_away = rc == -ENOENT;
    if (rc)
        return *out_away ? 0 : failed(l, "read the attributes of", rc);
    e.xattrs = l->xattrs.data;
    e.xattrs_len = l->xattrs.len;
    rc = l->visit(l->arg, &e);
    return rc == -EINVAL ? error_prefix(rc, "source: %s", l->s->base.url) : rc;
}

static int list_entry(struct listing *l, int dir, size_t dir_len, const char *name)
{
    struct stat st;
    bool away;
    int rc = set_path(l, dir_len, name, strlen(name));
    if (rc)
        return rc;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? vanished(l) : failed(l, "look at", -errno);
    if (S_ISDIR(st.st_mode) && !rules_take(l->s->rules, (const char *)l->path.data, l->path.len, true))
        return 0; /* nor anything below it */
    rc = emit(l, dir, name, &st, &away);
    if (!rc && away)
        return vanished(l);
    return !rc && S_ISDIR(st.st_mode) ? push(l, dir_len, name) : rc;
}

static void cleanup_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* The directory at path: its entries, subdirectories onto the stack. */
static int list_directory(struct listing *l)
{
    int fd = beneath_open(l->s->root, l->s->openat2, (const char *)l->path.data, l->path.len, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return is_gone(fd) ? vanished(l) : failed(l, "open", fd);
    CLEANUP(cleanup_dir) DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return failed(l, "open", -ENOMEM);
    }
    size_t dir_len = l->path.len;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry) {
            l->path.len = dir_len;
            return errno ? failed(l, "read", -errno) : 0;
        }
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        int rc = list_entry(l, dirfd(d), dir_len, name);
        if (rc)
            return rc;
    }
}

static int list_all(struct listing *l)
{
    struct stat st;
    bool away;
    if (fstat(l->s->root, &st))
        return failed(l, "look at", -errno);
    int rc = local_xattrs_possible();
    if (!rc)
        rc = emit(l, l->s->root, ".", &st, &away);
    if (!rc)
        rc = push(l, 0, "");
    while (!rc && l->pending.len) {
        rc = pop(l);
        if (!rc)
            rc = list_directory(l);
    }
    return rc;
}

static void listing_init(struct listing *l, struct source *s, source_visit *visit, void *arg)
{
    l->s = local_of(s);
    l->visit = visit;
    l->arg = arg;
    l->path.max = CATALOG_PATH_MAX;
    l->pending.max = PENDING_MAX;
    l->xattrs.max = LOCAL_XATTRS_MAX;
}

static void listing_release(struct listing *l)
{
    bytes_release(&l->path);
    bytes_release(&l->pending);
    bytes_release(&l->xattrs);
}

static void local_counts(struct source *s, struct source_counts *out)
{
    source_counts_add(out, &local_of(s)->counts);
}

static int local_list(struct source *s, source_visit *visit, void *arg)
{
    CLEANUP_FREE struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(-ENOMEM, "source: out of memory");
    local_of(s)->counts = (struct source_counts){0};
    listing_init(l, s, visit, arg);
    int rc = list_all(l);
    listing_release(l);
    return rc;
}

/* ------------------------------------------------------------------ one path */

static int gone(const struct source_local *s, const char *path, size_t len)
{
    return error_set(-ENOENT, "source: %s/%.*s is not there (any more)", s->base.url, (int)GR_MIN(len, 300u), path);
}

static int look_at(struct listing *l, const struct source_ask *ask)
{
    const char *slash = memrchr(ask->path, '/', ask->path_len);
    size_t parent_len = slash ? (size_t)(slash - ask->path) : 0;
    struct stat st;
    bool away;
    int rc = set_path(l, 0, ask->path, ask->path_len);
    if (rc)
        return rc;
    CLEANUP_FD int dir = beneath_open(l->s->root, l->s->openat2, ask->path, parent_len, O_RDONLY | O_DIRECTORY);
    if (is_gone(dir))
        return -ENOENT;
    if (dir < 0)
        return failed(l, "open the directory of", dir);
    const char *name = !ask->path_len ? "." : (const char *)bytes_string(&l->path) + (slash ? parent_len + 1 : 0);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? -ENOENT : failed(l, "look at", -errno);
    rc = emit(l, dir, name, &st, &away);
    return !rc && away ? -ENOENT : rc;
}

static int local_look(struct source *s, const struct source_ask *ask, source_visit *visit, void *arg)
{
    CLEANUP_FREE struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return error_set(-ENOMEM, "source: out of memory");
    listing_init(l, s, visit, arg);
    int rc = look_at(l, ask);
    if (rc == -ENOENT)
        rc = gone(l->s, ask->path, ask->path_len);
    listing_release(l);
    return rc;
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
    int fd = beneath_open(s->root, s->openat2, path, len, flags);
    if (fd == -EPERM)
        fd = beneath_open(s->root, s->openat2, path, len, flags & ~O_NOATIME);
    if (is_gone(fd) || fd == -ENXIO)
        return gone(s, path, len);
    if (fd < 0)
        return file_failed(s, path, len, fd);
    int rc = fstat(fd, st) ? file_failed(s, path, len, -errno) : S_ISREG(st->st_mode) ? 0 : gone(s, path, len);
    if (rc) {
        close(fd);
        return rc;
    }
    return fd;
}

static bool is_version(const struct stat *st, const struct source_read *r)
{
    char now[SOURCE_VALIDATOR_MAX + 1];
    size_t len = print_validator(st, now);
    return len == r->validator_len && !memcmp(now, r->validator, len);
}

/* Do both print the same validator? */
static bool same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && nanoseconds(&a->st_mtim) == nanoseconds(&b->st_mtim) &&
           nanoseconds(&a->st_ctim) == nanoseconds(&b->st_ctim) && a->st_ino == b->st_ino;
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
        if ((uint64_t)n == r->len && same_version(&before, &after))
            return 0;
    }
    return error_set(-ESTALE, "source: %s/%.*s changed while it was read", s->base.url, (int)GR_MIN(r->path_len, 300u),
                     r->path);
}

static int local_stat(struct source *base, const char *path, size_t path_len, struct source_version *out)
{
    const struct source_local *s = local_of(base);
    CLEANUP_FD int fd = beneath_open(s->root, s->openat2, path, path_len, O_PATH);
    struct stat st;
    if (is_gone(fd))
        return gone(s, path, path_len);
    if (fd < 0 || fstat(fd, &st))
        return file_failed(s, path, path_len, fd < 0 ? fd : -errno);
    if (!S_ISREG(st.st_mode))
        return gone(s, path, path_len);
    *out = (struct source_version){.size = (uint64_t)st.st_size,
                                   .mtime = st.st_mtim.tv_sec,
                                   .mtime_nsec = (uint32_t)st.st_mtim.tv_nsec,
                                   .have_owner = true,
                                   .mode = st.st_mode,
                                   .uid = st.st_uid,
                                   .gid = st.st_gid};
    out->validator_len = print_validator(&st, out->validator);
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
        return error_set(-ENOMEM, "source: out of memory");
    s->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->root < 0)
        return error_set(-errno, "source: cannot open the directory %s: %s", path, strerror(errno));
    s->openat2 = beneath_has_openat2(s->root);
    s->rules = options->rules;
    s->url = strdup(url);
    if (!s->url)
        return error_set(-ENOMEM, "source: out of memory");
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

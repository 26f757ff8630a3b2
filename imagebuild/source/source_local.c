/* A local directory as a source.
 *
 *   list   the walk's places are directories; for each entry: fstatat, readlinkat, extended attributes
 *   read   open beneath the root, fstat, pread, fstat: both times the version must be the wanted one
 *
 * Safety: everything is opened relative to the root's descriptor and no symbolic link is followed (base/openat2.h). So
 * a user who can write in the tree cannot make the build read files outside of it. Mounts below the root are crossed.
 *
 * A version is size, mtime, ctime and inode number. It is compared before and after each read, so bytes of two
 * versions never mix. One write can stay unseen: one that keeps the size and happens within a tick of the
 * filesystem's clock (some milliseconds) after an earlier write.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/openat2.h"
#include "format/catalog.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source_internal.h"

enum { TARGET_MAX = 4096, LIST_THREADS = 4 };

struct source_local {
    struct source base;
    char *url;
    int root;     /* descriptor of the directory */
    bool openat2; /* this kernel has openat2 */
    const struct rules *rules;
    struct source_counts counts;
};

static struct source_local *local_of(struct source *s)
{
    return (struct source_local *)s;
}

/* ------------------------------------------------------------------ versions */

/* Return whether this error of opening a path means that the listed file is not there any more. A file or a symbolic
 * link in place of one of its directories (-ENOTDIR, -ELOOP) means that too. */
static bool is_gone(int rc)
{
    return rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP;
}

static uint64_t nanoseconds(const struct timespec *t)
{
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

/* As sprintf "%llx", which would take as long as a system call for every file. */
static char *put_hex(char *p, uint64_t v)
{
    int shift = v ? (63 - __builtin_clzll(v)) / 4 * 4 : 0;
    for (; shift >= 0; shift -= 4)
        *p++ = "0123456789abcdef"[v >> shift & 15];
    return p;
}

/* Write the version "SIZE-MTIME-CTIME-INODE", in hex, times in nanoseconds. Return its length. */
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

static bool is_same_version(const struct stat *a, const struct stat *b)
{
    return a->st_size == b->st_size && nanoseconds(&a->st_mtim) == nanoseconds(&b->st_mtim) &&
           nanoseconds(&a->st_ctim) == nanoseconds(&b->st_ctim) && a->st_ino == b->st_ino;
}

/* ------------------------------------------------------------------ listing */

/* A path that is being listed, with buffers that its entries reuse. */
struct spot {
    const struct source_local *s;
    struct walker *walker; /* NULL: local_look, without a walk */
    source_visit *visit;
    void *arg;
    struct bytes path;
    struct bytes xattrs;
    char target[TARGET_MAX];
};

static void spot_release(struct spot *at)
{
    bytes_release(&at->path);
    bytes_release(&at->xattrs);
}

#define CLEANUP_SPOT CLEANUP(spot_release) struct spot

/* Return the error `code` of a step at the current path: "cannot WHAT PATH". */
static int failed(const struct spot *at, const char *what, int code)
{
    return error_set(code, "source: cannot %s %s/%.*s: %s%s", what, at->s->base.url, (int)GR_MIN(at->path.len, 300u),
                     at->path.len ? (const char *)at->path.data : "", strerror(-code),
                     code == -EACCES || code == -EPERM ? "; run as a user who may read it" : "");
}

/* Set path to its first len bytes plus "/name". */
static int set_path(struct spot *at, size_t len, const char *name, size_t name_len)
{
    at->path.len = len;
    int rc = len ? bytes_append(&at->path, "/", 1) : 0;
    if (!rc)
        rc = bytes_append(&at->path, name, name_len);
    return rc == -EMSGSIZE ? error_set(-EINVAL, "source: a path below %s is over 65535 bytes", at->s->base.url) : rc;
}

/* Read the text of the symbolic link `name` in dir. -ENOENT, without a sentence: it is gone, or is not a link any
 * more. */
static int read_target(struct spot *at, int dir, const char *name, struct source_entry *e)
{
    ssize_t n = readlinkat(dir, name, at->target, sizeof at->target);
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? -ENOENT : failed(at, "read the link", -errno);
    e->target = at->target;
    e->target_len = (size_t)n;
    return 0;
}

/* Visit the current path, which is `name` in dir ("." for dir itself). Return what the visitor returns, or 1 without a
 * visit if the path has vanished since st was taken. */
static int source_local_emit(struct spot *at, int dir, const char *name, const struct stat *st)
{
    char validator[SOURCE_VALIDATOR_MAX + 1];
    struct source_entry e = {.path = (const char *)at->path.data,
                             .path_len = at->path.len,
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
        rc = read_target(at, dir, name, &e);
    }
    /* other names of the file may lie outside of the tree; the listing sees which ones are in it */
    if (!S_ISDIR(st->st_mode) && st->st_nlink > 1) {
        e.link_dev = st->st_dev;
        e.link_ino = st->st_ino;
    }
    if (!rc)
        rc = local_xattrs_read(dir, name, &at->xattrs);
    if (rc)
        return rc == -ENOENT ? 1 : failed(at, "read the attributes of", rc);
    e.xattrs = at->xattrs.data;
    e.xattrs_len = at->xattrs.len;
    return at->visit(at->arg, &e);
}

/* List one entry of a directory: visit it, or count it if it has vanished, and push it if it is a directory. */
static int list_entry(struct spot *at, int dir, size_t dir_len, const char *name)
{
    struct stat st;
    int rc = set_path(at, dir_len, name, strlen(name));
    if (rc)
        return rc;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW)) {
        if (errno != ENOENT)
            return failed(at, "look at", -errno);
        rc = 1;
    }
    if (!rc && S_ISDIR(st.st_mode) && !rules_take(at->s->rules, (const char *)at->path.data, at->path.len, true))
        return 0; /* left out, and everything below it */
    if (!rc)
        rc = source_local_emit(at, dir, name, &st);
    const struct walk_place place = {.path = (const char *)at->path.data, .path_len = at->path.len};
    if (rc == 1)
        walk_vanished(at->walker, place.path, place.path_len);
    else if (!rc && S_ISDIR(st.st_mode))
        return walk_push(at->walker, &place);
    return rc == 1 ? 0 : rc;
}

static void cleanup_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* List one directory, a place of the walk: all its entries. The root directory itself is visited here too, since no
 * other directory has it as an entry. */
static int list_directory(void *arg, struct walker *w, const struct walk_place *place)
{
    const struct source_local *s = arg;
    CLEANUP_SPOT at = {.s = s,
                       .walker = w,
                       .visit = walk_emit,
                       .arg = w,
                       .path = BYTES_INIT(CATALOG_PATH_MAX),
                       .xattrs = BYTES_INIT(LOCAL_XATTRS_MAX)};
    struct stat st;
    int rc = set_path(&at, 0, place->path, place->path_len);
    if (rc)
        return rc;
    if (!place->path_len && fstat(s->root, &st))
        return failed(&at, "look at", -errno);
    if (!place->path_len && (rc = source_local_emit(&at, s->root, ".", &st)))
        return rc == 1 ? failed(&at, "look at", -ENOENT) : rc;
    int fd = openat2_beneath(s->root, s->openat2, place->path, place->path_len, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return is_gone(fd) ? -ENOENT : failed(&at, "open", fd);
    CLEANUP(cleanup_dir) DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return failed(&at, "open", -ENOMEM);
    }
    for (;;) {
        /* readdir reports an error through errno alone: NULL is the end of the directory as well */
        errno = 0;
        const struct dirent *entry = readdir(d);
        if (!entry) {
            /* the error names the directory, not its last entry */
            at.path.len = place->path_len;
            return errno ? failed(&at, "read", -errno) : 0;
        }
        const char *name = entry->d_name;
        if (!strcmp(name, ".") || !strcmp(name, ".."))
            continue;
        rc = list_entry(&at, dirfd(d), place->path_len, name);
        if (rc)
            return rc;
    }
}

static void local_counts(struct source *s, struct source_counts *out)
{
    source_counts_add(out, &local_of(s)->counts);
}

static int local_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_local *s = local_of(base);
    const struct walk walk = {.url = s->base.url,
                              .threads = LIST_THREADS,
                              .list = list_directory,
                              .arg = s,
                              .visit = visit,
                              .visit_arg = arg,
                              .counts = &s->counts};
    s->counts = (struct source_counts){0};
    int rc = local_xattrs_possible();
    return rc ? rc : walk_run(&walk);
}

/* Return the error for a path that is gone, or that never existed if a list named it. */
static int removed(const struct source_local *s, const char *path, size_t len)
{
    return error_set(-ENOENT, "source: %s/%.*s is not there (any more)", s->base.url, (int)GR_MIN(len, 300u), path);
}

/* Open the directory of the path, then visit the path as the listing of that directory would. */
static int local_look(struct source *base, const struct source_ask *ask, source_visit *visit, void *arg)
{
    struct source_local *s = local_of(base);
    CLEANUP_SPOT at = {.s = s,
                       .visit = visit,
                       .arg = arg,
                       .path = BYTES_INIT(CATALOG_PATH_MAX),
                       .xattrs = BYTES_INIT(LOCAL_XATTRS_MAX)};
    const char *slash = memrchr(ask->path, '/', ask->path_len);
    size_t parent_len = slash ? (size_t)(slash - ask->path) : 0;
    struct stat st;
    int rc = set_path(&at, 0, ask->path, ask->path_len);
    if (rc)
        return rc;
    CLEANUP_FD int dir = openat2_beneath(s->root, s->openat2, ask->path, parent_len, O_RDONLY | O_DIRECTORY);
    if (is_gone(dir))
        return removed(s, ask->path, ask->path_len);
    if (dir < 0)
        return failed(&at, "open the directory of", dir);
    const char *name = !ask->path_len ? "." : (const char *)bytes_string(&at.path) + (slash ? parent_len + 1 : 0);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? removed(s, ask->path, ask->path_len) : failed(&at, "look at", -errno);
    rc = source_local_emit(&at, dir, name, &st);
    return rc == 1 ? removed(s, ask->path, ask->path_len) : rc;
}

/* ------------------------------------------------------------------ reading */

static int file_failed(const struct source_local *s, const char *path, size_t len, int code)
{
    return error_set(code, "source: cannot read %s/%.*s: %s%s", s->base.url, (int)GR_MIN(len, 300u), path,
                     strerror(-code), code == -EACCES ? "; run as a user who may read it" : "");
}

/* Open a regular file for reading and return its descriptor. -ENOENT: it is gone, or is not a regular file any more.
 * O_NOATIME saves a write of the inode for each file read, but only the owner may use it. O_NONBLOCK: opening a FIFO
 * that has replaced the file must not block. */
static int open_file(const struct source_local *s, const char *path, size_t len, struct stat *st)
{
    int flags = O_RDONLY | O_NONBLOCK | O_NOATIME;
    int fd = openat2_beneath(s->root, s->openat2, path, len, flags);
    if (fd == -EPERM)
        fd = openat2_beneath(s->root, s->openat2, path, len, flags & ~O_NOATIME);
    if (is_gone(fd) || fd == -ENXIO)
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

/* Return whether the file is of the version that the read wants. */
static bool is_version(const struct stat *st, const struct source_read *r)
{
    char now[SOURCE_VALIDATOR_MAX + 1];
    size_t len = print_validator(st, now);
    return len == r->validator_len && !memcmp(now, r->validator, len);
}

/* As io_pread_full, but holes are zeroed without reading them. Used for sparse files: some filesystems, network ones
 * above all, would transfer the zeros. */
static ssize_t read_data(int fd, uint8_t *dst, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        off_t data = lseek(fd, (off_t)(off + done), SEEK_DATA);
        if (data < 0 && errno != ENXIO)
            return io_pread_full(fd, dst, len, off); /* SEEK_DATA is not supported here */
        /* ENXIO: there is no data up to the end of the file */
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
        /* the file ended early; local_read reports that it changed */
        if ((size_t)got < n)
            break;
    }
    return (ssize_t)done;
}

/* Check the version before the read, to avoid a useless one, and after it, to be sure of the bytes. */
static int local_read(struct source *base, const struct source_read *r)
{
    const struct source_local *s = local_of(base);
    struct stat before, after;
    CLEANUP_FD int fd = open_file(s, r->path, r->path_len, &before);
    if (fd < 0)
        return fd;
    /* fewer blocks than bytes: there are holes, and the lseek calls are worth it */
    bool sparse = (uint64_t)before.st_blocks * 512 < (uint64_t)before.st_size;
    ssize_t n = 0;
    if (is_version(&before, r)) {
        n = sparse ? read_data(fd, r->dst, r->len, r->offset) : io_pread_full(fd, r->dst, r->len, r->offset);
        if (n < 0)
            return file_failed(s, r->path, r->path_len, (int)n);
        if (fstat(fd, &after))
            return file_failed(s, r->path, r->path_len, -errno);
        if ((uint64_t)n == r->len && is_same_version(&before, &after))
            return 0;
    }
    return error_set(-ESTALE, "source: %s/%.*s changed while it was read", s->base.url, (int)GR_MIN(r->path_len, 300u),
                     r->path);
}

/* O_PATH needs no permission to read the file, and opening a device or FIFO that way has no side effects. */
static int local_stat(struct source *base, const char *path, size_t path_len, struct source_version *out)
{
    const struct source_local *s = local_of(base);
    CLEANUP_FD int fd = openat2_beneath(s->root, s->openat2, path, path_len, O_PATH);
    struct stat st;
    if (is_gone(fd))
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
        return error_no_memory();
    s->root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->root < 0)
        return error_set(-errno, "source: cannot open the directory %s: %s", path, strerror(errno));
    s->openat2 = openat2_is_supported(s->root);
    s->rules = options->rules;
    s->url = strdup(url);
    if (!s->url)
        return error_no_memory();
    /* messages append "/PATH" */
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

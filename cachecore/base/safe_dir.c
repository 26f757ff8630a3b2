/* Walk the path component by component with O_PATH | O_NOFOLLOW and resolve symbolic links here instead of in the
 * kernel, so that the directory that was checked is the one that is opened, with no race in between:
 *
 *   "/" -> check it, open a component in it -> a directory: go on there
 *                                           -> a link: check its owner, put its target in front of the rest
 *
 * Each directory is checked before a name in it is looked up. From then on, only root and this user can change what a
 * name in it means; in a sticky directory, what a name of an entry of root or this user means.
 */
#include "base/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accounts.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

enum { LINKS_MAX = 40, OTHERS_WRITE = S_IWGRP | S_IWOTH, MODE = 07777 };

struct walk {
    const char *path;    /* as the caller gave it, for sentences */
    int fd;              /* the directory reached so far */
    char rest[PATH_MAX]; /* the part of the path below fd */
    unsigned links;      /* symbolic links followed; at most LINKS_MAX, as in the kernel */
    unsigned flags;      /* enum safe_dir_flags */
};

static bool is_trusted(uid_t owner)
{
    return owner == 0 || owner == geteuid();
}

/* Set the sentence for a failed system call; code is a positive errno. */
static int say_errno(const char *path, int code)
{
    return error_set(-code, "cannot open the directory %s: %s", path, strerror(code));
}

/* Check a directory on the path: nobody but root and this user may be able to replace the next component. */
static int check_ancestor(const struct walk *w)
{
    struct stat st;
    if (fstat(w->fd, &st))
        return say_errno(w->path, errno);
    bool group = w->flags & SAFE_DIR_ROOTS_GROUP && st.st_uid == 0;
    bool others = st.st_mode & (group ? S_IWOTH : OTHERS_WRITE) && !(st.st_mode & S_ISVTX);
    if (is_trusted(st.st_uid) && !others)
        return 0;
    /* The sentence names this directory, which may be behind links and not on the path as given. */
    char proc[64], name[PATH_MAX];
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", w->fd);
    ssize_t n = readlink(proc, name, sizeof name - 1);
    snprintf(name + GR_MAX(n, 0), 2, "%s", n > 0 ? "" : "?");
    if (others)
        return error_set(-EPERM,
                         "%s: %s above it may be written by other users (mode %04o), who could put another directory "
                         "in its place; take their right away ('chmod go-w %s') or choose another directory",
                         w->path, name, st.st_mode & MODE, name);
    char owner[ACCOUNT_TEXT_MAX], self[ACCOUNT_TEXT_MAX];
    return error_set(-EPERM,
                     "%s: %s above it belongs to %s, who could put another directory in its place; choose one "
                     "below directories of root%s%s",
                     w->path, name, account_text(st.st_uid, owner), geteuid() ? " and of " : "",
                     geteuid() ? account_text(geteuid(), self) : "");
}

/* Check the last directory: it must belong to this user, and only this user may write it. */
static int check_last(const char *path, const struct stat *st)
{
    char owner[ACCOUNT_TEXT_MAX], self[ACCOUNT_TEXT_MAX];
    /* Root's directory is not accepted here: this user could not write it. */
    if (st->st_uid != geteuid())
        return error_set(-EPERM,
                         "%s belongs to %s and not to %s, who runs this; run it as that user, choose another "
                         "directory, or remove this one with what is in it",
                         path, account_text(st->st_uid, owner), account_text(geteuid(), self));
    if (st->st_mode & OTHERS_WRITE)
        return error_set(-EPERM,
                         "%s may be written by other users (mode %04o); take their right away ('chmod go-w %s') if "
                         "you trust what is in it, or choose another directory",
                         path, st->st_mode & MODE, path);
    return 0;
}

/* Follow a symbolic link: put its target in front of the rest. An absolute target starts again at "/". */
static int safe_dir_follow(struct walk *w, int link_fd, const struct stat *st, const char *name)
{
    char target[PATH_MAX], rest[PATH_MAX], owner[ACCOUNT_TEXT_MAX];
    if (!is_trusted(st->st_uid))
        return error_set(-EPERM,
                         "%s: '%s' in it is a symbolic link of %s, who could have it lead elsewhere; give the "
                         "directory itself",
                         w->path, name, account_text(st->st_uid, owner));
    ssize_t n = readlinkat(link_fd, "", target, sizeof target);
    if (n < 0)
        return say_errno(w->path, errno);
    if (++w->links > LINKS_MAX)
        return say_errno(w->path, ELOOP);
    if (n == sizeof target || snprintf(rest, sizeof rest, "%.*s/%s", (int)n, target, w->rest) >= (int)sizeof rest)
        return say_errno(w->path, ENAMETOOLONG);
    memcpy(w->rest, rest, strlen(rest) + 1);
    if (*target != '/')
        return 0;
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return say_errno(w->path, errno);
    close(w->fd);
    w->fd = root;
    return 0;
}

/* Take the next component out of rest; false: there is none. A name that is too long keeps NAME_MAX + 1 bytes, so that
 * openat refuses it with ENAMETOOLONG. */
static bool next_name(struct walk *w, char out[NAME_MAX + 2])
{
    const char *from = w->rest + strspn(w->rest, "/");
    size_t len = strcspn(from, "/");
    snprintf(out, NAME_MAX + 2, "%.*s", (int)GR_MIN(len, (size_t)NAME_MAX + 1), from);
    memmove(w->rest, from + len, strlen(from + len) + 1);
    return len > 0;
}

/* Go down by one component. ".." needs no special treatment: the parent is checked like any other directory. */
static int safe_dir_step(struct walk *w, const char *name)
{
    struct stat st;
    bool last = !w->rest[strspn(w->rest, "/")];
    int rc = check_ancestor(w);
    if (rc)
        return rc;
    if (w->flags & SAFE_DIR_MAKE && last && mkdirat(w->fd, name, 0700) && errno != EEXIST)
        return error_set(-errno, "cannot make the directory %s: %s", w->path, strerror(errno));
    CLEANUP_FD int fd = openat(w->fd, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !last)
        return error_set(-ENOENT, "%s: the directory above it does not exist; mount its disk, or make it", w->path);
    if (fd < 0 || fstat(fd, &st))
        return say_errno(w->path, errno);
    if (S_ISLNK(st.st_mode))
        return safe_dir_follow(w, fd, &st, name);
    if (!S_ISDIR(st.st_mode))
        return say_errno(w->path, ENOTDIR);
    int reached = steal_fd(&fd);
    close(w->fd);
    w->fd = reached;
    return 0;
}

/* Begin at "/"; a relative path is taken from the working directory. */
static int safe_dir_start(struct walk *w)
{
    char here[PATH_MAX] = "";
    if (*w->path != '/' && !getcwd(here, sizeof here))
        return say_errno(w->path, errno);
    if (!*w->path)
        return say_errno(w->path, ENOENT);
    if (snprintf(w->rest, sizeof w->rest, "%s/%s", here, w->path) >= (int)sizeof w->rest)
        return say_errno(w->path, ENAMETOOLONG);
    w->fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->fd < 0 ? say_errno(w->path, errno) : 0;
}

int safe_dir_open(const char *path, unsigned flags, int *out_fd)
{
    CLEANUP_FREE struct walk *w = calloc(1, sizeof *w);
    char name[NAME_MAX + 2];
    struct stat st;
    if (!w)
        return error_no_memory();
    w->path = path;
    w->flags = flags;
    w->fd = -1;
    int rc = safe_dir_start(w);
    while (!rc && next_name(w, name))
        rc = safe_dir_step(w, name);
    CLEANUP_FD int reached = w->fd;
    if (rc)
        return rc;
    /* An O_PATH descriptor cannot be read or synced, so open the same directory once more. */
    CLEANUP_FD int fd = openat(reached, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return say_errno(path, errno);
    rc = check_last(path, &st);
    if (!rc)
        *out_fd = steal_fd(&fd);
    return rc;
}

static int say_owner(const char *path, uid_t is)
{
    char owner[ACCOUNT_TEXT_MAX], self[ACCOUNT_TEXT_MAX];
    return error_set(-EPERM, "%s belongs to %s and not to %s, who runs this; run it as that user, or remove the file",
                     path, account_text(is, owner), account_text(geteuid(), self));
}

static int say_unsafe(const char *path, const char *what)
{
    return error_set(-EPERM, "%s %s; remove it if it is not yours", path, what);
}

/* Check a file that was opened: it belongs to this user, to `also`, or where root_too is true to root. */
static int check_file(int fd, const char *path, uid_t also, bool root_too)
{
    struct stat st;
    if (fstat(fd, &st))
        return error_set(-errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return say_unsafe(path, "is no regular file");
    if (st.st_uid != also && st.st_uid != geteuid() && !(root_too && !st.st_uid))
        return say_owner(path, st.st_uid);
    if (st.st_mode & OTHERS_WRITE)
        return say_unsafe(path, "may be written by other users");
    /* A hard link could make a file of this user's elsewhere be overwritten. */
    if (st.st_nlink != 1)
        return say_unsafe(path, "has another name elsewhere (a hard link), or none");
    return 0;
}

int safe_file_open(int dir_fd, const char *dir, const char *name, int flags, int *out_fd)
{
    /* O_NONBLOCK: opening a planted FIFO must not hang. */
    char path[PATH_MAX]; /* for sentences */
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int common = (flags & ~O_CREAT) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    CLEANUP_FD int fd = openat(dir_fd, name, common);
    /* O_NOATIME is refused for another user's file. Open it without, so that check_file names the owner. */
    if (fd < 0 && errno == EPERM && flags & O_NOATIME)
        fd = openat(dir_fd, name, common & ~O_NOATIME);
    for (int tries = 0; fd < 0 && errno == ENOENT && flags & O_CREAT && tries < 2; tries++) {
        fd = openat(dir_fd, name, common | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno == EEXIST) /* another process made it just now */
            fd = openat(dir_fd, name, common);
    }
    if (fd < 0 && errno == ELOOP)
        return say_unsafe(path, "is a symbolic link");
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
    int rc = check_file(fd, path, geteuid(), false);
    /* Clear O_NONBLOCK again, since the file is regular: with it, io_uring does not wait on some block devices. */
    if (!rc && fcntl(fd, F_SETFL, flags & (O_APPEND | O_DIRECT | O_NOATIME)))
        rc = error_set(-errno, "%s: %s", path, strerror(errno));
    if (!rc)
        *out_fd = steal_fd(&fd);
    return rc;
}

int safe_file_read(const char *path, uid_t also, struct bytes *out)
{
    CLEANUP_FD int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 && errno == ELOOP)
        return say_unsafe(path, "is a symbolic link");
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
    int rc = check_file(fd, path, also, true);
    return rc ? rc : io_read_rest(fd, path, out);
}

/* Every step records itself in the state, and the state in its file, before the next begins: undoing
 * a failure half-way, umount, and cleaning up after a crash are one function that takes down what the
 * state names, in reverse.
 *
 *   server -> export checked -> metadata cached -> device (nbd + keeper, or FUSE + loop) -> tuned, warmed -> mounted
 */
#include "attach/mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/device.h"
#include "attach/export_check.h"
#include "attach/fuse_mount.h"
#include "attach/metadata_warm.h"
#include "attach/mount_device.h"
#include "attach/run_log.h"
#include "attach/server.h"
#include "attach/upgrade.h"
#include "attach/utab.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "net/listen.h"

enum { THREADS_LEAST = 32, SERVER_END_MS = 15000 };

/* ---- the mount point ---- */

/* *out: absolute, without symlinks; free. */
static int resolve_dir(const char *dir, char **out)
{
    *out = realpath(dir, NULL);
    return *out ? 0 : error_set(-errno, "%s: %s; give an empty directory", dir, strerror(errno));
}

/* 1: something is mounted there. */
static int is_mount_point(const char *dir)
{
    struct statx st;
    if (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st))
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    return !!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

static int check_empty(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return error_set(-errno, "%s: %s; give an empty directory", dir, strerror(errno));
    bool empty = true;
    for (struct dirent *e; (e = readdir(d));)
        empty = empty && (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || !strcmp(e->d_name, "lost+found"));
    closedir(d);
    return empty
               ? 0
               : error_set(-ENOTEMPTY, "%s is not empty; what is in it would be hidden: give an empty directory", dir);
}

static int check_dir(const char *dir)
{
    int mounted = is_mount_point(dir);
    if (mounted)
        return mounted < 0 ? mounted : error_set(-EBUSY, "%s is a mount point already; umount it first", dir);
    return check_empty(dir);
}

/* ---- the server ---- */

/* Of the threads of a server one client has, all its connections together have as many as one has elsewhere: each
 * thread keeps a buffer as large as the largest request it has seen. */
static unsigned threads_for(const struct mount_config *c)
{
    if (c->fuse)
        return SERVER_THREADS;
    return GR_MAX(SERVER_THREADS / mount_device_connections(c), (unsigned)THREADS_LEAST);
}

static int start_server(const struct mount_config *c, struct mount_state *s)
{
    char program[PATH_MAX], threads[16];
    pid_t pid;
    int rc = process_own_program(program);
    CLEANUP_FD int log = rc ? -1 : run_log_open(s->run_dir, "serve.log");
    if (rc || log < 0)
        return rc ? rc : log;
    VEC(const char *) argv = {0};
    snprintf(threads, sizeof threads, "%u", threads_for(c));
    const char *const fixed[] = {program,   "serve",     c->pinned,  c->fuse ? "--fuse" : "--socket",
                                 s->socket, "--control", s->control, "--threads",
                                 threads};
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(fixed); i++)
        rc = vec_push(&argv, fixed[i]);
    for (size_t i = 0; !rc && i < c->server_option_count; i++)
        rc = vec_push(&argv, c->server_options[i]);
    if (!rc)
        rc = vec_push(&argv, NULL);
    struct process_spec spec = {.argv = argv.items, .output = log, .listen_fd = -1, .session = true};
    rc = rc ? error_set(rc, "out of memory") : process_spawn(&spec, &pid);
    vec_release(&argv);
    if (!rc)
        s->server = process_identify(pid);
    return rc;
}

static int have_server(const struct mount_config *c, struct mount_state *s)
{
    int rc = 0;
    if (c->socket) {
        if (!realpath(c->socket, s->socket)) /* umount may be run from anywhere */
            return error_set(-errno, "no server listens on %s: %s", c->socket, strerror(errno));
        snprintf(s->control, sizeof s->control, "%.*s.control", PATH_MAX - 16, s->socket);
        if (!c->fuse && listen_answered(s->control) <= 0)
            *s->control = 0;
    } else {
        snprintf(s->socket, sizeof s->socket, "%s/%s", s->run_dir, c->fuse ? "fuse" : "nbd.sock");
        snprintf(s->control, sizeof s->control, "%.*s.control", PATH_MAX - 16, s->socket);
        rc = start_server(c, s);
    }
    if (!rc)
        rc = state_save(s);
    const struct export_check check = {.socket = s->socket,
                                       .control = c->fuse ? s->control : NULL,
                                       .name = c->export_name,
                                       .size = c->size,
                                       .content_root = c->content_root,
                                       .server = c->socket ? NULL : &s->server,
                                       .cancel = c->cancel};
    if (!rc)
        rc = export_check(&check);
    if (rc == -EIO && !c->socket)
        rc = run_log_explain(s->run_dir, "serve.log", "the server cannot serve the image", rc);
    return rc;
}

/* ---- the mount ---- */

static int mount_filesystem(const struct mount_config *c, struct mount_state *s)
{
    unsigned long flags = MS_RDONLY | MS_NODEV | MS_NOSUID | (c->noexec ? MS_NOEXEC : 0);
    if (mount(s->device, s->dir, c->fs, flags, NULL)) {
        if (errno == ENODEV)
            return error_set(-ENODEV, "this kernel cannot mount %s; load its module (modprobe %s)", c->fs, c->fs);
        return error_set(-errno, "cannot mount %s on %s: %s", s->device, s->dir, strerror(errno));
    }
    s->mounted = true;
    utab_add(s->device, s->dir);
    return state_save(s);
}

static int cancelled(const struct mount_config *c)
{
    return c->cancel && *c->cancel ? error_set(-ECANCELED, "interrupted") : 0;
}

/* Readers look for it first, and behind the fence it must be there. A mount works without: what is missing is fetched.
 */
static int warm_metadata(const struct mount_config *c, const struct mount_state *s)
{
    if (!*s->control || (!c->socket && c->keeps_nothing))
        return 0;
    int rc = metadata_warm(s->control, c->export_name, c->cancel);
    if (rc && rc != -ECANCELED)
        log_warning("the filesystem's metadata is not kept in the cache: %s", error_text());
    return rc == -ECANCELED ? rc : 0;
}

static int build_up(const struct mount_config *c, struct mount_state *s)
{
    CLEANUP_FD int fd = -1;
    int rc = have_server(c, s);
    if (!rc)
        rc = warm_metadata(c, s);
    if (!rc)
        rc = mount_device_make(c, s, &fd);
    if (rc)
        return rc;
    device_tune(s->device);
    if (fd < 0)
        fd = open(s->device, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", s->device, strerror(errno));
    rc = mount_filesystem(c, s);
    /* Only now: ext4 tries several block sizes while it is mounted, which empties the device's page cache. */
    if (!rc)
        rc = device_warm(fd, s->device, 0, c->front_len, c->cancel);
    if (!rc)
        rc = device_warm(fd, s->device, c->metadata_offset, c->metadata_len, c->cancel);
    return rc ? rc : cancelled(c);
}

/* ---- taking down ---- */

static bool is_fuse(const struct mount_state *s)
{
    return !strcmp(s->method, "fuse");
}

/* Whether anything can still answer reads of the mount. */
static bool server_answers(const struct mount_state *s)
{
    if (s->server.pid)
        return process_alive(&s->server);
    return listen_answered(is_fuse(s) ? s->control : s->socket) > 0;
}

/* With nothing left behind the device its readers are stuck: end them, then the mount. */
static int unmount_dead(struct mount_state *s)
{
    if (mount_device_cut(s))
        log_warning("%s", error_text());
    if (umount2(s->dir, UMOUNT_NOFOLLOW) && umount2(s->dir, UMOUNT_NOFOLLOW | MNT_DETACH))
        return error_set(-errno, "cannot umount %s: %s", s->dir, strerror(errno));
    return 0;
}

static int unmount(struct mount_state *s)
{
    int rc = 0;
    if (umount2(s->dir, UMOUNT_NOFOLLOW) && errno != EINVAL && errno != ENOENT) { /* those: not mounted any more */
        if (errno != EBUSY)
            return error_set(-errno, "cannot umount %s: %s", s->dir, strerror(errno));
        if (server_answers(s))
            return error_set(-EBUSY, "%s is in use; end what uses it ('fuser -vm %s' shows it) and try again", s->dir,
                             s->dir);
        rc = unmount_dead(s);
    }
    if (!rc)
        s->mounted = false;
    if (!rc)
        utab_remove(s->dir);
    return rc;
}

/* A container has mounts of its own, which no list here shows: its readers would get EIO. */
static int check_elsewhere(const struct mount_state *s)
{
    char mark[DEVICE_MARK_MAX];
    if (!*s->device_mark)
        return 0;
    device_nbd_mark(s->device, mark);
    if (strcmp(mark, s->device_mark) || !device_claimed(s->device) || !server_answers(s))
        return 0;
    return error_set(
        -EBUSY,
        "%s is unmounted, but %s is still mounted elsewhere, as in a container; end what reads it there and "
        "run 'granary umount %s' again",
        s->dir, s->device, s->dir);
}

/* Remember the first failure, go on with the rest. */
static void keep_first(struct error *first, int rc)
{
    if (rc && !first->code)
        error_take(first, rc);
}

static void remove_run_dir(const struct mount_state *s)
{
    static const char *const names[] = {"state.json", "serve.log",        "keep.log",
                                        "nbd.sock",   "nbd.sock.control", "nbd.sock.control" UPGRADE_SUFFIX,
                                        "fuse",       "fuse.control",     "fuse.control" UPGRADE_SUFFIX};
    char path[128];
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof path, "%s/%s", s->run_dir, names[i]);
        (void)remove(path); /* what was never made is absent */
    }
    if (rmdir(s->run_dir) && errno != ENOENT)
        log_warning("cannot remove %s: %s", s->run_dir, strerror(errno));
}

/* Everything but the mount itself. */
static int take_down(struct mount_state *s)
{
    struct error first = {0};
    keep_first(&first, mount_device_take_down(s));
    keep_first(&first, process_end(&s->server, SERVER_END_MS));
    if (is_fuse(s) && s->server.pid)
        fuse_mount_clear(s->socket); /* what a server that was killed has left */
    if (!first.code)
        remove_run_dir(s);
    return first.code ? error_restore(&first) : 0;
}

/* ---- front ---- */

/* The directory of the state is the claim on the mount point: mkdir decides between two mounts. */
static int claim(struct mount_state *s)
{
    int rc = io_mkdirs(STATE_ROOT);
    if (rc)
        return rc;
    (void)rmdir(s->run_dir); /* succeeds for one that a killed mount left without any state */
    if (!mkdir(s->run_dir, 0700))
        return 0;
    if (errno != EEXIST)
        return error_set(-errno, "cannot make %s: %s", s->run_dir, strerror(errno));
    return error_set(-EBUSY,
                     "%s is being mounted, or was left over by a mount that was killed; "
                     "'granary umount %s' cleans up",
                     s->dir, s->dir);
}

int mount_image(const struct mount_config *c, struct mount_state *out)
{
    CLEANUP_FREE char *dir = NULL;
    *out = (struct mount_state){.digest = c->digest, .content_root = c->content_root};
    int rc = resolve_dir(c->dir, &dir);
    if (!rc)
        rc = check_dir(dir);
    if (!rc && !c->fuse)
        rc = device_nbd_available();
    if (rc)
        return rc;
    state_name(dir, out);
    snprintf(out->image, sizeof out->image, "%s", c->image);
    snprintf(out->method, sizeof out->method, c->fuse ? "fuse" : "nbd");
    rc = claim(out);
    if (rc)
        return rc;
    rc = state_save(out);
    if (!rc)
        rc = build_up(c, out);
    if (!rc)
        return 0;
    struct error first;
    error_take(&first, rc);
    if (out->mounted)
        rc = unmount(out);
    rc = take_down(out);
    if (rc)
        log_warning("while undoing the mount: %s", error_text());
    return error_restore(&first);
}

/* The mount point of a dead mount may not resolve any more: its name then counts as it is. */
static int load(const char *dir, struct mount_state *out)
{
    CLEANUP_FREE char *resolved = realpath(dir, NULL);
    int rc = state_load(resolved ? resolved : dir, out);
    if (rc != -ENOENT)
        return rc;
    if (!resolved)
        return error_set(-ENOENT, "%s: no such directory", dir);
    if (is_mount_point(resolved) > 0)
        return error_set(-ENOENT, "%s was not mounted by granary; use umount %s", dir, dir);
    return error_set(-ENOENT, "nothing is mounted on %s", dir);
}

int mount_find(const char *dir, struct mount_state *out)
{
    return load(dir, out);
}

int mount_remove(const char *dir)
{
    struct mount_state s;
    int rc = load(dir, &s);
    if (!rc)
        rc = unmount(&s);
    if (rc)
        return rc;
    if (state_save(&s)) /* only the next try would want it */
        log_warning("%s", error_text());
    rc = check_elsewhere(&s);
    return rc ? rc : take_down(&s);
}

struct mounted {
    state_visit *visit;
    void *arg;
};

static int visit_mounted(void *arg, const struct mount_state *s)
{
    const struct mounted *m = arg;
    return s->mounted && is_mount_point(s->dir) > 0 ? m->visit(m->arg, s) : 0;
}

int mount_each(state_visit *visit, void *arg)
{
    return state_each(visit_mounted, &(struct mounted){visit, arg});
}

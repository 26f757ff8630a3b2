/* The switch is made of mount propagation: a mount that propagates to a place where one is already goes beneath that
 * (Linux 4.12). So a child process, in a mount namespace of its own, mounts the new version in a copy of DIR in which
 * nothing covers `current`. The copy is a peer of DIR, and of the copies that containers have of it. Then the mount on
 * top, the old version's, is detached: one step, after which lookups find the new one. Why no other way:
 * docs/internals/follow.md.
 *
 * What is mounted in the child's namespace goes with the child, which unmounts nothing elsewhere. So a kill leaves the
 * old version shown, or both there, of which the lower one is the newer: see detach_covering. */
#include "attach/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/mount/mount_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    SWITCH_MS = 30000,
    ENDING_S = 60,
    TREE_CLONE = 1 /* OPEN_TREE_CLONE */,
    EMPTY_PATH = 4 /* MOVE_MOUNT_F_EMPTY_PATH */,
    FS_CLOEXEC = 1 /* FSOPEN_CLOEXEC, FSMOUNT_CLOEXEC */,
    SET_STRING = 1 /* FSCONFIG_SET_STRING */,
    CREATE = 6 /* FSCONFIG_CMD_CREATE */,
    TMPFS_ATTRIBUTES = 2 | 4 | 8 /* MOUNT_ATTR_NOSUID, NODEV, NOEXEC */
};

static char *path_in(const struct follow_state *f, const char *name, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.*s/%s", PATH_MAX - 16, f->dir, name);
    return out;
}

static char *path_of_current(const struct follow_state *f, char out[PATH_MAX])
{
    return path_in(f, "current", out);
}

/* Make a directory that may be there already. */
static int make_dir(const char *path)
{
    int rc = mkdir(path, 0755);
    if (rc && errno == EEXIST)
        return 0;
    return rc || chmod(path, 0755) /* whatever the umask is */
               ? error_set(-errno, "cannot make %s: %s", path, strerror(errno))
               : 0;
}

/* ---- the tmpfs ---- */

static int place_mount(int fd, const char *path)
{
    return syscall(SYS_move_mount, fd, "", AT_FDCWD, path, EMPTY_PATH)
               ? error_set(-errno, "cannot mount on %s: %s", path, strerror(errno))
               : 0;
}

/* Make a tmpfs that is mounted nowhere. Return a descriptor of it, or -errno. What will be in it is little and has no
 * contents of its own. */
static int make_tmpfs(void)
{
    static const char *const options[][2] = {
        {"source", "granary"}, {"mode", "0755"}, {"size", "64k"}, {"nr_inodes", "256"}};
    CLEANUP_FD int fs = (int)syscall(SYS_fsopen, "tmpfs", FS_CLOEXEC);
    bool made = fs >= 0;
    for (size_t i = 0; made && i < GR_ARRAY_SIZE(options); i++)
        made = !syscall(SYS_fsconfig, fs, SET_STRING, options[i][0], options[i][1], 0);
    made = made && !syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0);
    int fd = made ? (int)syscall(SYS_fsmount, fs, FS_CLOEXEC, TMPFS_ATTRIBUTES) : -1;
    return fd >= 0 ? fd : error_set(-errno, "cannot make a tmpfs: %s", strerror(errno));
}

/* Mount it. Its device is in the state before: after a kill it is known as ours. */
static int mount_tmpfs(struct follow_state *f)
{
    struct stat st;
    CLEANUP_FD int fd = make_tmpfs();
    if (fd < 0)
        return fd;
    if (fstat(fd, &st))
        return error_set(-errno, "the tmpfs for %s: %s", f->dir, strerror(errno));
    f->device = st.st_dev;
    int rc = follow_save(f);
    if (!rc)
        rc = place_mount(fd, f->dir);
    if (!rc)
        utab_add("granary", f->dir);
    return rc;
}

/* Whether our tmpfs is mounted on DIR: 1, or 0, also where something else is. -errno. */
static int tmpfs_is_there(const struct follow_state *f)
{
    dev_t device;
    int rc = mountinfo_at(f->dir, &device);
    return rc > 0 ? f->device && device == f->device : rc;
}

/* Users that cannot reach DIR must not reach its versions. If one directory on the way restricts access, its group is
 * let in; if several do, only root is. */
static int restrict_versions(const struct follow_state *f, const char *versions)
{
    char path[PATH_MAX];
    struct stat st;
    mode_t mode = 0755;
    gid_t group = 0;
    snprintf(path, sizeof path, "%s", f->dir);
    for (char *slash; (slash = strrchr(path, '/')) && slash > path;) {
        *slash = 0;
        if (stat(path, &st))
            return error_set(-errno, "%s: %s", path, strerror(errno));
        if (st.st_mode & S_IXOTH)
            continue;
        mode = mode == 0755 && (st.st_mode & S_IXGRP) ? 0750 : 0700;
        group = mode == 0750 ? st.st_gid : 0;
    }
    return chown(versions, 0, group) || chmod(versions, mode)
               ? error_set(-errno, "cannot restrict %s: %s", versions, strerror(errno))
               : 0;
}

/* Have a place for versions that is a shared mount, whatever /run is: what is unmounted there then goes from the
 * namespaces of services and containers, too, instead of being in use there. */
static int make_versions(const struct follow_state *f)
{
    char dir[PATH_MAX];
    dev_t device;
    char *slash = strrchr(follow_versions(f, dir), '/');
    *slash = 0;
    int rc = make_dir(dir);
    *slash = '/';
    if (!rc)
        rc = make_dir(dir);
    if (!rc)
        rc = restrict_versions(f, dir);
    if (!rc)
        rc = mountinfo_at(dir, &device);
    if (rc < 0)
        return rc;
    return (!rc && mount(dir, dir, NULL, MS_BIND, NULL)) || mount(NULL, dir, NULL, MS_SHARED, NULL)
               ? error_set(-errno, "cannot make a shared mount on %s: %s", dir, strerror(errno))
               : 0;
}

/* Have a symbolic link at a path, whatever it was before. */
static int make_link(const struct follow_state *f, const char *path, const char *target)
{
    char fresh[PATH_MAX];
    path_in(f, ".fresh", fresh);
    (void)unlink(fresh);
    return symlink(target, fresh) || rename(fresh, path)
               ? error_set(-errno, "cannot make the link %s: %s", path, strerror(errno))
               : 0;
}

/* Make the directory and the link of a version. */
static int make_place(const struct follow_state *f, const struct digest *digest)
{
    char dir[PATH_MAX], link[PATH_MAX];
    int rc = make_dir(follow_version_dir(f, digest, dir));
    return rc ? rc : make_link(f, follow_version_link(f, digest, link), dir);
}

int follow_make(struct follow_state *f, bool *out_made)
{
    char current[PATH_MAX];
    int there = tmpfs_is_there(f), rc = there < 0 ? there : 0;
    *out_made = false;
    if (!rc && !there) {
        f->shown = (struct digest){{0}};
        rc = mount_check_dir(f->dir);
        if (!rc)
            rc = mount_tmpfs(f);
        *out_made = !rc;
    }
    /* whatever its parent is: the switch needs that, and containers that mount DIR as a slave see later versions */
    if (!rc && mount(NULL, f->dir, NULL, MS_SHARED, NULL))
        rc = error_set(-errno, "cannot share the mount on %s: %s", f->dir, strerror(errno));
    if (!rc)
        rc = make_dir(path_of_current(f, current));
    if (!rc)
        rc = make_versions(f);
    for (size_t i = 0; !rc && i < f->count; i++)
        rc = make_place(f, &f->versions[i].digest);
    return rc ? rc : follow_save(f);
}

/* ---- the list of versions ---- */

int follow_add(struct follow_state *f, const struct digest *digest)
{
    if (!follow_find(f, digest)) {
        if (f->count == FOLLOW_VERSIONS_MAX)
            return error_set(-ENOSPC, "%s has %d versions, as many as are possible", f->dir, FOLLOW_VERSIONS_MAX);
        f->versions[f->count++] = (struct follow_version){.digest = *digest};
        int rc = follow_save(f);
        if (rc)
            return rc;
    }
    return make_place(f, digest);
}

/* Take a version off the list. false: it is not there. */
static bool unlist(struct follow_state *f, const struct digest *digest)
{
    const struct follow_version *v = follow_find(f, digest);
    if (!v)
        return false;
    const size_t i = (size_t)(v - f->versions);
    f->count--;
    memmove(&f->versions[i], &f->versions[i + 1], (f->count - i) * sizeof *v);
    return true;
}

int follow_retire(struct follow_state *f, const struct digest *digest)
{
    char dir[PATH_MAX], link[PATH_MAX];
    follow_version_dir(f, digest, dir);
    int rc = access(dir, F_OK) ? 0 : mount_remove_unused(dir);
    if (!rc && rmdir(dir) && errno != ENOENT)
        rc = error_set(-errno, "cannot remove %s: %s", dir, strerror(errno));
    if (rc)
        return rc;
    (void)unlink(follow_version_link(f, digest, link));
    (void)unlist(f, digest);
    return follow_save(f);
}

/* ---- the switch ---- */

/* A version to be mounted beneath what DIR/current shows. */
struct sliding {
    const char *dir, *current, *version;
};

/* Make a detached copy of the mount at a path; it stays in the peer group of that mount. Glibc has these calls since
 * 2.36 only. */
static int copy_mount(const char *path)
{
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, TREE_CLONE | O_CLOEXEC);
    return fd >= 0 ? fd : error_set(-errno, "cannot copy the mount of %s: %s", path, strerror(errno));
}

/* In the child process. The copy of DIR is made while the namespace's own mount of DIR is still a peer of the outer
 * one; that of the version afterwards, so that it has nothing to do with the version's own. */
static int slide(void *arg)
{
    const struct sliding *s = arg;
    if (unshare(CLONE_NEWNS))
        return error_set(-errno, "cannot make a mount namespace: %s", strerror(errno));
    CLEANUP_FD int dir = copy_mount(s->dir);
    if (dir < 0)
        return dir;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
        return error_set(-errno, "cannot make the mounts of a namespace private: %s", strerror(errno));
    CLEANUP_FD int version = copy_mount(s->version);
    int rc = version < 0 ? version : place_mount(dir, s->dir);
    return rc ? rc : place_mount(version, s->current);
}

/* Detach the mount on top of DIR/current. Files and directories of it that are open stay open. */
static int detach_top(const char *current)
{
    int rc = umount_soon(current, MNT_DETACH);
    return rc == -ETIMEDOUT ? error_set(rc, "the kernel does not detach %s in time", current) : rc;
}

/* Leave one mount at DIR/current: the lowest, which came last. *out: how many there are now, 0 or 1. */
static int detach_covering(const char *current, size_t *out)
{
    int rc = mountinfo_stacked(current, out);
    for (; !rc && *out > 1; --*out)
        rc = detach_top(current);
    return rc;
}

/* Have DIR/current show what is mounted on a version's directory. */
static int switch_to(const struct follow_state *f, const char *version)
{
    char current[PATH_MAX];
    const struct sliding sliding = {.dir = f->dir, .current = path_of_current(f, current), .version = version};
    dev_t wanted, shown;
    size_t there;
    int rc = mountinfo_at(version, &wanted);
    if (!rc)
        return error_set(-ENOENT, "%s is not mounted any more", version);
    rc = rc < 0 ? rc : detach_covering(current, &there);
    if (!rc && there && mountinfo_at(current, &shown) > 0 && shown == wanted)
        return 0;
    if (!rc)
        rc = deadline_call(slide, (void *)&sliding, SWITCH_MS);
    if (rc == -ETIMEDOUT)
        return error_set(rc, "the kernel does not mount on %s in time", current);
    return rc || !there ? rc : detach_top(current);
}

/* Replace the link to the version's link. Nothing depends on it. */
static void link_shown(const struct follow_state *f, const struct digest *digest)
{
    char link[PATH_MAX], version[PATH_MAX];
    follow_version_link(f, digest, version);
    if (make_link(f, path_in(f, "@current", link), strrchr(version, '/') + 1))
        log_warning("%s", error_text());
}

/* Make a version the last of the list, shown now. digest does not lie in the list. */
static void move_last(struct follow_state *f, const struct digest *digest)
{
    if (unlist(f, digest))
        f->versions[f->count++] = (struct follow_version){.digest = *digest, .shown = time(NULL)};
}

int follow_show(struct follow_state *f, const struct digest *digest)
{
    char version[PATH_MAX];
    follow_version_dir(f, digest, version);
    int rc = switch_to(f, version);
    if (rc)
        return rc;
    link_shown(f, digest);
    bool other = !digest_equal(&f->shown, digest), first = digest_is_zero(&f->shown);
    if (other && !first) {
        f->switches++;
        f->switched = time(NULL);
    }
    const struct digest fresh = *digest; /* it may lie in the list */
    move_last(f, &f->shown);             /* which was shown until now */
    move_last(f, &fresh);
    f->shown = fresh;
    rc = follow_save(f);
    return rc ? rc : other && !first;
}

/* The switch may have happened, while the state is of before. */
int follow_recognize(struct follow_state *f)
{
    char current[PATH_MAX], version[PATH_MAX];
    dev_t shown, device;
    size_t there;
    int rc = detach_covering(path_of_current(f, current), &there);
    if (rc || !there || mountinfo_at(current, &shown) <= 0)
        return rc;
    for (size_t i = 0; i < f->count; i++) {
        const struct digest digest = f->versions[i].digest;
        if (mountinfo_at(follow_version_dir(f, &digest, version), &device) <= 0 || device != shown)
            continue;
        rc = follow_show(f, &digest);
        return rc < 0 ? rc : 0;
    }
    return 0;
}

/* `current` may be missing, too: any process that may write in DIR can remove it. */
int follow_shows(const struct follow_state *f)
{
    char current[PATH_MAX];
    dev_t device;
    int rc = tmpfs_is_there(f);
    if (!rc)
        rc = error_set(-ENOENT, "%s was unmounted by others", f->dir);
    else if (rc > 0)
        rc = make_dir(path_of_current(f, current));
    return rc < 0 ? rc : mountinfo_at(current, &device);
}

/* ---- the end ---- */

/* Unmount a part of the directory, unless somebody uses it. */
static int unmount_part(const char *path, bool force)
{
    int rc = umount_soon(path, force ? MNT_DETACH : 0);
    if (rc == -EBUSY)
        return error_set(rc, "%s is in use; end what uses it ('fuser -vm %s' shows it) and try again", path, path);
    return rc == -ETIMEDOUT ? error_set(rc, "the kernel does not unmount %s in time", path) : rc;
}

/* Unmount all that is at DIR/current. */
static int unmount_current(const struct follow_state *f, bool force)
{
    char current[PATH_MAX];
    size_t there;
    int rc = mountinfo_stacked(path_of_current(f, current), &there);
    for (; !rc && there; there--)
        rc = unmount_part(current, force);
    return rc;
}

/* Take down all versions; the first error is returned, after the others were tried. */
static int remove_versions(const struct follow_state *f, bool force)
{
    struct error first = {.code = 0};
    char dir[PATH_MAX];
    for (size_t i = 0; i < f->count; i++) {
        follow_version_dir(f, &f->versions[i].digest, dir);
        int rc = access(dir, F_OK) ? 0 : mount_remove(dir, force, NULL);
        if (!rc)
            (void)rmdir(dir);
        else if (!first.code)
            error_take(&first, rc);
    }
    if (first.code)
        return error_restore(&first);
    int rc = unmount_part(follow_versions(f, dir), false);
    return !rc && rmdir(dir) && errno != ENOENT ? error_set(-errno, "cannot remove %s: %s", dir, strerror(errno)) : rc;
}

/* Unmount everything from DIR/current down. */
static int take_down(const struct follow_state *f, bool force, bool there)
{
    int rc = there ? unmount_current(f, force) : 0;
    if (!rc)
        rc = remove_versions(f, force);
    return !rc && there ? unmount_part(f->dir, force) : rc;
}

/* With the claim: the same, and the state. The child of a follower that was killed may have mounted a version at
 * DIR/current meanwhile. */
static int remove_claimed(const struct follow_state *f, bool force)
{
    char current[PATH_MAX];
    size_t again;
    int there = tmpfs_is_there(f);
    int rc = there < 0 ? there : take_down(f, force, there);
    if (rc == -EBUSY && there && !mountinfo_stacked(path_of_current(f, current), &again) && again)
        rc = take_down(f, force, there);
    if (rc)
        return rc;
    utab_remove(f->dir);
    follow_report_end(f); /* before the state goes: a process that is killed here runs again */
    state_remove_dir(f->run_dir);
    return 0;
}

/* A process that is about to unmount leaves this file. It counts for a minute only, since that process may be killed.
 */
static char *ending_file(const struct follow_state *f, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/ending", f->run_dir);
    return out;
}

bool follow_is_ending(const struct follow_state *f)
{
    char path[PATH_MAX];
    struct stat st;
    if (stat(ending_file(f, path), &st))
        return false;
    time_t age = time(NULL) - st.st_mtime;
    return age >= 0 && age < ENDING_S;
}

/* End the follower, another process. DIR/current comes first: if it is in use nothing has changed. The follower would
 * show it again, were it not for the file. Every step of the follower can be repeated, so it is not asked. */
static int end_follower(const struct follow_state *f, bool force)
{
    char path[PATH_MAX];
    if (io_write_file_atomic(ending_file(f, path), "", 0, false)) /* a full disk does not prevent it */
        log_debug("%s is unmounted all the same: %s", f->dir, error_text());
    int rc = tmpfs_is_there(f) > 0 ? unmount_current(f, force) : 0;
    if (!rc && f->follower.pid != getpid())
        rc = process_end(&f->follower, 0);
    (void)unlink(path);
    return rc;
}

int follow_remove(const char *dir, bool force, int lock)
{
    struct follow_state f;
    CLEANUP_FD int claimed = -1;
    int rc = follow_load(dir, &f);
    if (rc || lock >= 0)
        return rc ? rc : remove_claimed(&f, force);
    rc = end_follower(&f, force);
    if (!rc)
        rc = node_lock_mount(f.run_dir, true, &claimed);
    if (rc)
        return rc;
    rc = follow_load(dir, &f); /* it may have gone on in the meantime */
    if (rc == -ENOENT)
        state_remove_dir(f.run_dir); /* which the lock has made again */
    if (!rc)
        rc = remove_claimed(&f, force);
    return rc == -EBUSY ? error_prefix(rc, "no process follows %s any more, but not all of it is unmounted", dir) : rc;
}

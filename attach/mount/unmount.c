/* Kernel calls that may wait for a device whose server is gone are made by a child process with a time limit
 * (deadline_call).
 *
 * A mount is stale, and may be taken down by any process, when three things hold: no process has the mount's lock,
 * nothing is mounted at its mount point, and its device is not claimed, which a mount in any namespace would do. */
#include "attach/mount/mount_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/device/device.h"
#include "attach/keeper/keeper.h"
#include "attach/mount/mountinfo.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"

enum { UMOUNT_MS = 30000, TRIES = 20, STEP_US = 50000 };

/* ---- the mount ---- */

/* Whether something else is mounted there by now, after ours was unmounted. */
static bool is_anothers(const struct mount_state *s)
{
    dev_t mounted;
    struct stat device;
    if (mountinfo_at(s->dir, &mounted) <= 0)
        return false;
    if (mount_is_direct(s))
        return !mountinfo_is_of(s->dir, s->image_file);
    return !*s->device || (!stat(s->device, &device) && mounted != device.st_rdev);
}

/* The arguments of umount2, for the child process. */
struct umounting {
    const char *dir;
    int flags;
};

static int call_umount(void *arg)
{
    const struct umounting *u = arg;
    return umount2(u->dir, u->flags) ? error_set(-errno, "cannot umount %s: %s", u->dir, strerror(errno)) : 0;
}

int umount_soon(const char *dir, int flags)
{
    struct umounting u = {.dir = dir, .flags = UMOUNT_NOFOLLOW | flags};
    int rc = deadline_call(call_umount, &u, UMOUNT_MS);
    return rc == -EINVAL || rc == -ENOENT ? 0 : rc;
}

/* Return -EBUSY with a sentence that tells the reason: busy, or the server is stuck or gone. */
static int unmount_refuse(const struct mount_state *s, int rc)
{
    if (mount_is_direct(s) || (rc == -EBUSY && mount_server_answers(s)))
        return error_set(-EBUSY, "%s is in use; end what uses it ('fuser -vm %s' shows it) and try again", s->dir,
                         s->dir);
    return error_set(
        -EBUSY,
        "%s %s, and %s; start the server again, or have 'granary umount --force %s' end with EIO what reads "
        "there",
        s->dir, rc == -EBUSY ? "is in use" : "is not unmounted by the kernel in time",
        mount_server_answers(s) ? "its server gives no answer" : "its server is gone", s->dir);
}

/* Cut the readers off, then unmount; lazily if some process still holds the mount. */
static int force_umount(struct mount_state *s)
{
    if (!mount_is_direct(s))
        log_warning("%s: its device is detached first; what still reads there gets EIO", s->dir);
    if (mount_device_cut(s))
        log_warning("%s", error_text());
    int rc = -EBUSY;
    for (int i = 0; rc == -EBUSY && i < TRIES; i++) {
        rc = umount_soon(s->dir, 0);
        if (rc == -EBUSY)
            usleep(STEP_US);
    }
    if (!rc)
        return 0;
    log_warning("%s is still in use: it is gone from there now, and from the kernel with its last user", s->dir);
    rc = umount_soon(s->dir, MNT_DETACH);
    return rc == -ETIMEDOUT ? error_set(rc, "the kernel does not unmount %s, not even lazily", s->dir) : rc;
}

/* A mount that is busy, or does not end in time, is left alone without `force`. */
int unmount(struct mount_state *s, bool force)
{
    int rc = is_anothers(s) ? 0 : umount_soon(s->dir, 0);
    if (rc == -EBUSY || rc == -ETIMEDOUT)
        rc = force ? force_umount(s) : unmount_refuse(s, rc);
    if (!rc) {
        s->mounted = false;
        utab_remove(s->dir);
    }
    return rc;
}

/* ---- the rest ---- */

/* -EBUSY when the device is still mounted in another namespace, such as a container's, whose readers would get EIO (no
 * list here shows those mounts), or when its removal has begun and does not end. */
static int check_elsewhere(const struct mount_state *s)
{
    if (!*s->device || !mount_device_attached(s) || !device_claimed(s->device))
        return 0;
    int rc = strcmp(s->method, "ublk") != 0 ? 0 : device_ublk_await_removal(s->device); /* it claims the disk, too */
    if (rc || !mount_device_attached(s))
        return rc;
    return error_set(
        -EBUSY,
        "%s is unmounted, but %s is still mounted elsewhere, as in a container; end what reads it there and "
        "run 'granary umount %s' again, or with --force",
        s->dir, s->device, s->dir);
}

/* In reverse order of the mount. Each step does nothing if its part is gone already, so this can be repeated. */
int unmount_take_down(struct mount_state *s, bool force)
{
    /* A mounter that was killed between the attach and saving the state has left a device that the state does not name.
     */
    if (!strcmp(s->method, "nbd") && !*s->device && s->mounter.pid &&
        !device_nbd_find(s->mounter.pid, &s->content_root, s->device))
        device_nbd_mark(s->device, s->device_mark);
    int rc = force ? 0 : check_elsewhere(s);
    if (!rc)
        rc = mount_device_take_down(s, force);
    if (!rc)
        rc = mount_server_leave(s);
    if (!rc)
        state_remove_dir(s->run_dir);
    return rc;
}

/* ---- leftovers ---- */

typedef VEC(struct mount_state) states;

/* The states are copied: healing them changes the directory that state_each walks. */
static int unmount_collect(void *arg, const struct mount_state *s)
{
    states *all = arg;
    return vec_push(all, *s);
}

/* Take down a mount if it is stale. */
static void heal(struct mount_state *s)
{
    dev_t device;
    CLEANUP_FD int lock = -1;
    if (node_lock_mount(s->run_dir, false, &lock) || state_read(s) || mountinfo_at(s->dir, &device) > 0 ||
        check_elsewhere(s))
        return;
    log_info("cleaning up after a mount on %s", s->dir);
    if (unmount_take_down(s, false))
        log_warning("cannot clean up after a mount on %s: %s", s->dir, error_text());
}

/* Remove the run directory of a mount that was killed before it saved a state. */
static void remove_empty(const char *id)
{
    struct mount_state s = {.id = ""};
    CLEANUP_FD int lock = -1;
    char path[PATH_MAX];
    snprintf(s.run_dir, sizeof s.run_dir, "%s/%.*s", STATE_ROOT, STATE_ID_MAX, id);
    snprintf(path, sizeof path, "%s/state.json", s.run_dir);
    if (!access(path, F_OK) || node_lock_mount(s.run_dir, false, &lock))
        return;
    if (access(path, F_OK) && errno == ENOENT)
        state_remove_dir(s.run_dir);
}

/* Look at every run directory; other names in STATE_ROOT are no ids. */
static void remove_empty_dirs(const char *but_id)
{
    DIR *root = opendir(STATE_ROOT);
    for (struct dirent *e; root && (e = readdir(root));)
        if (strlen(e->d_name) == STATE_ID_MAX - 1 && strspn(e->d_name, "0123456789abcdef") == STATE_ID_MAX - 1 &&
            strcmp(e->d_name, but_id) != 0)
            remove_empty(e->d_name);
    if (root)
        closedir(root);
}

/* Only logs failures: it repairs what others left, and must not prevent the caller's own work. */
void unmount_stale(const char *but_id)
{
    states all = {0};
    if (state_each(unmount_collect, &all))
        log_warning("cannot look for everything that killed mounts have left: %s", error_text());
    for (size_t i = 0; i < all.len; i++)
        if (strcmp(all.items[i].id, but_id) != 0)
            heal(&all.items[i]);
    vec_release(&all);
    remove_empty_dirs(but_id);
    CLEANUP_FD int lock = -1;
    if (node_lock(&lock)) {
        log_warning("%s", error_text());
        return;
    }
    mount_servers_sweep_locked();
    keep_states_sweep_locked();
}

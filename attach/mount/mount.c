/* Each step is recorded in the state, and the state saved, before the next step begins. So one function serves for
 * undoing a failed mount, for umount, and for cleaning up after a crash: it takes down what the state names, in
 * reverse.
 *
 *   server -> export checked -> metadata cached -> device (nbd + reconnect daemon, ublk, or FUSE + loop)
 *          -> tuned -> mounted -> warmed
 *   a file with the image's bytes -> mounted (mount_direct.c)
 *
 * The lock on the run directory (node_lock_mount) is the claim on a mount point and is held throughout. */
#include "attach/mount/mount_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/control_client.h"
#include "attach/device/device_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "format/image_ref.h"
#include "format/json_name.h"
#include "net/listen.h"

/* ---- the mount point ---- */

/* Return the mount point as an absolute path without symlinks; free *out. */
static int resolve_dir(const char *dir, char **out)
{
    *out = realpath(dir, NULL);
    if (!*out && errno == ENOENT)
        return error_set(-ENOENT, "%s: no such directory; make it, or have --mkdir make it", dir);
    return *out ? 0 : error_set(-errno, "%s: %s; give an empty directory", dir, strerror(errno));
}

/* Check that nothing is mounted on dir, and that it is empty: a mount would hide what is in it. lost+found of a fresh
 * filesystem does not count. */
static int mount_check_mount_point(const char *dir)
{
    dev_t device;
    int mounted = mountinfo_at(dir, &device);
    if (mounted)
        return mounted < 0 ? mounted : error_set(-EBUSY, "%s is a mount point already; umount it first", dir);
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

/* For a check before the image is resolved: a wrong directory should be reported before a store is contacted. */
int mount_check_dir(const char *dir)
{
    CLEANUP_FREE char *resolved = NULL;
    int rc = resolve_dir(dir, &resolved);
    return rc ? rc : mount_check_mount_point(resolved);
}

/* ---- the server ---- */

/* Use a running server that the user names and that serves the image already. */
static int join_server(const struct mount_config *c, struct mount_state *s)
{
    if (!realpath(c->socket, s->socket)) /* umount may be run from anywhere */
        return error_set(-errno, "no server listens on %s: %s", c->socket, strerror(errno));
    (void)control_beside(s->socket, s->control);
    if (!c->fuse && listen_answered(s->control) <= 0)
        *s->control = 0;
    return state_save(s);
}

/* Whether a server may have an export of that name. One without a control socket may have any. */
static bool may_have(const struct mount_state *s, const char *name)
{
    CLEANUP_JSON json_t *root = NULL;
    json_t *export;
    size_t i;
    if (!*s->control)
        return true;
    if (control_status(s->control, &root))
        return false;
    json_array_foreach(json_object_get(root, "exports"), i, export)
    {
        const char *there = json_string_value(json_object_get(export, "name"));
        if (there && !strcmp(there, name))
            return true;
    }
    return false;
}

/* Does the server have that version of the image as an export, as one does that follows the image's tag
 * (server/followed_exports.c)? There the image's own name leads to another one when the tag moves, and reads would wait
 * after the next reconnect. */
static bool has_version(const struct export_check *check, const struct mount_config *c, const struct mount_state *s,
                        char version[STATE_REF_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    struct export_check other = *check;
    snprintf(version, STATE_REF_MAX, "%s@sha256:%s", c->export_name, digest_hex(&c->digest, hex));
    other.name = version;
    return c->socket && !c->fuse && !c->ublk && may_have(s, version) && !export_check(&other);
}

/* Have a server, and check that it serves the right image. *out: the config, with the export's actual name, which may
 * be in `version`. */
static int have_server(const struct mount_config *c, struct mount_state *s, struct mount_config *out,
                       char version[STATE_REF_MAX])
{
    int rc = c->socket ? join_server(c, s) : mount_server_have(c, s);
    *out = *c;
    if (*s->export_name)
        out->export_name = s->export_name;
    const struct export_check check = {.socket = s->socket,
                                       .control = c->fuse ? s->control : NULL,
                                       .name = out->export_name,
                                       .size = c->size,
                                       .content_root = c->content_root,
                                       .server = s->server.pid ? &s->server : NULL,
                                       .cancel = c->cancel};
    if (rc)
        return rc;
    if (has_version(&check, c, s, version)) {
        out->export_name = version;
        return 0;
    }
    if (c->ublk) /* the export is checked at the attach */
        rc = export_check_wait(&check, *s->control ? s->control : s->socket);
    else
        rc = export_check(&check);
    return rc == -EIO && !c->socket ? mount_server_explain(s, rc) : rc;
}

/* ---- the mount ---- */

/* Mount the device, and let umount(8) know of us. */
static int mount_filesystem(const struct mount_config *c, struct mount_state *s)
{
    unsigned long flags = MS_RDONLY | MS_NODEV | MS_NOSUID | (c->noexec ? MS_NOEXEC : 0);
    char remedy[MODULE_REMEDY_MAX];
    if (mount(s->device, s->dir, c->fs, flags, NULL)) {
        if (errno == ENODEV)
            return error_set(-ENODEV, "this kernel has no %s module (%s)", c->fs, module_remedy_here(c->fs, remedy));
        const int code = errno;
        int rc = code == EINVAL && !strcmp(c->fs, "erofs") ? mount_erofs_explain(c->size) : 0;
        return rc ? rc : error_set(-code, "cannot mount %s on %s: %s", s->device, s->dir, strerror(code));
    }
    s->mounted = true;
    utab_add(s->device, s->dir);
    return state_save(s);
}

/* Make everything, in the order above. */
static int build_up(const struct mount_config *config, struct mount_state *s)
{
    CLEANUP_FD int fd = -1;
    struct mount_config named;
    char version[STATE_REF_MAX];
    const struct mount_config *c = &named;
    if (config->image_file)
        return mount_direct(config, s);
    int rc = have_server(config, s, &named, version);
    if (!rc)
        rc = mount_server_warm(c, s);
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
    if (!rc && !c->cold)
        rc = device_warm(fd, s->device, 0, c->front_len, c->cancel);
    if (!rc && !c->cold)
        rc = device_warm(fd, s->device, c->metadata_offset, c->metadata_len, c->cancel);
    return rc ? rc : cancel_check(c->cancel);
}

/* ---- mounting, finding ---- */

/* Lock a mount's run directory; -EBUSY names the mount. */
static int lock_mount(const struct mount_state *s, int *out_lock)
{
    int rc = node_lock_mount(s->run_dir, true, out_lock);
    return rc == -EBUSY ? error_prefix(rc, "%s", s->dir) : rc;
}

/* Lock the mount's run directory, and take down what a killed mount left in it. That removes the directory, so it is
 * locked again. */
static int mount_claim(struct mount_state *s, int *out_lock)
{
    struct mount_state left = *s;
    int rc = io_mkdirs(STATE_ROOT);
    if (!rc)
        rc = lock_mount(s, out_lock);
    if (rc)
        return rc;
    rc = state_read(&left);
    if (rc == -ENOENT)
        return 0;
    if (!rc)
        rc = mount_check_mount_point(s->dir); /* another may have mounted there meanwhile */
    if (!rc)
        rc = unmount_take_down(&left, false);
    close(steal_fd(out_lock));
    return rc ? rc : node_lock_mount(s->run_dir, true, out_lock);
}

/* Take down what was made; return the error that rc and the thread's sentence describe. */
static int undo(struct mount_state *s, int rc)
{
    struct error first;
    error_take(&first, rc);
    rc = s->mounted ? unmount(s, false) : 0;
    if (!rc)
        rc = unmount_take_down(s, false);
    if (rc)
        log_warning("while undoing the mount: %s", error_text());
    return error_restore(&first);
}

/* Checks that cost nothing come first. From mount_claim on, the state records each step, and a failure undoes what it
 * records. */
int mount_image(const struct mount_config *c, struct mount_state *out)
{
    CLEANUP_FREE char *dir = NULL;
    *out = (struct mount_state){.digest = c->digest, .content_root = c->content_root};
    int rc = resolve_dir(c->dir, &dir);
    if (!rc)
        rc = mount_check_mount_point(dir);
    if (!rc && !c->image_file && !c->fuse)
        rc = c->ublk ? device_ublk_available() : device_nbd_available();
    if (rc)
        return rc;
    state_name(dir, out);
    snprintf(out->image, sizeof out->image, "%s", c->image);
    snprintf(out->method, sizeof out->method, "%s",
             c->image_file ? "direct"
             : c->fuse     ? "fuse"
             : c->ublk     ? "ublk"
                           : "nbd");
    snprintf(out->fs, sizeof out->fs, "%s", c->fs);
    out->noexec = c->noexec;
    unmount_stale(out->id);
    CLEANUP_FD int lock = -1;
    rc = mount_claim(out, &lock);
    if (rc)
        return rc;
    out->mounter = process_identify(getpid());
    rc = state_save(out);
    if (!rc)
        rc = build_up(c, out);
    return rc ? undo(out, rc) : 0;
}

/* ---- new keys for a mount ---- */

int mount_pinned(const struct mount_state *s, char out[IMAGE_REF_MAX])
{
    struct image_ref ref;
    int rc = image_ref_parse(s->image, &ref);
    if (rc)
        return rc;
    ref.by_digest = true;
    ref.digest = s->digest;
    image_ref_text(&ref, out);
    return 0;
}

/* Under the mount's lock, so that umount does not remove the export at the same time. */
static int give_keys_locked(struct mount_state *s, const char *image, const struct bytes *keys,
                            const volatile int *cancel)
{
    char pinned[IMAGE_REF_MAX];
    CLEANUP_FD int lock = -1;
    int rc = lock_mount(s, &lock);
    if (rc)
        return rc;
    rc = state_read(s);
    if (rc)
        return rc;
    if (strcmp(s->image, image) != 0)
        return error_set(-EBUSY, "%s is mounted on %s; umount it first, or name it like that to replace its keys",
                         s->image, s->dir);
    if (mount_is_direct(s))
        return error_set(-EBUSY, "%s is mounted from a file, and needs no keys; umount it first", s->dir);
    if (!*s->export_name)
        return error_set(-EBUSY, "%s was mounted with --socket, and that server has its own keys; umount it first",
                         s->dir);
    rc = mount_pinned(s, pinned);
    return rc ? rc : mount_server_give_keys(s, pinned, keys, cancel);
}

/* Only a mount that is there has readers to go on; what a killed mount left is mount_image's to repair. */
int mount_give_keys(const char *dir, const char *image, const struct bytes *keys, const volatile int *cancel,
                    struct mount_state *out)
{
    int rc = mount_find(dir, out);
    if (!rc && !mount_is_there(out))
        return error_set(-ENOENT, "nothing is mounted on %s", dir);
    return rc ? rc : give_keys_locked(out, image, keys, cancel);
}

/* ---- unmounting ---- */

/* Take the mount down under its lock. The state is read again: another process may have removed the mount while this
 * one waited for the lock. */
static int remove_locked(struct mount_state *s, bool force)
{
    CLEANUP_FD int lock = -1;
    int rc = lock_mount(s, &lock);
    if (rc)
        return rc;
    rc = state_read(s); /* others may have been faster */
    if (rc == -ENOENT)
        return error_set(rc, "nothing is mounted on %s", s->dir);
    if (!rc)
        rc = unmount(s, force);
    if (rc)
        return rc;
    if (state_save(s)) /* needed only if taking down the rest fails */
        log_warning("%s", error_text());
    return unmount_take_down(s, force);
}

/* Whether a directory lies inside a mount of ours. */
static int visit_around(void *arg, const struct mount_state *s)
{
    const char *dir = arg;
    size_t len = strlen(s->dir);
    return !strncmp(dir, s->dir, len) && dir[len] == '/';
}

/* Whether dir may have been a mount point of ours before: a directory with nothing mounted on it, inside none of our
 * mounts. The thread's error stays as it is. */
static bool is_free(const char *dir)
{
    dev_t device;
    struct stat st;
    struct error before;
    CLEANUP_FREE char *resolved = realpath(dir, NULL);
    error_take(&before, 0);
    bool free_dir = resolved && mount_each(visit_around, resolved) <= 0 && !mountinfo_at(resolved, &device) &&
                    !lstat(resolved, &st) && S_ISDIR(st.st_mode);
    (void)error_restore(&before);
    return free_dir;
}

/* A directory with nothing mounted on it is success too, so that umount can be repeated. */
int mount_remove(const char *dir, bool force, bool *out_removed)
{
    struct mount_state s = {.id = ""};
    int rc = mount_find(dir, &s);
    if (!rc)
        rc = remove_locked(&s, force);
    bool removed = !rc;
    if (rc == -ENOENT && is_free(dir))
        rc = 0;
    if (!rc)
        unmount_stale(s.id);
    if (out_removed)
        *out_removed = removed;
    return rc;
}

/* The mount was put back by a process that was killed before it wrote this down. 1: done; 0: what is mounted is another
 * device. */
static int note_mounted(struct mount_state *s, dev_t device)
{
    struct stat st;
    if (stat(s->device, &st) || st.st_rdev != device)
        return 0;
    s->mounted = true;
    int rc = state_save(s);
    return rc ? rc : 1;
}

/* With the mount's lock: mount_put_back. */
static int put_back_locked(struct mount_state *s)
{
    dev_t device;
    const struct mount_config config = {.fs = s->fs, .noexec = s->noexec};
    int there = mountinfo_at(s->dir, &device);
    if (there < 0)
        return there;
    if (there)
        return s->mounted ? 0 : note_mounted(s, device);
    if (!*s->device || !mount_device_attached(s) || !device_claimed(s->device))
        return 0;
    int rc = mount_filesystem(&config, s);
    return rc ? rc : 1;
}

int mount_put_back(const char *dir, struct mount_state *out)
{
    CLEANUP_FD int lock = -1;
    int rc = mount_find(dir, out);
    if (!rc)
        rc = node_lock_mount(out->run_dir, false, &lock);
    if (!rc)
        rc = state_read(out); /* others may have been faster */
    return rc ? rc : put_back_locked(out);
}

/* Whether a filesystem is in use elsewhere is known only once it is not mounted here. */
static int remove_unused_locked(struct mount_state *s)
{
    struct error first;
    CLEANUP_FD int lock = -1;
    int rc = lock_mount(s, &lock);
    if (rc)
        return rc;
    rc = state_read(s); /* others may have been faster */
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = unmount(s, false);
    if (!rc)
        rc = unmount_take_down(s, false);
    if (rc != -EBUSY || s->mounted)
        return rc;
    error_take(&first, rc);
    if (put_back_locked(s) < 0)
        log_warning("%s is in use elsewhere, and not mounted there any more: %s", s->dir, error_text());
    return error_restore(&first);
}

int mount_remove_unused(const char *dir)
{
    struct mount_state s = {.id = ""};
    int rc = mount_find(dir, &s);
    if (!rc)
        rc = remove_unused_locked(&s);
    return rc == -ENOENT && is_free(dir) ? 0 : rc;
}

bool mount_is_there(const struct mount_state *s)
{
    dev_t device;
    return s->mounted && mountinfo_at(s->dir, &device) > 0;
}

/* The visitor that mount_each passes on to. */
struct mounted {
    state_visit *visit;
    void *arg;
};

static int visit_mounted(void *arg, const struct mount_state *s)
{
    const struct mounted *m = arg;
    return mount_is_there(s) ? m->visit(m->arg, s) : 0;
}

int mount_each(state_visit *visit, void *arg)
{
    return state_each(visit_mounted, &(struct mounted){visit, arg});
}

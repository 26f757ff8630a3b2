/* The kinds of device fail differently. An nbd device outlives its server, and a reconnect daemon connects it again. A
 * ublk device does, too, and the next server takes it over. Both are identified by their marks. A loop device stands on
 * a file of granary-fuse and detaches itself at its last close; it is identified by that file. */
#include "attach/mount/mount_internal.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "attach/device/device_internal.h"
#include "attach/keeper/keeper.h"
#include "attach/server/service.h"
#include "base/cleanup.h"
#include "base/error.h"

enum { NBD_CONNECTIONS = 4, SERVER_START_MS = 15000 };

/* ---- kernel nbd ---- */

/* Start a reconnect daemon whose log is in the mount's run directory. Returns 1 when it keeps the device. */
static int start_keeper(const struct mount_state *s, const struct keep_state *k)
{
    CLEANUP_FD int log = service_log_open(s->run_dir, "keep.log");
    if (log < 0)
        return log;
    int rc = keeper_start(k, log);
    if (rc == -EIO)
        return service_log_explain(s->run_dir, "keep.log", "the device's reconnect daemon failed", rc);
    return rc ? rc : 1;
}

/* Attach a device, save which one, and start its reconnect daemon. A process killed after the attach leaves a device
 * that unmount.c finds by its mounter. */
static int make_nbd(const struct mount_config *c, struct mount_state *s)
{
    const struct device_nbd d = {.address = s->socket,
                                 .export_name = c->export_name,
                                 .connections = c->connections ? c->connections : NBD_CONNECTIONS,
                                 .size = c->size,
                                 .content_root = c->content_root,
                                 .timeout_s = c->timeout_s,
                                 .dead_s = c->dead_s};
    struct keep_state k = {.size = c->size,
                           .content_root = c->content_root,
                           .tagged = true,
                           .timeout_s = c->timeout_s,
                           .dead_s = c->dead_s};
    int rc = device_nbd_attach(&d, s->device);
    if (rc)
        *s->device = 0;
    else
        device_nbd_mark(s->device, s->device_mark);
    if (!rc)
        rc = state_save(s);
    if (rc)
        return rc;
    snprintf(k.device, sizeof k.device, "%s", s->device);
    snprintf(k.mark, sizeof k.mark, "%s", s->device_mark);
    snprintf(k.address, sizeof k.address, "%s", s->socket);
    snprintf(k.export_name, sizeof k.export_name, "%s", c->export_name);
    rc = start_keeper(s, &k);
    return rc < 0 ? rc : 0;
}

/* Detach, unless the device belongs to another attachment by now; then its reconnect daemon is not ours either. */
static int detach_nbd(const struct mount_state *s)
{
    char mark[DEVICE_MARK_MAX];
    device_nbd_mark(s->device, mark);
    if (*mark && strcmp(mark, s->device_mark))
        return 0;
    int rc = keeper_stop(s->device, s->socket);
    return rc ? rc : device_nbd_detach(s->device, s->device_mark, false);
}

/* ---- ublk ---- */

static bool is_ublk(const struct mount_state *s)
{
    return !strcmp(s->method, "ublk");
}

/* Have the server make a device, and keep it once it is written down. If this process is killed before, the server
 * removes it. */
static int make_ublk(const struct mount_config *c, struct mount_state *s)
{
    const struct export_check check = {.socket = s->socket,
                                       .name = c->export_name,
                                       .size = c->size,
                                       .content_root = c->content_root,
                                       .server = s->server.pid ? &s->server : NULL,
                                       .cancel = c->cancel};
    CLEANUP_FD int fd = -1;
    int rc = device_ublk_attach(&check, s->device, s->device_mark, &fd);
    if (rc) {
        *s->device = 0;
        return rc;
    }
    rc = state_save(s);
    return rc ? rc : device_ublk_keep(&check, fd);
}

/* Only a server can end reads, so one of mounts that died is started again for that. */
static int fail_ublk(const struct mount_state *s)
{
    if (!*s->device || !mount_device_attached(s)) /* it is gone, or another mount's disk by now */
        return 0;
    int rc = mount_server_tend(s);
    if (rc >= 0)
        rc = device_ublk_fail(s->socket, s->device, rc ? SERVER_START_MS : 0);
    return rc ? error_prefix(rc, "%s is not removed, and its readers wait until its server is started again", s->device)
              : 0;
}

/* ---- a loop device on a file of granary-fuse ---- */

/* Attach a loop device to the export's file. */
static int attach_loop(const struct mount_config *c, struct mount_state *s, int *out_fd)
{
    snprintf(s->fuse_file, sizeof s->fuse_file, "%.*s/%.*s", PATH_MAX / 2, s->socket, NAME_MAX, c->export_name);
    int rc = state_save(s); /* before the attach: a loop device is found again by its file */
    if (!rc)
        rc = device_loop_attach(s->fuse_file, s->device, out_fd);
    if (rc)
        *s->device = 0;
    return rc ? rc : state_save(s);
}

/* ---- any of them ---- */

/* A loop device's descriptor is passed back: with autoclear, closing it would detach the device. */
int mount_device_make(const struct mount_config *c, struct mount_state *s, int *out_fd)
{
    *out_fd = -1;
    return c->fuse ? attach_loop(c, s, out_fd) : c->ublk ? make_ublk(c, s) : make_nbd(c, s);
}

/* A reconnect daemon that died is started again from its state file. */
int mount_device_tend(const struct mount_state *s)
{
    struct keep_state k;
    if (*s->fuse_file || is_ublk(s) || mount_is_direct(s) || keep_holder(s->device))
        return 0;
    int rc = keep_state_load(s->device, &k);
    return rc ? rc : start_keeper(s, &k);
}

/* Is the device still this mount's attachment? */
bool mount_device_attached(const struct mount_state *s)
{
    char mark[DEVICE_MARK_MAX];
    if (*s->fuse_file)
        return device_loop_stands_on(s->device, s->fuse_file);
    if (is_ublk(s))
        device_ublk_mark(s->device, mark);
    else
        device_nbd_mark(s->device, mark);
    return *mark && !strcmp(mark, s->device_mark);
}

int mount_device_cut(const struct mount_state *s)
{
    if (*s->fuse_file)
        return 0; /* FUSE aborted when its server ended */
    if (is_ublk(s))
        return fail_ublk(s);
    return *s->device ? device_nbd_detach(s->device, s->device_mark, true) : 0;
}

/* A forced umount leaves a loop device that is still claimed: it detaches itself at its last close. */
int mount_device_take_down(const struct mount_state *s, bool force)
{
    if (!*s->device || (force && *s->fuse_file && device_claimed(s->device)))
        return 0;
    if (is_ublk(s))
        return device_ublk_remove(s->device, s->device_mark);
    return *s->fuse_file ? device_loop_detach(s->device, s->fuse_file) : detach_nbd(s);
}

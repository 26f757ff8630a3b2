/* What kubelet asks about a mounted volume: its size, and its health, which is that of the server behind it. */
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "csi/driver.h"
#include "csi/place.h"
#include "csi/request.h"

/* Find a mount of ours, and open its directory. GRPC_NOT_FOUND: it is none. */
static enum grpc_status open_ours(const struct driver *d, const char *path, struct mount_state *out, int *out_fd,
                                  struct grpc_reply *reply)
{
    dev_t device;
    struct follow_state tag;
    CLEANUP_PLACE place = {0};
    CLEANUP_PLACE shown = {0};
    int rc = place_open(d->kubelet_dir, PLACE_TARGET, path, &place);
    if (rc == -EINVAL)
        rc = place_open(d->kubelet_dir, PLACE_STAGING, path, &place);
    bool mounted = !rc && place_mounted(&place, &device) > 0;
    bool follows = mounted && place_follows(place.path, device, &tag); /* a staging directory: what it shows */
    if (follows && !place_shown(&place, &shown))
        mounted = place_mounted(&shown, &device) > 0;
    if (mounted && place_is_ours(device, out) && !place_open_dir(follows ? &shown : &place, out_fd))
        return GRPC_OK;
    return grpc_fail(reply, GRPC_NOT_FOUND, "no volume of %s is mounted on %s", DRIVER_NAME, path);
}

/* ---- NodeGetVolumeStats ---- */

enum grpc_status node_volume_stats(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeGetVolumeStatsRequest *q = request;
    struct mount_state s;
    struct statvfs st;
    CLEANUP_FD int fd = -1;
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status)
        status = check_text(reply, "volume_path", q->volume_path, PATH_MAX - 1);
    if (!status)
        status = open_ours(d, q->volume_path, &s, &fd, reply);
    if (status)
        return status;
    if (fstatvfs(fd, &st))
        return grpc_fail(reply, GRPC_INTERNAL, "%s: %s", q->volume_path, strerror(errno));
    Csi__V1__VolumeUsage bytes = CSI__V1__VOLUME_USAGE__INIT, inodes = CSI__V1__VOLUME_USAGE__INIT;
    Csi__V1__VolumeUsage *usage[] = {&bytes, &inodes};
    bytes.unit = CSI__V1__VOLUME_USAGE__UNIT__BYTES;
    bytes.total = bytes.used = (int64_t)(st.f_blocks * st.f_frsize);
    inodes.unit = CSI__V1__VOLUME_USAGE__UNIT__INODES;
    inodes.total = inodes.used = (int64_t)st.f_files;
    Csi__V1__NodeGetVolumeStatsResponse answer = CSI__V1__NODE_GET_VOLUME_STATS_RESPONSE__INIT;
    answer.n_usage = st.f_files == (fsfilcnt_t)-1 ? 1 : 2; /* erofs does not tell the number of its inodes */
    answer.usage = usage;
    return reply_with(reply, &answer.base);
}

/* ---- NodeGetVolumeHealth ---- */

/* Fill in what is wrong with a mount's server, as `granary status` says. *out_status: the answer, which has the entry's
 * message; json_decref it. False: nothing is wrong. */
static bool find_fault(const struct mount_state *s, Csi__V1__VolumeHealth__Entry *out, json_t **out_status)
{
    *out_status = NULL;
    if (!*s->control) /* a user's server, of which no more is known */
        return false;
    if (command_status(s->control, out_status) && !*out_status) {
        out->status = CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE;
        out->reason = (char *)"ServerNotAnswering";
        out->message = (char *)error_text();
        return true;
    }
    const char *health = json_string_value(json_object_get(*out_status, "health"));
    const char *why = json_string_value(json_object_get(*out_status, "health_reason"));
    bool failing = health && !strcmp(health, "failing");
    if (!failing && (!health || strcmp(health, "degraded") != 0))
        return false;
    out->status =
        failing ? CSI__V1__VOLUME_HEALTH_ERROR_TYPE__INACCESSIBLE : CSI__V1__VOLUME_HEALTH_ERROR_TYPE__DEGRADED;
    out->reason = (char *)(failing ? "ServerFailing" : "ServerDegraded");
    out->message = (char *)(why ? why : "");
    return true;
}

/* Without a path there is nothing to look at: no fault is known then. */
enum grpc_status node_volume_health(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeGetVolumeHealthRequest *q = request;
    const char *path = *q->volume_publish_path ? q->volume_publish_path : q->staging_target_path;
    struct mount_state s = {.id = ""};
    CLEANUP_FD int fd = -1;
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status && *path)
        status = check_text(reply, "the path", path, PATH_MAX - 1);
    if (!status && *path)
        status = open_ours(d, path, &s, &fd, reply);
    if (status)
        return status;
    json_t *answered;
    Csi__V1__VolumeHealth__Entry entry = CSI__V1__VOLUME_HEALTH__ENTRY__INIT, *list = &entry;
    Csi__V1__VolumeHealth health = CSI__V1__VOLUME_HEALTH__INIT;
    Csi__V1__NodeGetVolumeHealthResponse answer = CSI__V1__NODE_GET_VOLUME_HEALTH_RESPONSE__INIT;
    health.volume_id = q->volume_id;
    health.n_health_statuses = find_fault(&s, &entry, &answered);
    health.health_statuses = &list;
    answer.volume_health = &health;
    status = reply_with(reply, &answer.base);
    json_decref(answered);
    return status;
}

/* The state of a volume is what is mounted, and what `granary mount` keeps of it: the driver keeps nothing, and may be
 * killed at any time.
 *
 * A mount may take longer than kubelet waits, and a mount that was begun goes on without the driver (command.c).
 * Kubelet's next call gets ABORTED while the earlier one runs. After every other failure kubelet takes the volume for
 * not staged and removes the directory, so `granary umount` comes first; where that fails the answer is ABORTED too,
 * and kubelet asks again.
 *
 * A volume with secrets has S3 keys of its own. `granary mount` gets them in a file in memory, its standard input, and
 * the same command gives a mount that is there new ones: kubelet repeats NodePublish with what the Secret has by then.
 * If that fails the mount stays as it is, so the answer is UNAVAILABLE, at which kubelet touches nothing.
 *
 * On the staging directory of a volume that follows its tag is a directory that does (attach/follow/follow.h). A pod
 * gets what it shows at its NodePublish, and keeps that. The follower ends with the driver's pod; kubelet's next
 * NodePublish of any of the volume's pods, which it repeats all the time, starts another one. */
#include "csi/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "csi/csi.pb-c.h"
#include "csi/place.h"
#include "csi/request.h"

enum { BIND_TRIES = 5 };

/* ---- one call at a time works on a volume ---- */

struct claim {
    struct driver *driver; /* NULL: not taken */
    const char *volume_id;
    struct claim *next;
};

/* Take the claim on a volume. GRPC_ABORTED: another call has it. */
static enum grpc_status claim_take(struct claim *c, struct driver *d, const char *volume_id, struct grpc_reply *reply)
{
    SCOPED_LOCK(&d->lock);
    for (const struct claim *i = d->claims; i; i = i->next)
        if (!strcmp(i->volume_id, volume_id))
            return grpc_fail(reply, GRPC_ABORTED, "an earlier call for volume %s still runs; ask again", volume_id);
    *c = (struct claim){d, volume_id, d->claims};
    d->claims = c;
    return GRPC_OK;
}

static void claim_release(struct claim *c)
{
    if (!c->driver)
        return;
    SCOPED_LOCK(&c->driver->lock);
    struct claim **i = &c->driver->claims;
    while (*i != c)
        i = &(*i)->next;
    *i = c->next;
}
#define CLEANUP_CLAIM CLEANUP(claim_release) struct claim

/* ---- directories and programs ---- */

/* Open a directory that kubelet names. */
static enum grpc_status open_place(const struct driver *d, enum place_kind kind, const char *path, struct place *out,
                                   struct grpc_reply *reply)
{
    int rc = place_open(d->kubelet_dir, kind, path, out);
    if (!rc)
        return GRPC_OK;
    return grpc_fail(reply,
                     rc == -EINVAL   ? GRPC_INVALID_ARGUMENT
                     : rc == -ENOENT ? GRPC_NOT_FOUND
                                     : GRPC_INTERNAL,
                     "%s", error_text());
}

static int run_umount(const char *dir)
{
    return command_run((const char *const[]){"granary", "umount", "--", dir, NULL}, NULL, NULL);
}

/* ---- mounting an image ---- */

/* How to mount a volume's image. */
struct volume {
    const char *id, *image;
    bool follows;      /* its tag */
    word_list words;   /* the command line of granary mount */
    struct bytes keys; /* of the volume's own; empty: it has the node's */
};
#define VOLUME_INIT(volume_id)                                                                                         \
    {                                                                                                                  \
        .id = (volume_id), .keys = BYTES_INIT(REQUEST_KEYS_MAX)                                                        \
    }

static void volume_release(struct volume *v)
{
    words_release(&v->words);
    bytes_wipe(&v->keys);
}
#define CLEANUP_VOLUME CLEANUP(volume_release) struct volume

/* Something is mounted on the directory: is it the image, as the volume wants it? */
static enum grpc_status staged_already(const struct volume *v, const char *path, dev_t device, struct grpc_reply *reply)
{
    struct mount_state s;
    struct follow_state f;
    bool follows = place_follows(path, device, &f);
    if (!follows && !place_is_ours(device, &s))
        return grpc_fail(reply, GRPC_ALREADY_EXISTS, "what is mounted on %s is not granary's; unmount it", path);
    const char *image = follows ? f.image : s.image;
    if (strcmp(image, v->image) != 0)
        return grpc_fail(reply, GRPC_ALREADY_EXISTS, "another image is mounted on %s: %s", path, image);
    if (follows != v->follows)
        return grpc_fail(reply, GRPC_ALREADY_EXISTS, "%s is mounted on %s %s", image, path,
                         follows ? "and follows its tag" : "without following its tag");
    return GRPC_OK;
}

/* Have a process follow the volume's tag, on the directory with that device. The same command line goes on with what is
 * there. */
static enum grpc_status follow_on(const struct volume *v, const char *path, dev_t device, struct grpc_reply *reply)
{
    struct follow_state f;
    if (!v->follows || !place_follows(path, device, &f))
        return GRPC_OK;
    if (follow_is_alive(&f))
        return digest_is_zero(&f.shown)
                   ? grpc_fail(reply, GRPC_ABORTED, "%s is still being mounted; ask again", f.image)
                   : GRPC_OK;
    if (command_run((const char *const *)v->words.items, NULL, NULL))
        return grpc_fail(reply, GRPC_UNAVAILABLE, "no process follows %s: %s", f.image, error_text());
    log_info("%s: %s is followed again on %s", v->id, f.image, f.dir);
    return GRPC_OK;
}

/* Give the mount that is there the volume's keys, if it has some. */
static enum grpc_status replace_keys(const struct volume *v, struct grpc_reply *reply)
{
    if (v->keys.len && command_run((const char *const *)v->words.items, &v->keys, NULL))
        return grpc_fail(reply, GRPC_UNAVAILABLE, "the volume keeps its earlier keys: %s", error_text());
    return GRPC_OK;
}

/* Mount; leave nothing of a mount that failed. If the driver was killed, the child of an earlier call may have mounted
 * meanwhile: that mount is kept. */
static enum grpc_status mount_or_undo(const struct volume *v, const struct place *place, struct grpc_reply *reply)
{
    const char *path = place->path;
    dev_t device;
    struct error first;
    int rc = command_run((const char *const *)v->words.items, &v->keys, NULL);
    if (!rc) {
        log_info("%s: %s is mounted on %s", v->id, v->image, path);
        return GRPC_OK;
    }
    error_take(&first, rc);
    if (place_mounted(place, &device) > 0) {
        enum grpc_status status = staged_already(v, path, device, reply);
        return status ? status : follow_on(v, path, device, reply);
    }
    if (run_umount(path))
        return grpc_fail(reply, GRPC_ABORTED, "%s; then: %s", first.text, error_text());
    return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", first.text);
}

/* Mount the image on a directory; or give what is mounted there the volume's keys, or a follower. */
static enum grpc_status mount_volume(const struct volume *v, const struct place *place, struct grpc_reply *reply)
{
    dev_t device = 0;
    CLEANUP_FD int dir = -1;
    int rc = place_open_dir(place, &dir);
    int mounted = rc ? rc : place_mounted(place, &device);
    if (mounted < 0)
        return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", error_text());
    if (!mounted)
        return mount_or_undo(v, place, reply);
    enum grpc_status status = staged_already(v, place->path, device, reply);
    if (!status)
        status = replace_keys(v, reply);
    return status ? status : follow_on(v, place->path, device, reply);
}

/* ---- NodeStageVolume ---- */

enum grpc_status node_stage(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeStageVolumeRequest *q = request;
    const char *path = q->staging_target_path;
    CLEANUP_VOLUME v = VOLUME_INIT(q->volume_id);
    CLEANUP_PLACE place = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    v.follows = attributes_follow(q->n_volume_context, q->volume_context);
    if (!status)
        status = check_text(reply, "staging_target_path", path, PATH_MAX - 1);
    if (!status)
        status = check_capability(reply, q->volume_capability);
    if (!status)
        status = secrets_take(q->n_secrets, q->secrets, &v.keys, reply);
    if (!status)
        status =
            attributes_command(q->n_volume_context, q->volume_context, path, v.keys.len, &v.image, &v.words, reply);
    if (!status)
        status = open_place(d, PLACE_STAGING, path, &place, reply);
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    return status ? status : mount_volume(&v, &place, reply);
}

/* Also what a killed mount left is taken down, whether something is mounted or not. */
enum grpc_status node_unstage(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeUnstageVolumeRequest *q = request;
    const char *path = q->staging_target_path;
    CLEANUP_PLACE place = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status)
        status = check_text(reply, "staging_target_path", path, PATH_MAX - 1);
    if (!status)
        status = open_place(d, PLACE_STAGING, path, &place, reply);
    if (status == GRPC_NOT_FOUND)
        return reply->status = GRPC_OK;
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    if (status)
        return status;
    if (run_umount(path) && faccessat(place.parent, place.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    log_info("%s: nothing is mounted on %s any more", q->volume_id, path);
    return GRPC_OK;
}

/* ---- NodePublishVolume ---- */

/* Is what is mounted on a pod's directory the volume's? tag: NULL, or what is followed; then it may be an earlier
 * version, which the pod keeps. */
static bool is_published(dev_t there, dev_t staged, const struct follow_state *tag)
{
    struct mount_state s;
    return tag ? place_is_ours(there, &s) && follow_has_mount(tag, s.dir) : there == staged;
}

/* Check that what is mounted there is a version of the tag. */
static int check_version(const struct place *place, const struct follow_state *tag)
{
    dev_t there;
    int mounted = place_mounted(place, &there);
    if (mounted < 0)
        return mounted;
    return mounted && is_published(there, 0, tag)
               ? 0
               : error_set(-ENOENT, "%s shows no version of %s", tag->dir, tag->image);
}

/* Bind what a followed directory shows. The follower may replace that between the opening and the binding: what is
 * detached cannot be bound. */
static int bind_shown(const struct place *staging, const struct place *target, const struct follow_state *tag)
{
    int rc = -EINVAL;
    for (int i = 0; rc == -EINVAL && i < BIND_TRIES; i++) {
        CLEANUP_PLACE shown = {0};
        rc = place_shown(staging, &shown);
        if (!rc)
            rc = check_version(&shown, tag);
        if (!rc)
            rc = place_bind(&shown, target);
    }
    if (rc)
        return rc;
    rc = check_version(target, tag);
    return rc && place_unmount(target) ? -EIO : rc;
}

/* Make the pod's directory if it is missing, and bind. tag: as for is_published. */
static enum grpc_status bind_volume(const struct place *staging, dev_t staged, const struct follow_state *tag,
                                    const struct place *target, struct grpc_reply *reply)
{
    dev_t there;
    bool made = !mkdirat(target->parent, target->name, 0750);
    if (!made && errno != EEXIST)
        return grpc_fail(reply, GRPC_INTERNAL, "cannot make %s: %s", target->path, strerror(errno));
    int mounted = place_mounted(target, &there);
    if (mounted > 0)
        return is_published(there, staged, tag)
                   ? GRPC_OK
                   : grpc_fail(reply, GRPC_ALREADY_EXISTS, "something else is mounted on %s", target->path);
    int rc = mounted ? mounted : tag ? bind_shown(staging, target, tag) : place_bind(staging, target);
    if (!rc)
        return GRPC_OK;
    if (made)
        unlinkat(target->parent, target->name, AT_REMOVEDIR);
    return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", error_text());
}

/* Take the command line of the staging directory's mount. */
static enum grpc_status take_command(const Csi__V1__NodePublishVolumeRequest *q, struct volume *v,
                                     const struct place *staging, struct grpc_reply *reply)
{
    return attributes_command(q->n_volume_context, q->volume_context, staging->path, v->keys.len, &v->image, &v->words,
                              reply);
}

/* Give a pod what is staged. The keys, and the follower, are the staging directory's mount's. A directory that follows
 * takes itself down when its server has failed, of which kubelet knows nothing: it is made again. */
static enum grpc_status publish(const Csi__V1__NodePublishVolumeRequest *q, struct volume *v,
                                const struct place *staging, const struct place *target, struct grpc_reply *reply)
{
    struct mount_state s;
    struct follow_state f;
    dev_t staged;
    enum grpc_status status = GRPC_OK;
    bool gone = v->follows && !place_mounted(staging, &staged);
    if (gone)
        status = take_command(q, v, staging, reply);
    if (gone && !status)
        status = mount_volume(v, staging, reply);
    if (status)
        return status;
    bool mounted = place_mounted(staging, &staged) > 0, follows = mounted && place_follows(staging->path, staged, &f);
    if (!follows && !(mounted && place_is_ours(staged, &s)))
        return grpc_fail(reply, GRPC_FAILED_PRECONDITION, "no image is mounted on %s; stage the volume first",
                         staging->path);
    if (!gone && (v->keys.len || v->follows))
        status = take_command(q, v, staging, reply);
    if (!status)
        status = replace_keys(v, reply);
    if (!status)
        status = follow_on(v, staging->path, staged, reply);
    return status ? status : bind_volume(staging, staged, follows ? &f : NULL, target, reply);
}

/* Mount an inline volume's image on the target itself: kubelet names no other directory for it. */
static enum grpc_status publish_inline(const struct driver *d, const Csi__V1__NodePublishVolumeRequest *q,
                                       struct volume *v, const struct place *target, struct grpc_reply *reply)
{
    enum grpc_status status =
        attributes_check_inline(q->n_volume_context, q->volume_context, d->inline_store_count, d->inline_stores, reply);
    if (!status)
        status = attributes_command(q->n_volume_context, q->volume_context, target->path, v->keys.len, &v->image,
                                    &v->words, reply);
    if (status)
        return status;
    if (mkdirat(target->parent, target->name, 0750) && errno != EEXIST)
        return grpc_fail(reply, GRPC_INTERNAL, "cannot make %s: %s", target->path, strerror(errno));
    status = mount_volume(v, target, reply);
    if (status && status != GRPC_ABORTED) /* nothing is mounted there, or else this fails */
        unlinkat(target->parent, target->name, AT_REMOVEDIR);
    return status;
}

static bool is_inline(const Csi__V1__NodePublishVolumeRequest *q)
{
    for (size_t i = 0; i < q->n_volume_context; i++)
        if (!strcmp(q->volume_context[i]->key, "csi.storage.k8s.io/ephemeral"))
            return !*q->staging_target_path && !strcmp(q->volume_context[i]->value, "true");
    return false;
}

enum grpc_status node_publish(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodePublishVolumeRequest *q = request;
    bool of_pod = is_inline(q);
    CLEANUP_VOLUME v = VOLUME_INIT(q->volume_id);
    v.follows = attributes_follow(q->n_volume_context, q->volume_context);
    CLEANUP_PLACE staging = {0};
    CLEANUP_PLACE target = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status)
        status = check_text(reply, "target_path", q->target_path, PATH_MAX - 1);
    if (!status)
        status = check_capability(reply, q->volume_capability);
    if (!status)
        status = secrets_take(q->n_secrets, q->secrets, &v.keys, reply);
    if (!status && !of_pod)
        status = check_text(reply, "staging_target_path", q->staging_target_path, PATH_MAX - 1);
    if (!status && !of_pod)
        status = open_place(d, PLACE_STAGING, q->staging_target_path, &staging, reply);
    if (!status)
        status = open_place(d, PLACE_TARGET, q->target_path, &target, reply);
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    if (status)
        return status;
    return of_pod ? publish_inline(d, q, &v, &target, reply) : publish(q, &v, &staging, &target, reply);
}

/* Unmount what is granary's, and remove the directory, which is the driver's to remove. Only the mount of an inline
 * volume has a state, also one that was killed. */
static enum grpc_status unpublish(const struct place *target, struct grpc_reply *reply)
{
    struct mount_state s;
    struct follow_state f;
    dev_t device = 0;
    if (mount_find(target->path, &s) != -ENOENT && run_umount(target->path))
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    for (int mounted; (mounted = place_mounted(target, &device)) != 0;) {
        if (mounted == -ENOENT)
            return GRPC_OK;
        if (mounted > 0 && !place_is_ours(device, &s) && !place_follows(NULL, device, &f))
            return grpc_fail(reply, GRPC_INTERNAL, "what is mounted on %s is not granary's; unmount it by umount",
                             target->path);
        if (mounted < 0 || place_unmount(target))
            return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    }
    if (unlinkat(target->parent, target->name, AT_REMOVEDIR) && errno != ENOENT)
        return grpc_fail(reply, GRPC_INTERNAL, "cannot remove %s: %s", target->path, strerror(errno));
    return GRPC_OK;
}

enum grpc_status node_unpublish(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeUnpublishVolumeRequest *q = request;
    CLEANUP_PLACE target = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status)
        status = check_text(reply, "target_path", q->target_path, PATH_MAX - 1);
    if (!status)
        status = open_place(d, PLACE_TARGET, q->target_path, &target, reply);
    if (status == GRPC_NOT_FOUND)
        return reply->status = GRPC_OK;
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    return status ? status : unpublish(&target, reply);
}

/* The state of a volume is what is mounted, and what `granary mount` keeps of it: the driver keeps nothing, and may be
 * killed at any time.
 *
 * A mount may take longer than kubelet waits, and a mount that was begun goes on without the driver: `granary mount` is
 * a child in a session of its own, whose output goes to a file in memory, so that it is not killed by a pipe that
 * nobody reads. Kubelet's next call gets ABORTED while the earlier one runs. After every other failure kubelet takes
 * the volume for not staged and removes the directory, so `granary umount` comes first; where that fails the answer is
 * ABORTED too, and kubelet asks again. */
#include "csi/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"
#include "csi/csi.pb-c.h"
#include "csi/place.h"

enum { ID_MAX = 1024, IMAGE_MAX = STATE_REF_MAX - 1, VALUE_MAX = 4096, OUTPUT_MAX = 4096 };

enum grpc_status reply_with(struct grpc_reply *reply, const ProtobufCMessage *message)
{
    uint8_t *out;
    size_t len = protobuf_c_message_get_packed_size(message);
    if (bytes_extend(&reply->message, len, &out))
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    protobuf_c_message_pack(message, out);
    return GRPC_OK;
}

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

/* ---- checks of requests ---- */

static enum grpc_status check_text(struct grpc_reply *reply, const char *field, const char *value, size_t max)
{
    if (!*value)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s is missing", field);
    if (strlen(value) > max)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s is longer than %zu bytes", field, max);
    return GRPC_OK;
}

/* Every access mode is accepted, since a volume is read-only whatever a pod asks for. */
static enum grpc_status check_capability(struct grpc_reply *reply, const Csi__V1__VolumeCapability *c)
{
    if (!c)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volume_capability is missing");
    if (c->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "an image is a filesystem; a volume of it has volumeMode Filesystem");
    if (c->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT && c->mount->n_mount_flags)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "mountOptions have no effect; volumeAttributes has the options of granary mount");
    return GRPC_OK;
}

/* Credentials belong to the node's server, which all its volumes share. */
static enum grpc_status refuse_secrets(struct grpc_reply *reply, size_t count, ProtobufCBinaryData *secrets)
{
    for (size_t i = 0; i < count; i++)
        explicit_bzero(secrets[i].data, secrets[i].len);
    return count
               ? grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                           "secrets of a volume are not supported; the driver's environment has the node's credentials")
               : GRPC_OK;
}

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

/* ---- granary mount ---- */

typedef VEC(char *) word_list;

static void words_release(word_list *words)
{
    for (size_t i = 0; i < words->len; i++)
        free(words->items[i]);
    vec_release(words);
}

/* Append KEY and VALUE as a word, or KEY alone for value NULL. */
static int add_word(word_list *words, const char *dashes, const char *key, const char *value)
{
    char *word;
    if (asprintf(&word, "%s%s%s%s", dashes, key, value ? "=" : "", value ? value : "") < 0)
        return error_no_memory();
    if (!vec_push(words, word))
        return 0;
    free(word);
    return error_no_memory();
}

/* Return why a volume may not have an option of granary mount; NULL: it may. What writes or reads files of the node, or
 * listens there, is its administrator's to set. */
static const char *forbidden(const char *key)
{
    static const struct {
        const char *key, *why;
    } keys[] = {{"cache", "it is the node's, in granary.conf"},
                {"env-file", "it would read a file of the node"},
                {"foreground", "a volume is mounted until it is unstaged"},
                {"help", "it mounts nothing"},
                {"json", "it has no effect here"},
                {"keys", "it would read a file of the node"},
                {"metrics", "it is the node's, in granary.conf"},
                {"mkdir", "kubelet makes the directory"}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++)
        if (!strcmp(key, keys[i].key))
            return keys[i].why;
    return !*key || *key == '-' || key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-")]
               ? "an option is made of lower-case letters, digits and dashes"
               : NULL;
}

/* Append one of the volumeAttributes as an option; take the image. */
static enum grpc_status take_attribute(const char *key, const char *value, const char **image, word_list *words,
                                       struct grpc_reply *reply)
{
    bool flag = !*value || !strcmp(value, "true");
    if (text_begins_with(key, "csi.storage.k8s.io/")) /* kubelet's */
        return GRPC_OK;
    if (!strcmp(key, "image")) {
        *image = value;
        return GRPC_OK;
    }
    const char *why = forbidden(key);
    if (why)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volumeAttributes may not have '%s': %s", key, why);
    if (strlen(value) > VALUE_MAX)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volumeAttributes: %s is longer than %d bytes", key, VALUE_MAX);
    if (strcmp(value, "false") != 0 && add_word(words, "--", key, flag ? NULL : value))
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    return GRPC_OK;
}

/* Make the command line of granary mount. */
static enum grpc_status mount_words(const Csi__V1__NodeStageVolumeRequest *q, const char **image, word_list *words,
                                    struct grpc_reply *reply)
{
    *image = "";
    enum grpc_status status = GRPC_OK;
    int rc = add_word(words, "", "granary", NULL);
    if (!rc)
        rc = add_word(words, "", "mount", NULL);
    for (size_t i = 0; !rc && !status && i < q->n_volume_context; i++)
        status = take_attribute(q->volume_context[i]->key, q->volume_context[i]->value, image, words, reply);
    if (!status && !rc)
        status = check_text(reply, "image, which volumeAttributes must have,", *image, IMAGE_MAX);
    if (!status && !rc)
        rc = add_word(words, "", "--", NULL);
    if (!status && !rc)
        rc = add_word(words, "", *image, NULL);
    if (!status && !rc)
        rc = add_word(words, "", q->staging_target_path, NULL);
    if (!status && !rc && vec_push(words, NULL))
        rc = error_no_memory();
    return rc ? grpc_fail(reply, GRPC_INTERNAL, "%s", error_text()) : status;
}

/* Set the sentence that granary printed last; return code. */
static int repeat_sentence(int code, int output, const char *verb)
{
    char text[OUTPUT_MAX + 1], prefix[32];
    struct stat st;
    size_t size = fstat(output, &st) ? 0 : (size_t)st.st_size;
    ssize_t n = io_pread_full(output, text, OUTPUT_MAX, size > OUTPUT_MAX ? size - OUTPUT_MAX : 0);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    text[GR_MAX(n, (ssize_t)0)] = 0;
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    snprintf(prefix, sizeof prefix, "granary: %s: ", verb);
    if (text_begins_with(line, prefix))
        line += strlen(prefix);
    return error_set(code, "%s", *line ? line : "granary ended without a sentence");
}

/* Run granary to its end, however long that takes. -EINVAL: it refuses the command line; -EIO: it failed. Its sentence
 * is ours. */
static int run_granary(const char *const *argv)
{
    int status;
    pid_t pid;
    CLEANUP_FD int output = memfd_create("granary", MFD_CLOEXEC);
    if (output < 0)
        return error_set(-errno, "cannot make a file in memory: %s", strerror(errno));
    struct process_spec spec = {.argv = argv, .output = output, .listen_fd = -1, .session = true};
    int rc = process_spawn(&spec, &pid);
    if (rc)
        return rc;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return error_set(-errno, "waitpid: %s", strerror(errno));
    if (WIFSIGNALED(status))
        return error_set(-EIO, "granary %s was ended by signal %d", argv[1], WTERMSIG(status));
    if (!WEXITSTATUS(status))
        return 0;
    return repeat_sentence(WEXITSTATUS(status) == 2 ? -EINVAL : -EIO, output, argv[1]);
}

static int run_umount(const char *dir)
{
    return run_granary((const char *const[]){"granary", "umount", "--", dir, NULL});
}

/* ---- NodeStageVolume ---- */

/* Something is mounted on the staging directory: is it the image? */
static enum grpc_status staged_already(const char *path, dev_t device, const char *image, struct grpc_reply *reply)
{
    struct mount_state s;
    if (!place_is_ours(device, &s))
        return grpc_fail(reply, GRPC_ALREADY_EXISTS, "what is mounted on %s is not granary's; unmount it", path);
    if (strcmp(s.image, image) != 0)
        return grpc_fail(reply, GRPC_ALREADY_EXISTS, "another image is mounted on %s: %s", path, s.image);
    return GRPC_OK;
}

/* Mount; leave nothing of a mount that failed. */
static enum grpc_status mount_or_undo(const char *const *argv, const char *path, struct grpc_reply *reply)
{
    struct error first;
    int rc = run_granary(argv);
    if (!rc)
        return GRPC_OK;
    error_take(&first, rc);
    if (run_umount(path))
        return grpc_fail(reply, GRPC_ABORTED, "%s; then: %s", first.text, error_text());
    return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", first.text);
}

enum grpc_status node_stage(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeStageVolumeRequest *q = request;
    const char *path = q->staging_target_path, *image;
    dev_t device;
    CLEANUP(words_release) word_list words = {0};
    CLEANUP_PLACE place = {0};
    CLEANUP_CLAIM claim = {0};
    CLEANUP_FD int dir = -1;
    enum grpc_status status = refuse_secrets(reply, q->n_secrets, q->secrets);
    if (!status)
        status = check_text(reply, "volume_id", q->volume_id, ID_MAX);
    if (!status)
        status = check_text(reply, "staging_target_path", path, PATH_MAX - 1);
    if (!status)
        status = check_capability(reply, q->volume_capability);
    if (!status)
        status = mount_words(q, &image, &words, reply);
    if (!status)
        status = open_place(d, PLACE_STAGING, path, &place, reply);
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    if (status)
        return status;
    int rc = place_open_dir(&place, &dir);
    int mounted = rc ? rc : place_mounted(&place, &device);
    if (mounted < 0)
        return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", error_text());
    status = mounted ? staged_already(path, device, image, reply)
                     : mount_or_undo((const char *const *)words.items, path, reply);
    if (!status && !mounted)
        log_info("%s: %s is mounted on %s", q->volume_id, image, path);
    return status;
}

/* Also what a killed mount left is taken down, whether something is mounted or not. */
enum grpc_status node_unstage(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeUnstageVolumeRequest *q = request;
    const char *path = q->staging_target_path;
    CLEANUP_PLACE place = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, ID_MAX);
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

/* Make the directory if it is missing, and bind. */
static enum grpc_status publish(const struct place *staging, const struct place *target, struct grpc_reply *reply)
{
    struct mount_state s;
    dev_t staged, there;
    if (place_mounted(staging, &staged) <= 0 || !place_is_ours(staged, &s))
        return grpc_fail(reply, GRPC_FAILED_PRECONDITION, "no image is mounted on %s; stage the volume first",
                         staging->path);
    bool made = !mkdirat(target->parent, target->name, 0750);
    if (!made && errno != EEXIST)
        return grpc_fail(reply, GRPC_INTERNAL, "cannot make %s: %s", target->path, strerror(errno));
    int mounted = place_mounted(target, &there);
    if (mounted > 0)
        return there == staged ? GRPC_OK
                               : grpc_fail(reply, GRPC_ALREADY_EXISTS, "something else is mounted on %s", target->path);
    int rc = mounted ? mounted : place_bind(staging, target);
    if (!rc)
        return GRPC_OK;
    if (made)
        unlinkat(target->parent, target->name, AT_REMOVEDIR);
    return grpc_fail(reply, rc == -EINVAL ? GRPC_INVALID_ARGUMENT : GRPC_INTERNAL, "%s", error_text());
}

enum grpc_status node_publish(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodePublishVolumeRequest *q = request;
    CLEANUP_PLACE staging = {0};
    CLEANUP_PLACE target = {0};
    CLEANUP_CLAIM claim = {0};
    enum grpc_status status = refuse_secrets(reply, q->n_secrets, q->secrets);
    if (!status)
        status = check_text(reply, "volume_id", q->volume_id, ID_MAX);
    if (!status)
        status = check_text(reply, "target_path", q->target_path, PATH_MAX - 1);
    if (!status)
        status = check_capability(reply, q->volume_capability);
    if (!status)
        status = check_text(reply, "staging_target_path, which an inline volume does not have,", q->staging_target_path,
                            PATH_MAX - 1);
    if (!status)
        status = open_place(d, PLACE_STAGING, q->staging_target_path, &staging, reply);
    if (!status)
        status = open_place(d, PLACE_TARGET, q->target_path, &target, reply);
    if (!status)
        status = claim_take(&claim, d, q->volume_id, reply);
    return status ? status : publish(&staging, &target, reply);
}

/* Unmount what is granary's, and remove the directory, which is the driver's to remove. */
static enum grpc_status unpublish(const struct place *target, struct grpc_reply *reply)
{
    struct mount_state s;
    dev_t device;
    for (int mounted; (mounted = place_mounted(target, &device)) != 0;) {
        if (mounted == -ENOENT)
            return GRPC_OK;
        if (mounted > 0 && !place_is_ours(device, &s))
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
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, ID_MAX);
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

/* ---- NodeGetVolumeStats ---- */

/* Open a directory with a mount of ours. GRPC_NOT_FOUND: it is none. */
static enum grpc_status open_ours(const struct driver *d, const char *path, int *out_fd, struct grpc_reply *reply)
{
    struct mount_state s;
    dev_t device;
    CLEANUP_PLACE place = {0};
    int rc = place_open(d->kubelet_dir, PLACE_TARGET, path, &place);
    if (rc == -EINVAL)
        rc = place_open(d->kubelet_dir, PLACE_STAGING, path, &place);
    if (!rc && place_mounted(&place, &device) > 0 && place_is_ours(device, &s) && !place_open_dir(&place, out_fd))
        return GRPC_OK;
    return grpc_fail(reply, GRPC_NOT_FOUND, "no volume of %s is mounted on %s", DRIVER_NAME, path);
}

enum grpc_status node_volume_stats(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__NodeGetVolumeStatsRequest *q = request;
    struct statvfs st;
    CLEANUP_FD int fd = -1;
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, ID_MAX);
    if (!status)
        status = check_text(reply, "volume_path", q->volume_path, PATH_MAX - 1);
    if (!status)
        status = open_ours(d, q->volume_path, &fd, reply);
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

/* Secrets and volumeAttributes become the command line of `granary mount`, and its standard input. The authors of
 * volumes and pods are not the node's administrators, so attributes that reach files, ports or servers of the node are
 * refused; an inline volume, which any pod may have, has the image and noexec alone. */
#include "csi/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach.h"
#include "base/digest.h"
#include "base/text.h"
#include "format/image_ref.h"

enum { IMAGE_MAX = STATE_REF_MAX - 1, VALUE_MAX = 4096 };

enum grpc_status reply_with(struct grpc_reply *reply, const ProtobufCMessage *message)
{
    uint8_t *out;
    size_t len = protobuf_c_message_get_packed_size(message);
    if (bytes_extend(&reply->message, len, &out))
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    protobuf_c_message_pack(message, out);
    return GRPC_OK;
}

/* A name that is too long for a label is replaced by digits of its SHA-256. */
void nodes_with_driver_init(struct nodes_with_driver *out, const char *node)
{
    char hex[DIGEST_HEX_SIZE];
    csi__v1__topology__init(&out->topology);
    for (size_t i = 0; i < GR_ARRAY_SIZE(out->entries); i++) {
        csi__v1__entry__init(&out->entries[i]);
        out->list[i] = &out->entries[i];
    }
    out->entries[0].key = (char *)"csi.granary.io/driver";
    out->entries[0].value = (char *)"yes";
    out->entries[1].key = (char *)"csi.granary.io/node";
    out->entries[1].value = out->node;
    out->topology.n_segments = node ? 2 : 1;
    out->topology.segments = out->list;
    if (!node)
        return;
    struct digest digest = digest_of(node, strlen(node));
    bool fits = strlen(node) <= NODE_VALUE_MAX;
    snprintf(out->node, sizeof out->node, "%.*s", NODE_VALUE_MAX, fits ? node : digest_hex(&digest, hex));
}

enum grpc_status check_text(struct grpc_reply *reply, const char *field, const char *value, size_t max)
{
    if (!*value)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s is missing", field);
    if (strlen(value) > max)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s is longer than %zu bytes", field, max);
    return GRPC_OK;
}

/* What an image cannot do is refused, and not dropped: a pod would wait for what never comes. */
static enum grpc_status check_mount(struct grpc_reply *reply, const Csi__V1__VolumeCapability__MountVolume *m)
{
    if (m->n_mount_flags)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "mountOptions have no effect; volumeAttributes has the options of granary mount");
    if (*m->volume_mount_group)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "volume_mount_group has no effect: the files of an image belong to whom it says");
    if (*m->fs_type && strcmp(m->fs_type, "erofs") != 0 && strcmp(m->fs_type, "ext4") != 0)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "an image is erofs or ext4, as it was built; leave out fsType, which is another one here");
    return GRPC_OK;
}

/* Every access mode is accepted, since a volume is read-only whatever a pod asks for; also those of later versions. */
enum grpc_status check_capability(struct grpc_reply *reply, const Csi__V1__VolumeCapability *c)
{
    if (!c)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volume_capability is missing");
    if (c->access_type_case == CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_BLOCK)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "an image is a filesystem; a volume of it has volumeMode Filesystem");
    if (c->access_type_case != CSI__V1__VOLUME_CAPABILITY__ACCESS_TYPE_MOUNT)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volume_capability has no access_type");
    if (!c->access_mode || !c->access_mode->mode)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "volume_capability has no access_mode");
    return check_mount(reply, c->mount);
}

enum grpc_status check_capabilities(struct grpc_reply *reply, size_t count,
                                    Csi__V1__VolumeCapability *const *capabilities)
{
    enum grpc_status status = GRPC_OK;
    for (size_t i = 0; i < count && !status; i++)
        status = check_capability(reply, capabilities[i]);
    return status;
}

/* ---- secrets ---- */

/* The names that these keys have everywhere, in the environment and in files. */
static const char *const key_names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"};
enum { KEY_NAMES = GR_ARRAY_SIZE(key_names), KEYS_NEEDED = 2 };

/* Is it printable, without blanks, and not empty? */
static bool is_key(const ProtobufCBinaryData *value)
{
    size_t i = 0;
    while (i < value->len && value->data[i] > ' ' && value->data[i] <= '~')
        i++;
    return i && i == value->len;
}

static enum grpc_status append_key(const char *name, const ProtobufCBinaryData *value, struct bytes *out,
                                   struct grpc_reply *reply)
{
    if (!is_key(value))
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "the secret %s is empty, or has a blank, a line break or another character that no key has",
                         name);
    int rc = bytes_append(out, name, strlen(name));
    if (!rc)
        rc = bytes_append(out, "=", 1);
    if (!rc)
        rc = bytes_append(out, value->data, value->len);
    if (!rc)
        rc = bytes_append(out, "\n", 1);
    return rc ? grpc_fail(reply, GRPC_INVALID_ARGUMENT, "the secrets have more than %d bytes", REQUEST_KEYS_MAX)
              : GRPC_OK;
}

/* A name may be a value that was put in the wrong place, so it is not quoted. */
enum grpc_status secrets_take(size_t count, Csi__V1__Secret *const *secrets, struct bytes *out,
                              struct grpc_reply *reply)
{
    const ProtobufCBinaryData *values[KEY_NAMES] = {NULL};
    uint8_t *room;
    for (size_t i = 0; i < count; i++) {
        const ProtobufCBinaryData *key = &secrets[i]->key;
        size_t n = 0;
        while (n < KEY_NAMES && (key->len != strlen(key_names[n]) || memcmp(key->data, key_names[n], key->len) != 0))
            n++;
        if (n == KEY_NAMES)
            return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                             "the secrets of a volume are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary "
                             "keys, AWS_SESSION_TOKEN; this volume has another one");
        values[n] = &secrets[i]->value;
    }
    if (count && bytes_reserve(out, out->max, &room)) /* at once: a buffer that grows leaves copies behind */
        return grpc_fail(reply, GRPC_INTERNAL, "%s", error_text());
    enum grpc_status status = GRPC_OK;
    for (size_t n = 0; n < KEY_NAMES && count && !status; n++)
        if (values[n])
            status = append_key(key_names[n], values[n], out, reply);
        else if (n < KEYS_NEEDED)
            status = grpc_fail(reply, GRPC_INVALID_ARGUMENT, "the secret %s is missing", key_names[n]);
    return status;
}

/* ---- volumeAttributes ---- */

void words_release(word_list *words)
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

/* Return why a volume may not have an option of granary mount; NULL: it may. What writes or reads files of the node,
 * runs a program or listens there is its administrator's to set. tests/style/docs.sh has the options that a volume may
 * have, and refuses a new one that is in neither list. */
static const char *forbidden(const char *key)
{
    static const struct {
        const char *key, *why;
    } keys[] = {{"cache", "it is the node's, in granary.conf"},
                {"console", "it is the node's, in granary.conf"},
                {"console-admin-token", "it would read a file of the node"},
                {"console-token", "it would read a file of the node"},
                {"direct", "the cache is the node server's, whose files the driver does not mount"},
                {"env-file", "it would read a file of the node"},
                {"foreground", "a volume is mounted until it is unstaged"},
                {"help", "it mounts nothing"},
                {"hook", "it would run a program of the node"},
                {"join", "it is the node's, in granary.conf"},
                {"json", "it has no effect here"},
                {"keys", "it would read a file of the node; a volume's Secret has its keys"},
                {"l2", "it is the node's, in granary.conf"},
                {"metrics", "it is the node's, in granary.conf"},
                {"mkdir", "kubelet makes the directory"},
                {"peer-keep", "it is the node's, in granary.conf"},
                {"peer-key", "it is the node's, in granary.conf"},
                {"peer-listen", "it is the node's, in granary.conf"},
                {"peer-tls", "it is the node's, in granary.conf"},
                {"socket", "it would join a server of the node's administrator"},
                {"trust", "keys are the node's, in granary.conf"},
                {"ublk", "the driver's container does not make its devices"}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++)
        if (!strcmp(key, keys[i].key))
            return keys[i].why;
    return !*key || *key == '-' || key[strspn(key, "abcdefghijklmnopqrstuvwxyz0123456789-")]
               ? "an option is made of lower-case letters, digits and dashes"
               : NULL;
}

bool attribute_is_of_kubernetes(const char *key)
{
    return text_begins_with(key, "csi.storage.k8s.io/");
}

/* Is a flag with this value given? */
static bool is_set(const char *value)
{
    return !*value || !strcmp(value, "true");
}

/* Append one of the volumeAttributes as an option; take the image. */
static enum grpc_status take_attribute(const char *key, const char *value, const char **image, word_list *words,
                                       struct grpc_reply *reply)
{
    bool flag = is_set(value);
    if (attribute_is_of_kubernetes(key))
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

bool attributes_follow(size_t count, Csi__V1__Entry *const *attributes)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(attributes[i]->key, "follow"))
            return is_set(attributes[i]->value);
    return false;
}

enum grpc_status attributes_command(size_t count, Csi__V1__Entry *const *attributes, const char *dir, bool has_keys,
                                    const char **image, word_list *words, struct grpc_reply *reply)
{
    *image = "";
    enum grpc_status status = GRPC_OK;
    if (has_keys && attributes_follow(count, attributes))
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "a volume that follows its tag has the node's credentials: a version that comes later would "
                         "not have the keys of its Secret; leave out the Secret, or 'follow'");
    int rc = add_word(words, "", "granary", NULL);
    if (!rc)
        rc = add_word(words, "", "mount", NULL);
    if (!rc && has_keys)
        rc = add_word(words, "--", "keys", "/proc/self/fd/0");
    if (!rc) /* the node's server is one for kernel nbd or FUSE: for ublk it would need privileges */
        rc = add_word(words, "--", "ublk", "no");
    if (!rc) /* and the files in that server's cache are not for the driver to mount */
        rc = add_word(words, "--", "direct", "no");
    for (size_t i = 0; !rc && !status && i < count; i++)
        status = take_attribute(attributes[i]->key, attributes[i]->value, image, words, reply);
    if (!status && !rc)
        status = check_text(reply, "image, which volumeAttributes must have,", *image, IMAGE_MAX);
    if (!status && !rc)
        rc = add_word(words, "", "--", NULL);
    if (!status && !rc)
        rc = add_word(words, "", *image, NULL);
    if (!status && !rc)
        rc = add_word(words, "", dir, NULL);
    if (!status && !rc)
        rc = vec_push(words, NULL);
    return rc ? grpc_fail(reply, GRPC_INTERNAL, "%s", error_text()) : status;
}

/* Is the store an allowed one, or below it? Each directory below is named as images are, so none leads out of it. */
static bool store_is_below(const char *store, const char *allowed)
{
    char name[IMAGE_NAME_MAX + 1];
    const char *p = store + strlen(allowed);
    if (!text_begins_with(store, allowed))
        return false;
    while (*p) {
        size_t len = *p == '/' ? strcspn(p + 1, "/") : 0;
        if (!len || len > IMAGE_NAME_MAX)
            return false;
        snprintf(name, sizeof name, "%.*s", (int)len, p + 1);
        if (image_ref_check_name("directory", name))
            return false;
        p += 1 + len;
    }
    return true;
}

enum grpc_status attributes_check_inline(size_t count, Csi__V1__Entry *const *attributes, size_t store_count,
                                         const char *const *stores, struct grpc_reply *reply)
{
    struct image_ref ref;
    const char *image = "";
    if (!store_count)
        return grpc_fail(reply, GRPC_PERMISSION_DENIED,
                         "inline volumes are not allowed on this node; its administrator allows them for the images "
                         "of a store by granary-csi --inline-stores");
    for (size_t i = 0; i < count; i++) {
        const char *key = attributes[i]->key;
        if (!strcmp(key, "image"))
            image = attributes[i]->value;
        else if (strcmp(key, "noexec") != 0 && !attribute_is_of_kubernetes(key))
            return grpc_fail(reply, GRPC_PERMISSION_DENIED,
                             "an inline volume has the volumeAttributes image and noexec; others need a "
                             "PersistentVolume");
    }
    enum grpc_status status = check_text(reply, "image, which volumeAttributes must have,", image, IMAGE_MAX);
    if (status)
        return status;
    if (image_ref_parse(image, &ref))
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s", error_text());
    for (size_t i = 0; i < store_count; i++)
        if (store_is_below(ref.store, stores[i]))
            return GRPC_OK;
    return grpc_fail(reply, GRPC_PERMISSION_DENIED,
                     "inline volumes may not have images of this store; the node's administrator allows stores by "
                     "granary-csi --inline-stores");
}

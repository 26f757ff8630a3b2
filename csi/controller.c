/* A volume of a StorageClass is an image that exists, or will by the time that a pod reads it: `granary build` makes
 * images, and deleting a claim deletes none. So nothing is made here and nothing kept. CreateVolume answers with
 * volumeAttributes, made from the class's parameters, and an id, made from the volume's name; a repeated call has the
 * same answer. Stores are not asked, so that no credentials are needed: NodeStageVolume does that. */
#include "csi/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "base/text.h"
#include "base/vec.h"
#include "csi/request.h"
#include "format/image_ref.h"

enum { VOLUME_NAME_MAX = 1024 };
#define ID_PREFIX "granary-" /* and the SHA-256 of the name: an id has 128 bytes at most */

enum grpc_status controller_capabilities(struct driver *d, const void *request, struct grpc_reply *reply)
{
    static const Csi__V1__ControllerServiceCapability__RPC__Type types[] = {
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__CREATE_DELETE_VOLUME,
        CSI__V1__CONTROLLER_SERVICE_CAPABILITY__RPC__TYPE__GET_CAPACITY}; /* the second on a node alone */
    enum { COUNT = GR_ARRAY_SIZE(types) };
    Csi__V1__ControllerServiceCapability__RPC rpcs[COUNT];
    Csi__V1__ControllerServiceCapability capabilities[COUNT], *list[COUNT];
    Csi__V1__ControllerGetCapabilitiesResponse answer = CSI__V1__CONTROLLER_GET_CAPABILITIES_RESPONSE__INIT;
    for (size_t i = 0; i < COUNT; i++) {
        csi__v1__controller_service_capability__rpc__init(&rpcs[i]);
        csi__v1__controller_service_capability__init(&capabilities[i]);
        rpcs[i].type = types[i];
        capabilities[i].type_case = CSI__V1__CONTROLLER_SERVICE_CAPABILITY__TYPE_RPC;
        capabilities[i].rpc = &rpcs[i];
        list[i] = &capabilities[i];
    }
    answer.n_capabilities = d->is_controller ? 1 : COUNT;
    answer.capabilities = list;
    return reply_with(reply, &answer.base);
}

/* ---- CreateVolume ---- */

/* What a class may write in the name of an image, and the parameter that external-provisioner adds for it. */
static const struct variable {
    const char *text, *parameter;
} variables[] = {{"${pvc.metadata.name}", "csi.storage.k8s.io/pvc/name"},
                 {"${pvc.metadata.namespace}", "csi.storage.k8s.io/pvc/namespace"}};

static enum grpc_status append(struct bytes *image, const char *text, size_t len, struct grpc_reply *reply)
{
    return bytes_append(image, text, len) ? grpc_fail(reply, GRPC_INVALID_ARGUMENT, "the image's name is too long")
                                          : GRPC_OK;
}

/* Append the value of the variable at text. *out_len: the bytes of the variable. */
static enum grpc_status append_variable(const Csi__V1__CreateVolumeRequest *q, const char *text, struct bytes *out,
                                        size_t *out_len, struct grpc_reply *reply)
{
    const struct variable *v = variables, *end = variables + GR_ARRAY_SIZE(variables);
    while (v < end && !text_begins_with(text, v->text))
        v++;
    if (v == end)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "the class's image may have ${pvc.metadata.name} and ${pvc.metadata.namespace}, no other $");
    const char *value = NULL;
    for (size_t i = 0; i < q->n_parameters; i++)
        if (!strcmp(q->parameters[i]->key, v->parameter))
            value = q->parameters[i]->value;
    if (!value)
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                         "%s is not known: external-provisioner needs --extra-create-metadata", v->text);
    *out_len = strlen(v->text);
    if (image_ref_check_name(v->text, value))
        return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s", error_text());
    return append(out, value, strlen(value), reply);
}

/* Make the image's name from that of the class, with a final NUL. */
static enum grpc_status expand(const Csi__V1__CreateVolumeRequest *q, const char *image, struct bytes *out,
                               struct grpc_reply *reply)
{
    struct image_ref ref;
    enum grpc_status status = GRPC_OK;
    for (size_t len; *image && !status; image += len) {
        len = strcspn(image, "$");
        status = len ? append(out, image, len, reply) : append_variable(q, image, out, &len, reply);
    }
    if (!status)
        status = append(out, "", 1, reply);
    if (!status && image_ref_parse((const char *)out->data, &ref))
        status = grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s", error_text());
    return status;
}

/* What is asked for that an image cannot be. */
static enum grpc_status check_create(const Csi__V1__CreateVolumeRequest *q, struct grpc_reply *reply)
{
    const Csi__V1__CapacityRange *range = q->capacity_range;
    enum grpc_status status = check_text(reply, "name", q->name, VOLUME_NAME_MAX);
    if (!status && q->n_secrets)
        status = grpc_fail(reply, GRPC_INVALID_ARGUMENT,
                           "a volume is made without secrets; the class names those of its mounts by "
                           "csi.storage.k8s.io/node-stage-secret-name and node-stage-secret-namespace");
    if (!status)
        status = q->n_volume_capabilities ? check_capabilities(reply, q->n_volume_capabilities, q->volume_capabilities)
                                          : check_capability(reply, NULL);
    if (!status && q->volume_content_source)
        status =
            grpc_fail(reply, GRPC_INVALID_ARGUMENT, "a volume is an image; it is no copy of a snapshot or a volume");
    if (!status && q->n_mutable_parameters)
        status = grpc_fail(reply, GRPC_INVALID_ARGUMENT, "a VolumeAttributesClass has no effect: images do not change");
    if (!status && range &&
        (range->required_bytes < 0 || range->limit_bytes < 0 ||
         (range->limit_bytes && range->limit_bytes < range->required_bytes)))
        status = grpc_fail(reply, GRPC_OUT_OF_RANGE, "capacity_range is none");
    return status;
}

/* The capacity is left out, which means that it is not known: any claim is satisfied. */
enum grpc_status controller_create(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__CreateVolumeRequest *q = request;
    const char *image;
    char id[sizeof ID_PREFIX + DIGEST_HEX_SIZE], hex[DIGEST_HEX_SIZE];
    CLEANUP(words_release) word_list words = {0};
    CLEANUP_BYTES expanded = BYTES_INIT(IMAGE_REF_MAX);
    enum grpc_status status = check_create(q, reply);
    if (!status)
        status = attributes_command(q->n_parameters, q->parameters, "", false, &image, &words, reply);
    if (!status)
        status = expand(q, image, &expanded, reply);
    if (status)
        return status;
    VEC(Csi__V1__Entry *) context = {0};
    Csi__V1__Entry image_entry = CSI__V1__ENTRY__INIT;
    struct nodes_with_driver nodes;
    Csi__V1__Topology *topology = &nodes.topology;
    Csi__V1__Volume volume = CSI__V1__VOLUME__INIT;
    Csi__V1__CreateVolumeResponse answer = CSI__V1__CREATE_VOLUME_RESPONSE__INIT;
    image_entry.key = (char *)"image";
    image_entry.value = (char *)expanded.data;
    int rc = vec_push(&context, &image_entry);
    for (size_t i = 0; i < q->n_parameters && !rc; i++)
        if (strcmp(q->parameters[i]->key, "image") != 0 && !attribute_is_of_kubernetes(q->parameters[i]->key))
            rc = vec_push(&context, q->parameters[i]);
    struct digest digest = digest_of(q->name, strlen(q->name));
    snprintf(id, sizeof id, ID_PREFIX "%s", digest_hex(&digest, hex));
    volume.volume_id = id;
    volume.n_volume_context = context.len;
    volume.volume_context = context.items;
    nodes_with_driver_init(&nodes, NULL);
    volume.n_accessible_topology = 1;
    volume.accessible_topology = &topology;
    answer.volume = &volume;
    status = rc ? grpc_fail(reply, GRPC_INTERNAL, "out of memory") : reply_with(reply, &answer.base);
    vec_release(&context);
    return status;
}

enum grpc_status controller_delete(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__DeleteVolumeRequest *q = request;
    return check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
}

/* ---- ValidateVolumeCapabilities ---- */

enum grpc_status controller_validate(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__ValidateVolumeCapabilitiesRequest *q = request;
    Csi__V1__ValidateVolumeCapabilitiesResponse__Confirmed confirmed =
        CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__CONFIRMED__INIT;
    Csi__V1__ValidateVolumeCapabilitiesResponse answer = CSI__V1__VALIDATE_VOLUME_CAPABILITIES_RESPONSE__INIT;
    enum grpc_status status = check_text(reply, "volume_id", q->volume_id, REQUEST_ID_MAX);
    if (!status && !q->n_volume_capabilities)
        status = check_capability(reply, NULL);
    if (!status && !text_begins_with(q->volume_id, ID_PREFIX))
        status = grpc_fail(reply, GRPC_NOT_FOUND, "no CreateVolume of this driver gave a volume that id");
    if (status)
        return status;
    if (check_capabilities(reply, q->n_volume_capabilities, q->volume_capabilities)) {
        answer.message = reply->sentence;
        status = reply_with(reply, &answer.base);
        *reply->sentence = 0;
        return reply->status = status;
    }
    confirmed.n_volume_context = q->n_volume_context;
    confirmed.volume_context = q->volume_context;
    confirmed.n_volume_capabilities = q->n_volume_capabilities;
    confirmed.volume_capabilities = q->volume_capabilities;
    confirmed.n_parameters = q->n_parameters;
    confirmed.parameters = q->parameters;
    answer.confirmed = &confirmed;
    return reply_with(reply, &answer.base);
}

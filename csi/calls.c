/* Kubelet finds the driver by its socket in plugins_registry, and asks there for the socket of the driver: it is the
 * same one. So no sidecar (node-driver-registrar) is needed, and one table has the methods of all services, those of
 * the controller too: its calls need nothing and keep nothing, so it does not matter which process answers them, but
 * for the capacity of a node. */
#include "csi/driver.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "csi/place.h"
#include "csi/registration.pb-c.h"
#include "csi/request.h"

/* ---- Identity ---- */

static enum grpc_status plugin_info(struct driver *d, const void *request, struct grpc_reply *reply)
{
    Csi__V1__GetPluginInfoResponse answer = CSI__V1__GET_PLUGIN_INFO_RESPONSE__INIT;
    answer.name = (char *)DRIVER_NAME;
    answer.vendor_version = (char *)GRANARY_VERSION;
    return reply_with(reply, &answer.base);
}

static enum grpc_status plugin_capabilities(struct driver *d, const void *request, struct grpc_reply *reply)
{
    static const Csi__V1__PluginCapability__Service__Type types[] = {
        CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__CONTROLLER_SERVICE,
        CSI__V1__PLUGIN_CAPABILITY__SERVICE__TYPE__VOLUME_ACCESSIBILITY_CONSTRAINTS};
    enum { COUNT = GR_ARRAY_SIZE(types) };
    Csi__V1__PluginCapability__Service services[COUNT];
    Csi__V1__PluginCapability capabilities[COUNT], *list[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        csi__v1__plugin_capability__service__init(&services[i]);
        csi__v1__plugin_capability__init(&capabilities[i]);
        services[i].type = types[i];
        capabilities[i].type_case = CSI__V1__PLUGIN_CAPABILITY__TYPE_SERVICE;
        capabilities[i].service = &services[i];
        list[i] = &capabilities[i];
    }
    Csi__V1__GetPluginCapabilitiesResponse answer = CSI__V1__GET_PLUGIN_CAPABILITIES_RESPONSE__INIT;
    answer.n_capabilities = COUNT;
    answer.capabilities = list;
    return reply_with(reply, &answer.base);
}

static enum grpc_status probe(struct driver *d, const void *request, struct grpc_reply *reply)
{
    Csi__V1__BoolValue ready = CSI__V1__BOOL_VALUE__INIT;
    Csi__V1__ProbeResponse answer = CSI__V1__PROBE_RESPONSE__INIT;
    ready.value = true;
    answer.ready = &ready;
    return reply_with(reply, &answer.base);
}

/* ---- Node: what it is ---- */

static enum grpc_status node_capabilities(struct driver *d, const void *request, struct grpc_reply *reply)
{
    static const Csi__V1__NodeServiceCapability__RPC__Type types[] = {
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__STAGE_UNSTAGE_VOLUME,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__GET_VOLUME_STATS,
        CSI__V1__NODE_SERVICE_CAPABILITY__RPC__TYPE__GET_VOLUME_HEALTH};
    enum { COUNT = GR_ARRAY_SIZE(types) };
    Csi__V1__NodeServiceCapability__RPC rpcs[COUNT];
    Csi__V1__NodeServiceCapability capabilities[COUNT], *list[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        csi__v1__node_service_capability__rpc__init(&rpcs[i]);
        csi__v1__node_service_capability__init(&capabilities[i]);
        rpcs[i].type = types[i];
        capabilities[i].type_case = CSI__V1__NODE_SERVICE_CAPABILITY__TYPE_RPC;
        capabilities[i].rpc = &rpcs[i];
        list[i] = &capabilities[i];
    }
    Csi__V1__NodeGetCapabilitiesResponse answer = CSI__V1__NODE_GET_CAPABILITIES_RESPONSE__INIT;
    answer.n_capabilities = COUNT;
    answer.capabilities = list;
    return reply_with(reply, &answer.base);
}

static enum grpc_status node_info(struct driver *d, const void *request, struct grpc_reply *reply)
{
    Csi__V1__NodeGetInfoResponse answer = CSI__V1__NODE_GET_INFO_RESPONSE__INIT;
    struct nodes_with_driver nodes;
    nodes_with_driver_init(&nodes, d->node_id);
    answer.node_id = (char *)d->node_id;
    answer.accessible_topology = &nodes.topology;
    return reply_with(reply, &answer.base);
}

/* ---- Registration ---- */

static enum grpc_status registration_info(struct driver *d, const void *request, struct grpc_reply *reply)
{
    char *versions[] = {(char *)"1.0.0"};
    Pluginregistration__PluginInfo answer = PLUGINREGISTRATION__PLUGIN_INFO__INIT;
    answer.type = (char *)"CSIPlugin";
    answer.name = (char *)DRIVER_NAME;
    answer.endpoint = (char *)d->socket;
    answer.n_supported_versions = GR_ARRAY_SIZE(versions);
    answer.supported_versions = versions;
    return reply_with(reply, &answer.base);
}

static enum grpc_status registration_status(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Pluginregistration__RegistrationStatus *q = request;
    if (q->plugin_registered)
        log_info("registered with kubelet");
    else
        log_error("kubelet does not register this driver: %s", q->error);
    return GRPC_OK;
}

/* ---- all calls ---- */

/* Requests hold secrets: all memory of a message is wiped before it is freed. */

static void *message_alloc(void *arg, size_t size)
{
    return malloc(size);
}

static void message_free(void *arg, void *p)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static ProtobufCAllocator message_memory = {.alloc = message_alloc, .free = message_free};

static const struct method {
    const char *path;
    const ProtobufCMessageDescriptor *request;
    driver_call *answer;
} methods[] = {
    {"/csi.v1.Identity/GetPluginInfo", &csi__v1__empty__descriptor, plugin_info},
    {"/csi.v1.Identity/GetPluginCapabilities", &csi__v1__empty__descriptor, plugin_capabilities},
    {"/csi.v1.Identity/Probe", &csi__v1__empty__descriptor, probe},
    {"/csi.v1.Controller/ControllerGetCapabilities", &csi__v1__empty__descriptor, controller_capabilities},
    {"/csi.v1.Controller/CreateVolume", &csi__v1__create_volume_request__descriptor, controller_create},
    {"/csi.v1.Controller/DeleteVolume", &csi__v1__delete_volume_request__descriptor, controller_delete},
    {"/csi.v1.Controller/ValidateVolumeCapabilities", &csi__v1__validate_volume_capabilities_request__descriptor,
     controller_validate},
    {"/csi.v1.Controller/GetCapacity", &csi__v1__get_capacity_request__descriptor, controller_capacity},
    {"/csi.v1.Node/NodeGetCapabilities", &csi__v1__empty__descriptor, node_capabilities},
    {"/csi.v1.Node/NodeGetInfo", &csi__v1__empty__descriptor, node_info},
    {"/csi.v1.Node/NodeStageVolume", &csi__v1__node_stage_volume_request__descriptor, node_stage},
    {"/csi.v1.Node/NodeUnstageVolume", &csi__v1__node_unstage_volume_request__descriptor, node_unstage},
    {"/csi.v1.Node/NodePublishVolume", &csi__v1__node_publish_volume_request__descriptor, node_publish},
    {"/csi.v1.Node/NodeUnpublishVolume", &csi__v1__node_unpublish_volume_request__descriptor, node_unpublish},
    {"/csi.v1.Node/NodeGetVolumeStats", &csi__v1__node_get_volume_stats_request__descriptor, node_volume_stats},
    {"/csi.v1.Node/NodeGetVolumeHealth", &csi__v1__node_get_volume_health_request__descriptor, node_volume_health},
    {"/pluginregistration.Registration/GetInfo", &csi__v1__empty__descriptor, registration_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", &pluginregistration__registration_status__descriptor,
     registration_status},
};

void calls_answer(void *arg, const char *path, const uint8_t *request, size_t len, struct grpc_reply *reply)
{
    const struct method *m = methods, *end = methods + GR_ARRAY_SIZE(methods);
    while (m < end && strcmp(m->path, path) != 0)
        m++;
    if (m == end) {
        (void)grpc_fail(reply, GRPC_UNIMPLEMENTED, "this driver has no %s", path);
        return;
    }
    ProtobufCMessage *message = protobuf_c_message_unpack(m->request, &message_memory, len, request);
    if (!message) {
        (void)grpc_fail(reply, GRPC_INVALID_ARGUMENT, "the message is no request of %s", path);
        return;
    }
    if (m->answer(arg, message, reply))
        log_warning("%s: %s", strrchr(path, '/') + 1, reply->sentence);
    protobuf_c_message_free_unpacked(message, &message_memory);
}

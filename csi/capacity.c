/* GetCapacity of a node: how much of its cache an image could have. A claim's size then states how much its pods read
 * repeatedly, and a node with a smaller cache is not chosen. What other images have cached does not count, since it is
 * evicted; a volume that does not fit can still be read. A controller's process knows no node, and does not offer this.
 */
#include <stdio.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "csi/driver.h"
#include "csi/request.h"
#include "format/json_name.h"

/* Ask the server at one of the usual places, which is the one that volumes join. NULL: none answers. */
static json_t *counters_of_server(void)
{
    static const char *const places[] = {STATE_ROOT "/nbd.sock", STATE_ROOT "/fuse"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(places); i++) {
        CLEANUP_JSON json_t *status = NULL;
        (void)command_status(places[i], &status);
        json_t *counters = json_object_get(status, "counters");
        if (counters)
            return json_incref(counters);
    }
    return NULL;
}

/* The quota that a class gives the images of its volumes, in bytes; 0: none. */
static enum grpc_status quota_of(const Csi__V1__GetCapacityRequest *q, uint64_t *out, struct grpc_reply *reply)
{
    *out = 0;
    for (size_t i = 0; i < q->n_parameters; i++)
        if (!strcmp(q->parameters[i]->key, "quota")) {
            const char *value = q->parameters[i]->value, *colon = strrchr(value, ':');
            if (text_parse_size("quota", colon ? colon + 1 : value, out))
                return grpc_fail(reply, GRPC_INVALID_ARGUMENT, "%s", error_text());
        }
    return GRPC_OK;
}

/* Is this node in the segment that is asked about? */
static bool is_here(const struct driver *d, const Csi__V1__Topology *segment)
{
    struct nodes_with_driver here;
    nodes_with_driver_init(&here, d->node_id);
    for (size_t i = 0; segment && i < segment->n_segments; i++) {
        bool found = false;
        for (size_t k = 0; k < here.topology.n_segments; k++)
            found |= !strcmp(segment->segments[i]->key, here.list[k]->key) &&
                     !strcmp(segment->segments[i]->value, here.list[k]->value);
        if (!found)
            return false;
    }
    return true;
}

enum grpc_status controller_capacity(struct driver *d, const void *request, struct grpc_reply *reply)
{
    const Csi__V1__GetCapacityRequest *q = request;
    Csi__V1__GetCapacityResponse answer = CSI__V1__GET_CAPACITY_RESPONSE__INIT;
    uint64_t quota;
    if (d->is_controller)
        return grpc_fail(reply, GRPC_UNIMPLEMENTED, "only the driver of a node knows its capacity");
    enum grpc_status status = check_capabilities(reply, q->n_volume_capabilities, q->volume_capabilities);
    if (!status)
        status = quota_of(q, &quota, reply);
    if (status)
        return status;
    if (!is_here(d, q->accessible_topology))
        return reply_with(reply, &answer.base);
    CLEANUP_JSON json_t *counters = counters_of_server();
    if (!counters)
        return grpc_fail(reply, GRPC_UNAVAILABLE,
                         "no server answers at " STATE_ROOT "/nbd.sock or " STATE_ROOT
                         "/fuse, so the capacity of this node's cache is not known");
    uint64_t all = (uint64_t)json_integer_value(json_object_get(counters, "granary_cache_capacity_bytes"));
    uint64_t metadata = (uint64_t)json_integer_value(json_object_get(counters, "granary_cache_metadata_bytes"));
    uint64_t room = all - GR_MIN(all, metadata);
    answer.available_capacity = (int64_t)(quota ? GR_MIN(room, quota) : room);
    return reply_with(reply, &answer.base);
}

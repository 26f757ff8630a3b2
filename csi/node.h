/* What kubelet has a driver do on a node. Private to csi. */
#ifndef GRANARY_CSI_NODE_H
#define GRANARY_CSI_NODE_H

#include <pthread.h>

#include "csi/grpc/grpc.h"

struct claim;

/* The driver of this node. */
struct driver {
    const char *node_id;
    const char *kubelet_dir; /* kubelet's --root-dir, without a slash at its end */
    const char *socket;
    pthread_mutex_t lock; /* guards claims */
    struct claim *claims; /* the volumes that calls work on */
};

/* Answer a call of the Node service. request: its unpacked message. Each may be repeated, after a success or a failure.
 * Any thread, several at a time. */
typedef enum grpc_status node_call(struct driver *d, const void *request, struct grpc_reply *reply);

/* Mount the image of a volume on its staging directory, by `granary mount`; and undo that. */
node_call node_stage, node_unstage;
/* Bind the staging directory's mount to a pod's directory; and undo that. */
node_call node_publish, node_unpublish;
node_call node_volume_stats;

/* Pack a message into the reply. */
struct ProtobufCMessage;
enum grpc_status reply_with(struct grpc_reply *reply, const struct ProtobufCMessage *message);

#endif

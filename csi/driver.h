/* The driver: what it answers to kubelet and external-provisioner, and how it runs `granary`. Private to csi. */
#ifndef GRANARY_CSI_DRIVER_H
#define GRANARY_CSI_DRIVER_H

#include <jansson.h>
#include <pthread.h>

#include "base/bytes.h"
#include "csi/grpc/grpc.h"

struct claim;

/* The driver of this node. */
struct driver {
    const char *node_id;
    const char *kubelet_dir; /* kubelet's --root-dir, without a slash at its end */
    const char *socket;
    bool is_controller;               /* beside external-provisioner, on any node */
    const char *const *inline_stores; /* where the images of inline volumes may lie, or below; as image_ref has them */
    size_t inline_store_count;
    pthread_mutex_t lock; /* guards claims */
    struct claim *claims; /* the volumes that calls work on */
};

/* ---- calls (calls.c) ---- */

/* A grpc_answer: find the method of any of the services (Identity, Controller, Node, Registration), unpack the request,
 * answer. driver: struct driver. */
grpc_answer calls_answer;

/* Answer one call. request: its unpacked message. Each may be repeated, after a success or a failure. Any thread,
 * several at a time. */
typedef enum grpc_status driver_call(struct driver *d, const void *request, struct grpc_reply *reply);

/* ---- Node (node.c, health.c) ---- */

/* Mount the image of a volume on its staging directory, by `granary mount`; and undo that. */
driver_call node_stage, node_unstage;
/* Bind the staging directory's mount to a pod's directory, or mount the image of an inline volume there; and undo that.
 */
driver_call node_publish, node_unpublish;
/* Tell the size of a mounted volume, and what is wrong with its server. */
driver_call node_volume_stats, node_volume_health;

/* ---- Controller (controller.c) ---- */

/* What external-provisioner has a driver do for the claims of a StorageClass. */
driver_call controller_capabilities, controller_create, controller_delete, controller_validate;
/* How much of this node's cache the volumes of a class could have (capacity.c). */
driver_call controller_capacity;

/* ---- granary (command.c) ---- */

/* Run a command line of granary, NULL at its end, however long that takes, in a session of its own: it goes on if the
 * driver is killed. keys: for its standard input; NULL or empty: none. out: gets all that it prints, even if it fails;
 * NULL: drop it. Any thread; no other thread may wait for any child. -EINVAL: granary refuses the command line; -EIO:
 * it failed. Its last sentence is then the error's. */
GR_MUST_CHECK int command_run(const char *const *argv, const struct bytes *keys, struct bytes *out);
/* Ask a server, by its socket or mount point, as `granary status` does: linking its client would triple the driver's
 * memory. *out: the answer, perhaps also with an error; NULL: there is none; json_decref it. Errors of command_run. */
int command_status(const char *server, json_t **out);

#endif

/* The servers of this machine, and where their images are mounted. */
#ifndef GRANARY_CLI_NODE_SERVERS_H
#define GRANARY_CLI_NODE_SERVERS_H

#include <jansson.h>

#include "base/compiler.h"
#include "base/vec.h"

struct node_server {
    char *control; /* its control socket */
    char *dir;     /* where one of its images is mounted; NULL: it was found by its socket */
};
struct node_servers {
    VEC(struct node_server) found;
};

/* The one on the default socket, if there is one, and those of all mounts; each once. In every case
 * node_servers_release. */
GR_MUST_CHECK int node_servers_find(struct node_servers *out);
void node_servers_release(struct node_servers *n);

/* Give each export in the status of the server on that control socket "mounts", the directories where it is mounted,
 * and "devices", the nbd devices of these mounts, each with its "keeper": a process or null. */
void node_servers_add_mounts(const char *control, json_t *status);

/* Of such an export's mounts and devices leave those on dir (absolute, without symlinks) alone. NULL is allowed. */
void node_servers_keep_mount(json_t *export, const char *dir);

#endif

/* The servers of this machine, and where their images are mounted. */
#ifndef GRANARY_CLI_NODE_SERVERS_H
#define GRANARY_CLI_NODE_SERVERS_H

#include <jansson.h>

#include "base/compiler.h"
#include "base/vec.h"

struct node_server {
    char *control; /* path of its control socket */
    char *dir;     /* a mount point of one of its images; NULL: found by its socket */
};
struct node_servers {
    VEC(struct node_server) found;
};

/* Find the server on the default socket and those of all mounts, each once. node_servers_release it in any case.
 * -ENOMEM, or as mount_each. */
GR_MUST_CHECK int node_servers_find(struct node_servers *out);
void node_servers_release(struct node_servers *n);

/* Add to each export in a server's status "mounts", the directories where it is mounted, and "devices", the nbd devices
 * of these mounts, each with its "keeper": a process or null. */
void node_servers_add_mounts(const char *control, json_t *status);

/* Remove from such an export all mounts and devices but those of dir (absolute, without symlinks). export may be NULL.
 */
void node_servers_keep_mount(json_t *export, const char *dir);

#endif

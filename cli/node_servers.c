/* The servers of this machine: `granary serve` at its usual place, and those of mounts.
 *
 * A server is identified by its control socket. Paths are compared by inode, as they may be written differently. Mounts
 * come from the state files, exports from the server's status, and the image's digest connects the two.
 */
#include "cli/node_servers.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/attach.h"
#include "base/error.h"
#include "cli/pin.h"
#include "cli/print.h"
#include "cli/server_status.h"
#include "format/json_name.h"

/* Whether two paths lead to the same socket. */
static bool same_socket(const char *a, const char *b)
{
    struct stat at_a, at_b;
    if (stat(a, &at_a) || stat(b, &at_b))
        return !strcmp(a, b);
    return at_a.st_dev == at_b.st_dev && at_a.st_ino == at_b.st_ino;
}

/* Add a server, unless it is there already under another path. */
static int node_servers_add(struct node_servers *n, const char *control, const char *dir)
{
    for (size_t i = 0; i < n->found.len; i++)
        if (same_socket(n->found.items[i].control, control))
            return 0;
    struct node_server server = {.control = strdup(control), .dir = dir ? strdup(dir) : NULL};
    if (server.control && (!dir || server.dir) && !vec_push(&n->found, server))
        return 0;
    free(server.control);
    free(server.dir);
    return error_no_memory();
}

static int add_of_mount(void *arg, const struct mount_state *s)
{
    return *s->control ? node_servers_add(arg, s->control, s->dir) : 0;
}

/* A socket file without a server counts: `granary status` reports that it does not answer. */
int node_servers_find(struct node_servers *out)
{
    struct stat st;
    *out = (struct node_servers){.found = {0}};
    int rc = !stat(PIN_CONTROL, &st) && S_ISSOCK(st.st_mode) ? node_servers_add(out, PIN_CONTROL, NULL) : 0;
    return rc ? rc : mount_each(add_of_mount, out);
}

void node_servers_release(struct node_servers *n)
{
    for (size_t i = 0; i < n->found.len; i++) {
        free(n->found.items[i].control);
        free(n->found.items[i].dir);
    }
    vec_release(&n->found);
}

/* A server, and the exports in its status. */
struct looking {
    const char *control;
    json_t *exports;
};

/* Add a mount's nbd device and the process that keeps it. A device without a keeper does not survive its server. */
static void add_device(json_t *export, const struct mount_state *s)
{
    if (strcmp(s->method, "nbd") || !mount_device_attached(s))
        return;
    pid_t keeper = keep_holder(s->device);
    json_array_append_new(json_object_get(export, "devices"), json_pack("{s:s,s:o}", "device", s->device, "keeper",
                                                                        keeper ? json_integer(keeper) : json_null()));
}

/* Add a mount to every export of its server that has its image. */
static int add_mount(void *arg, const struct mount_state *s)
{
    const struct looking *l = arg;
    char digest[PRINT_DIGEST_MAX];
    size_t i;
    json_t *export;
    if (!same_socket(l->control, s->control))
        return 0;
    print_digest(&s->digest, digest);
    json_array_foreach(l->exports, i, export)
    {
        if (strcmp(server_status_text(export, "digest"), digest) != 0)
            continue;
        json_array_append_new(json_object_get(export, "mounts"), json_lossy(s->dir));
        add_device(export, s);
    }
    return 0;
}

/* Best effort: the states of other users' mounts are not readable. */
void node_servers_add_mounts(const char *control, json_t *status)
{
    struct looking l = {.control = control, .exports = json_object_get(status, "exports")};
    size_t i;
    json_t *export;
    json_array_foreach(l.exports, i, export)
    {
        json_object_set_new(export, "mounts", json_array());
        json_object_set_new(export, "devices", json_array());
    }
    mount_each(add_mount, &l);
}

void node_servers_keep_mount(json_t *export, const char *dir)
{
    struct mount_state s;
    json_t *mounts = json_object_get(export, "mounts"), *devices = json_object_get(export, "devices");
    if (!export || mount_find(dir, &s))
        return;
    json_array_clear(mounts);
    json_array_append_new(mounts, json_lossy(dir));
    for (size_t i = json_array_size(devices); i--;)
        if (strcmp(server_status_text(json_array_get(devices, i), "device"), s.device) != 0)
            json_array_remove(devices, i);
}

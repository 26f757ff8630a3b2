/* The servers of this machine: `granary serve` at its usual place, and those of mounts.
 *
 * A server is identified by its control socket, which lies beside the socket that it serves under the name
 * PATH.control; a mount's state file names it. Paths are compared by inode, as they may be written differently. A user
 * names a server by
 *
 *   socket X       X.control if it exists, else X itself is the control socket
 *   directory X    a mount point, or a directory that follows a tag: from its state; else X.control, of `granary serve
 *                  --fuse`
 *   nothing        `granary serve` at its usual place, else the only server of mounts
 *
 * Mounts come from the state files, exports from the server's status. The export's name connects the two, or the
 * image's digest where a mount has not chosen the name.
 */
#include "cli/servers.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/attach.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "format/image_ref.h"
#include "format/json_name.h"
#include "net/listen.h"

/* ---- all servers ---- */

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
    int rc = !stat(SERVE_CONTROL, &st) && S_ISSOCK(st.st_mode) ? node_servers_add(out, SERVE_CONTROL, NULL) : 0;
    return rc ? rc : mount_each(add_of_mount, out);
}

int node_servers_add_units(struct node_servers *n)
{
    struct stat st;
    glob_t found = {0};
    int rc = glob(SERVE_RUN_DIR "-*/*.control", 0, NULL, &found) == GLOB_NOSPACE ? error_no_memory() : 0;
    for (size_t i = 0; !rc && i < found.gl_pathc; i++)
        if (!stat(found.gl_pathv[i], &st) && S_ISSOCK(st.st_mode))
            rc = node_servers_add(n, found.gl_pathv[i], NULL);
    globfree(&found);
    return rc;
}

void node_servers_release(struct node_servers *n)
{
    for (size_t i = 0; i < n->found.len; i++) {
        free(n->found.items[i].control);
        free(n->found.items[i].dir);
    }
    vec_release(&n->found);
}

/* A server, and the exports in its status; waiting: those that wait for their keys. */
struct looking {
    const char *control;
    json_t *exports, *waiting;
};

/* Whether a mount uses an export: by its name if the mount's state has it, else by the image. */
static bool is_of_mount(json_t *export, const struct mount_state *s)
{
    char digest[PRINT_DIGEST_MAX];
    if (*s->export_name)
        return !strcmp(server_status_text(export, "name"), s->export_name);
    return !strcmp(server_status_text(export, "digest"), print_digest(&s->digest, digest));
}

/* Add a mount to the export of its server that it uses, with its nbd device and its reconnect daemon. A device without
 * one does not survive its server. */
static int add_mount(void *arg, const struct mount_state *s)
{
    const struct looking *l = arg;
    size_t i;
    json_t *export;
    if (!same_socket(l->control, s->control))
        return 0;
    json_array_foreach(l->waiting, i, export)
    {
        if (is_of_mount(export, s))
            json_array_append_new(json_object_get(export, "mounts"), json_lossy(s->dir));
    }
    json_array_foreach(l->exports, i, export)
    {
        if (!is_of_mount(export, s))
            continue;
        json_array_append_new(json_object_get(export, "mounts"), json_lossy(s->dir));
        if (!strcmp(s->method, "fuse") || !mount_device_attached(s))
            continue;
        if (!strcmp(s->method, "ublk")) { /* it needs no reconnect daemon */
            json_array_append_new(json_object_get(export, "devices"), json_pack("{s:s}", "device", s->device));
            continue;
        }
        pid_t keeper = keep_holder(s->device);
        json_array_append_new(
            json_object_get(export, "devices"),
            json_pack("{s:s,s:o}", "device", s->device, "keeper", keeper ? json_integer(keeper) : json_null()));
    }
    return 0;
}

/* A directory that follows a tag, of one server. */
struct following {
    const char *control;
    json_t *all;
};

/* Add the directory with its versions. */
static int add_followed(void *arg, const struct follow_state *f)
{
    const struct following *l = arg;
    char dir[PATH_MAX];
    if (!*f->control || !same_socket(l->control, f->control))
        return 0;
    json_t *versions = json_array();
    for (size_t i = 0; i < f->count; i++)
        json_array_append_new(versions,
                              json_pack("{s:o,s:o,s:o}", "digest", print_json_digest(&f->versions[i].digest), "dir",
                                        json_lossy(follow_version_link(f, &f->versions[i].digest, dir)), "shown",
                                        f->versions[i].shown ? print_json_time(f->versions[i].shown) : json_null()));
    json_t *followed =
        json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o}", "dir", json_lossy(f->dir), "image", json_lossy(f->image),
                  "digest", print_json_digest(&f->shown), "wanted", print_json_digest(&f->wanted), "follower",
                  follow_is_alive(f) ? json_integer(f->follower.pid) : json_null(), "versions", versions, "switches",
                  (json_int_t)f->switches, "switched", f->switched ? print_json_time(f->switched) : json_null());
    if (*f->reason)
        json_object_set_new(followed, "reason", json_lossy(f->reason));
    json_array_append_new(l->all, followed);
    return 0;
}

/* Best effort: the states of other users' mounts are not readable. */
void node_servers_add_mounts(const char *control, json_t *status)
{
    struct looking l = {.control = control,
                        .exports = json_object_get(status, "exports"),
                        .waiting = json_object_get(status, "waiting_exports")};
    size_t i;
    json_t *export;
    json_array_foreach(l.exports, i, export)
    {
        json_object_set_new(export, "mounts", json_array());
        json_object_set_new(export, "devices", json_array());
    }
    json_array_foreach(l.waiting, i, export)
    {
        json_object_set_new(export, "mounts", json_array());
    }
    mount_each(add_mount, &l);
    json_t *followed = json_array();
    follow_each(add_followed, &(struct following){control, followed});
    if (json_array_size(followed))
        json_object_set_new(status, "followed", followed);
    else
        json_decref(followed);
}

/* ---- the server that a user means ---- */

/* Find target.control. */
static bool find_beside(const char *target, char *out, size_t size)
{
    struct stat st;
    char beside[PATH_MAX];
    control_beside(target, beside);
    if (stat(beside, &st) || !S_ISSOCK(st.st_mode))
        return false;
    snprintf(out, size, "%s", beside);
    return true;
}

/* Find the server without a target. `granary serve` comes first, so that scripts that name no target do not fail once
 * something is mounted too. A socket that no process listens on was left by a killed server. */
static int find_default(char *out, size_t size)
{
    if (listen_answered(SERVE_CONTROL) > 0) {
        snprintf(out, size, "%s", SERVE_CONTROL);
        return 0;
    }
    CLEANUP_BYTES names = BYTES_INIT(ERROR_TEXT_MAX);
    struct node_servers servers;
    size_t count = 0;
    int rc = node_servers_find(&servers);
    for (size_t i = 0; !rc && i < servers.found.len; i++) {
        const struct node_server *server = &servers.found.items[i];
        if (listen_answered(server->control) <= 0) /* the state of a mount may outlive its server */
            continue;
        if (!count++)
            snprintf(out, size, "%s", server->control);
        if (bytes_printf(&names, "%s%s", count > 1 ? ", " : "", server->dir ? server->dir : server->control))
            break;
    }
    node_servers_release(&servers);
    if (!rc && !count)
        return error_set(-ENOENT,
                         "no server listens on %s, nor does one of a mount that this user knows of; give a control "
                         "socket or a mount point",
                         SERVE_CONTROL);
    if (!rc && count > 1)
        return error_set(-EINVAL, "there are several servers; say which: %.*s", (int)names.len,
                         (const char *)names.data);
    return rc;
}

/* A mount point is looked up by its state, without touching the mount: a dead server would block that. */
int control_target_find(const char *target, char *out, size_t size)
{
    struct stat st;
    struct mount_state state;
    if (!target)
        return find_default(out, size);
    int rc = stat(target, &st) ? -errno : 0;
    if (!rc && S_ISSOCK(st.st_mode)) {
        if (!find_beside(target, out, size))
            snprintf(out, size, "%s", target);
        return 0;
    }
    if (rc == -ENOENT)
        return error_set(rc, "no server and no mount at %s; give a control socket or a mount point", target);
    rc = follow_find_mount(target, &state);
    if (rc == -ENOENT && find_beside(target, out, size)) /* the directory of serve --fuse */
        return 0;
    if (rc == -ENOENT)
        return error_set(rc, "nothing is mounted on %s, and it is no socket; give a control socket or a mount point",
                         target);
    if (rc)
        return rc;
    if (mount_is_direct(&state))
        return error_set(-ENOENT,
                         "%s is mounted from the file %s, and has no server; mount it with --direct=no for one", target,
                         state.image_file);
    if (!*state.control)
        return error_set(-ENOENT, "%s is served by %s, which has no control socket beside it", target, state.socket);
    snprintf(out, size, "%s", state.control);
    return 0;
}

void control_target_mounted(const char *target, struct control_mounted *out)
{
    struct mount_state state;
    struct stat st;
    *out = (struct control_mounted){.digest = ""};
    if (!target || stat(target, &st) || !S_ISDIR(st.st_mode) || follow_find_mount(target, &state))
        return;
    print_digest(&state.digest, out->digest);
    snprintf(out->export, sizeof out->export, "%s", state.export_name);
}

/* The state has the export's name if the mount added the export. Else the image's own name is the export's. */
static bool export_of(const struct mount_state *s, char *out, size_t size)
{
    struct image_ref ref;
    if (*s->export_name) {
        snprintf(out, size, "%s", s->export_name);
        return true;
    }
    if (image_ref_parse(s->image, &ref)) /* a server that was joined by --socket serves it by its own name */
        return false;
    snprintf(out, size, "%s", ref.name);
    return true;
}

bool control_target_export(const char *target, char *out, size_t size)
{
    struct mount_state state;
    return !follow_find_mount(target, &state) && export_of(&state, out, size);
}

/* Reduce a list of exports to the one of that name. */
static void keep_named(json_t *exports, const char *name)
{
    for (size_t i = json_array_size(exports); i--;)
        if (strcmp(server_status_text(json_array_get(exports, i), "name"), name) != 0)
            json_array_remove(exports, i);
}

/* Reduce the followed directories to the one whose version the mount is. */
static void keep_followed(json_t *status, const struct mount_state *s)
{
    json_t *followed = json_object_get(status, "followed");
    struct follow_state f;
    for (size_t i = json_array_size(followed); i--;)
        if (follow_load(server_status_text(json_array_get(followed, i), "dir"), &f) || !follow_has_mount(&f, s->dir))
            json_array_remove(followed, i);
    if (followed && !json_array_size(followed))
        json_object_del(status, "followed");
}

void node_servers_keep_mount(json_t *status, const char *target)
{
    struct mount_state s;
    char name[STATE_REF_MAX];
    json_t *exports = json_object_get(status, "exports");
    if (follow_find_mount(target, &s) || !export_of(&s, name, sizeof name))
        return;
    keep_named(exports, name);
    keep_named(json_object_get(status, "waiting_exports"), name);
    keep_followed(status, &s);
    json_t *export = json_array_get(exports, 0);
    json_t *mounts = json_object_get(export, "mounts"), *devices = json_object_get(export, "devices");
    if (!export)
        return;
    json_array_clear(mounts);
    json_array_append_new(mounts, json_lossy(s.dir));
    for (size_t i = json_array_size(devices); i--;)
        if (strcmp(server_status_text(json_array_get(devices, i), "device"), s.device) != 0)
            json_array_remove(devices, i);
}

/* Finds the control socket of the server that a user names, by its control socket, by the socket or directory that it
 * serves, or by a mount point. The control socket lies beside the other socket under the name PATH.control; a mount's
 * state file names it.
 *
 *   socket X       X.control if it exists, else X itself is the control socket
 *   directory X    a mount point: from its state; else X.control, of `granary serve --fuse`
 *   nothing        `granary serve` at its usual place, else the only server of mounts
 */
#include "cli/control_target.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "attach/attach.h"
#include "base/bytes.h"
#include "base/error.h"
#include "cli/node_servers.h"
#include "cli/pin.h"
#include "net/listen.h"

/* Find target.control. */
static bool find_beside(const char *target, char *out, size_t size)
{
    struct stat st;
    char beside[PATH_MAX];
    snprintf(beside, sizeof beside, "%s.control", target);
    if (stat(beside, &st) || !S_ISSOCK(st.st_mode))
        return false;
    snprintf(out, size, "%s", beside);
    return true;
}

/* Does a server answer there? The state of a mount may outlive its server. */
static bool listens(const struct node_server *server)
{
    return listen_answered(server->control) > 0;
}

/* Find the server without a target. `granary serve` comes first, so that scripts that name no target do not fail once
 * something is mounted too. A socket that no process listens on was left by a killed server. */
static int find_default(char *out, size_t size)
{
    if (listen_answered(PIN_CONTROL) > 0) {
        snprintf(out, size, "%s", PIN_CONTROL);
        return 0;
    }
    CLEANUP_BYTES names = BYTES_INIT(ERROR_TEXT_MAX);
    struct node_servers servers;
    size_t count = 0;
    int rc = node_servers_find(&servers);
    for (size_t i = 0; !rc && i < servers.found.len; i++) {
        const struct node_server *server = &servers.found.items[i];
        if (!listens(server))
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
                         PIN_CONTROL);
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
    rc = mount_find(target, &state);
    if (rc == -ENOENT && find_beside(target, out, size)) /* the directory of serve --fuse */
        return 0;
    if (rc == -ENOENT)
        return error_set(rc, "nothing is mounted on %s, and it is no socket; give a control socket or a mount point",
                         target);
    if (rc)
        return rc;
    if (!*state.control)
        return error_set(-ENOENT, "%s is served by %s, which has no control socket beside it", target, state.socket);
    snprintf(out, size, "%s", state.control);
    return 0;
}

const char *control_target_digest(const char *target, char out[PRINT_DIGEST_MAX])
{
    struct mount_state state;
    struct stat st;
    if (!target || stat(target, &st) || !S_ISDIR(st.st_mode) || mount_find(target, &state))
        return NULL;
    return print_digest(&state.digest, out);
}

/* The state has the export's name if the mount added the export. Else the image's own name is the export's. */
bool control_target_export(const char *target, char *out, size_t size)
{
    struct mount_state state;
    struct image_ref ref;
    if (mount_find(target, &state))
        return false;
    if (*state.export_name) {
        snprintf(out, size, "%s", state.export_name);
        return true;
    }
    if (image_ref_parse(state.image, &ref)) /* a server that was joined by --socket serves it by its own name */
        return false;
    snprintf(out, size, "%s", ref.name);
    return true;
}

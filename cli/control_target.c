#include "cli/control_target.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "attach/mount.h"
#include "base/error.h"
#include "cli/pin.h"

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

int control_target_find(const char *target, char *out, size_t size)
{
    struct stat st;
    struct mount_state state;
    if (!target)
        target = PIN_CONTROL;
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

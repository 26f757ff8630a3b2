/* Owners are resolved before a server starts, so that a misspelt name is reported at once. They are applied after the
 * socket is bound with mode 0600, so that it is never accessible to more users than intended. */
#include "attach/server/socket_access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/accounts.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

/* Resolve a user or group, by name first, then by number. */
static int socket_access_find(const char *what, const char *kind, const char *name,
                              bool (*by_name)(const char *, uint32_t *), uint32_t *out)
{
    uint64_t number;
    if (by_name(name, out))
        return 0;
    if (text_parse_uint(what, name, 0, UINT32_MAX - 1, &number))
        return error_set(-EINVAL, "%s: there is no %s '%s' on this machine", what, kind, name);
    *out = (uint32_t)number;
    return 0;
}

int socket_access_parse(const char *option, const char *mode, const char *owner, struct socket_access *out)
{
    char what[48];
    *out = (struct socket_access){0};
    CLEANUP_FREE char *user = owner ? strdup(owner) : NULL;
    char *group = user ? strchr(user, ':') : NULL;
    int rc = 0;
    if (owner && !user)
        return error_no_memory();
    if (group)
        *group++ = 0;
    snprintf(what, sizeof what, "--%s-owner", option);
    out->has_owner = user && *user;
    out->has_group = group && *group;
    if (out->has_owner)
        rc = socket_access_find(what, "user", user, account_user, &out->owner);
    if (!rc && out->has_group)
        rc = socket_access_find(what, "group", group, account_group, &out->group);
    snprintf(what, sizeof what, "--%s-mode", option);
    if (out->has_group)
        out->mode = 0660;
    return !rc && mode ? text_parse_mode(what, mode, 0777, &out->mode) : rc;
}

int socket_access_apply(const struct socket_access *a, const char *path)
{
    uid_t owner = a->has_owner ? a->owner : (uid_t)-1;
    gid_t group = a->has_group ? a->group : (gid_t)-1;
    if ((a->has_owner || a->has_group) && lchown(path, owner, group))
        return error_set(-errno, "cannot give the socket %s the owner asked for: %s", path, strerror(errno));
    if (a->mode && chmod(path, a->mode))
        return error_set(-errno, "cannot give the socket %s the mode asked for: %s", path, strerror(errno));
    return 0;
}

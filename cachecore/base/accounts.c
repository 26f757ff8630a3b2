/* Thin wrappers around the getpw*_r and getgr*_r functions. A failed lookup counts as an unknown name: the callers only
 * want a better sentence, or tell the user that the name is unknown.
 */
#include "base/accounts.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum { ROOM = 64 << 10 }; /* bytes for one entry's strings; a group's entry includes the names of all its members */

const char *account_text(uint32_t user, char out[ACCOUNT_TEXT_MAX])
{
    struct passwd entry, *found = NULL;
    CLEANUP_FREE char *room = malloc(ROOM);
    if (!room || getpwuid_r(user, &entry, room, ROOM, &found) || !found)
        snprintf(out, ACCOUNT_TEXT_MAX, "user %u", (unsigned)user);
    else
        snprintf(out, ACCOUNT_TEXT_MAX, "user %u (%.32s)", (unsigned)user, found->pw_name);
    return out;
}

bool account_user(const char *name, uint32_t *out)
{
    struct passwd entry, *found = NULL;
    CLEANUP_FREE char *room = malloc(ROOM);
    if (!room || getpwnam_r(name, &entry, room, ROOM, &found) || !found)
        return false;
    *out = found->pw_uid;
    return true;
}

bool account_group(const char *name, uint32_t *out)
{
    struct group entry, *found = NULL;
    CLEANUP_FREE char *room = malloc(ROOM);
    if (!room || getgrnam_r(name, &entry, room, ROOM, &found) || !found)
        return false;
    *out = found->gr_gid;
    return true;
}

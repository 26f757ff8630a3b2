#include "base/accounts.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum { ROOM = 64 << 10 }; /* of one entry: a group's members stand in it */

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

/* Finding a mount by its directory. The volume driver needs nothing else of this folder, so this is a file of its own:
 * with everything that mounts, the driver would take three times the memory. */
#include <errno.h>
#include <stdlib.h>

#include "attach/attach_internal.h"
#include "attach/mount/mount_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/cleanup.h"
#include "base/error.h"

/* Read the state of a mount point. A dead mount may make realpath fail; the name then counts as it is. */
int mount_find(const char *dir, struct mount_state *out)
{
    dev_t device;
    CLEANUP_FREE char *resolved = realpath(dir, NULL);
    int rc = state_load(resolved ? resolved : dir, out);
    if (rc != -ENOENT)
        return rc;
    if (!resolved)
        return error_set(-ENOENT, "%s: no such directory", dir);
    if (mountinfo_at(resolved, &device) > 0)
        return error_set(-ENOENT, "%s was not mounted by granary; use umount %s", dir, dir);
    return error_set(-ENOENT, "nothing is mounted on %s", dir);
}

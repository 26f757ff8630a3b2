/* Three ways to regain privileges are closed: the bounding set, so that a started program with file capabilities gets
 * none; no_new_privs, so that setuid programs grant none; and the process's own sets. */
#include "attach/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"

/* Reduce the bounding set. Failures (no CAP_SETPCAP) are harmless: nothing is inheritable, and with no_new_privs no
 * program grants anything. */
static void lower_bound(uint64_t keep)
{
    for (int c = 0; c < 64 && prctl(PR_CAPBSET_READ, c, 0, 0, 0) >= 0; c++)
        if (!(keep >> c & 1))
            (void)prctl(PR_CAPBSET_DROP, c, 0, 0, 0);
}

int privileges_keep(const int *capabilities, size_t count)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2];
    uint64_t keep = 0;
    for (size_t i = 0; i < count; i++)
        keep |= UINT64_C(1) << capabilities[i];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_capget, &header, sets))
        return error_set(-errno, "cannot give privileges away: %s", strerror(errno));
    lower_bound(keep);
    for (int i = 0; i < 2; i++) {
        sets[i].permitted &= (uint32_t)(keep >> (32 * i));
        sets[i].effective = sets[i].permitted;
        sets[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, sets))
        return error_set(-errno, "cannot give privileges away: %s", strerror(errno));
    return 0;
}

/* The server does not see reconnect daemons; each reports to it. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "attach/control_client.h"
#include "attach/keeper/keeper.h"
#include "base/clock.h"
#include "base/log.h"

#define PATH "/kept"

enum { NUMBER_MAX = 24 };

/* Tell the server, if it is on this machine. A server without a control socket, or of an earlier version, has no use
 * for it. */
static void tell(const char *device, const char *address, const char *method, const char *const *params)
{
    char control[PATH_MAX];
    if (*address == '/' && control_tell(control_beside(address, control), method, PATH, params))
        log_debug("%s: the server is not told: %s", device, error_text());
}

void keep_report(const struct keep_state *s, const struct keep_figures *f)
{
    char pid[NUMBER_MAX], reconnects[NUMBER_MAX], failed[NUMBER_MAX];
    const char *error = *f->failure ? f->failure : NULL;
    const char *const params[] = {"device", s->device, "pid",   pid,   "reconnects", reconnects,
                                  "failed", failed,    "error", error, NULL};
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    snprintf(reconnects, sizeof reconnects, "%" PRIu64, f->reconnects);
    snprintf(failed, sizeof failed, "%" PRIu64, error ? (clock_now_ms() - f->failed_ms) / 1000 : 0);
    tell(s->device, s->address, "PUT", params);
}

void keep_report_end(const char *device, const char *address)
{
    const char *const params[] = {"device", device, NULL};
    tell(device, address, "DELETE", params);
}

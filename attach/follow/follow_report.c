/* The server does not see followers; each reports to it. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "attach/control_client.h"
#include "attach/follow/follow.h"
#include "base/error.h"
#include "base/log.h"

#define PATH "/followed"

enum { NUMBER_MAX = 24 };

int follow_report(const struct follow_state *f)
{
    char versions[NUMBER_MAX], switches[NUMBER_MAX], behind[NUMBER_MAX];
    const char *const params[] = {"dir", f->dir, "versions", versions, "switches", switches, "behind", behind, NULL};
    if (!*f->control)
        return 0;
    snprintf(versions, sizeof versions, "%zu", f->count);
    snprintf(switches, sizeof switches, "%" PRIu64, f->switches);
    /* at least a second, once it is behind: 0 says that it is not */
    const int64_t seconds = f->behind ? GR_MAX((int64_t)time(NULL) - f->behind, (int64_t)1) : 0;
    snprintf(behind, sizeof behind, "%" PRId64, seconds);
    return control_tell(f->control, "PUT", PATH, params);
}

void follow_report_end(const struct follow_state *f)
{
    const char *const params[] = {"dir", f->dir, NULL};
    if (*f->control && control_tell(f->control, "DELETE", PATH, params))
        log_debug("%s: the metrics keep it: %s", f->dir, error_text());
}

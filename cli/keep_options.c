/* A time that was not given is UINT64_MAX, as 0 is a valid --dead-timeout. */
#include "cli/keep_options.h"

#include "base/error.h"

enum { TIMEOUT_MAX_S = 3600, DEAD_MAX_S = 30 * 24 * 3600 };

static bool given(uint64_t time_s)
{
    return time_s != UINT64_MAX;
}

/* --nbd-timeout 0 would mean "no timeout" to the kernel; --dead-timeout 0 means that reads fail at once. */
int keep_times_check(const struct keep_times *t)
{
    if (given(t->timeout_s) && (!t->timeout_s || t->timeout_s > TIMEOUT_MAX_S)) {
        (void)error_set(0, "--nbd-timeout must be from 1s to 1h: without one a lost request would wait for ever");
        return CLI_USAGE;
    }
    if (given(t->dead_s) && t->dead_s > DEAD_MAX_S) {
        (void)error_set(0, "--dead-timeout must be at most 30d");
        return CLI_USAGE;
    }
    return 0;
}

bool keep_times_apply(const struct keep_times *t, unsigned *timeout_s, unsigned *dead_s)
{
    if (given(t->timeout_s))
        *timeout_s = (unsigned)t->timeout_s;
    if (given(t->dead_s))
        *dead_s = (unsigned)t->dead_s;
    return given(t->timeout_s) || given(t->dead_s);
}

/* How long readers of a kernel nbd device wait: options of `granary mount` and `granary keep`. */
#ifndef GRANARY_CLI_KEEP_OPTIONS_H
#define GRANARY_CLI_KEEP_OPTIONS_H

#include "attach/attach.h"
#include "cli/options.h"

/* Seconds; UINT64_MAX: not given. */
struct keep_times {
    uint64_t timeout_s, dead_s;
};

/* clang-format off */
#define KEEP_ROWS(type, member)                                                                                        \
    {OPTION_DURATION, 0, "nbd-timeout", "TIME", offsetof(type, member.timeout_s), 0, 0,                                \
     "a request that the server has not answered for this long is sent again (default 10s)"},                          \
    {OPTION_DURATION, 0, "dead-timeout", "TIME", offsetof(type, member.dead_s), 0, 0,                                  \
     "reads wait this long for a server that is gone, then fail (default 10m)"}
/* clang-format on */

#define KEEP_TIMES_UNSET                                                                                               \
    {                                                                                                                  \
        .timeout_s = UINT64_MAX, .dead_s = UINT64_MAX                                                                  \
    }

/* CLI_USAGE, with a sentence: a time is out of range. */
GR_MUST_CHECK int keep_times_check(const struct keep_times *t);
/* Replace the times that were given; return false when none was. */
bool keep_times_apply(const struct keep_times *t, unsigned *timeout_s, unsigned *dead_s);

#endif

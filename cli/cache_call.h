/* What the commands of `granary cache` that talk to a server share. */
#ifndef GRANARY_CLI_CACHE_CALL_H
#define GRANARY_CLI_CACHE_CALL_H

#include <jansson.h>

#include "cli/options.h"

/* Every one of these commands has these options. */
struct cache_call_values {
    const char *control;
    bool json, quiet;
};

#define CACHE_CALL_ROWS(values)                                                                                        \
    {OPTION_TEXT,                                                                                                      \
     0,                                                                                                                \
     "control",                                                                                                        \
     "TARGET",                                                                                                         \
     offsetof(values, call.control),                                                                                   \
     0,                                                                                                                \
     0,                                                                                                                \
     "the server: a mount point, its socket or its control socket"},                                                   \
        {OPTION_FLAG, 0, "json", NULL, offsetof(values, call.json), 0, 0, "print one JSON object a line"},             \
    {                                                                                                                  \
        OPTION_FLAG, 'q', "quiet", NULL, offsetof(values, call.quiet), 0, 0, "no progress"                             \
    }

struct cache_call {
    const struct cache_call_values *values;
    const char *what; /* the command, for progress */
    const char *method, *path;
    const char *params[4];      /* more parameters: key, value, key, value */
    void (*file)(json_t *file); /* NULL: none are expected */
    void (*image)(json_t *image);
};

/* Ask the server of operands NAME[:GLOB] or NAME GLOB (none: all exports) and print what it answers.
 * 0, -errno, or CLI_USAGE. *out_refused: chunks that were left as they are; may be NULL. */
GR_MUST_CHECK int cache_call(const struct cache_call *call, const struct invocation *inv, uint64_t *out_refused);

#endif

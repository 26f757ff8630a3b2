/* The shared part of those `granary cache` commands that talk to a server. */
#ifndef GRANARY_CLI_CACHE_CALL_H
#define GRANARY_CLI_CACHE_CALL_H

#include <jansson.h>

#include "cli/options.h"

/* The options that all of them have. */
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

/* A command's request, and how to print its answer. */
struct cache_call {
    const struct cache_call_values *values;
    const char *what; /* the command's name, for progress */
    const char *method, *path;
    const char *params[4];      /* more parameters: key, value, key, value */
    void (*file)(json_t *file); /* prints a file; NULL: none are expected */
    void (*image)(json_t *image);
};

/* Send the request for the operands NAME[:GLOB] or NAME GLOB (none: all exports), and print the answer. *out_refused
 * (may be NULL): chunks that the cache would not change. Returns 0, -errno, or CLI_USAGE. */
GR_MUST_CHECK int cache_call(const struct cache_call *call, const struct invocation *inv, uint64_t *out_refused);

#endif

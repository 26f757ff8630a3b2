/* granary cache COMMAND: commands about a cache, each in its own file. */
#include "cli/verbs/verbs.h"

static const struct option_row rows[] = {{0}};

static const struct verb *const commands[] = {&verb_cache_ls,   &verb_cache_evict,    &verb_cache_pin,
                                              &verb_cache_fsck, &verb_cache_simulate, NULL};

const struct verb verb_cache = {
    .name = "cache",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Show what a cache holds, check it, change what it holds",
    .options = rows,
    .commands = commands,
    .run = options_need_command,
};

/* granary trace COMMAND: each command is in its own file. */
#include "cli/verbs/verbs.h"

static const struct option_row rows[] = {{0}};

static const struct verb *const commands[] = {&verb_trace_record, NULL};

const struct verb verb_trace = {
    .name = "trace",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Record which chunks a job reads, for granary warm --trace",
    .options = rows,
    .commands = commands,
    .run = options_need_command,
};

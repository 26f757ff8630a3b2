/* granary cache COMMAND: what is done to a cache and with one; each command has a file of its own. */
#include "base/bytes.h"
#include "base/error.h"
#include "cli/verbs.h"

static const struct option_row rows[] = {{0}};

static const struct verb *const commands[] = {&verb_cache_ls,   &verb_cache_evict,    &verb_cache_pin,
                                              &verb_cache_fsck, &verb_cache_simulate, NULL};

/* Only no word, or one that is no command, comes here. */
static int run(const struct invocation *inv)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    for (size_t i = 0; commands[i]; i++)
        if (bytes_printf(&known, "%s %s", i ? "," : "", commands[i]->name + sizeof "cache"))
            break;
    const int len = (int)known.len;
    const char *there = (const char *)known.data;
    if (inv->operand_count)
        (void)error_set(0, "'%s' is no command; there are%.*s", inv->operands[0], len, there);
    else
        (void)error_set(0, "name a command; there are%.*s", len, there);
    return CLI_USAGE;
}

const struct verb verb_cache = {
    .name = "cache",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Look into a cache, check it, choose what it holds",
    .options = rows,
    .commands = commands,
    .run = run,
};

/* granary cache COMMAND: what is done to a cache and with one; each command has a file of its own. */
#include "base/bytes.h"
#include "base/error.h"
#include "cli/verbs.h"

static const struct option_row rows[] = {{0}};

static const struct verb *const commands[] = {&verb_cache_ls,   &verb_cache_evict,    &verb_cache_pin,
                                              &verb_cache_fsck, &verb_cache_simulate, NULL};

/* Only a word that is no command comes here. */
static int run(const struct invocation *inv)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    for (size_t i = 0; commands[i]; i++)
        if (bytes_printf(&known, "%s %s", i ? "," : "", commands[i]->name + sizeof "cache"))
            break;
    (void)error_set(0, "'%s' is no command; there are%.*s", inv->operands[0], (int)known.len, (const char *)known.data);
    return CLI_USAGE;
}

const struct verb verb_cache = {
    .name = "cache",
    .operands = "COMMAND ...",
    .min_operands = 1,
    .max_operands = 64,
    .summary = "Look into a cache, check it, choose what it holds",
    .options = rows,
    .commands = commands,
    .run = run,
};

/* The table of verbs, and granary help [VERB [COMMAND]], which is generated from it and from each verb's options. */
#include <string.h>

#include "base/error.h"
#include "cli/verbs/verbs.h"

const struct verb *const verbs[] = {
    &verb_build,  &verb_images, &verb_inspect, &verb_ls,    &verb_diff,  &verb_verify, &verb_export, &verb_copy,
    &verb_tag,    &verb_rm,     &verb_gc,      &verb_serve, &verb_mount, &verb_umount, &verb_keep,   &verb_upgrade,
    &verb_status, &verb_top,    &verb_cache,   &verb_warm,  &verb_trace, &verb_help,   NULL};

const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

struct help_values {
    bool all;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "all", NULL, offsetof(struct help_values, all), 0, 0, "every option of every verb, one line each"},
    {0},
};

void help_list_verbs(FILE *to)
{
    fprintf(to, "usage: granary VERB [options] operands\n\n"
                "Read-only dataset images: built from a tree of files, kept in an object store, mounted over NBD.\n\n");
    for (size_t i = 0; verbs[i]; i++)
        fprintf(to, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(to, "\n'granary VERB --help' shows a verb's options, 'granary --version' the version.\n"
                "IMAGE is STORE/NAME[:TAG] or STORE/NAME@sha256:DIGEST, e.g. s3://bucket/images/faces:latest.\n"
                "Exit codes: 0 done, 1 failed, 2 usage (and 3: diff --exit-code found a difference).\n");
}

static int run(const struct invocation *inv)
{
    const struct help_values *v = inv->values;
    if (v->all && inv->operand_count)
        return options_exclude("--all", "VERB", "all verbs are listed");
    if (v->all) {
        for (size_t i = 0; verbs[i]; i++)
            options_list(verbs[i], stdout);
        return 0;
    }
    if (!inv->operand_count) {
        help_list_verbs(stdout);
        return 0;
    }
    const struct verb *verb = verb_find(inv->operands[0]);
    if (!verb) {
        (void)error_set(0, "unknown verb '%s'; 'granary help' lists them", inv->operands[0]);
        return CLI_USAGE;
    }
    const struct verb *command = inv->operand_count > 1 ? options_command(verb, inv->operands[1]) : NULL;
    if (inv->operand_count > 1 && !command) {
        (void)error_set(0, "'%s' is no command of '%s'; 'granary help %s' %s", inv->operands[1], verb->name, verb->name,
                        verb->commands ? "lists them" : "shows its options");
        return CLI_USAGE;
    }
    options_help(command ? command : verb, stdout);
    return 0;
}

const struct verb verb_help = {
    .name = "help",
    .operands = "[VERB [COMMAND]]",
    .max_operands = 2,
    .summary = "Show the verbs, or the options of one",
    .options = rows,
    .values_size = sizeof(struct help_values),
    .run = run,
};

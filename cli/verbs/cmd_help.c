/* The table of verbs, and granary help [VERB [COMMAND]], which is generated from that table and from each verb's
 * options. The order of the table is the order of help.
 *
 * A verb that is missing from the table does not exist: verbs are registered nowhere else.
 */
#include <string.h>

#include "base/text.h"
#include "cli/verbs/verbs.h"

const struct verb *const verbs[] = {
    &verb_build,  &verb_join,   &verb_images, &verb_inspect, &verb_ls,     &verb_index, &verb_diff,   &verb_verify,
    &verb_export, &verb_copy,   &verb_tag,    &verb_sign,    &verb_rm,     &verb_gc,    &verb_unnest, &verb_serve,
    &verb_mount,  &verb_umount, &verb_keep,   &verb_upgrade, &verb_status, &verb_top,   &verb_cache,  &verb_warm,
    &verb_trace,  &verb_leave,  &verb_config, &verb_doctor,  &verb_bench,  &verb_help,  NULL};

const struct verb *verb_find(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (!strcmp(verbs[i]->name, name))
            return verbs[i];
    return NULL;
}

/* Commands are searched too, for "granary evict" instead of "granary cache evict". */
const struct verb *verb_resembling(const char *name)
{
    for (size_t i = 0; verbs[i]; i++)
        if (text_resembles(name, strlen(name), verbs[i]->name))
            return verbs[i];
    for (size_t i = 0; verbs[i]; i++) {
        const struct verb *command = options_command(verbs[i], name);
        if (command)
            return command;
    }
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
                "Read-only dataset images: built from a tree of files, kept in an object store,\n"
                "mounted as block devices or by FUSE.\n\n");
    for (size_t i = 0; verbs[i]; i++)
        fprintf(to, "  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
    fprintf(
        to,
        "\n'granary VERB --help' shows a verb's options, 'granary --version' the version.\n"
        "IMAGE is STORE/NAME[:TAG] or STORE/NAME@sha256:DIGEST, e.g. s3://bucket/images/faces:latest.\n"
        "Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted; 3: diff --exit-code found a difference, or status a\n"
        "server that is failing (1: degraded).\n");
}

/* A word after the verb names one of its commands, as in "granary help cache evict". */
static int cmd_help_run(const struct invocation *inv)
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
    const char *name = inv->operands[0];
    const struct verb *verb = verb_find(name), *meant = verb ? NULL : verb_resembling(name);
    if (meant)
        return options_wrong("unknown verb '%s'; did you mean 'granary help %s'?", name, meant->name);
    if (!verb)
        return options_wrong("unknown verb '%s'; 'granary help' lists them", name);
    const char *word = inv->operand_count > 1 ? inv->operands[1] : NULL;
    const struct verb *command = word ? options_command(verb, word) : NULL;
    if (word && !command && verb->commands)
        return options_no_command(verb, word);
    if (word && !command)
        return options_wrong("'%s' has no commands; 'granary help %s' shows its options", verb->name, verb->name);
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
    .run = cmd_help_run,
};

/* Every verb of `granary`, in the order of help, and what they are made of: options, stores, output, interrupts. */
#ifndef GRANARY_CLI_VERBS_VERBS_H
#define GRANARY_CLI_VERBS_VERBS_H

#include <jansson.h>
#include <stdio.h>

#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/output.h"

extern const struct verb verb_build, verb_join, verb_images, verb_inspect, verb_leave, verb_ls, verb_index, verb_diff,
    verb_verify, verb_export, verb_copy, verb_tag, verb_sign, verb_rm, verb_gc, verb_unnest, verb_serve, verb_mount,
    verb_umount, verb_keep, verb_upgrade, verb_status, verb_top, verb_cache, verb_warm, verb_trace, verb_config,
    verb_doctor, verb_bench, verb_help;

/* The commands of `granary cache` that have files of their own. */
extern const struct verb verb_cache_fsck, verb_cache_resident, verb_cache_simulate;

/* The settings of [mount] in the configuration file, ended by OPTION_END, and a check of that section: CLI_USAGE, with
 * a sentence. */
extern const struct option_row mount_config_rows[];
GR_MUST_CHECK int mount_check_config(const struct config *c);

/* Check that root runs the verb; -EPERM names the remedy, before anything else fails: mount(2) and nbd need
 * CAP_SYS_ADMIN. */
GR_MUST_CHECK int need_root(const char *verb);

/* Check every section of a file. CLI_USAGE, with a sentence. */
GR_MUST_CHECK int config_check_sections(const struct config *c);
/* Return every setting that applies without options, as `granary config show --json` prints it. NULL: out of memory. */
json_t *config_settings(const struct config *c);

/* Ends with NULL. */
extern const struct verb *const verbs[];

/* Print what `granary help` shows: the usage, and every verb with its summary. */
void help_list_verbs(FILE *to);

/* Return the verb of that name; NULL: none. */
const struct verb *verb_find(const char *name);

/* Return the verb that was probably meant by an unknown name: one of similar spelling, or a command of that name below
 * a verb. NULL: none. */
const struct verb *verb_resembling(const char *name);

/* ---- the names mount.granary and umount.granary, by which mount(8) and umount(8) call the program ---- */

/* Exit statuses as mount(8) understands them. */
enum { HELPER_DONE = 0, HELPER_USAGE = 1, HELPER_FAILED = 32 };

/* Whether the program was called by one of those names. */
bool mount_helper_called(const char *program);

/* Translate the call into words for `granary`, ended by NULL: "granary", "mount", "--cache=/ssd:20G", ..., IMAGE, DIR.
 * Every option of the verb is accepted; options that mount(8) has for all filesystems are applied or ignored.
 * *out_nothing: there is nothing to do, as it is mounted already or only a test (-f). Returns 0, or HELPER_USAGE or
 * HELPER_FAILED with a sentence. */
GR_MUST_CHECK int mount_helper_words(int argc, char **argv, string_list *out, bool *out_nothing);

#endif

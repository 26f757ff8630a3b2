/* Every verb of `granary`, in the order of help, and what they are made of: options, stores, output, interrupts. */
#ifndef GRANARY_CLI_VERBS_VERBS_H
#define GRANARY_CLI_VERBS_VERBS_H

#include <stdio.h>

#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/output.h"

extern const struct verb verb_build, verb_images, verb_inspect, verb_ls, verb_diff, verb_verify, verb_export, verb_copy,
    verb_tag, verb_rm, verb_gc, verb_unnest, verb_serve, verb_mount, verb_umount, verb_keep, verb_upgrade, verb_status,
    verb_top, verb_cache, verb_warm, verb_trace, verb_help;

/* The commands of `granary cache` that have files of their own. */
extern const struct verb verb_cache_fsck, verb_cache_simulate;

/* Ends with NULL. */
extern const struct verb *const verbs[];

/* Print what `granary help` shows: the usage, and every verb with its summary. */
void help_list_verbs(FILE *to);

/* Return the verb of that name; NULL: none. */
const struct verb *verb_find(const char *name);

/* Return the verb that was probably meant by an unknown name: one of similar spelling, or a command of that name below
 * a verb. NULL: none. */
const struct verb *verb_resembling(const char *name);

#endif

/* Every verb of `granary`, in the order of help. */
#ifndef GRANARY_CLI_VERBS_H
#define GRANARY_CLI_VERBS_H

#include "cli/options.h"

extern const struct verb verb_build, verb_images, verb_inspect, verb_ls, verb_verify, verb_export, verb_tag, verb_rm,
    verb_gc, verb_serve, verb_mount, verb_umount, verb_status, verb_help;

/* Ends with NULL. */
extern const struct verb *const verbs[];

/* NULL: no such verb. */
const struct verb *verb_find(const char *name);

#endif

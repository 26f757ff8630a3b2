/* The program under the names mount.granary and umount.granary, which mount(8) and umount(8) call. */
#ifndef GRANARY_CLI_MOUNT_HELPER_H
#define GRANARY_CLI_MOUNT_HELPER_H

#include <stdbool.h>

#include "cli/options.h"

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

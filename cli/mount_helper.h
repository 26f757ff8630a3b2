/* What mount(8) and umount(8) call: the program by the names mount.granary and umount.granary. */
#ifndef GRANARY_CLI_MOUNT_HELPER_H
#define GRANARY_CLI_MOUNT_HELPER_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/vec.h"

/* As mount(8) understands them. */
enum { HELPER_DONE = 0, HELPER_USAGE = 1, HELPER_FAILED = 32 };

typedef VEC(char *) helper_words;
void helper_words_release(helper_words *words);
#define CLEANUP_HELPER_WORDS CLEANUP(helper_words_release) helper_words

/* Is the program called by one of those names? */
bool mount_helper_called(const char *program);

/* The same as words for `granary`, ended by NULL: "granary", "mount", "--cache=/ssd:20G", ..., IMAGE, DIR. Every option
 * of the verb is one here; those that mount(8) has for all filesystems are applied or passed over. 0, or HELPER_USAGE
 * with a sentence. *out_nothing: nothing is to be done: it is mounted already, or only tried (-f). */
GR_MUST_CHECK int mount_helper_words(int argc, char **argv, helper_words *out, bool *out_nothing);

#endif

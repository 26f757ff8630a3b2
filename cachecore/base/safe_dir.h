/* Directories and files that only this user can have made: what is opened by a fixed name in a directory that another
 * user may write could be a link to any file, or a file whose owner reads and changes it afterwards.
 *
 * A directory is safe when it belongs to the effective user and nobody else may write it, and when nobody but this user
 * and root can put another one in its place: every directory and symbolic link on its path belongs to root or to this
 * user, and a directory there that others may write is sticky (as /tmp). What is below a safe directory is opened by
 * its descriptor, without following links. Every refusal is -EPERM with a sentence that names the path and the remedy.
 * Any thread.
 */
#ifndef GRANARY_BASE_SAFE_DIR_H
#define GRANARY_BASE_SAFE_DIR_H

#include "base/compiler.h"

enum safe_dir_flags {
    SAFE_DIR_MAKE = 1, /* the last component is made, with mode 0700, where it is missing */
    /* A directory of root's on the path may be written by its group, as /var/log is by syslog's on Ubuntu: for logs
     * alone. That group could put another directory of this user's in the last one's place, but none of its own. */
    SAFE_DIR_ROOTS_GROUP = 2,
};

/* Open the safe directory at path. flags: of enum safe_dir_flags. *out_fd: to be closed. -EPERM: it is not safe;
 * -ENOENT, -ENOTDIR and the like: the sentence says what is missing. */
GR_MUST_CHECK int safe_dir_open(const char *path, unsigned flags, int *out_fd);

/* Open file `name` of the safe directory dir_fd, called dir in sentences. flags: of open(2); O_CREAT makes it with mode
 * 0600 where it is missing. It must be a regular file of the effective user with one name, which nobody else may write.
 * -EPERM: it is not; -errno of open. */
GR_MUST_CHECK int safe_file_open(int dir_fd, const char *dir, const char *name, int flags, int *out_fd);

#endif

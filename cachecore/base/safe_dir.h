/* Open directories and files that no other user can have planted. In a directory that another user may write, a fixed
 * name could be a link to any file, or a file whose owner reads and changes it afterwards.
 *
 * A directory is safe when it belongs to the effective user, nobody else may write it, and only this user and root can
 * replace it: every directory and symbolic link on its path belongs to root or this user, and every directory there
 * that others may write is sticky, like /tmp. Files in a safe directory are opened relative to its descriptor, without
 * following links. Every refusal is -EPERM with a sentence that names the path and the remedy. Any thread.
 */
#ifndef GRANARY_BASE_SAFE_DIR_H
#define GRANARY_BASE_SAFE_DIR_H

#include <sys/types.h>

#include "base/bytes.h"
#include "base/compiler.h"

enum safe_dir_flags {
    SAFE_DIR_MAKE = 1, /* make the last component, with mode 0700, if it is missing */
    /* Accept directories of root on the path that their group may write, such as /var/log on Ubuntu (group syslog).
     * Only for logs: that group could replace the last directory by another one of this user, but not by its own. */
    SAFE_DIR_ROOTS_GROUP = 2,
};

/* Open the directory at path if it is safe; the caller closes *out_fd. flags: enum safe_dir_flags. -EPERM: not safe;
 * -ENOENT, -ENOTDIR and other errors of open and mkdir: the sentence says what is wrong. */
GR_MUST_CHECK int safe_dir_open(const char *path, unsigned flags, int *out_fd);

/* Open the file `name` in the safe directory dir_fd, whose path in sentences is dir. flags: as for open(2); O_CREAT
 * makes a missing file with mode 0600. The file must be regular, belong to the effective user, have exactly one link
 * and not be writable by others; -EPERM otherwise. Other errors of open, with a sentence. The caller closes *out_fd. */
GR_MUST_CHECK int safe_file_open(int dir_fd, const char *dir, const char *name, int flags, int *out_fd);

/* Append the file at path to out, as io_read_file does, when its name is fixed but its directory is the user's choice
 * and may be one that others write, like /tmp. The file must be regular, no link, have exactly one name, belong to
 * root, the effective user or the user `also`, and not be writable by others; -EPERM otherwise. -ENOENT: absent. */
GR_MUST_CHECK int safe_file_read(const char *path, uid_t also, struct bytes *out);

#endif

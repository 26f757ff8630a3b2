/* Open paths below a directory and nothing else: no symbolic link is followed, in no component. Paths may be longer
 * than PATH_MAX. Also here: extended attributes of such paths (local_xattr.c).
 *
 * Any thread. Errors are -errno without a sentence, unless stated otherwise.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_OPENAT2_H
#define GRANARY_IMAGEBUILD_SOURCE_OPENAT2_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* Return whether openat2 (Linux 5.6) exists and may be called; a seccomp filter may forbid it. */
bool openat2_is_supported(int root);

/* Open a path below the directory `root`, with `flags` plus O_CLOEXEC and O_NOFOLLOW. The path has path_len bytes. It
 * is relative, without NUL, without ".." and without a slash at either end; empty: the directory itself. Without
 * openat2 every component is opened by itself.
 *
 * Returns the descriptor, or -ELOOP or -ENOTDIR if a symbolic link is in the way, -ENAMETOOLONG if a component is too
 * long, or another error of open(2). */
GR_MUST_CHECK int openat2_beneath(int root, bool openat2, const char *path, size_t path_len, int flags);

/* Most bytes of extended attributes of one path, in the form of source_entry.xattrs. The kernel limits the list of
 * their names to 64 KiB. */
enum { LOCAL_XATTRS_MAX = 256 << 10 };

/* Return 0, or -ENOENT with a sentence: /proc is not mounted, so attributes cannot be read. */
GR_MUST_CHECK int local_xattrs_possible(void);

/* Read the extended attributes of `name` in the directory dir ("." is the directory itself), without opening it or
 * following a link. *out is replaced by them, in the form of source_entry.xattrs; it is empty where the filesystem has
 * none. -ENOENT: the name is gone; -EMSGSIZE: over LOCAL_XATTRS_MAX; -ERANGE: they kept changing; -ENOMEM. */
GR_MUST_CHECK int local_xattrs_read(int dir, const char *name, struct bytes *out);

#endif

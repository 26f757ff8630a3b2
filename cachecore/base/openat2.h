/* Open paths below a directory and nothing else: no symbolic link is followed, in no component. Paths may be longer
 * than PATH_MAX. Any thread. Errors are -errno without a sentence.
 */
#ifndef GRANARY_BASE_OPENAT2_H
#define GRANARY_BASE_OPENAT2_H

#include <stdbool.h>
#include <stddef.h>

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

#endif

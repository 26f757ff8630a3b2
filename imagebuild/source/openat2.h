/* Opening what lies below a directory, and never anything else: no symbolic link is followed, no
 * ".." taken, and paths may be longer than the system's PATH_MAX. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_OPENAT2_H
#define GRANARY_IMAGEBUILD_SOURCE_OPENAT2_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* Has this kernel openat2 (5.6 on), and may it be called? */
bool openat2_is_supported(int root);

/* Open path (path_len bytes, no NUL, relative, no leading or trailing slash; empty: the directory
 * itself) below the directory root with flags (O_CLOEXEC and O_NOFOLLOW are added). The descriptor
 * or -errno, without a sentence: -ELOOP or -ENOTDIR when a link stands in the way. Without openat2
 * every component is opened by itself. */
GR_MUST_CHECK int openat2_beneath(int root, bool openat2, const char *path, size_t path_len, int flags);

#endif

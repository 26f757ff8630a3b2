/* The cache of a server that was started without --cache. */
#ifndef GRANARY_CLI_DEFAULT_CACHE_H
#define GRANARY_CLI_DEFAULT_CACHE_H

#include <limits.h>
#include <stdbool.h>

#include "base/compiler.h"

#define DEFAULT_CACHE_WATERMARK "90:85"

enum { DEFAULT_CACHE_SPEC_MAX = PATH_MAX + 32 };

/* Return GRANARY_CACHE, which stands in for --cache; NULL: not set. */
const char *default_cache_environment(void);

/* Return the default directory: /var/cache/granary for root; for others $XDG_CACHE_HOME/granary or ~/.cache/granary.
 * false: neither is set. */
bool default_cache_dir(char out[PATH_MAX]);

/* Make the default directory (0700) and choose a size: half of the space that is free or the cache's already, but leave
 * a tenth of the filesystem free. spec: "DIR:SIZE". *out_fd: hold it as long as the server lives, so that another
 * server that starts at the same moment finds the directory in use. -EBUSY: another server uses it (what a killed
 * server left is waited for, up to 5 s); -ENOENT: no directory; -ENOSPC: no room; others: it belongs to another user,
 * or its filesystem cannot reserve space. */
GR_MUST_CHECK int default_cache_make(char spec[DEFAULT_CACHE_SPEC_MAX], int *out_fd);

#endif

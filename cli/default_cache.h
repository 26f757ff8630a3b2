/* The cache of a server that was given none. */
#ifndef GRANARY_CLI_DEFAULT_CACHE_H
#define GRANARY_CLI_DEFAULT_CACHE_H

#include <limits.h>
#include <stdbool.h>

#include "base/compiler.h"

#define DEFAULT_CACHE_WATERMARK "90:85"

enum { DEFAULT_CACHE_SPEC_MAX = PATH_MAX + 32 };

/* GRANARY_CACHE: what stands for --cache where that is not given; NULL: not set. */
const char *default_cache_environment(void);

/* Its directory: of root /var/cache/granary, of others $XDG_CACHE_HOME/granary or ~/.cache/granary. false: there is no
 * place for one. */
bool default_cache_dir(char out[PATH_MAX]);

/* Make that directory (0700) and choose a size: half of what is free or the cache's own already, less where a tenth of
 * the filesystem would not stay free. spec: "DIR:SIZE". A negative errno with a sentence: there can be none; the
 * directory is in use by another server (-EBUSY; what a server that was killed has left is waited for, up to 5 s),
 * belongs to another user, has no room, or its filesystem cannot reserve any. *out_fd: to be held as long as the server
 * lives, so that others that start at the same moment find it in use. */
GR_MUST_CHECK int default_cache_make(char spec[DEFAULT_CACHE_SPEC_MAX], int *out_fd);

#endif

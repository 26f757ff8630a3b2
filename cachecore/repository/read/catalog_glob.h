/* Globs over the full paths of an image's regular files, as `warm --path`, `cache ls` and `index --path` take them. '*'
 * also matches '/'; everything below a directory that matches is matched too; leading and trailing slashes do not
 * count. No I/O.
 */
#ifndef GRANARY_REPOSITORY_READ_CATALOG_GLOB_H
#define GRANARY_REPOSITORY_READ_CATALOG_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum { CATALOG_GLOB_MAX = 1024 };

struct catalog_glob {
    char text[CATALOG_GLOB_MAX + 1]; /* without those slashes */
    size_t fixed;                    /* its first bytes, which stand for themselves: every match begins with them */
};

/* Take a glob. -EINVAL, with a sentence: it is empty or longer than CATALOG_GLOB_MAX. */
GR_MUST_CHECK int catalog_glob_parse(const char *text, struct catalog_glob *out);
/* Does it match a full path, which ends with NUL? */
bool catalog_glob_matches(const struct catalog_glob *glob, const char *path);

#endif

/* fnmatch does the work; the part of a glob before its first special character is for the walk over the catalog, which
 * it spares pages. */
#include "repository/read/catalog_glob.h"

#include <errno.h>
#include <fnmatch.h>
#include <string.h>

#include "base/error.h"

/* A leading "/" is cut off because catalog paths have none; a trailing one, so that "dir/" matches what "dir" does. */
int catalog_glob_parse(const char *text, struct catalog_glob *out)
{
    size_t len = strlen(text);
    for (; *text == '/'; text++)
        len--;
    while (len && text[len - 1] == '/')
        len--;
    if (!len || len > CATALOG_GLOB_MAX)
        return error_set(-EINVAL, "a path glob has 1 to %d bytes", CATALOG_GLOB_MAX);
    memcpy(out->text, text, len);
    out->text[len] = 0;
    out->fixed = strcspn(out->text, "*?[\\");
    return 0;
}

bool catalog_glob_matches(const struct catalog_glob *glob, const char *path)
{
    return !fnmatch(glob->text, path, FNM_LEADING_DIR);
}

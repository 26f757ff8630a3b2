/* Find the files that a list of paths or globs names. */
#ifndef GRANARY_IMAGE_WARM_WARM_FILES_H
#define GRANARY_IMAGE_WARM_WARM_FILES_H

#include "image/warm/select.h"
#include "repository/read/catalog_read.h"

enum { WARM_LINKS_MAX = 64 << 20 };

/* A list of names, each ended by NUL. */
struct warm_names {
    const char *text;
    size_t len;
    bool globs; /* globs as for select_files; else full paths without a leading slash */
};

/* Visit what the names stand for: paths in the catalog's order (name->number: its place in the list), the files of
 * globs glob by glob. entry NULL: no such path, or no file that matches the glob. A path may also be something other
 * than a regular file. For a hard link its first name is visited instead, after all others and with a number above
 * theirs. visit's non-zero result ends the walk and is returned. -E2BIG: the first names of hard links take more than
 * WARM_LINKS_MAX bytes; else the error of reading the catalog.
 */
GR_MUST_CHECK int warm_files(struct image *img, struct store *store, const struct warm_names *names,
                             catalog_find_visit *visit, void *arg);

#endif

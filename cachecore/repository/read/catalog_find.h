/* Looks up many paths of a catalog in one pass: only pages that can hold one of them are fetched, each once. */
#ifndef GRANARY_REPOSITORY_READ_CATALOG_FIND_H
#define GRANARY_REPOSITORY_READ_CATALOG_FIND_H

#include "base/vec.h"
#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

/* A path to look up. */
struct catalog_path {
    const char *path; /* borrowed; not NUL-terminated */
    size_t len;
    size_t number; /* its position before sorting */
};
typedef VEC(struct catalog_path) catalog_paths;

/* Split text[0..len) at its NULs into paths, and sort them in the catalog's order. They point into text. The last one
 * may lack its NUL. -ENOMEM. */
GR_MUST_CHECK int catalog_paths_sort(const char *text, size_t len, catalog_paths *out);

/* Look up paths[0..count), which ascend (duplicates are allowed), and visit each in that order; entry NULL: the image
 * has no such path. A non-zero result of visit ends the search and is returned. -EBADMSG: the catalog is damaged; else
 * the store's errors. */
typedef int catalog_find_visit(void *arg, const struct catalog_path *path, const struct catalog_entry *entry);
GR_MUST_CHECK int catalog_find(struct store *s, const struct manifest *m, const struct catalog_path *paths,
                               size_t count, catalog_find_visit *visit, void *arg);

#endif

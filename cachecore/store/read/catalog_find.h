/* Looking up many paths of a catalog in one pass: only the pages that can hold one of them are fetched, each once. */
#ifndef GRANARY_STORE_READ_CATALOG_FIND_H
#define GRANARY_STORE_READ_CATALOG_FIND_H

#include "base/vec.h"
#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

struct catalog_path {
    const char *path; /* the caller's */
    size_t len;
    size_t number; /* where it stood before it was sorted */
};
typedef VEC(struct catalog_path) catalog_paths;

/* The names in text[0..len), each ended by NUL, as paths in the catalog's order; they point into text. The last may
 * lack its NUL. -ENOMEM. */
GR_MUST_CHECK int catalog_paths_sort(const char *text, size_t len, catalog_paths *out);

/* Visit every path of paths[0..count), which ascend (equal ones may follow each other), in that order. entry NULL:
 * the image has no such path. visit's non-zero result ends it and is returned. */
typedef int catalog_find_visit(void *arg, const struct catalog_path *path, const struct catalog_entry *entry);
GR_MUST_CHECK int catalog_find(struct store *s, const struct manifest *m, const struct catalog_path *paths,
                               size_t count, catalog_find_visit *visit, void *arg);

#endif

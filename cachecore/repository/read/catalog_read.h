/* Walks an image's catalog page by page. Pages are fetched when needed, and only those on the path down are in
 * memory. */
#ifndef GRANARY_REPOSITORY_READ_CATALOG_READ_H
#define GRANARY_REPOSITORY_READ_CATALOG_READ_H

#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

typedef int catalog_visit(void *arg, const struct catalog_entry *entry);

/* Visit in order every entry whose path begins with prefix (prefix_len 0: all). Subtrees that cannot hold one are not
 * fetched. A non-zero result of visit ends the walk and is returned; -EBADMSG: the catalog is damaged. */
GR_MUST_CHECK int catalog_walk(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len,
                               catalog_visit *visit, void *arg);

enum { CATALOG_WALK_SKIP = 1 };

/* Visit the object name of every page before it is fetched, parents first. Pages of entries are not fetched at all,
 * since gc needs only their names. CATALOG_WALK_SKIP leaves out the pages below; any other non-zero result ends the
 * walk and is returned. */
typedef int catalog_page_visit(void *arg, const struct digest *object);
GR_MUST_CHECK int catalog_walk_pages(struct store *s, const struct manifest *m, catalog_page_visit *visit, void *arg);

#endif

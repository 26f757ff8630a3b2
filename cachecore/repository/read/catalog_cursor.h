/* An image's catalog, entry by entry in path order, to be compared with another sequence in one pass. In memory are
 * one page for each level, and `ahead` pages of entries that threads fetch while earlier ones are read. */
#ifndef GRANARY_REPOSITORY_READ_CATALOG_CURSOR_H
#define GRANARY_REPOSITORY_READ_CATALOG_CURSOR_H

#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

/* The most pages ahead, and the number that a pass over a whole catalog should use. A page has about 1,024 entries,
 * 100 to 300 KB of memory, and at most CATALOG_PAGE_MAX (4 MiB) of paths and attributes. */
enum { CATALOG_CURSOR_AHEAD = 16 };

struct catalog_cursor;

/* Make a cursor over the entries whose path begins with prefix (prefix_len 0: all). Pages that cannot hold one are not
 * fetched. ahead 0: no threads; a page is fetched when it is needed. If threads cannot be started, it works without
 * them. Store and prefix are borrowed and must outlive *out, which the caller frees. -ENOMEM. */
GR_MUST_CHECK int catalog_cursor_new(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len,
                                     unsigned ahead, struct catalog_cursor **out);
/* Free a cursor, after waiting for fetches in flight. NULL is allowed. */
void catalog_cursor_free(struct catalog_cursor *c);
DEFINE_CLEANUP(catalog_cursor, struct catalog_cursor *, catalog_cursor_free)

/* Get the next entry, valid until the next call. 1: *out is set; 0: the end; -errno, and the same on every later call:
 * -EBADMSG for a page that is damaged or differs from its parent's entry, else the store's errors. Used by one
 * thread. */
GR_MUST_CHECK int catalog_cursor_next(struct catalog_cursor *c, const struct catalog_entry **out);

/* Fetch, verify and decode the page `child`, which must be of `level` and begin with the child's first path (NULL:
 * any). The caller frees *out with catalog_page_free. -EBADMSG: damaged, or another page; -ENOENT: missing. Any
 * thread. */
GR_MUST_CHECK int catalog_page_load(struct store *s, const struct catalog_child *child, unsigned level,
                                    struct catalog_page **out);
/* Return the reference to the root page. */
struct catalog_child catalog_root_child(const struct manifest *m);

#endif

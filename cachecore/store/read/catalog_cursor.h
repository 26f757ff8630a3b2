/* An image's catalog, entry by entry in path order, for whoever compares it with another sequence in one pass. One page
 * a level is held, and `ahead` pages of entries that threads fetch while their predecessors are read.
 */
#ifndef GRANARY_STORE_READ_CATALOG_CURSOR_H
#define GRANARY_STORE_READ_CATALOG_CURSOR_H

#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

/* At most; also what a pass over a whole catalog should ask for. A page has 1,024 entries or so, 100 to 300 KB of
 * memory, and CATALOG_PAGE_MAX (4 MiB) of paths and attributes at the most. */
enum { CATALOG_CURSOR_AHEAD = 16 };

struct catalog_cursor;

/* Of the entries whose path begins with prefix (prefix_len 0: all); pages that cannot hold one are not fetched. ahead
 * 0: no threads, a page is fetched when it is due. prefix is the caller's and stays. */
GR_MUST_CHECK int catalog_cursor_new(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len,
                                     unsigned ahead, struct catalog_cursor **out);
/* Waits for the fetches in flight. NULL is allowed. */
void catalog_cursor_free(struct catalog_cursor *c);
DEFINE_CLEANUP(catalog_cursor, struct catalog_cursor *, catalog_cursor_free)

/* The next entry, valid until the next call: 1, the end: 0, or -errno (and the same from then on): -EBADMSG for a page
 * that is damaged or not what its parent says. One thread. */
GR_MUST_CHECK int catalog_cursor_next(struct catalog_cursor *c, const struct catalog_entry **out);

/* Fetch, prove and decode the page `child`, which must be of `level` and begin with child's path (first NULL: any). */
GR_MUST_CHECK int catalog_page_load(struct store *s, const struct catalog_child *child, unsigned level,
                                    struct catalog_page **out);
/* The topmost page. */
struct catalog_child catalog_root_child(const struct manifest *m);

#endif

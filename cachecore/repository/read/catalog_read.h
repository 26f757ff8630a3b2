/* Reads an image's catalog from its store: entry by entry, by prefix, by a list of paths, or only the names of its
 * pages. A page is fetched when it is needed, a delta together with its base, and only those on the path down are in
 * memory, besides what a cursor fetches ahead. -EBADMSG: a page is damaged or differs from its parent's entry; else the
 * store's errors. */
#ifndef GRANARY_REPOSITORY_READ_CATALOG_READ_H
#define GRANARY_REPOSITORY_READ_CATALOG_READ_H

#include "base/vec.h"
#include "format/catalog.h"
#include "format/manifest.h"
#include "store/store.h"

/* ---- a cursor: entries in path order, to be compared with another sequence in one pass ---- */

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

/* Get the next entry, valid until the next call. 1: *out is set; 0: the end; -errno, and the same on every later call.
 * Used by one thread. */
GR_MUST_CHECK int catalog_cursor_next(struct catalog_cursor *c, const struct catalog_entry **out);

/* ---- walks ---- */

typedef int catalog_visit(void *arg, const struct catalog_entry *entry);

/* Visit in order every entry whose path begins with prefix (prefix_len 0: all). Subtrees that cannot hold one are not
 * fetched. A non-zero result of visit ends the walk and is returned. */
GR_MUST_CHECK int catalog_walk(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len,
                               catalog_visit *visit, void *arg);

enum { CATALOG_WALK_SKIP = 1 };

/* Visit the object name of every page before it is fetched, parents first, and of the bases of pages that are deltas.
 * Pages of entries are not fetched at all, since gc needs only their names. A name may be visited several times.
 * CATALOG_WALK_SKIP leaves out the pages below; any other non-zero result ends the walk and is returned. */
typedef int catalog_page_visit(void *arg, const struct digest *object);
GR_MUST_CHECK int catalog_walk_pages(struct store *s, const struct manifest *m, catalog_page_visit *visit, void *arg);

/* ---- bases: pages of an image that those of another one, built upon it, may be deltas of ---- */

struct catalog_bases;

/* Find bases in the catalog of m. Threads fetch as for a cursor. The store is borrowed and must outlive *out, which the
 * caller frees. -ENOMEM. */
GR_MUST_CHECK int catalog_bases_new(struct store *s, const struct manifest *m, struct catalog_bases **out);
void catalog_bases_free(struct catalog_bases *b); /* NULL is allowed */
DEFINE_CLEANUP(catalog_bases, struct catalog_bases *, catalog_bases_free)

/* Get the base for a page that ends with this path: the page of m around it, or that page's own base. Paths ascend from
 * call to call. *out is valid until the next call. 1: there is one; 0: all paths of m are greater; -errno, and then no
 * more calls. Used by one thread. */
GR_MUST_CHECK int catalog_bases_at(struct catalog_bases *b, const char *path, size_t len, struct catalog_base *out);

/* ---- many paths in one pass: only pages that can hold one of them are fetched, each once ---- */

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
 * has no such path. A non-zero result of visit ends the search and is returned. */
typedef int catalog_find_visit(void *arg, const struct catalog_path *path, const struct catalog_entry *entry);
GR_MUST_CHECK int catalog_find(struct store *s, const struct manifest *m, const struct catalog_path *paths,
                               size_t count, catalog_find_visit *visit, void *arg);

#endif

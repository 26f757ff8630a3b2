/* Two walks over a catalog: its entries, through a cursor; its pages' names, down the tree. At most one page for each
 * level is in memory. */
#include "repository/read/catalog_read.h"

#include "repository/read/catalog_cursor.h"

/* The arguments of a walk, the same for every page. */
struct walk {
    struct store *store;
    catalog_page_visit *page;
    void *arg;
};

/* Visit a page and those below it. Pages of entries are named by their parents and need no fetch. */
static int walk_names(const struct walk *w, const struct catalog_child *at, unsigned level)
{
    int rc = w->page(w->arg, &at->digest);
    if (rc == CATALOG_WALK_SKIP || level == 0)
        return rc == CATALOG_WALK_SKIP ? 0 : rc;
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    if (!rc)
        rc = catalog_page_load(w->store, at, level, &page);
    for (uint32_t i = 0; !rc && i < catalog_page_count(page); i++)
        rc = walk_names(w, catalog_page_child(page, i), level - 1);
    return rc;
}

int catalog_walk(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len, catalog_visit *visit,
                 void *arg)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *c = NULL;
    const struct catalog_entry *e;
    int rc = catalog_cursor_new(s, m, prefix, prefix_len, 0, &c);
    while (!rc && (rc = catalog_cursor_next(c, &e)) == 1)
        rc = visit(arg, e);
    return rc;
}

int catalog_walk_pages(struct store *s, const struct manifest *m, catalog_page_visit *visit, void *arg)
{
    const struct walk w = {.store = s, .page = visit, .arg = arg};
    const struct catalog_child root = catalog_root_child(m);
    return walk_names(&w, &root, m->catalog_levels - 1);
}

/* A walk down the catalog, depth first, in path order. A child of a page holds the paths from its
 * own first path up to the next child's, so a prefix rules out most of them without a fetch. At
 * most one page a level is held.
 */
#include "store/catalog_read.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "store/repository.h"

struct walk {
    struct store *store;
    const char *prefix;
    size_t prefix_len;
    catalog_visit *visit;
    catalog_page_visit *page;
    void *arg;
};

static bool has_prefix(const struct walk *w, const char *path, size_t len)
{
    return len >= w->prefix_len && (w->prefix_len == 0 || !memcmp(path, w->prefix, w->prefix_len));
}

/* Fetch, prove and decode the page `child`, which must be of `level` and begin with child's path (first NULL: any). */
static int load_page(const struct walk *w, const struct catalog_child *child, unsigned level, struct catalog_page **out)
{
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    char key[OBJECT_KEY_MAX];
    object_key(OBJECT_CATALOG, &child->digest, key);
    int rc = repository_get_object(w->store, OBJECT_CATALOG, &child->digest, CATALOG_OBJECT_MAX, &object);
    if (rc)
        return rc;
    rc = catalog_page_decode(object.data, object.len, &page);
    if (rc)
        return error_prefix(rc, "%s: %s", w->store->url, key);
    bool fits = catalog_page_level(page) == level;
    if (fits && child->first) {
        const struct catalog_entry *e = level ? NULL : catalog_page_entry(page, 0);
        const struct catalog_child *c = level ? catalog_page_child(page, 0) : NULL;
        fits = !catalog_path_compare(e ? e->path : c->first, e ? e->path_len : c->first_len, child->first,
                                     child->first_len);
    }
    if (!fits)
        return error_set(-EBADMSG, "%s: %s: level or first path is not what its parent says", w->store->url, key);
    *out = steal_ptr(&page);
    return 0;
}

static int visit_entries(const struct walk *w, const struct catalog_page *page)
{
    int rc = 0;
    for (uint32_t i = 0; i < catalog_page_count(page) && !rc; i++) {
        const struct catalog_entry *e = catalog_page_entry(page, i);
        if (has_prefix(w, e->path, e->path_len))
            rc = w->visit(w->arg, e);
        else if (catalog_path_compare(e->path, e->path_len, w->prefix, w->prefix_len) > 0)
            break;
    }
    return rc;
}

/* Can child i of page hold a path that begins with the prefix? */
static bool child_relevant(const struct walk *w, const struct catalog_page *page, uint32_t i)
{
    const struct catalog_child *c = catalog_page_child(page, i);
    if (!has_prefix(w, c->first, c->first_len) &&
        catalog_path_compare(c->first, c->first_len, w->prefix, w->prefix_len) > 0)
        return false;
    if (i + 1 == catalog_page_count(page))
        return true;
    const struct catalog_child *next = catalog_page_child(page, i + 1);
    return catalog_path_compare(next->first, next->first_len, w->prefix, w->prefix_len) > 0;
}

static int walk_page(const struct walk *w, const struct catalog_child *at, unsigned level)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    int rc = load_page(w, at, level, &page);
    if (rc || level == 0)
        return rc ? rc : visit_entries(w, page);
    for (uint32_t i = 0; i < catalog_page_count(page) && !rc; i++)
        if (child_relevant(w, page, i))
            rc = walk_page(w, catalog_page_child(page, i), level - 1);
    return rc;
}

/* Pages of entries are named by their parents and need no fetch. */
static int walk_names(const struct walk *w, const struct catalog_child *at, unsigned level)
{
    int rc = w->page(w->arg, &at->digest);
    if (rc == CATALOG_WALK_SKIP || level == 0)
        return rc == CATALOG_WALK_SKIP ? 0 : rc;
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    if (!rc)
        rc = load_page(w, at, level, &page);
    for (uint32_t i = 0; !rc && i < catalog_page_count(page); i++)
        rc = walk_names(w, catalog_page_child(page, i), level - 1);
    return rc;
}

static struct catalog_child root_of(const struct manifest *m)
{
    return (struct catalog_child){.digest = m->catalog_root, .len = m->catalog_len, .crc = m->catalog_crc};
}

int catalog_walk(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len, catalog_visit *visit,
                 void *arg)
{
    const struct walk w = {.store = s, .prefix = prefix, .prefix_len = prefix_len, .visit = visit, .arg = arg};
    const struct catalog_child root = root_of(m);
    return walk_page(&w, &root, m->catalog_levels - 1);
}

int catalog_walk_pages(struct store *s, const struct manifest *m, catalog_page_visit *visit, void *arg)
{
    const struct walk w = {.store = s, .page = visit, .arg = arg};
    const struct catalog_child root = root_of(m);
    return walk_names(&w, &root, m->catalog_levels - 1);
}

/* Goes down the tree with the range of paths that can be in each page. A child holds the paths from its own first path
 * up to the next child's, so the sorted paths are split at the children's first paths. One page for each level is in
 * memory. */
#include "repository/read/catalog_find.h"

#include <string.h>

#include "base/error.h"
#include "repository/read/catalog_cursor.h"

/* The arguments of a search, the same for every page. */
struct finding {
    struct store *store;
    catalog_find_visit *visit;
    void *arg;
};

static int compare(const void *a, const void *b)
{
    const struct catalog_path *x = a, *y = b;
    int order = catalog_path_compare(x->path, x->len, y->path, y->len);
    return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

int catalog_paths_sort(const char *text, size_t len, catalog_paths *out)
{
    for (const char *end = text + len; text < end;) {
        struct catalog_path path = {.path = text, .len = strnlen(text, (size_t)(end - text)), .number = out->len};
        if (vec_push(out, path))
            return error_no_memory();
        text += path.len + 1;
    }
    if (out->len)
        qsort(out->items, out->len, sizeof *out->items, compare);
    return 0;
}

/* Merge paths and entries, both sorted. */
static int find_entries(const struct finding *f, const struct catalog_page *page, const struct catalog_path *paths,
                        size_t count)
{
    int rc = 0;
    uint32_t at = 0, entries = catalog_page_count(page);
    for (size_t i = 0; !rc && i < count; i++) {
        const struct catalog_entry *e = NULL;
        int order = -1;
        for (; at < entries; at++) {
            e = catalog_page_entry(page, at);
            order = catalog_path_compare(e->path, e->path_len, paths[i].path, paths[i].len);
            if (order >= 0)
                break;
        }
        rc = f->visit(f->arg, &paths[i], at < entries && !order ? e : NULL);
    }
    return rc;
}

/* Return the number of paths that come before the child. */
static size_t paths_before(const struct catalog_child *child, const struct catalog_path *paths, size_t count)
{
    size_t low = 0;
    while (low < count) {
        size_t middle = low + (count - low) / 2;
        if (catalog_path_compare(paths[middle].path, paths[middle].len, child->first, child->first_len) < 0)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

/* Look up the paths in the subtree of a page. */
static int find_below(const struct finding *f, const struct catalog_child *at, unsigned level,
                      const struct catalog_path *paths, size_t count)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    int rc = catalog_page_load(f->store, at, level, &page);
    if (!rc && !level)
        return find_entries(f, page, paths, count);
    uint32_t children = rc ? 0 : catalog_page_count(page);
    for (uint32_t i = 0; !rc && i < children; i++) {
        /* Paths before the first child do not exist; they go to that child, which reports them as absent. */
        size_t part = i + 1 < children ? paths_before(catalog_page_child(page, i + 1), paths, count) : count;
        if (part)
            rc = find_below(f, catalog_page_child(page, i), level - 1, paths, part);
        paths += part;
        count -= part;
    }
    return rc;
}

int catalog_find(struct store *s, const struct manifest *m, const struct catalog_path *paths, size_t count,
                 catalog_find_visit *visit, void *arg)
{
    const struct finding f = {.store = s, .visit = visit, .arg = arg};
    const struct catalog_child root = catalog_root_child(m);
    return count ? find_below(&f, &root, m->catalog_levels - 1, paths, count) : 0;
}

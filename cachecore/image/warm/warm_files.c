/* Two ways through the catalog: paths are sorted and looked up, globs are matched one after the other. A hard link
 * has no extents; it points to its first name. The first names are collected, and looked up as paths at the end. */
#include "image/warm/warm_files.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

/* A walk over the catalog for a list of names. */
struct walk {
    catalog_find_visit *visit;
    void *arg;
    struct bytes links;       /* first names of hard links, each ended by NUL */
    struct catalog_path name; /* the current glob */
    uint64_t matched;         /* files that it matched */
    bool last;                /* the first names are being looked up: visit whatever is found */
};

/* Visit an entry, or keep a hard link's first name for later. */
static int visit_path(void *arg, const struct catalog_path *path, const struct catalog_entry *e)
{
    struct walk *w = arg;
    if (!e || !e->hard_link || w->last)
        return w->visit(w->arg, path, e);
    int rc = bytes_append(&w->links, e->target, e->target_len);
    if (!rc)
        rc = bytes_append(&w->links, "", 1);
    return rc ? error_set(rc == -EMSGSIZE ? -E2BIG : rc, "image: too many hard links; name their first names") : 0;
}

/* A visitor of select_files: a file that the current glob matches. */
static int visit_match(void *arg, const struct catalog_entry *file)
{
    struct walk *w = arg;
    w->matched++;
    return visit_path(w, &w->name, file);
}

/* Match the globs one after the other; one that matches nothing is visited without an entry. */
static int walk_globs(struct walk *w, struct image *img, struct store *store, const struct warm_names *names)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < names->len; at += w->name.len + 1) {
        w->name.path = names->text + at;
        w->name.len = strnlen(w->name.path, names->len - at);
        w->matched = 0;
        CLEANUP_FREE char *glob = strndup(w->name.path, w->name.len);
        rc = glob ? select_files(img, store, glob, visit_match, w) : error_no_memory();
        if (!rc && !w->matched)
            rc = w->visit(w->arg, &w->name, NULL);
        w->name.number++;
    }
    return rc;
}

/* Look up a list of paths. number: that of the first. */
static int walk_paths(struct walk *w, struct image *img, struct store *store, const char *text, size_t len,
                      size_t number)
{
    catalog_paths paths = {0};
    int rc = catalog_paths_sort(text, len, &paths);
    for (size_t i = 0; i < paths.len; i++)
        paths.items[i].number += number;
    w->name.number = number + paths.len;
    if (!rc)
        rc = catalog_find(store, image_manifest(img), paths.items, paths.len, visit_path, w);
    vec_release(&paths);
    return rc;
}

/* The names first, then the first names of the hard links among them. */
int warm_files(struct image *img, struct store *store, const struct warm_names *names, catalog_find_visit *visit,
               void *arg)
{
    struct walk w = {.visit = visit, .arg = arg, .links = BYTES_INIT(WARM_LINKS_MAX)};
    int rc = names->globs ? walk_globs(&w, img, store, names) : walk_paths(&w, img, store, names->text, names->len, 0);
    w.last = true;
    if (!rc)
        rc = walk_paths(&w, img, store, (const char *)w.links.data, w.links.len, w.name.number);
    bytes_release(&w.links);
    return rc;
}

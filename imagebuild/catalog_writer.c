/* One page writer a level. A page that is full is put and becomes a child of the level above, which may fill that one.
 * At the end the pages in progress are closed from below; the level that turns out to have had one page only is the
 * top (the level above, which already holds it as its only child, is forgotten).
 */
#include "imagebuild/catalog_writer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"

struct level {
    struct catalog_page_writer *page;
    uint64_t pages;            /* finished */
    uint64_t pending;          /* entries in the page in progress */
    struct catalog_child last; /* the newest page, without its first path */
};

struct catalog_writer {
    struct tree *tree;
    struct upload *upload;
    struct level levels[CATALOG_LEVELS_MAX];
    struct bytes path, target;
};

static int ensure_level(struct catalog_writer *w, unsigned level)
{
    if (level >= CATALOG_LEVELS_MAX)
        return error_set(-EFBIG, "build: the catalog has more paths than %d levels can hold", CATALOG_LEVELS_MAX);
    if (!w->levels[level].page)
        w->levels[level].page = catalog_page_writer_new(level);
    return w->levels[level].page ? 0 : error_set(-ENOMEM, "build: out of memory");
}

/* Put the page in progress; out->first lives until the level's next finish. */
static int end_page(struct catalog_writer *w, unsigned level, struct catalog_child *out)
{
    CLEANUP_BYTES object = BYTES_INIT(2 * (size_t)CATALOG_PAGE_MAX);
    struct level *l = &w->levels[level];
    int rc = catalog_page_finish(l->page, &object, out);
    if (rc)
        return rc;
    l->pages++;
    l->pending = 0;
    l->last = *out;
    l->last.first = NULL;
    return upload_put(w->upload, OBJECT_CATALOG, &object, &out->digest);
}

/* Add a child to `level`; pages that become full climb. */
static int add_child(struct catalog_writer *w, unsigned level, struct catalog_child child)
{
    for (bool full = true; full; level++) {
        int rc = ensure_level(w, level);
        if (!rc)
            rc = catalog_page_add_child(w->levels[level].page, &child, &full);
        if (rc)
            return rc;
        w->levels[level].pending++;
        rc = full ? end_page(w, level, &child) : 0;
        if (rc)
            return rc;
    }
    return 0;
}

/* The file's bytes; hard links show those of the node that holds them. */
static uint32_t body_extent(const struct node *body, struct catalog_extent *out)
{
    if (!S_ISREG(body->mode) || !body->size)
        return 0;
    *out = (struct catalog_extent){.offset = body->address, .len = body->size};
    return 1;
}

static int fill_entry(struct catalog_writer *w, node_id id, struct catalog_entry *e, struct catalog_extent *extent)
{
    struct tree *t = w->tree;
    const struct node *name = tree_node(t, id), *n = tree_node(t, name->link);
    int rc = tree_path(t, id, &w->path);
    if (rc)
        return rc;
    *e = (struct catalog_entry){.path = (const char *)w->path.data,
                                .path_len = w->path.len,
                                .mode = n->mode,
                                .uid = n->uid,
                                .gid = n->gid,
                                .size = S_ISREG(n->mode) || S_ISLNK(n->mode) ? n->size : 0,
                                .mtime = n->mtime,
                                .mtime_nsec = n->mtime_nsec,
                                .content = n->content,
                                .hard_link = name->link != id,
                                .extents = extent,
                                .extent_count = body_extent(n, extent)};
    if (S_ISREG(n->mode))
        e->validator = tree_validator(t, n, &e->validator_len);
    if (e->hard_link) {
        rc = tree_path(t, name->link, &w->target);
        e->target = (const char *)w->target.data;
        e->target_len = w->target.len;
    } else if (S_ISLNK(n->mode)) {
        e->target = tree_target(t, n, &e->target_len);
    }
    return rc;
}

static int visit(void *arg, struct tree *t, node_id id)
{
    struct catalog_writer *w = arg;
    struct catalog_extent extent;
    struct catalog_entry entry;
    struct catalog_child child;
    bool full;
    int rc = fill_entry(w, id, &entry, &extent);
    if (!rc)
        rc = catalog_page_add(w->levels[0].page, &entry, &full);
    if (rc)
        return rc;
    w->levels[0].pending++;
    if (!full)
        return 0;
    rc = end_page(w, 0, &child);
    return rc ? rc : add_child(w, 1, child);
}

/* Close the pages in progress from below until one page holds everything. */
static int end_levels(struct catalog_writer *w, struct catalog_root *out)
{
    struct catalog_child child;
    for (unsigned level = 0; level < CATALOG_LEVELS_MAX && w->levels[level].page; level++) {
        struct level *l = &w->levels[level];
        bool pending = l->pending, top = l->pages + pending == 1;
        int rc = pending ? end_page(w, level, &child) : 0;
        if (rc)
            return rc;
        if (top) {
            *out = (struct catalog_root){l->last.digest, l->last.len, l->last.crc, l->last.entries, level + 1};
            return 0;
        }
        if (pending)
            rc = add_child(w, level + 1, child);
        if (rc)
            return rc;
    }
    return error_set(-EFBIG, "build: the catalog has more paths than %d levels can hold", CATALOG_LEVELS_MAX);
}

int catalog_write(struct tree *t, struct upload *upload, struct catalog_root *out)
{
    struct catalog_writer w = {.tree = t,
                               .upload = upload,
                               .path = BYTES_INIT(CATALOG_PATH_MAX + 1),
                               .target = BYTES_INIT(CATALOG_PATH_MAX + 1)};
    int rc = ensure_level(&w, 0);
    if (!rc)
        rc = tree_walk(t, visit, &w);
    if (!rc)
        rc = end_levels(&w, out);
    for (unsigned i = 0; i < CATALOG_LEVELS_MAX; i++)
        catalog_page_writer_free(w.levels[i].page);
    bytes_release(&w.path);
    bytes_release(&w.target);
    return rc;
}

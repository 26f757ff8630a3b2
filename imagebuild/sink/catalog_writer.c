/* One page in progress per level. A full page is put and becomes a child of the level above, which may fill that page
 * in turn. At the end the pages in progress are closed from the bottom up. A level that had only one page is the top;
 * the level above, which already holds that page as its only child, is dropped.
 *
 *   level 1:   [child 0 | child 1 | ...        <- in progress
 *                 ^         ^
 *   level 0:   [page 0]  [page 1]  [entries    <- in progress
 *
 * A page of entries may be a delta of one of the parent's pages. The top page never is, since nothing could name its
 * base. The upload is told of each base: it belongs to the new image as much as what the build puts.
 */
#include "imagebuild/sink/catalog_writer.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"

/* One level of the catalog. */
struct level {
    struct catalog_page_writer *page;
    uint64_t pages;            /* pages put */
    uint64_t pending;          /* entries in the page in progress */
    struct catalog_child last; /* the newest page, without `first` */
};

struct catalog_writer {
    struct upload *upload;
    struct catalog_bases *bases; /* NULL: none, or no more */
    uint64_t left;               /* nodes that come after those added */
    struct level levels[CATALOG_LEVELS_MAX];
};

/* Create the level's page writer when its first child comes. */
static int ensure_level(struct catalog_writer *w, unsigned level)
{
    if (level >= CATALOG_LEVELS_MAX)
        return error_set(-EFBIG, "build: the catalog has more paths than %d levels can hold", CATALOG_LEVELS_MAX);
    if (!w->levels[level].page)
        w->levels[level].page = catalog_page_writer_new(level);
    return w->levels[level].page ? 0 : error_no_memory();
}

/* Find the base of the page of entries in progress. Return whether there is one. */
static bool find_base(struct catalog_writer *w, struct catalog_base *out)
{
    const struct level *l = &w->levels[0];
    size_t len;
    if (!w->bases || (!l->pages && !w->left)) /* the only page, so the top */
        return false;
    const char *last = catalog_page_last(l->page, &len);
    int rc = catalog_bases_at(w->bases, last, len, out);
    if (rc < 0) {
        log_warning("build: the rest of the catalog is written in full: %s", error_text());
        w->bases = NULL;
    }
    return rc == 1;
}

/* Finish the page in progress, as a delta if it can be one. */
static int finish_page(struct catalog_writer *w, unsigned level, struct bytes *object, struct catalog_child *out)
{
    struct catalog_page_writer *page = w->levels[level].page;
    struct catalog_base base;
    if (level || !find_base(w, &base))
        return catalog_page_finish(page, object, out);
    int rc = catalog_page_finish_upon(page, &base, object, out);
    bool stays = !object->len;
    if (rc || (!stays && digest_is_zero(&out->base)))
        return rc;
    return upload_rely(w->upload, OBJECT_CATALOG, &base.name, base.object_len);
}

/* Put the page in progress. out->first is valid until the level's next end_page. */
static int end_page(struct catalog_writer *w, unsigned level, struct catalog_child *out)
{
    CLEANUP_BYTES object = BYTES_INIT(2 * (size_t)CATALOG_PAGE_MAX);
    struct level *l = &w->levels[level];
    int rc = finish_page(w, level, &object, out);
    if (rc)
        return rc;
    l->pages++;
    l->pending = 0;
    l->last = *out;
    l->last.first = NULL;
    return object.len ? upload_put(w->upload, OBJECT_CATALOG, &object, &out->digest) : 0;
}

/* Add a child to a level. A page that becomes full is added to the level above in turn. */
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

/* Return the number of extents, 0 or 1: a build writes each file in one piece. */
static uint32_t content_extent(const struct node *n, struct catalog_extent *out)
{
    if (!S_ISREG(n->mode) || !n->size)
        return 0;
    *out = (struct catalog_extent){.offset = n->address, .len = n->size};
    return 1;
}

struct catalog_entry catalog_entry_of(const struct node *n, struct catalog_extent *extent)
{
    bool has_target = S_ISLNK(n->mode) || n->link != n->rank;
    struct catalog_entry e = {.path = n->path,
                              .path_len = n->path_len,
                              .mode = n->mode,
                              .uid = n->uid,
                              .gid = n->gid,
                              .size = S_ISREG(n->mode) || S_ISLNK(n->mode) ? n->size : 0,
                              .mtime = n->mtime,
                              .mtime_nsec = n->mtime_nsec,
                              .validator = n->validator,
                              .validator_len = n->validator_len,
                              .content = n->content,
                              .hard_link = n->link != n->rank,
                              .extents = extent,
                              .extent_count = content_extent(n, extent)};
    if (has_target) {
        e.target = n->target;
        e.target_len = n->target_len;
    }
    return e;
}

/* Add a node's entry to the lowest level. */
static int add_node(struct catalog_writer *w, const struct node *n)
{
    struct catalog_extent extent;
    struct catalog_entry entry = catalog_entry_of(n, &extent);
    struct catalog_child child;
    bool full;
    int rc = catalog_page_add(w->levels[0].page, &entry, &full);
    if (rc)
        return rc;
    w->levels[0].pending++;
    w->left--;
    if (!full)
        return 0;
    rc = end_page(w, 0, &child);
    return rc ? rc : add_child(w, 1, child);
}

/* Add all nodes, which come in the order of their paths. */
static int add_nodes(struct catalog_writer *w, const struct nodes *nodes)
{
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct node n;
    int rc = nodes_cursor_new(nodes, &cursor);
    while (!rc && (rc = nodes_next(cursor, &n)) == 1)
        rc = add_node(w, &n);
    return rc;
}

/* Close the pages in progress from level `lowest` up, until one page covers everything. */
static int end_levels(struct catalog_writer *w, unsigned lowest, struct catalog_root *out)
{
    struct catalog_child child;
    for (unsigned level = lowest; level < CATALOG_LEVELS_MAX && w->levels[level].page; level++) {
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

static void catalog_writer_release(struct catalog_writer *w)
{
    for (unsigned i = 0; i < CATALOG_LEVELS_MAX; i++)
        catalog_page_writer_free(w->levels[i].page);
}

int catalog_write(const struct nodes *nodes, struct catalog_bases *bases, struct upload *upload,
                  struct catalog_root *out)
{
    struct catalog_writer w = {.upload = upload, .bases = bases, .left = nodes_count(nodes)};
    int rc = ensure_level(&w, 0);
    if (!rc)
        rc = add_nodes(&w, nodes);
    if (!rc)
        rc = end_levels(&w, 0, out);
    catalog_writer_release(&w);
    return rc;
}

int catalog_from_pages(const struct catalog_child *pages, size_t count, struct upload *upload, struct catalog_root *out)
{
    struct catalog_writer w = {.upload = upload};
    int rc = 0;
    if (count == 1) {
        *out = (struct catalog_root){pages->digest, pages->len, pages->crc, pages->entries, 1};
        return 0;
    }
    for (size_t i = 0; i < count && !rc; i++)
        rc = add_child(&w, 1, pages[i]);
    if (!rc)
        rc = end_levels(&w, 1, out);
    catalog_writer_release(&w);
    return rc;
}

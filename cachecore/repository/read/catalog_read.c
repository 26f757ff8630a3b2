/* The catalog is a tree of pages (docs/reference/format-store.md). A child of a page holds the paths from its own first
 * path up to the next child's, so a prefix or a list of paths rules out most children without a fetch.
 *
 * The cursor reads inner pages in the caller's thread, depth first; `levels` is the path down to the next page of
 * entries. Those pages go through a ring (base/in_order.h) and are fetched by threads, or without threads when their
 * turn comes.
 *
 *   levels[top]   root page, at child 3
 *   levels[1]       inner page, at child 17    --next_leaf-->  ring [ p p p ]  --next_page-->  page, entry
 *
 * The walk over the pages' names and the search for many paths go down the tree by recursion, with one page for each
 * level in memory. */
#include "repository/read/catalog_read.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/in_order.h"
#include "repository/repository.h"

/* A slot of the ring: a page of entries. */
struct slot {
    struct catalog_child child;
    char *first; /* the child's first path, copied: its page may be freed before the slot's turn */
    struct catalog_page *page;
    struct error error; /* code 0: none */
};

/* An inner page on the path down. */
struct level {
    struct catalog_page *page;
    uint32_t next; /* the child that comes next */
};

/* Threads load slots and read only `store`; everything else belongs to the caller's thread. */
struct catalog_cursor {
    struct store *store;
    struct catalog_child root;
    bool bases; /* of a page that is a delta, the base is loaded */
    const char *prefix;
    size_t prefix_len;
    unsigned top;                            /* the root's level */
    struct level levels[CATALOG_LEVELS_MAX]; /* [1..top] in use */
    bool begun, exhausted;                   /* next_leaf has read the root; no more pages of entries */
    struct error failed;                     /* of an inner page; reported after the slots before it */
    struct in_order *slots;
    struct catalog_page *page; /* the page being read, and its next entry */
    uint32_t entry;
    int ended; /* 1: the end; -errno: failed.code */
};

/* Fetch, verify and decode a page's object; base: as the page's parent says. */
static int get_page(struct store *s, const struct digest *name, const struct catalog_page *base,
                    struct catalog_page **out)
{
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    char key[OBJECT_KEY_MAX];
    int rc = repository_get_object(s, OBJECT_CATALOG, name, CATALOG_OBJECT_MAX, &object);
    if (rc)
        return rc;
    rc = catalog_page_decode_upon(base, object.data, object.len, out);
    return rc ? error_prefix(rc, "%s: %s", s->url, object_key(OBJECT_CATALOG, name, key)) : 0;
}

/* Fetch a page that others are deltas of. */
static int get_base(struct store *s, const struct digest *name, struct catalog_page **out)
{
    char key[OBJECT_KEY_MAX];
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    int rc = get_page(s, name, NULL, &page);
    if (rc)
        return error_prefix(rc, "the base of a catalog page cannot be used");
    if (catalog_page_level(page))
        return error_set(-EBADMSG, "%s: %s: not a page of entries, so none can be a delta of it", s->url,
                         object_key(OBJECT_CATALOG, name, key));
    *out = steal_ptr(&page);
    return 0;
}

/* Fetch, verify and decode the page `child`, which must be of `level` and begin with the child's first path (NULL:
 * any), and its base before it. The caller frees *out with catalog_page_free. -EBADMSG: damaged, or another page;
 * -ENOENT: missing. Any thread. */
static int catalog_page_load(struct store *s, const struct catalog_child *child, unsigned level,
                             struct catalog_page **out)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *base = NULL;
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    int rc = digest_is_zero(&child->base) ? 0 : get_base(s, &child->base, &base);
    if (!rc)
        rc = get_page(s, &child->digest, base, &page);
    if (rc)
        return rc;
    /* The digest proves the bytes; this proves that the page is the one which the parent refers to. */
    bool fits = catalog_page_level(page) == level;
    if (fits && child->first) {
        const struct catalog_entry *e = level ? NULL : catalog_page_entry(page, 0);
        const struct catalog_child *c = level ? catalog_page_child(page, 0) : NULL;
        fits = !catalog_path_compare(e ? e->path : c->first, e ? e->path_len : c->first_len, child->first,
                                     child->first_len);
    }
    char key[OBJECT_KEY_MAX];
    if (!fits)
        return error_set(-EBADMSG, "%s: %s: level or first path is not what its parent says", s->url,
                         object_key(OBJECT_CATALOG, &child->digest, key));
    *out = steal_ptr(&page);
    return 0;
}

/* Return the reference to the root page. */
static struct catalog_child catalog_root_child(const struct manifest *m)
{
    return (struct catalog_child){.digest = m->catalog_root, .len = m->catalog_len, .crc = m->catalog_crc};
}

/* ------------------------------------------------------------------ the cursor: inner pages */

static bool has_prefix(const struct catalog_cursor *c, const char *path, size_t len)
{
    return len >= c->prefix_len && (c->prefix_len == 0 || !memcmp(path, c->prefix, c->prefix_len));
}

/* Does the path come after every path with the prefix? */
static bool is_past(const struct catalog_cursor *c, const char *path, size_t len)
{
    return !has_prefix(c, path, len) && catalog_path_compare(path, len, c->prefix, c->prefix_len) > 0;
}

/* Can child i of page hold a path that begins with the prefix? */
static bool child_relevant(const struct catalog_cursor *c, const struct catalog_page *page, uint32_t i)
{
    const struct catalog_child *child = catalog_page_child(page, i);
    if (is_past(c, child->first, child->first_len))
        return false;
    if (i + 1 == catalog_page_count(page))
        return true;
    const struct catalog_child *next = catalog_page_child(page, i + 1);
    return catalog_path_compare(next->first, next->first_len, c->prefix, c->prefix_len) > 0;
}

/* Return the next child of that level's inner page that can hold the prefix; NULL: there are no more. */
static const struct catalog_child *next_child(struct catalog_cursor *c, unsigned level)
{
    struct level *l = &c->levels[level];
    while (l->page && l->next < catalog_page_count(l->page)) {
        uint32_t i = l->next++;
        if (child_relevant(c, l->page, i))
            return catalog_page_child(l->page, i);
    }
    catalog_page_free(steal_ptr(&l->page));
    return NULL;
}

/* Find the next page of entries. 1: *out refers to it, valid until the next call; 0: no more. */
static int next_leaf(struct catalog_cursor *c, const struct catalog_child **out)
{
    unsigned level = 1; /* level of the page whose child comes next */
    const struct catalog_child *child = NULL;
    if (!c->begun) {
        c->begun = true;
        level = c->top + 1;
        child = &c->root;
    }
    while (!child && level <= c->top)
        if (!(child = next_child(c, level)))
            level++;
    if (!child)
        return 0;
    while (level > 1) {
        level--;
        int rc = catalog_page_load(c->store, child, level, &c->levels[level].page);
        if (rc)
            return rc;
        c->levels[level].next = 0;
        child = next_child(c, level);
        if (!child) /* no path under this page has the prefix */
            return next_leaf(c, out);
    }
    *out = child;
    return 1;
}

/* ------------------------------------------------------------------ the cursor: slots */

static void load_slot(void *cursor, void *slot)
{
    const struct catalog_cursor *c = cursor;
    struct slot *s = slot;
    int rc = c->bases && !digest_is_zero(&s->child.base) ? get_base(c->store, &s->child.base, &s->page)
                                                         : catalog_page_load(c->store, &s->child, 0, &s->page);
    error_take(&s->error, rc);
}

static void clear_slot(void *slot)
{
    struct slot *s = slot;
    free(s->first);
    catalog_page_free(s->page);
}

/* Copy a reference into a slot; the strings in it belong to a page that may be freed first. */
static int fill_slot(struct slot *s, const struct catalog_child *child)
{
    s->child = *child;
    if (!child->first)
        return 0;
    s->first = malloc(child->first_len ? child->first_len : 1);
    if (!s->first)
        return error_no_memory();
    memcpy(s->first, child->first, child->first_len);
    s->child.first = s->first;
    return 0;
}

/* Fill the free slots of the ring. A failure is kept until the pages before it were read. */
static void fill_slots(struct catalog_cursor *c)
{
    struct slot *s;
    while (!c->exhausted && (s = in_order_slot(c->slots))) {
        const struct catalog_child *child = NULL;
        int rc = next_leaf(c, &child);
        c->exhausted = rc <= 0;
        if (rc > 0)
            rc = fill_slot(s, child);
        if (!rc && child)
            in_order_give(c->slots);
        if (rc < 0) {
            error_take(&c->failed, rc);
            c->exhausted = true;
        }
    }
}

/* Go to the next page. 1: it is there; 0: no more. */
static int next_page(struct catalog_cursor *c)
{
    catalog_page_free(steal_ptr(&c->page));
    fill_slots(c);
    struct slot *s = in_order_take(c->slots);
    if (!s)
        return c->failed.code ? error_restore(&c->failed) : 0;
    if (s->error.code) {
        c->failed = s->error;
        return error_restore(&c->failed);
    }
    c->page = steal_ptr(&s->page);
    c->entry = 0;
    in_order_drop(c->slots);
    return 1;
}

int catalog_cursor_next(struct catalog_cursor *c, const struct catalog_entry **out)
{
    while (!c->ended) {
        while (c->page && c->entry < catalog_page_count(c->page)) {
            const struct catalog_entry *e = catalog_page_entry(c->page, c->entry++);
            if (has_prefix(c, e->path, e->path_len)) {
                *out = e;
                return 1;
            }
            /* Entries ascend, so no later one has the prefix. */
            if (is_past(c, e->path, e->path_len)) {
                c->ended = 1;
                return 0;
            }
        }
        int rc = next_page(c);
        if (rc <= 0)
            c->ended = rc ? rc : 1;
    }
    if (c->ended > 0)
        return 0;
    (void)error_restore(&c->failed);
    return c->ended;
}

/* ------------------------------------------------------------------ the cursor: life */

int catalog_cursor_new(struct store *s, const struct manifest *m, const char *prefix, size_t prefix_len, unsigned ahead,
                       struct catalog_cursor **out)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    ahead = GR_MIN(ahead, (unsigned)CATALOG_CURSOR_AHEAD);
    c->store = s;
    c->root = catalog_root_child(m);
    c->top = m->catalog_levels - 1;
    c->prefix = prefix;
    c->prefix_len = prefix_len;
    /* One slot more than threads: the page that is read next waits in it, and no thread is idle. */
    const struct in_order_config slots = {.threads = ahead,
                                          .slots = ahead + 1,
                                          .size = sizeof(struct slot),
                                          .work = load_slot,
                                          .clear = clear_slot,
                                          .arg = c};
    int rc = in_order_new(&slots, &c->slots);
    if (rc)
        return rc;
    *out = steal_ptr(&c);
    return 0;
}

void catalog_cursor_free(struct catalog_cursor *c)
{
    if (!c)
        return;
    in_order_free(c->slots);
    for (unsigned i = 0; i < CATALOG_LEVELS_MAX; i++)
        catalog_page_free(c->levels[i].page);
    catalog_page_free(c->page);
    free(c);
}

/* ------------------------------------------------------------------ walks */

/* The arguments of a walk, the same for every page. */
struct name_walk {
    struct store *store;
    catalog_page_visit *page;
    void *arg;
};

/* Visit a page and those below it. Pages of entries and their bases are named by their parents and need no fetch. A
 * base is visited even if the page is skipped: a delta's bytes do not say of which base, so a page that was seen may
 * have had another one. */
static int walk_names(const struct name_walk *w, const struct catalog_child *at, unsigned level)
{
    int rc = digest_is_zero(&at->base) ? 0 : w->page(w->arg, &at->base);
    if (rc && rc != CATALOG_WALK_SKIP)
        return rc;
    rc = w->page(w->arg, &at->digest);
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
    const struct name_walk w = {.store = s, .page = visit, .arg = arg};
    const struct catalog_child root = catalog_root_child(m);
    return walk_names(&w, &root, m->catalog_levels - 1);
}

/* ------------------------------------------------------------------ bases */

/* A page of the image, or its base. */
struct based {
    struct catalog_base base;
    struct catalog_page *page; /* whose records those of base are */
    char *first;               /* the first path of the image's page */
    size_t first_len;
};

/* Two neighbours: the page around the last path, and the one after it, whose first path ends the search. */
struct catalog_bases {
    struct catalog_cursor *cursor;
    struct based at, next; /* page NULL: none */
};

static void based_clear(struct based *b)
{
    catalog_page_free(b->page);
    free(b->first);
    *b = (struct based){.page = NULL};
}

int catalog_bases_new(struct store *s, const struct manifest *m, struct catalog_bases **out)
{
    CLEANUP(cleanup_catalog_bases) struct catalog_bases *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    int rc = catalog_cursor_new(s, m, NULL, 0, CATALOG_CURSOR_AHEAD, &b->cursor);
    if (rc)
        return rc;
    b->cursor->bases = true;
    *out = steal_ptr(&b);
    return 0;
}

void catalog_bases_free(struct catalog_bases *b)
{
    if (!b)
        return;
    catalog_cursor_free(b->cursor);
    based_clear(&b->at);
    based_clear(&b->next);
    free(b);
}

/* Take the next page into b->next; at the end it has none. */
static int bases_take(struct catalog_bases *b)
{
    struct catalog_cursor *c = b->cursor;
    fill_slots(c);
    struct slot *s = in_order_take(c->slots);
    if (!s)
        return c->failed.code ? error_restore(&c->failed) : 0;
    if (s->error.code)
        return error_restore(&s->error);
    b->next = (struct based){.page = steal_ptr(&s->page), .first = steal_ptr(&s->first)};
    b->next.first_len = b->next.first ? s->child.first_len : 0;
    b->next.base = catalog_page_base(b->next.page, digest_is_zero(&s->child.base) ? &s->child.digest : &s->child.base);
    in_order_drop(c->slots);
    return 0;
}

int catalog_bases_at(struct catalog_bases *b, const char *path, size_t len, struct catalog_base *out)
{
    int rc = b->at.page || b->next.page ? 0 : bases_take(b);
    while (!rc && b->next.page && catalog_path_compare(b->next.first, b->next.first_len, path, len) <= 0) {
        based_clear(&b->at);
        b->at = b->next;
        b->next = (struct based){.page = NULL};
        rc = bases_take(b);
    }
    if (rc || !b->at.page)
        return rc;
    *out = b->at.base;
    return 1;
}

/* ------------------------------------------------------------------ many paths */

/* The arguments of a search, the same for every page. */
struct finding {
    struct store *store;
    catalog_find_visit *visit;
    void *arg;
};

static int compare_paths(const void *a, const void *b)
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
            return -ENOMEM;
        text += path.len + 1;
    }
    if (out->len)
        qsort(out->items, out->len, sizeof *out->items, compare_paths);
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

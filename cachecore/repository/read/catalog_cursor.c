/* Inner pages are read in the caller's thread, depth first; `levels` is the path down to the next page of entries.
 * Those pages go through a ring (base/in_order.h) and are fetched by threads, or without threads when their turn
 * comes.
 *
 *   levels[top]   root page, at child 3
 *   levels[1]       inner page, at child 17    --next_leaf-->  ring [ p p p ]  --next_page-->  page, entry
 *
 * A child of a page holds the paths from its own first path up to the next child's, so a prefix rules out most
 * children without a fetch. The format is in docs/reference/format-store.md. */
#include "repository/read/catalog_cursor.h"

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

int catalog_page_load(struct store *s, const struct catalog_child *child, unsigned level, struct catalog_page **out)
{
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    char key[OBJECT_KEY_MAX];
    object_key(OBJECT_CATALOG, &child->digest, key);
    int rc = repository_get_object(s, OBJECT_CATALOG, &child->digest, CATALOG_OBJECT_MAX, &object);
    if (rc)
        return rc;
    rc = catalog_page_decode(object.data, object.len, &page);
    if (rc)
        return error_prefix(rc, "%s: %s", s->url, key);
    /* The digest proves the bytes; this proves that the page is the one which the parent refers to. */
    bool fits = catalog_page_level(page) == level;
    if (fits && child->first) {
        const struct catalog_entry *e = level ? NULL : catalog_page_entry(page, 0);
        const struct catalog_child *c = level ? catalog_page_child(page, 0) : NULL;
        fits = !catalog_path_compare(e ? e->path : c->first, e ? e->path_len : c->first_len, child->first,
                                     child->first_len);
    }
    if (!fits)
        return error_set(-EBADMSG, "%s: %s: level or first path is not what its parent says", s->url, key);
    *out = steal_ptr(&page);
    return 0;
}

struct catalog_child catalog_root_child(const struct manifest *m)
{
    return (struct catalog_child){.digest = m->catalog_root, .len = m->catalog_len, .crc = m->catalog_crc};
}

/* ------------------------------------------------------------------ inner pages */

static bool has_prefix(const struct catalog_cursor *c, const char *path, size_t len)
{
    return len >= c->prefix_len && (c->prefix_len == 0 || !memcmp(path, c->prefix, c->prefix_len));
}

/* Does the path come after every path with the prefix? */
static bool is_behind(const struct catalog_cursor *c, const char *path, size_t len)
{
    return !has_prefix(c, path, len) && catalog_path_compare(path, len, c->prefix, c->prefix_len) > 0;
}

/* Can child i of page hold a path that begins with the prefix? */
static bool child_relevant(const struct catalog_cursor *c, const struct catalog_page *page, uint32_t i)
{
    const struct catalog_child *child = catalog_page_child(page, i);
    if (is_behind(c, child->first, child->first_len))
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

/* ------------------------------------------------------------------ slots */

static void load_slot(void *cursor, void *slot)
{
    const struct catalog_cursor *c = cursor;
    struct slot *s = slot;
    error_take(&s->error, catalog_page_load(c->store, &s->child, 0, &s->page));
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
            if (is_behind(c, e->path, e->path_len)) {
                c->ended = 1;
                return 0;
            }
        }
        int rc = next_page(c);
        if (rc <= 0)
            c->ended = rc ? rc : 1;
    }
    return c->ended < 0 ? error_restore(&c->failed) : 0;
}

/* ------------------------------------------------------------------ life */

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

/* Sealing: children of each directory side by side in `order`, sorted by name; every node in `walk`,
 * in the byte order of the full path; hard links resolved in that order.
 *
 * The order of full paths is not that of names: what is below "a" sorts as "a/", after "a-b" and
 * "a.c", before "a0". Siblings whose names begin with "a" follow it directly, so directories wait on
 * a stack while such siblings are visited, and the last one that waits is always the next one due.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/tree.h"
#include "imagebuild/tree_internal.h"

/* ------------------------------------------------------------------ children */

static int compare_names(const void *pa, const void *pb, void *arg)
{
    const struct tree *t = arg;
    const struct node *a = tree_node(t, *(const node_id *)pa), *b = tree_node(t, *(const node_id *)pb);
    return tree_bytes_order(tree_name(t, a), a->name_len, tree_name(t, b), b->name_len);
}

static int order_children(struct tree *t)
{
    t->order = reallocarray(NULL, t->count, sizeof *t->order);
    if (!t->order)
        return tree_out_of_memory();
    for (node_id id = 1; id < t->count; id++)
        tree_node(t, tree_node(t, id)->parent)->count++;
    uint32_t next = 0;
    for (node_id id = 0; id < t->count; id++) {
        struct node *n = tree_node(t, id);
        n->first = next;
        next += n->count;
        n->count = 0;
    }
    for (node_id id = 1; id < t->count; id++) {
        struct node *parent = tree_node(t, tree_node(t, id)->parent);
        t->order[parent->first + parent->count++] = id;
    }
    for (node_id id = 0; id < t->count; id++) {
        const struct node *n = tree_node(t, id);
        if (n->count > 1)
            qsort_r(t->order + n->first, n->count, sizeof *t->order, compare_names, t);
    }
    return 0;
}

/* ------------------------------------------------------------------ path order */

/* A directory being visited: the next child, and where its waiting subdirectories begin. */
struct frame {
    node_id dir;
    uint32_t next;
    size_t waiting;
};

struct walker {
    VEC(struct frame) frames;
    VEC(node_id) waiting;
};

static void walker_release(struct walker *w)
{
    vec_release(&w->frames);
    vec_release(&w->waiting);
}

GR_MUST_CHECK static int enter(struct walker *w, node_id dir)
{
    struct frame f = {.dir = dir, .waiting = w->waiting.len};
    return vec_push(&w->frames, f);
}

/* Does what is below dir come before its sibling n? */
static bool comes_before(const struct tree *t, node_id dir, const struct node *n)
{
    const struct node *d = tree_node(t, dir);
    const char *a = tree_name(t, d), *b = tree_name(t, n);
    int order = memcmp(a, b, GR_MIN(d->name_len, n->name_len));
    if (order)
        return order < 0;
    return n->name_len > d->name_len && '/' < (unsigned char)b[d->name_len];
}

/* *out: the next node in path order, NODE_NONE at the end. */
GR_MUST_CHECK static int walker_next(struct walker *w, const struct tree *t, node_id *out)
{
    while (w->frames.len) {
        struct frame *f = &w->frames.items[w->frames.len - 1];
        const struct node *dir = tree_node(t, f->dir);
        node_id next = f->next < dir->count ? t->order[dir->first + f->next] : NODE_NONE;
        if (w->waiting.len > f->waiting) {
            node_id due = w->waiting.items[w->waiting.len - 1];
            if (next == NODE_NONE || comes_before(t, due, tree_node(t, next))) {
                w->waiting.len--;
                int rc = enter(w, due);
                if (rc)
                    return rc;
                continue;
            }
        }
        if (next == NODE_NONE) {
            w->frames.len--;
            continue;
        }
        f->next++;
        *out = next;
        return S_ISDIR(tree_node(t, next)->mode) ? vec_push(&w->waiting, next) : 0;
    }
    *out = NODE_NONE;
    return 0;
}

static int order_paths(struct tree *t)
{
    struct walker w CLEANUP(walker_release) = {0};
    t->walk = reallocarray(NULL, t->count, sizeof *t->walk);
    if (!t->walk || enter(&w, NODE_ROOT))
        return tree_out_of_memory();
    t->walk[0] = NODE_ROOT;
    for (uint32_t i = 1; i < t->count; i++)
        if (walker_next(&w, t, &t->walk[i]))
            return tree_out_of_memory();
    return 0;
}

/* ------------------------------------------------------------------ links and counts */

static int compare_links(const void *pa, const void *pb)
{
    const struct tree_link *a = pa, *b = pb;
    if (a->dev != b->dev)
        return a->dev < b->dev ? -1 : 1;
    if (a->ino != b->ino)
        return a->ino < b->ino ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int compare_aliases(const void *pa, const void *pb)
{
    const struct tree_alias *a = pa, *b = pb;
    if (a->link != b->link)
        return a->link < b->link ? -1 : 1;
    return (a->name > b->name) - (a->name < b->name);
}

static int rank_links(struct tree *t)
{
    CLEANUP_FREE uint32_t *ranks = reallocarray(NULL, t->count, sizeof *ranks);
    if (!ranks)
        return tree_out_of_memory();
    for (uint32_t i = 0; i < t->count; i++)
        ranks[t->walk[i]] = i;
    for (size_t i = 0; i < t->links.len; i++)
        t->links.items[i].rank = ranks[t->links.items[i].node];
    qsort(t->links.items, t->links.len, sizeof *t->links.items, compare_links);
    return 0;
}

/* The first name in path order keeps body and inode; the others point at it. */
static int resolve_links(struct tree *t)
{
    if (!t->links.len)
        return 0;
    int rc = rank_links(t);
    if (rc)
        return rc;
    const struct tree_link *first = t->links.items;
    for (size_t i = 1; i < t->links.len; i++) {
        const struct tree_link *l = &t->links.items[i];
        struct node *n = tree_node(t, l->node);
        bool same = l->dev == first->dev && l->ino == first->ino;
        if (!same || (n->mode & S_IFMT) != (tree_node(t, first->node)->mode & S_IFMT)) {
            first = l;
            continue;
        }
        tree_count_node(t, n, false);
        n->link = first->node;
        tree_count_node(t, n, true);
        struct tree_alias alias = {.link = first->node, .name = l->node};
        if (vec_push(&t->aliases, alias))
            return tree_out_of_memory();
    }
    vec_release(&t->links);
    if (t->aliases.len)
        qsort(t->aliases.items, t->aliases.len, sizeof *t->aliases.items, compare_aliases);
    return 0;
}

static void count_names(struct tree *t)
{
    for (node_id id = 0; id < t->count; id++) {
        struct node *n = tree_node(t, id);
        if (S_ISDIR(n->mode)) {
            n->nlink += 2;
            if (id != NODE_ROOT)
                tree_node(t, n->parent)->nlink++;
        } else {
            tree_node(t, n->link)->nlink++;
        }
    }
}

/* Directories that nobody listed are as old as the newest entry below them; children come behind
 * their parent in path order. */
static void date_implicit(struct tree *t)
{
    for (uint32_t i = t->count; i-- > 0;) {
        struct node *n = tree_node(t, t->walk[i]);
        if (n->flags & NODE_IMPLICIT && n->mtime == INT64_MIN)
            n->mtime = 0; /* an empty root */
        struct node *parent = tree_node(t, n->parent);
        if (n == parent || !(parent->flags & NODE_IMPLICIT))
            continue;
        if (n->mtime > parent->mtime || (n->mtime == parent->mtime && n->mtime_nsec > parent->mtime_nsec)) {
            parent->mtime = n->mtime;
            parent->mtime_nsec = n->mtime_nsec;
        }
    }
}

int tree_seal(struct tree *t)
{
    assert(!t->sealed);
    free(t->slots);
    t->slots = NULL;
    int rc = order_children(t);
    if (!rc)
        rc = order_paths(t);
    if (!rc)
        rc = resolve_links(t);
    if (rc)
        return rc;
    count_names(t);
    date_implicit(t);
    t->sealed = true;
    return 0;
}

/* ------------------------------------------------------------------ reading and changing */

const node_id *tree_children(const struct tree *t, node_id dir, uint32_t *out_count)
{
    const struct node *n = tree_node(t, dir);
    *out_count = n->count;
    return t->order + n->first;
}

bool tree_dropped(const struct tree *t, const struct node *n)
{
    return n->flags & NODE_DROPPED;
}

int tree_walk(struct tree *t, tree_visit *visit, void *arg)
{
    int rc = 0;
    for (uint32_t i = 0; i < t->count && !rc; i++)
        if (!tree_dropped(t, tree_node(t, t->walk[i])))
            rc = visit(arg, t, t->walk[i]);
    return rc;
}

struct tree_cursor {
    const struct tree *tree;
    uint32_t next;
};

int tree_cursor_new(struct tree *t, struct tree_cursor **out)
{
    struct tree_cursor *c = malloc(sizeof *c);
    if (!c)
        return tree_out_of_memory();
    *c = (struct tree_cursor){.tree = t};
    *out = c;
    return 0;
}

void tree_cursor_free(struct tree_cursor *c)
{
    free(c);
}

node_id tree_cursor_next(struct tree_cursor *c)
{
    while (c->next < c->tree->count) {
        node_id id = c->tree->walk[c->next++];
        if (!tree_dropped(c->tree, tree_node(c->tree, id)))
            return id;
    }
    return NODE_NONE;
}

int tree_set_version(struct tree *t, node_id id, const struct source_version *v)
{
    struct node *n = tree_node(t, tree_node(t, id)->link);
    size_t xattrs_len;
    const void *xattrs = tree_xattrs(t, n, &xattrs_len);
    struct source_entry e = {.mode = n->mode,
                             .validator = v->validator,
                             .validator_len = v->validator_len,
                             .xattrs = xattrs,
                             .xattrs_len = xattrs_len};
    int rc = tree_store_blob(t, n, &e);
    if (rc)
        return rc;
    t->stats.bytes += v->size - n->size;
    n->size = v->size;
    n->mtime = v->mtime;
    n->mtime_nsec = v->mtime_nsec;
    if (v->have_owner) {
        n->mode = (uint16_t)(S_IFREG | (tree_mode(t, v->mode) & ~(uint32_t)S_IFMT));
        n->uid = v->uid;
        n->gid = v->gid;
    }
    return 0;
}

/* Where the child stands among its siblings. */
static uint32_t place_of(struct tree *t, const node_id *children, uint32_t count, node_id id)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = compare_names(&children[middle], &id, t);
        if (!order)
            return middle;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    assert(!"a child that its directory does not hold");
    return 0;
}

static void drop_name(struct tree *t, node_id id)
{
    struct node *n = tree_node(t, id), *parent = tree_node(t, n->parent);
    node_id *children = t->order + parent->first;
    uint32_t at = place_of(t, children, parent->count, id);
    memmove(children + at, children + at + 1, (parent->count - at - 1) * sizeof *children);
    parent->count--;
    tree_count_node(t, n, false);
    n->flags |= NODE_DROPPED;
}

void tree_drop(struct tree *t, node_id id)
{
    node_id link = tree_node(t, id)->link;
    assert(t->sealed && !S_ISDIR(tree_node(t, link)->mode));
    if (tree_dropped(t, tree_node(t, link)))
        return;
    struct tree_alias *aliases = t->aliases.items;
    size_t low = 0, high = t->aliases.len;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (aliases[middle].link < link)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < t->aliases.len && aliases[low].link == link; low++)
        drop_name(t, aliases[low].name);
    drop_name(t, link);
}

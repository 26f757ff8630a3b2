/* A node is found by way of the node above it, which is most often among the held ones: a build goes through the image
 * upward in a few places at once. */
#include "imagebuild/parent_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/plan.h"
#include "store/index_read.h"

struct held {
    struct index_node *node; /* NULL: free */
    uint64_t number;
    uint64_t used; /* when, by parent_index.clock */
};

struct parent_index {
    struct store *store;
    struct manifest manifest;
    uint64_t clock;
    struct held held[PARENT_INDEX_NODES];
};

int parent_index_new(struct store *store, const struct manifest *manifest, struct parent_index **out)
{
    struct parent_index *p = calloc(1, sizeof *p);
    if (!p)
        return error_set(-ENOMEM, "build: out of memory");
    p->store = store;
    p->manifest = *manifest;
    *out = p;
    return 0;
}

void parent_index_free(struct parent_index *p)
{
    if (!p)
        return;
    for (int i = 0; i < PARENT_INDEX_NODES; i++)
        index_node_free(p->held[i].node);
    free(p);
}

static struct held *find(struct parent_index *p, unsigned level, uint64_t number)
{
    for (int i = 0; i < PARENT_INDEX_NODES; i++) {
        struct held *h = &p->held[i];
        if (h->node && h->node->level == level && h->number == number) {
            h->used = ++p->clock;
            return h;
        }
    }
    return NULL;
}

/* The place of what was not used for longest, emptied. */
static struct held *make_room(struct parent_index *p)
{
    struct held *oldest = &p->held[0];
    for (int i = 1; i < PARENT_INDEX_NODES; i++)
        if (p->held[i].used < oldest->used)
            oldest = &p->held[i];
    index_node_free(oldest->node);
    memset(oldest, 0, sizeof *oldest);
    return oldest;
}

/* *out: NULL where there is no node. */
static int get_node(struct parent_index *p, unsigned level, uint64_t number, const struct index_node **out)
{
    struct held *h = find(p, level, number);
    struct index_child child;
    *out = h ? h->node : NULL;
    if (h)
        return 0;
    int rc = parent_index_child(p, level, number, &child);
    if (rc || digest_is_zero(&child.digest))
        return rc;
    h = make_room(p);
    rc = index_read_node(p->store, &p->manifest, &child, level, number, &h->node);
    if (rc)
        return rc == -ECANCELED ? rc : plan_parent_failed(rc == -ENOENT ? -EBADMSG : rc);
    h->number = number;
    h->used = ++p->clock;
    *out = h->node;
    return 0;
}

/* Recursion goes up at most INDEX_LEVELS_MAX levels. */
int parent_index_child(struct parent_index *p, unsigned level, uint64_t number, struct index_child *out)
{
    const struct index_node *above = NULL;
    memset(out, 0, sizeof *out);
    if (level + 1 == p->manifest.index_levels && !number)
        *out = p->manifest.index_root;
    if (level + 1 >= p->manifest.index_levels)
        return 0;
    int rc = get_node(p, level + 1, number / INDEX_FANOUT, &above);
    if (!rc && above && number % INDEX_FANOUT < above->count)
        *out = above->children[number % INDEX_FANOUT];
    return rc;
}

int parent_index_leaf(struct parent_index *p, uint64_t number, const struct index_node **out)
{
    return get_node(p, 0, number, out);
}

/* A node is found through the node above it, which is mostly among those kept: a build goes upward through the image,
 * in a few places at once.
 *
 *   parent_index:   16 nodes of any level, least recently used first out
 *   parent_leaves:  [leaf 40][leaf 41][leaf 43] ...   ring (base/in_order.h), filled in order by INDEX_AHEAD threads
 *                   ^ requested last             ^ next: not considered yet
 *
 * The entries of leaves fetched ahead are looked up in the caller's thread, so only fetching needs to be thread-safe.
 */
#include "imagebuild/rebuild/parent_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/in_order.h"
#include "imagebuild/rebuild/parent.h"
#include "repository/read/index_read.h"

/* A node kept in memory. */
struct held {
    struct index_node *node; /* NULL: free */
    const struct parent_image *image;
    uint64_t number; /* in that image */
    uint64_t used;   /* value of parent_index.clock at the last use */
};

/* A leaf fetched ahead; a slot of the ring. */
struct ahead {
    uint64_t number;
    struct index_child child;
    struct index_node *node;
    struct error error;
};

struct parent_leaves {
    struct parent_index *index;
    bool (*wanted)(void *arg, uint64_t leaf);
    void *arg;
    struct in_order *ring;
    uint64_t next, end; /* leaves not considered for fetching yet */
};

struct parent_index {
    struct store *store;
    struct manifest manifest;
    const struct parent_image *images;
    size_t count;
    struct parent_image only; /* the image, if there are not several */
    uint64_t clock;
    struct held held[PARENT_INDEX_NODES];
};

int parent_index_new(const struct sink_parent *parent, struct parent_index **out)
{
    struct parent_index *p = calloc(1, sizeof *p);
    if (!p)
        return error_no_memory();
    p->store = parent->store;
    p->manifest = p->only.manifest = *parent->manifest;
    p->images = parent->image_count ? parent->images : &p->only;
    p->count = GR_MAX(parent->image_count, (size_t)1);
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

/* Return the image that has a leaf, and make *leaf the leaf's number there. A leaf before the first image gets a number
 * that no image has. */
static const struct parent_image *image_of(const struct parent_index *p, uint64_t *leaf)
{
    const uint64_t bytes = (uint64_t)p->manifest.chunk_size * INDEX_FANOUT;
    size_t i = p->count - 1;
    while (i && *leaf < p->images[i].begin / bytes)
        i--;
    const uint64_t first = p->images[i].begin / bytes;
    *leaf = *leaf < first ? UINT64_MAX : *leaf - first;
    return &p->images[i];
}

/* Return the kept node, marking it used; NULL: it is not kept. */
static struct held *parent_index_find(struct parent_index *p, const struct parent_image *image, unsigned level,
                                      uint64_t number)
{
    for (int i = 0; i < PARENT_INDEX_NODES; i++) {
        struct held *h = &p->held[i];
        if (h->node && h->image == image && h->node->level == level && h->number == number) {
            h->used = ++p->clock;
            return h;
        }
    }
    return NULL;
}

/* Free the least recently used node and return its slot. */
static struct held *parent_index_make_room(struct parent_index *p)
{
    struct held *oldest = &p->held[0];
    for (int i = 1; i < PARENT_INDEX_NODES; i++)
        if (p->held[i].used < oldest->used)
            oldest = &p->held[i];
    index_node_free(oldest->node);
    memset(oldest, 0, sizeof *oldest);
    return oldest;
}

/* An image that another one follows ends with holes: make its last leaf a full one. */
static int fill_up(const struct parent_index *p, const struct parent_image *image, struct index_node *node)
{
    if (node->level || node->count == INDEX_FANOUT || image == &p->images[p->count - 1])
        return 0;
    struct chunk_ref *chunks = realloc(node->chunks, INDEX_FANOUT * sizeof *chunks);
    if (!chunks)
        return error_no_memory();
    memset(chunks + node->count, 0, (INDEX_FANOUT - node->count) * sizeof *chunks);
    node->chunks = chunks;
    node->count = INDEX_FANOUT;
    return 0;
}

/* Fetch and verify a node of an image. */
static int fetch_node(const struct parent_index *p, const struct parent_image *image, const struct index_child *child,
                      unsigned level, uint64_t number, struct index_node **out)
{
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    int rc = index_read_node(p->store, &image->manifest, child, level, number, &node);
    if (rc)
        return rc == -ECANCELED ? rc : parent_failed(rc);
    rc = fill_up(p, image, node);
    if (!rc)
        *out = steal_ptr(&node);
    return rc;
}

static int image_child(struct parent_index *p, const struct parent_image *image, unsigned level, uint64_t number,
                       struct index_child *out);

/* Return a node, fetching it if it is not kept. *out NULL: there is no node at this place. */
static int parent_index_get_node(struct parent_index *p, const struct parent_image *image, unsigned level,
                                 uint64_t number, const struct index_node **out)
{
    struct held *h = parent_index_find(p, image, level, number);
    struct index_child child;
    *out = h ? h->node : NULL;
    if (h)
        return 0;
    int rc = image_child(p, image, level, number, &child);
    if (rc || digest_is_zero(&child.digest))
        return rc;
    h = parent_index_make_room(p);
    rc = fetch_node(p, image, &child, level, number, &h->node);
    if (rc)
        return rc;
    h->image = image;
    h->number = number;
    h->used = ++p->clock;
    *out = h->node;
    return 0;
}

/* parent_index_child within an image. Recurses upward, at most INDEX_LEVELS_MAX levels. */
static int image_child(struct parent_index *p, const struct parent_image *image, unsigned level, uint64_t number,
                       struct index_child *out)
{
    const struct manifest *m = &image->manifest;
    const struct index_node *above = NULL;
    memset(out, 0, sizeof *out);
    if (level + 1 == m->index_levels && !number)
        *out = m->index_root;
    if (level + 1 >= m->index_levels)
        return 0;
    int rc = parent_index_get_node(p, image, level + 1, number / INDEX_FANOUT, &above);
    if (!rc && above && number % INDEX_FANOUT < above->count)
        *out = above->children[number % INDEX_FANOUT];
    return rc;
}

int parent_index_child(struct parent_index *p, unsigned level, uint64_t number, struct index_child *out)
{
    const struct parent_image *image = p->images;
    if (level && p->count > 1) {
        memset(out, 0, sizeof *out);
        return 0;
    }
    if (!level)
        image = image_of(p, &number);
    return image_child(p, image, level, number, out);
}

int parent_index_leaf(struct parent_index *p, uint64_t number, const struct chunk_ref **out)
{
    const struct index_node *node;
    const struct parent_image *image = image_of(p, &number);
    int rc = parent_index_get_node(p, image, 0, number, &node);
    *out = !rc && node ? node->chunks : NULL;
    return rc;
}

/* ------------------------------------------------------------------ ahead */

/* Fetch one leaf, in a thread of the ring. */
static void load_ahead(void *leaves, void *slot)
{
    const struct parent_index *p = ((struct parent_leaves *)leaves)->index;
    struct ahead *a = slot;
    uint64_t number = a->number;
    const struct parent_image *image = image_of(p, &number);
    int rc = digest_is_zero(&a->child.digest) ? 0 : fetch_node(p, image, &a->child, 0, number, &a->node);
    if (rc)
        error_take(&a->error, rc);
}

static void clear_ahead(void *slot)
{
    index_node_free(((struct ahead *)slot)->node);
}

int parent_leaves_new(struct parent_index *p, bool (*wanted)(void *arg, uint64_t leaf), void *arg,
                      struct parent_leaves **out)
{
    CLEANUP(cleanup_parent_leaves) struct parent_leaves *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->index = p;
    l->wanted = wanted;
    l->arg = arg;
    l->end = (manifest_chunk_count(&p->manifest) + INDEX_FANOUT - 1) / INDEX_FANOUT;
    const struct in_order_config ring = {.threads = INDEX_AHEAD,
                                         .slots = INDEX_AHEAD,
                                         .size = sizeof(struct ahead),
                                         .work = load_ahead,
                                         .clear = clear_ahead,
                                         .arg = l};
    int rc = in_order_new(&ring, &l->ring);
    if (!rc)
        *out = steal_ptr(&l);
    return rc;
}

void parent_leaves_free(struct parent_leaves *l)
{
    if (!l)
        return;
    in_order_free(l->ring);
    free(l);
}

/* Fill the ring with wanted leaves. An error on the way to a leaf becomes that leaf's error, and ends the fetching
 * ahead. */
static void fill_ring(struct parent_leaves *l)
{
    struct ahead *a;
    for (; l->next < l->end && (a = in_order_slot(l->ring)); l->next++) {
        if (l->wanted && !l->wanted(l->arg, l->next))
            continue;
        a->number = l->next;
        int rc = parent_index_child(l->index, 0, l->next, &a->child);
        error_take(&a->error, rc);
        if (rc)
            l->end = l->next;
        in_order_give(l->ring);
    }
}

/* Drop leaves before `number` from the ring. A leaf that was not wanted is fetched now. */
int parent_leaves_get(struct parent_leaves *l, uint64_t number, const struct chunk_ref **out)
{
    struct ahead *a;
    l->next = GR_MAX(l->next, number);
    for (;;) {
        fill_ring(l);
        a = in_order_take(l->ring);
        if (!a || a->number >= number)
            break;
        in_order_drop(l->ring);
    }
    if (!a || a->number > number)
        return parent_index_leaf(l->index, number, out);
    *out = a->node ? a->node->chunks : NULL;
    return a->error.code ? error_restore(&a->error) : 0;
}

const char *parent_image_name(const struct parent_image *image, char out[PARENT_IMAGE_NAME_MAX])
{
    const struct image_ref *ref = &image->found;
    char digest[DIGEST_HEX_SIZE];
    if (ref->tag[0])
        snprintf(out, PARENT_IMAGE_NAME_MAX, "%s:%s", ref->name, ref->tag);
    else
        snprintf(out, PARENT_IMAGE_NAME_MAX, "%s@sha256:%s", ref->name, digest_hex(&ref->digest, digest));
    return out;
}

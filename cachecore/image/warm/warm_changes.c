/* Which chunks an image has and an earlier one lacks. Both index trees are walked together, from the roots down: two
 * subtrees at the same place with the same digest are the same, and are passed over.
 *
 *            now   [ A  B  C' D ]        then  [ A  B  C  D ]
 *                          |                         |
 *                 leaf C'  1 2 9 4          leaf C   1 2 3 4         candidate: 9; there before: 3
 *
 * A chunk that stands elsewhere now was there before, too: the candidates are looked up among the chunks that the
 * earlier image has where it differs, by the first 8 bytes of their digests. Two chunks that share these by chance cost
 * one chunk that is not warmed.
 *
 * Memory: 16 bytes for each chunk that differs, and 8 for each of the earlier image, of LOOKED_UP_MAX of either. What
 * comes after these is planned at once: if it is cached, it is not fetched all the same. */
#include "image/warm/warm_internal.h"

#include <errno.h>
#include <stdlib.h>

enum { LOOKED_UP_MAX = 4 << 20 };

/* A chunk of the image at whose place the earlier one has another. */
struct candidate {
    uint64_t chunk, id;
};

/* One comparison. */
struct comparing {
    struct warming *w;
    warm_step *step;                  /* its argument is w */
    VEC(struct candidate) candidates; /* ascending */
    VEC(uint64_t) before;             /* ids of the earlier image's chunks where it differs; sorted at the end */
    counter fetched;                  /* bytes of index nodes */
};

/* What an image has at one place of the tree. */
struct side {
    struct index_child child; /* its digest is zero: holes, or nothing */
    bool above;               /* the place is above the image's root, and contains it */
};

/* A side whose node is in memory. */
struct opened {
    struct side side;
    struct image *img;
    struct node *node; /* NULL: holes, or above the root */
};

static bool is_nothing(const struct side *s)
{
    return !s->above && digest_is_zero(&s->child.digest);
}

/* The image's side of the tree's top, which is as high as the higher of both trees. */
static struct side side_of_top(const struct image *img, unsigned top)
{
    bool above = img->manifest.index_levels <= top;
    return above ? (struct side){.above = true} : (struct side){.child = img->manifest.index_root};
}

/* Get entry i of a node at `level`. */
static struct side side_below(const struct opened *o, unsigned level, uint32_t i)
{
    if (o->side.above)
        return i ? (struct side){.above = false} : side_of_top(o->img, level - 1);
    const struct index_node *index = o->node ? node_index(o->node) : NULL;
    return index && i < index->count ? (struct side){.child = index->children[i]} : (struct side){.above = false};
}

/* Get a chunk of a leaf. False: a hole, or none. */
static bool chunk_of(const struct opened *o, uint32_t i, struct chunk_ref *out)
{
    return o->node && node_chunk(o->node, i, out);
}

/* Get the image's node; it is put into the cache, since readers will need it. A dry run keeps nothing. */
static int open_now(struct comparing *c, struct opened *o, struct node_place place)
{
    const struct warm_config *config = c->w->c;
    if (o->side.above || is_nothing(&o->side))
        return 0;
    if (config->dry)
        return node_cache_peek(o->img->nodes, &o->side.child, place, config->store, &o->node);
    return node_cache_bring(o->img->nodes, &o->side.child, place, config->store, &o->node, &c->fetched);
}

/* Get the earlier image's node. One that is not in the store any more, as gc removes what no tag needs, counts as
 * holes: its chunks are then looked up in the cache like all others. */
static int open_then(struct comparing *c, struct opened *o, struct node_place place)
{
    if (o->side.above || is_nothing(&o->side))
        return 0;
    int rc = node_cache_peek(o->img->nodes, &o->side.child, place, c->w->c->store, &o->node);
    return error_of_one_thing(rc) ? 0 : rc;
}

/* Collect the chunks that differ between two leaves. */
static int compare_leaves(struct comparing *c, const struct opened *now, const struct opened *then, uint64_t number)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < INDEX_FANOUT; i++) {
        struct chunk_ref a, b;
        const bool has_now = chunk_of(now, i, &a), had_then = chunk_of(then, i, &b);
        if (has_now && had_then && digest_equal(&a.digest, &b.digest))
            continue;
        const struct candidate found = {.chunk = number * INDEX_FANOUT + i, .id = has_now ? digest_hash(&a.digest) : 0};
        if (has_now)
            rc = c->candidates.len < LOOKED_UP_MAX ? vec_push(&c->candidates, found)
                                                   : warm_plan_add(&c->w->plan, found.chunk, found.chunk + 1);
        if (!rc && had_then && c->before.len < LOOKED_UP_MAX)
            rc = vec_push(&c->before, digest_hash(&b.digest));
    }
    return rc;
}

static int compare(struct comparing *c, struct node_place place, const struct side *now, const struct side *then);

/* Compare what is below two nodes. */
static int compare_below(struct comparing *c, struct node_place place, const struct opened *now,
                         const struct opened *then)
{
    int rc = 0;
    if (!place.level)
        return compare_leaves(c, now, then, place.number);
    for (uint32_t i = 0; !rc && i < INDEX_FANOUT; i++) {
        const struct side a = side_below(now, place.level, i), b = side_below(then, place.level, i);
        rc = compare(c, (struct node_place){place.level - 1, place.number * INDEX_FANOUT + i}, &a, &b);
    }
    return rc;
}

/* Compare two subtrees at the same place. At most INDEX_LEVELS_MAX calls deep. */
static int compare(struct comparing *c, struct node_place place, const struct side *now, const struct side *then)
{
    struct opened a = {.side = *now, .img = c->w->c->img}, b = {.side = *then, .img = c->w->c->since};
    if (!now->above && !then->above && digest_equal(&now->child.digest, &then->child.digest))
        return 0;
    int rc = c->step(c->w, place.number * image_chunks_below(place.level + 1));
    if (!rc)
        rc = open_now(c, &a, place);
    if (!rc)
        rc = open_then(c, &b, place);
    if (!rc)
        rc = compare_below(c, place, &a, &b);
    node_unref(a.node);
    node_unref(b.node);
    return rc;
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Plan the candidates that the earlier image has nowhere. */
static int plan_lacking(struct comparing *c)
{
    int rc = 0;
    if (c->before.len)
        qsort(c->before.items, c->before.len, sizeof *c->before.items, by_value);
    for (size_t i = 0; !rc && i < c->candidates.len; i++) {
        const struct candidate *at = &c->candidates.items[i];
        if (!c->before.len || !bsearch(&at->id, c->before.items, c->before.len, sizeof *c->before.items, by_value))
            rc = warm_plan_add(&c->w->plan, at->chunk, at->chunk + 1);
    }
    return rc;
}

int warm_changes(struct warming *w, warm_step *step)
{
    struct comparing c = {.w = w, .step = step};
    const struct image *img = w->c->img, *since = w->c->since;
    unsigned top = GR_MAX(img->manifest.index_levels, since->manifest.index_levels) - 1;
    const struct side now = side_of_top(img, top), then = side_of_top(since, top);
    int rc = compare(&c, (struct node_place){.level = top, .number = 0}, &now, &then);
    if (!rc)
        rc = plan_lacking(&c);
    w->chosen_bytes = counter_get(&c.fetched);
    vec_release(&c.candidates);
    vec_release(&c.before);
    return rc;
}

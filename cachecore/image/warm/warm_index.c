/* Two ways to fetch index nodes. The nodes that a warming needs first come through its own handle on the store, which
 * is cancelled with it, level by level, so that each node is fetched once. The other leaves come as a read would
 * fetch them, one by one, over connections that readers find open afterwards. */
#include "image/warm/warm_index.h"

#include <errno.h>

#include "base/error.h"
#include "base/parallel.h"
#include "base/vec.h"
#include "image/image_internal.h"
#include "image/span.h"

enum { THREADS = 32, MEMORY_SHARE = 2 }; /* of one level; leaves may take half of the index memory */

/* ---- what is above chosen chunks ---- */

/* One level's fetch, shared by its threads. */
struct bringing {
    struct image *img;
    struct store *store;
    unsigned level;
    VEC(uint64_t) numbers; /* numbers of the wanted nodes of the level */
    counter fetched;
    int (*step)(void *arg);
    void *arg;
};

/* List the nodes of the level that have a chosen chunk below them. */
static int choose_nodes(struct bringing *b, const struct chunk_set *chosen)
{
    uint64_t below = image_chunks_below(b->level + 1);
    b->numbers.len = 0;
    for (uint64_t i = chunk_set_next(chosen, 0); i != UINT64_MAX; i = chunk_set_next(chosen, i / below * below + below))
        if (vec_push(&b->numbers, i / below))
            return error_no_memory();
    return 0;
}

/* Descend to one wanted node and fetch it; the nodes above it are cached since the last level. */
static int bring_node(void *arg, size_t i)
{
    struct bringing *b = arg;
    const struct manifest *m = &b->img->manifest;
    uint64_t chunk = b->numbers.items[i] * image_chunks_below(b->level + 1);
    struct index_child child = m->index_root;
    for (unsigned level = m->index_levels; level-- > b->level && !digest_is_zero(&child.digest);) {
        CLEANUP(cleanup_node) struct node *node = NULL;
        const struct node_place place = {.level = level, .number = chunk / image_chunks_below(level + 1)};
        int rc = node_cache_bring(b->img->nodes, &child, place, b->store, &node, &b->fetched);
        if (rc)
            return rc;
        if (level)
            child = node_index(node)->children[chunk / image_chunks_below(level) % INDEX_FANOUT];
    }
    return 0;
}

/* The parallel run's callback, passed on. */
static int step(void *arg)
{
    struct bringing *b = arg;
    return b->step(b->arg);
}

/* Level by level from the root: a node is found through its parent, which the level before has brought. */
int warm_index_of(struct image *img, struct store *store, const struct chunk_set *chosen, int (*on_step)(void *arg),
                  void *arg, uint64_t *out_fetched)
{
    struct bringing b = {.img = img, .store = store, .step = on_step, .arg = arg};
    int rc = 0;
    for (b.level = img->manifest.index_levels; !rc && b.level-- > 0;) {
        rc = choose_nodes(&b, chosen);
        const struct parallel work = {
            .count = b.numbers.len, .threads = THREADS, .item = bring_node, .step = step, .arg = &b};
        if (!rc && work.count)
            rc = parallel_run(&work);
    }
    *out_fetched = counter_get(&b.fetched);
    vec_release(&b.numbers);
    return rc;
}

/* ---- the rest ---- */

uint64_t warm_index_leaves(const struct image *img)
{
    uint64_t leaves = (manifest_chunk_count(&img->manifest) + INDEX_FANOUT - 1) / INDEX_FANOUT;
    size_t most = node_cache_memory(img->nodes) / MEMORY_SHARE / (INDEX_FANOUT * sizeof(struct chunk_ref));
    return leaves > most ? 0 : leaves;
}

/* The way a read takes to the leaf: through the image's own store, and kept in memory. */
int warm_index_leaf(struct image *img, uint64_t leaf)
{
    struct span span;
    int rc = span_locate(img, leaf * INDEX_FANOUT, SPAN_KEPT, &span);
    if (!rc)
        node_unref(span.leaf);
    return rc;
}

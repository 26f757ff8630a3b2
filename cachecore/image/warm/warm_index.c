/* Two ways to fetch index nodes. The nodes that a warming needs first come through its own handle on the store, which
 * is cancelled with it, level by level, so that each node is fetched once. The other leaves come as a read would
 * fetch them, one by one, over connections that readers find open afterwards.
 *
 * Which chunks are missing is found in one walk over the index in its own order. Chunks are collected in batches, since
 * the cache answers a batch in one locked section. */
#include "image/warm/warm_internal.h"

#include <errno.h>

#include "base/error.h"
#include "base/parallel.h"
#include "repository/read/chunk_read.h"

enum { THREADS = 32, MEMORY_SHARE = 2 }; /* of one level; leaves may take half of the index memory */
enum { LOOK_BATCH = 64 };

/* ---- what is above chosen chunks ---- */

/* One level's fetch, shared by its threads. */
struct bringing {
    struct image *img;
    struct store *store;
    unsigned level;
    VEC(uint64_t) numbers; /* numbers of the wanted nodes of the level */
    counter fetched;
    const struct step *step;
};

/* List the nodes of the level that have a chosen chunk below them. */
static int choose_nodes(struct bringing *b, const struct chunk_set *chosen)
{
    uint64_t below = image_chunks_below(b->level + 1);
    b->numbers.len = 0;
    for (uint64_t i = chunk_set_next(chosen, 0); i != UINT64_MAX; i = chunk_set_next(chosen, i / below * below + below))
        if (vec_push(&b->numbers, i / below))
            return -ENOMEM;
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
static int bring_step(void *arg)
{
    struct bringing *b = arg;
    return step_take(b->step);
}

/* Level by level from the root: a node is found through its parent, which the level before has brought. */
int warm_index_of(struct image *img, struct store *store, const struct chunk_set *chosen, const struct step *step,
                  uint64_t *out_fetched)
{
    struct bringing b = {.img = img, .store = store, .step = step};
    int rc = 0;
    for (b.level = img->manifest.index_levels; !rc && b.level-- > 0;) {
        rc = choose_nodes(&b, chosen);
        const struct parallel work = {
            .count = b.numbers.len, .threads = THREADS, .item = bring_node, .step = bring_step, .arg = &b};
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
    int rc = span_locate(img->nodes, leaf * INDEX_FANOUT, SPAN_KEPT, &span);
    if (!rc)
        node_unref(span.leaf);
    return rc;
}

/* ---- what is missing ---- */

/* The walk's result so far, and the batch that waits for the cache. */
struct looking {
    struct image *img;
    struct chunk_set *missing;
    struct missing_sums *sums;
    bool own;                   /* only what this node keeps for all */
    struct chunk_stripe stripe; /* yes: it is this node's */
    size_t n;
    uint64_t chunks[LOOK_BATCH];
    struct digest digests[LOOK_BATCH];
    uint32_t lens[LOOK_BATCH], stored[LOOK_BATCH];
};

/* Ask the cache about the batch, and empty it. */
static void warm_missing_look(struct looking *l)
{
    struct cache_chunk found[LOOK_BATCH];
    struct missing_sums *sums = l->sums;
    cache_query(l->img->config.cache, l->digests, l->n, found);
    for (size_t i = 0; i < l->n; i++) {
        sums->chunks++;
        sums->bytes += l->lens[i];
        if (found[i].cached)
            continue;
        chunk_set_add(l->missing, l->chunks[i]);
        sums->missing++;
        sums->missing_bytes += l->lens[i];
        sums->fetch_bytes += l->stored[i];
    }
    l->n = 0;
}

/* Is the chunk's stripe another node's? All nodes read the metadata, so everybody warms it. */
static bool is_of_another(struct looking *l, uint64_t chunk, const struct chunk_ref *ref)
{
    if (!l->own || warm_is_metadata(&l->img->manifest, chunk))
        return false;
    if (!chunk_stripe_has(&l->stripe, ref))
        l->stripe.yes = chunk_is_own(l->img->config.store, ref);
    return !l->stripe.yes;
}

/* Add a chunk to the batch, and look the batch up when it is full. */
static void warm_missing_add(struct looking *l, uint64_t chunk, const struct chunk_ref *ref)
{
    l->chunks[l->n] = chunk;
    l->digests[l->n] = ref->digest;
    l->lens[l->n] = ref->plain_len;
    l->stored[l->n++] = ref->stored_len;
    if (l->n == LOOK_BATCH)
        warm_missing_look(l);
}

/* Count a chunk whose index node is not available as missing. */
static void add_unknown(struct looking *l, uint64_t chunk)
{
    uint64_t len = image_chunk_len(l->img, chunk);
    chunk_set_add(l->missing, chunk);
    l->sums->chunks++;
    l->sums->missing++;
    l->sums->bytes += len;
    l->sums->missing_bytes += len;
}

/* Walk over the chosen chunks; a run of holes is passed in one step. */
static int look_all(struct looking *l, struct image_cursor *cursor, const struct chunk_set *chosen, warm_step *step,
                    void *arg)
{
    uint64_t run = 1;
    int rc = 0;
    for (uint64_t i = chunk_set_next(chosen, 0); !rc && i != UINT64_MAX; i = chunk_set_next(chosen, i + run)) {
        const struct chunk_ref *ref;
        rc = image_cursor_at(cursor, i, &ref, &run);
        if (!rc && cursor->store_error.code)
            rc = error_restore(&cursor->store_error);
        if (rc)
            break;
        if (cursor->unknown) {
            run = 1;
            add_unknown(l, i);
        } else if (ref && !is_of_another(l, i, ref)) {
            warm_missing_add(l, i, ref);
        }
        rc = step(arg, i);
    }
    warm_missing_look(l);
    return rc;
}

/* fetch_bytes also counts the index nodes that the walk met and the cache does not have. */
int warm_missing(struct image *img, struct store *store, const struct chunk_set *chosen, bool own, warm_step *step,
                 void *arg, struct chunk_set *out, struct missing_sums *sums)
{
    struct looking l = {.img = img, .missing = out, .sums = sums, .own = own};
    struct image_cursor cursor;
    *sums = (struct missing_sums){0};
    int rc = chunk_set_init(out, img);
    image_cursor_init(&cursor, img, store);
    if (!rc)
        rc = look_all(&l, &cursor, chosen, step, arg);
    sums->fetch_bytes += cursor.missing_bytes;
    image_cursor_release(&cursor);
    return rc;
}

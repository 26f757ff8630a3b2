/* Leaf n is child n of level 1, node n of level 1 is child n of level 2, and so on.
 *
 *   leaves  | 0 ...  the parent's last ... head | head + 1 ...                                  |
 *             early: sorted, merged at the end    streamed: encoded once a later leaf begins
 *
 * `head` is the leaf in which streaming begins, or the parent's last leaf, whichever is later; `streamed` is the leaf
 * after it. The levels above are built at the end from the leaves' entries. A node with no stored chunk below it is
 * a hole: it is not encoded, and its entry is zero.
 *
 * A snapshot builds the same tree earlier, when the sorter cannot be read yet. It needs the early chunks of `head`,
 * and these are kept a second time in `head_refs`. If any other early chunk was added, no snapshot is possible.
 *
 * Stored bytes are counted by difference: the parent's sum, less the chunks of its leaves that are read, plus the
 * chunks of each leaf that is encoded. A leaf that stays whole is taken over by its entry in the node above, without
 * being read.
 */
#include "imagebuild/sink/sink_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/vec.h"

/* Used from one thread. An index_writer_snapshot saves and restores this struct by value. */
struct index_writer {
    struct index_writer_config config;
    uint64_t parent_chunks, parent_leaves;
    struct sorter *early;          /* early chunks: number, big-endian, and chunk_ref */
    uint64_t streamed;             /* number of the first streamed leaf; UINT64_MAX: not known yet */
    uint64_t leaf;                 /* number of the streamed leaf in progress */
    VEC(struct index_child) ended; /* entries of the leaves streamed .. leaf - 1 */
    uint64_t image_size;           /* known at the end */
    uint64_t stored_bytes, kept;
    unsigned deltas;              /* manifest.deltas; the parent's, if leaves of it stay unread */
    bool dirty;                   /* `current` has entries */
    bool disorder;                /* the sorter holds chunks that are not in head_refs */
    uint64_t *early_leaves;       /* a bit per leaf of the parent: the sorter holds a chunk of it */
    struct parent_leaves *leaves; /* the parent's, read ahead; set while leaves are merged */
    /* written[i]: current[i] was added, so the parent's chunk does not stay. */
    bool written[INDEX_FANOUT];
    struct chunk_ref current[INDEX_FANOUT];
    struct chunk_ref head_refs[INDEX_FANOUT];
};

/* Return how many nodes hold `count` children. */
static uint64_t nodes_over(uint64_t count)
{
    return (count + INDEX_FANOUT - 1) / INDEX_FANOUT;
}

/* Return the number of entries of node `number` over `count` children. */
static uint32_t node_count(uint64_t number, uint64_t count)
{
    return (uint32_t)GR_MIN(count - number * INDEX_FANOUT, (uint64_t)INDEX_FANOUT);
}

int index_writer_new(const struct index_writer_config *config, struct index_writer **out)
{
    struct index_writer *w = calloc(1, sizeof *w);
    if (!w)
        return error_no_memory();
    w->config = *config;
    w->streamed = UINT64_MAX;
    if (config->parent) {
        w->parent_chunks = manifest_chunk_count(config->parent->manifest);
        w->parent_leaves = nodes_over(w->parent_chunks);
        w->stored_bytes = config->parent->manifest->stored_bytes;
    }
    w->early_leaves = calloc(w->parent_leaves / 64 + 1, sizeof *w->early_leaves);
    int rc = w->early_leaves ? sorter_new(&config->sorter, &w->early) : error_no_memory();
    if (rc) {
        index_writer_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void index_writer_free(struct index_writer *w)
{
    if (!w)
        return;
    sorter_free(w->early);
    parent_leaves_free(w->leaves);
    free(w->early_leaves);
    vec_release(&w->ended);
    free(w);
}

/* ------------------------------------------------------------------ nodes */

/* Describe an encoded node in *out, and put it unless the parent has the same node at this place. */
static int put_node(struct index_writer *w, unsigned level, uint64_t number, struct bytes *node,
                    struct index_child *out)
{
    struct index_child old = {0};
    out->digest = digest_of(node->data, node->len);
    out->len = (uint32_t)node->len;
    out->crc = crc32c(node->data, node->len);
    int rc = w->config.parent ? parent_index_child(w->config.index, level, number, &old) : 0;
    if (rc || digest_equal(&old.digest, &out->digest))
        return rc;
    return upload_put(w->config.upload, OBJECT_INDEX, node, &out->digest);
}

/* Encode and empty the leaf in progress. A leaf of holes gives a zero entry and nothing is put. */
static int put_leaf(struct index_writer *w, uint64_t leaf, uint32_t count, struct index_child *out)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    memset(out, 0, sizeof *out);
    int rc = index_encode_leaf(w->current, count, &node, &out->content);
    for (uint32_t i = 0; i < count; i++) {
        w->stored_bytes += chunk_is_hole(&w->current[i]) ? 0 : w->current[i].stored_len;
        w->deltas |= w->current[i].flags & CHUNK_DELTA_FLAGS;
    }
    memset(w->current, 0, sizeof w->current);
    return rc || !node.len ? rc : put_node(w, 0, leaf, &node, out);
}

/* Encode and put one node over `count` children. `out` may be one of the children. */
static int put_inner(struct index_writer *w, unsigned level, uint64_t number, const struct index_child *children,
                     uint32_t count, struct index_child *out)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    struct index_child child = {0};
    int rc = index_encode_inner(level, children, count, &node, &child.content);
    if (!rc && node.len)
        rc = put_node(w, level, number, &node, &child);
    *out = child;
    return rc;
}

/* End the streamed leaf in progress, which is complete. */
static int end_leaf(struct index_writer *w, uint32_t count)
{
    struct index_child child = {0};
    int rc = w->dirty ? put_leaf(w, w->leaf, count, &child) : 0;
    w->dirty = false;
    w->leaf++;
    if (!rc)
        rc = vec_push(&w->ended, child);
    return rc;
}

void index_writer_stream(struct index_writer *w, uint64_t first)
{
    w->streamed = w->leaf = GR_MAX(first / INDEX_FANOUT + 1, w->parent_leaves);
}

/* Streamed chunks go into the leaf in progress, others into the sorter. */
int index_writer_add(struct index_writer *w, uint64_t number, const struct chunk_ref *ref)
{
    const uint64_t leaf = number / INDEX_FANOUT;
    int rc = 0;
    if (leaf < w->streamed) {
        const uint64_t key = htobe64(number);
        if (w->streamed != UINT64_MAX && leaf + 1 == w->streamed && !chunk_is_hole(ref))
            w->head_refs[number % INDEX_FANOUT] = *ref;
        else
            w->disorder = true;
        if (leaf < w->parent_leaves)
            w->early_leaves[leaf / 64] |= UINT64_C(1) << leaf % 64;
        /* few chunks have a base */
        const size_t len = chunk_is_delta(ref) ? sizeof *ref : offsetof(struct chunk_ref, base);
        return sorter_add(w->early, &key, sizeof key, ref, len);
    }
    assert(leaf >= w->leaf);
    while (w->leaf < leaf && !rc)
        rc = end_leaf(w, INDEX_FANOUT);
    w->current[number % INDEX_FANOUT] = *ref;
    w->dirty = true;
    return rc;
}

/* ------------------------------------------------------------------ merging with the parent */

static int misplaced(uint64_t number)
{
    return error_set(-EIO, "build: chunk %" PRIu64 " was written twice or past the end: a bug, nothing was published",
                     number);
}

static uint64_t early_number(const struct sorter_record *r)
{
    uint64_t key;
    memcpy(&key, r->key, sizeof key);
    return be64toh(key);
}

/* Move the entries of `leaf` from the sorter into `current`. *more > 0: r holds the first entry after that leaf. */
static int take_early(struct index_writer *w, uint64_t leaf, struct sorter_record *r, int *more)
{
    const uint64_t chunks = (w->image_size + w->config.chunk_size - 1) / w->config.chunk_size;
    while (*more > 0 && early_number(r) / INDEX_FANOUT == leaf) {
        const uint64_t number = early_number(r);
        const uint32_t i = number % INDEX_FANOUT;
        if (w->written[i] || number >= chunks)
            return misplaced(number);
        w->current[i] = (struct chunk_ref){.offset = 0};
        memcpy(&w->current[i], r->value, r->value_len);
        w->written[i] = w->dirty = true;
        *more = sorter_next(w->early, r);
    }
    return GR_MIN(*more, 0);
}

/* Return the number of entries of a leaf, now that the image's size is known; 0: the image has no such leaf. */
static uint32_t leaf_count(const struct index_writer *w, uint64_t leaf)
{
    const uint64_t chunks = (w->image_size + w->config.chunk_size - 1) / w->config.chunk_size;
    return leaf < nodes_over(chunks) ? node_count(leaf, chunks) : 0;
}

/* Return whether a leaf of the parent must be read. If all of it stays, its shape included, its entry is taken over. */
static bool is_merged(void *arg, uint64_t leaf)
{
    const struct index_writer *w = arg;
    const struct sink_parent *p = w->config.parent;
    const uint32_t count = leaf_count(w, leaf);
    bool early = w->early_leaves[leaf / 64] >> leaf % 64 & 1;
    if (early || !p->kept_all || node_count(leaf, w->parent_chunks) != count)
        return true;
    /* the last chunk may be short */
    if (leaf + 1 == w->parent_leaves && p->manifest->size != w->image_size)
        return true;
    return !p->kept_all(p->arg, leaf * INDEX_FANOUT, count);
}

/* Begin to read the parent's leaves ahead. They end with parent_leaves_free(w->leaves). */
static int begin_merging(struct index_writer *w)
{
    return w->config.parent ? parent_leaves_new(w->config.index, is_merged, w, &w->leaves) : 0;
}

/* Fill in the chunks of the parent's leaf that stay. The sum of stored bytes loses all of that leaf; put_leaf adds
 * what the new one holds. */
static int merge_leaf(struct index_writer *w, uint64_t leaf, uint32_t count)
{
    const struct sink_parent *p = w->config.parent;
    const uint32_t old_count = node_count(leaf, w->parent_chunks);
    const struct chunk_ref *old;
    int rc = parent_leaves_get(w->leaves, leaf, &old);
    for (uint32_t i = 0; !rc && old && i < old_count; i++) {
        const uint64_t number = leaf * INDEX_FANOUT + i, at = number * w->config.chunk_size;
        if (!chunk_is_hole(&old[i]))
            w->stored_bytes -= old[i].stored_len;
        if (i >= count || w->written[i] || !p->kept(p->arg, number))
            continue;
        w->kept++;
        if (!chunk_is_hole(&old[i]) && old[i].plain_len != GR_MIN((uint64_t)w->config.chunk_size, w->image_size - at))
            return error_set(-EIO,
                             "build: chunk %" PRIu64 " of the parent stays, but has another length in this image: a "
                             "bug, nothing was published",
                             number);
        w->current[i] = old[i];
    }
    return rc;
}

/* End one leaf before the streamed ones. Possibly only the parent has it (count 0): it still leaves the sum of stored
 * bytes. */
static int end_early_leaf(struct index_writer *w, uint64_t leaf, struct index_child *out)
{
    const uint32_t count = leaf_count(w, leaf);
    int rc = 0;
    if (leaf < w->parent_leaves) {
        if (!is_merged(w, leaf)) {
            w->kept += count;
            w->deltas |= w->config.parent->manifest->deltas; /* this leaf is not read */
            return parent_index_child(w->config.index, 0, leaf, out);
        }
        rc = merge_leaf(w, leaf, count);
    }
    if (!rc && count)
        rc = put_leaf(w, leaf, count, out);
    if (w->dirty)
        memset(w->written, 0, sizeof w->written);
    w->dirty = false;
    return rc;
}

/* End all leaves before the streamed ones. The loop continues past the image's end if the parent is longer. A leaf
 * there has no entry to fill in (count 0); leaves[0] only stands in for it. */
static int end_early(struct index_writer *w, uint64_t chunk_count, struct index_child *leaves)
{
    struct sorter_record r;
    const uint64_t own = nodes_over(chunk_count), end = GR_MIN(w->streamed, GR_MAX(own, w->parent_leaves));
    int rc = sorter_sort(w->early), more = 0;
    if (!rc)
        more = sorter_next(w->early, &r);
    if (!rc)
        rc = begin_merging(w);
    for (uint64_t leaf = 0; leaf < end && !rc; leaf++) {
        rc = upload_step(w->config.upload);
        if (!rc)
            rc = take_early(w, leaf, &r, &more);
        if (!rc)
            rc = end_early_leaf(w, leaf, &leaves[leaf < own ? leaf : 0]);
    }
    parent_leaves_free(steal_ptr(&w->leaves));
    if (!rc && more > 0)
        rc = misplaced(early_number(&r));
    return rc ? rc : GR_MIN(more, 0);
}

/* ------------------------------------------------------------------ the end */

/* Build the levels above the leaves in place: nodes[n / INDEX_FANOUT] becomes the parent of nodes[n]. */
static int end_levels(struct index_writer *w, struct index_child *nodes, uint64_t count, unsigned levels)
{
    int rc = 0;
    for (unsigned level = 1; level < levels; level++) {
        const uint64_t above = nodes_over(count);
        for (uint64_t i = 0; i < above && !rc; i++)
            rc = put_inner(w, level, i, &nodes[i * INDEX_FANOUT], node_count(i, count), &nodes[i]);
        count = above;
    }
    return rc;
}

static struct index_writer_result result_of(const struct index_writer *w, const struct index_child *root,
                                            unsigned levels)
{
    return (struct index_writer_result){
        .root = *root, .levels = levels, .stored_bytes = w->stored_bytes, .kept = w->kept, .deltas = w->deltas};
}

/* End the streamed leaves first, then the early ones, whose merge needs the image's size. */
int index_writer_finish(struct index_writer *w, uint64_t image_size, struct index_writer_result *out)
{
    const uint64_t chunks = (image_size + w->config.chunk_size - 1) / w->config.chunk_size, leaves = nodes_over(chunks);
    const unsigned levels = index_levels(chunks);
    int rc = 0;
    if (!levels)
        return error_set(-EFBIG, "build: the image has more chunks than an index can hold; choose a larger chunk size");
    w->image_size = image_size;
    if ((w->ended.len || w->dirty) && w->leaf + w->dirty > leaves)
        return misplaced(w->leaf * INDEX_FANOUT);
    if (w->streamed < leaves)
        while (w->leaf < leaves && !rc)
            rc = end_leaf(w, node_count(w->leaf, chunks));
    CLEANUP_FREE struct index_child *nodes = calloc(leaves, sizeof *nodes);
    if (!nodes)
        return error_no_memory();
    if (w->ended.len)
        memcpy(nodes + w->streamed, w->ended.items, w->ended.len * sizeof *nodes);
    if (!rc)
        rc = end_early(w, chunks, nodes);
    if (!rc)
        rc = end_levels(w, nodes, leaves, levels);
    if (rc)
        return rc;
    *out = result_of(w, &nodes[0], levels);
    return 0;
}

/* ------------------------------------------------------------------ a snapshot */

/* Encode every leaf up to the one in progress. The caller restores the writer, so this may consume its state. */
static int snapshot_leaves(struct index_writer *w, uint64_t chunks, struct index_child *leaves)
{
    const uint64_t own = nodes_over(chunks);
    int rc = 0;
    if (w->ended.len)
        memcpy(leaves + w->streamed, w->ended.items, w->ended.len * sizeof *leaves);
    if (w->dirty)
        rc = put_leaf(w, w->leaf, node_count(w->leaf, chunks), &leaves[w->leaf]);
    w->dirty = false;
    if (!rc)
        rc = begin_merging(w);
    for (uint64_t leaf = 0; leaf < GR_MIN(w->streamed, own) && !rc; leaf++) {
        if (leaf + 1 == w->streamed)
            for (uint32_t i = 0; i < INDEX_FANOUT; i++) {
                w->current[i] = w->head_refs[i];
                w->written[i] = !chunk_is_hole(&w->head_refs[i]);
                w->dirty |= w->written[i];
            }
        rc = end_early_leaf(w, leaf, &leaves[leaf]);
    }
    parent_leaves_free(steal_ptr(&w->leaves));
    return rc;
}

int index_writer_snapshot(struct index_writer *w, uint64_t image_size, struct index_writer_result *out)
{
    const uint64_t chunks = image_size / w->config.chunk_size, leaves = nodes_over(chunks);
    const unsigned levels = index_levels(chunks);
    if (w->disorder || w->streamed == UINT64_MAX || !levels || leaves < w->parent_leaves)
        return 0;
    CLEANUP_FREE struct index_child *nodes = calloc(leaves, sizeof *nodes);
    CLEANUP_FREE struct index_writer *as_it_was = malloc(sizeof *as_it_was);
    if (!nodes || !as_it_was)
        return error_no_memory();
    *as_it_was = *w;
    w->image_size = image_size;
    int rc = snapshot_leaves(w, chunks, nodes);
    if (!rc)
        rc = end_levels(w, nodes, leaves, levels);
    *out = result_of(w, &nodes[0], levels);
    *w = *as_it_was; /* shallow is enough: nothing above appends to vectors or the sorter */
    return rc ? rc : 1;
}

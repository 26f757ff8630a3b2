/* Leaf number n is child n of level 1, node number n of level 1 is child n of level 2, and so on. Everything is encoded
 * as soon as its last child is known, except the nodes above chunk 0, the first of each level, which are kept until the
 * end:
 *
 *        level 2   [first]                       child 0 = first node of level 1: the end
 *        level 1   [first][ 1 ][ 2 ][current]    1, 2: encoded when full, children of level 2
 *        leaves    [first][ 1 ][ 2 ] ... [current]
 *
 * A node without any stored chunk below is a hole: nothing is encoded, its child entry is all zero.
 */
#include "imagebuild/index_writer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

struct level {
    uint64_t count; /* children so far; child 0 counts although it is filled in at the end */
    struct index_child first[INDEX_FANOUT], current[INDEX_FANOUT];
};

struct index_writer {
    struct upload *upload;
    uint64_t leaf; /* number of the leaf in `current` */
    bool dirty;    /* `current` holds a chunk; else it is all holes */
    struct chunk_ref first[INDEX_FANOUT], current[INDEX_FANOUT];
    struct level levels[INDEX_LEVELS_MAX]; /* [0] unused: leaves */
};

int index_writer_new(struct upload *upload, struct index_writer **out)
{
    struct index_writer *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(-ENOMEM, "build: out of memory");
    w->upload = upload;
    w->leaf = 1;
    for (unsigned l = 1; l < INDEX_LEVELS_MAX; l++)
        w->levels[l].count = 1;
    *out = w;
    return 0;
}

void index_writer_free(struct index_writer *w)
{
    free(w);
}

/* Put an encoded node and describe it. */
static int put_node(struct index_writer *w, struct bytes *node, struct index_child *out)
{
    out->digest = digest_of(node->data, node->len);
    out->len = (uint32_t)node->len;
    out->crc = crc32c(node->data, node->len);
    return upload_put(w->upload, OBJECT_INDEX, node, &out->digest);
}

static int put_leaf(struct index_writer *w, const struct chunk_ref *refs, uint32_t count, struct index_child *out)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    memset(out, 0, sizeof *out);
    int rc = index_encode_leaf(refs, count, &node, &out->content);
    return rc || !node.len ? rc : put_node(w, &node, out);
}

static int put_inner(struct index_writer *w, unsigned level, const struct index_child *children, uint32_t count,
                     struct index_child *out)
{
    CLEANUP_BYTES node = BYTES_INIT(INDEX_NODE_MAX);
    memset(out, 0, sizeof *out);
    int rc = index_encode_inner(level, children, count, &node, &out->content);
    return rc || !node.len ? rc : put_node(w, &node, out);
}

/* Append a child to the level; nodes that become full climb. */
static int add_child(struct index_writer *w, unsigned level, struct index_child child)
{
    for (; level < INDEX_LEVELS_MAX; level++) {
        struct level *l = &w->levels[level];
        uint64_t i = l->count++;
        (i < INDEX_FANOUT ? l->first : l->current)[i % INDEX_FANOUT] = child;
        if (l->count % INDEX_FANOUT || l->count == INDEX_FANOUT)
            return 0;
        int rc = put_inner(w, level, l->current, INDEX_FANOUT, &child);
        if (rc)
            return rc;
    }
    return error_set(-EFBIG, "build: the image has more chunks than an index can hold; choose a larger chunk size");
}

static int end_leaf(struct index_writer *w, uint32_t count)
{
    struct index_child child = {0};
    int rc = w->dirty ? put_leaf(w, w->current, count, &child) : 0;
    if (rc)
        return rc;
    if (w->dirty)
        memset(w->current, 0, sizeof w->current);
    w->dirty = false;
    w->leaf++;
    return add_child(w, 1, child);
}

int index_writer_add(struct index_writer *w, uint64_t number, const struct chunk_ref *ref)
{
    uint64_t leaf = number / INDEX_FANOUT;
    int rc = 0;
    if (!leaf) {
        w->first[number] = *ref;
        return 0;
    }
    assert(leaf >= w->leaf);
    while (w->leaf < leaf && !rc)
        rc = end_leaf(w, INDEX_FANOUT);
    if (rc)
        return rc;
    w->current[number % INDEX_FANOUT] = *ref;
    w->dirty = true;
    return 0;
}

/* All leaves but the first, then every level's last node but the first. */
static int end_tails(struct index_writer *w, uint64_t chunk_count, unsigned levels)
{
    uint64_t leaves = (chunk_count + INDEX_FANOUT - 1) / INDEX_FANOUT;
    int rc = 0;
    while (w->leaf < leaves && !rc) {
        uint64_t left = chunk_count - w->leaf * INDEX_FANOUT;
        rc = end_leaf(w, (uint32_t)GR_MIN(left, (uint64_t)INDEX_FANOUT));
    }
    for (unsigned level = 1; level + 1 < levels && !rc; level++) {
        struct level *l = &w->levels[level];
        struct index_child child;
        if (l->count <= INDEX_FANOUT || l->count % INDEX_FANOUT == 0)
            continue;
        rc = put_inner(w, level, l->current, (uint32_t)(l->count % INDEX_FANOUT), &child);
        if (!rc)
            rc = add_child(w, level + 1, child);
    }
    return rc;
}

int index_writer_finish(struct index_writer *w, uint64_t chunk_count, struct index_child *out_root,
                        unsigned *out_levels)
{
    unsigned levels = index_levels(chunk_count);
    if (!levels)
        return error_set(-EFBIG, "build: the image has more chunks than an index can hold; choose a larger chunk size");
    int rc = end_tails(w, chunk_count, levels);
    if (rc)
        return rc;
    struct index_child child;
    rc = put_leaf(w, w->first, (uint32_t)GR_MIN(chunk_count, (uint64_t)INDEX_FANOUT), &child);
    for (unsigned level = 1; level < levels && !rc; level++) {
        struct level *l = &w->levels[level];
        l->first[0] = child;
        rc = put_inner(w, level, l->first, (uint32_t)GR_MIN(l->count, (uint64_t)INDEX_FANOUT), &child);
    }
    if (rc)
        return rc;
    *out_root = child;
    *out_levels = levels;
    return 0;
}

/* Walks the index tree depth first, with chunk numbers ascending. At most one inner node for each level is in memory.
 * Leaves and holes go through a ring (base/in_order.h), so that threads fetch leaves while earlier ones are reported.
 *
 * Every node is verified three times: its bytes against its name, its shape against the image's size, its content hash
 * against its parent's entry. The format is in docs/reference/format-store.md. */
#include "repository/read/index_read.h"

#include <errno.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/in_order.h"
#include "repository/repository.h"

/* One walk. Threads load spans and read only store and manifest. */
struct walk {
    struct store *store;
    const struct manifest *manifest;
    uint64_t chunks; /* chunks of the image */
    const struct index_walk_ops *ops;
    void *arg;
    struct in_order *spans;
    bool ended; /* a report failed, so nothing more is reported */
};

/* A slot of the ring: a leaf, or a run of holes. */
struct span {
    uint64_t first, count;    /* chunk numbers */
    struct index_child child; /* zero: holes */
    struct index_node *leaf;
    struct error error;
};

int index_read_node(struct store *s, const struct manifest *m, const struct index_child *child, unsigned level,
                    uint64_t number, struct index_node **out)
{
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    char key[OBJECT_KEY_MAX];
    object_key(OBJECT_INDEX, &child->digest, key);
    int rc = repository_get_object(s, OBJECT_INDEX, &child->digest, INDEX_NODE_MAX, &object);
    if (rc)
        return rc;
    /* Servers fetch nodes like chunks, by the length and CRC in the parent, so these must be right too. */
    if (object.len != child->len || crc32c(object.data, object.len) != child->crc)
        return error_set(-EBADMSG, "%s: %s: length or checksum is not what its parent says", s->url, key);
    struct digest content;
    rc = index_decode(object.data, object.len, &node);
    if (!rc)
        rc = index_node_check(node, level, number, m->size, m->chunk_size);
    if (!rc)
        rc = index_node_content(node, &content);
    if (rc)
        return error_prefix(rc, "%s: %s", s->url, key);
    if (!digest_equal(&content, &child->content))
        return error_set(-EBADMSG, "%s: %s: content hash is not what its parent says", s->url, key);
    *out = steal_ptr(&node);
    return 0;
}

/* ------------------------------------------------------------------ spans */

static void load_span(void *walk, void *slot)
{
    const struct walk *w = walk;
    struct span *s = slot;
    if (!digest_is_zero(&s->child.digest))
        error_take(&s->error, index_read_node(w->store, w->manifest, &s->child, 0, s->first / INDEX_FANOUT, &s->leaf));
}

static void clear_span(void *slot)
{
    index_node_free(((struct span *)slot)->leaf);
}

/* Wait for the oldest span and report it. There is at least one. */
static int report_oldest(struct walk *w)
{
    struct span *s = in_order_take(w->spans);
    int rc = s->error.code ? error_restore(&s->error) : 0;
    if (!rc && w->ops->chunks)
        rc = w->ops->chunks(w->arg, s->first, s->count, s->leaf ? s->leaf->chunks : NULL);
    in_order_drop(w->spans);
    w->ended = rc;
    return rc;
}

/* Append a span to the ring; while it is full, report the oldest. */
static int add_span(struct walk *w, const struct index_child *child, uint64_t first, uint64_t count)
{
    struct span *s;
    while (!(s = in_order_slot(w->spans))) {
        int rc = report_oldest(w);
        if (rc)
            return rc;
    }
    s->first = first;
    s->count = GR_MIN(count, w->chunks - first);
    s->child = *child;
    in_order_give(w->spans);
    return 0;
}

/* ------------------------------------------------------------------ the walk */

/* Walk the subtree of a child, the `number`th node of `level`. */
static int walk_child(struct walk *w, const struct index_child *child, unsigned level, uint64_t number)
{
    uint64_t span = INDEX_FANOUT;
    for (unsigned l = 0; l < level; l++)
        span *= INDEX_FANOUT;
    bool hole = digest_is_zero(&child->digest);
    int rc = !hole && w->ops->node ? w->ops->node(w->arg, child, level) : 0;
    if (rc)
        return rc == INDEX_WALK_SKIP ? 0 : rc;
    if (hole || level == 0)
        return add_span(w, child, number * span, span);
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    rc = index_read_node(w->store, w->manifest, child, level, number, &node);
    for (uint32_t i = 0; !rc && i < node->count; i++)
        rc = walk_child(w, &node->children[i], level - 1, number * INDEX_FANOUT + i);
    return rc;
}

int index_walk(struct store *s, const struct manifest *m, const struct index_walk_ops *ops, void *arg)
{
    CLEANUP(cleanup_in_order) struct in_order *spans = NULL;
    struct walk w = {.store = s, .manifest = m, .chunks = manifest_chunk_count(m), .ops = ops, .arg = arg};
    const struct in_order_config ring = {.threads = INDEX_AHEAD,
                                         .slots = INDEX_AHEAD,
                                         .size = sizeof(struct span),
                                         .work = load_span,
                                         .clear = clear_span,
                                         .arg = &w};
    struct error failed;
    int rc = in_order_new(&ring, &spans);
    if (rc)
        return rc;
    w.spans = spans;
    error_take(&failed, walk_child(&w, &m->index_root, m->index_levels - 1, 0));
    /* everything before an inner node that failed is still reported */
    for (rc = 0; !w.ended && !rc && in_order_take(spans);)
        rc = report_oldest(&w);
    return rc || !failed.code ? rc : error_restore(&failed);
}

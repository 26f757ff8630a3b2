/* A walk down the index tree, depth first, chunk numbers ascending; at most one node a level is
 * held. Every node is proved three times: its bytes against its name, its shape against the image's
 * size, its content hash against its parent's entry.
 */
#include "store/index_read.h"

#include <errno.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/repository.h"

struct walk {
    struct store *store;
    const struct manifest *manifest;
    uint64_t chunks; /* of the image */
    const struct index_walk_ops *ops;
    void *arg;
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

static int report(const struct walk *w, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    return w->ops->chunks ? w->ops->chunks(w->arg, first, count, chunks) : 0;
}

/* The subtree of a child that is the `number`th node of `level`. */
static int walk_child(const struct walk *w, const struct index_child *child, unsigned level, uint64_t number)
{
    uint64_t span = INDEX_FANOUT;
    for (unsigned l = 0; l < level; l++)
        span *= INDEX_FANOUT;
    uint64_t first = number * span;
    if (digest_is_zero(&child->digest))
        return report(w, first, GR_MIN(span, w->chunks - first), NULL);
    int rc = w->ops->node ? w->ops->node(w->arg, child, level) : 0;
    if (rc == INDEX_WALK_SKIP)
        return 0;
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    if (!rc)
        rc = index_read_node(w->store, w->manifest, child, level, number, &node);
    if (rc)
        return rc;
    if (level == 0)
        return report(w, first, node->count, node->chunks);
    for (uint32_t i = 0; i < node->count && !rc; i++)
        rc = walk_child(w, &node->children[i], level - 1, number * INDEX_FANOUT + i);
    return rc;
}

int index_walk(struct store *s, const struct manifest *m, const struct index_walk_ops *ops, void *arg)
{
    const struct walk w = {.store = s, .manifest = m, .chunks = manifest_chunk_count(m), .ops = ops, .arg = arg};
    return walk_child(&w, &m->index_root, m->index_levels - 1, 0);
}

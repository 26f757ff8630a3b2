/* Decoded nodes of one image's chunk index, kept in memory up to a limit and fetched through the chunk cache when
 * missing. Any thread, unless it says otherwise. */
#ifndef GRANARY_IMAGE_NODE_CACHE_H
#define GRANARY_IMAGE_NODE_CACHE_H

#include "base/counter.h"
#include "cache/cache.h"
#include "format/index.h"
#include "format/manifest.h"

struct node_cache;
struct node;

/* A node's place in the tree, which says what it must contain. */
struct node_place {
    unsigned level;
    uint64_t number; /* of the node within its level, from 0 */
};

/* Borrowed pointers, which must outlive the node cache. */
struct node_cache_config {
    struct cache *cache; /* not owned, like the next two */
    struct store *store;
    const struct manifest *manifest;
    size_t memory; /* bytes of decoded nodes kept; nodes in use may exceed it */
};

/* -ENOMEM. */
GR_MUST_CHECK int node_cache_new(const struct node_cache_config *config, struct node_cache **out);
void node_cache_free(struct node_cache *nc); /* all nodes must have been released; NULL is allowed */

/* Get the node that `child` (not a hole) describes, at `place`. Release *out by node_unref. Blocks while it is
 * fetched. -EBADMSG: the node does not fit its place; else the error of cache_read. */
GR_MUST_CHECK int node_cache_get(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                 struct node **out);
/* The same without keeping the node in memory, for walks over a whole image that must not evict the readers' nodes.
 * It comes from memory, from the cache, or else from `store` (NULL: -ENODATA, no message). */
GR_MUST_CHECK int node_cache_peek(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                  struct store *store, struct node **out);
/* The same for warming: a node fetched from `store` is put into the cache, and *fetched grows by its bytes. Inner
 * nodes are kept in memory too. */
GR_MUST_CHECK int node_cache_bring(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                   struct store *store, struct node **out, counter *fetched);
/* Make sure the node is in the cache too, even if it is in memory: without it, nothing that it describes can be read
 * while the store is away. Errors as for cache_ensure; -EBADMSG. */
GR_MUST_CHECK int node_cache_keep(struct node_cache *nc, const struct index_child *child);
/* Release a reference. NULL is allowed. */
void node_unref(struct node *node);
size_t node_cache_memory(struct node_cache *nc); /* the limit, as configured or set last */
/* Change the limit; nodes over it are dropped now. */
void node_cache_set_memory(struct node_cache *nc, size_t bytes);
const struct index_node *node_index(const struct node *node);

/* Counts and sizes; see image_counters. */
struct node_cache_stats {
    uint64_t hits, misses, evictions, bytes, nodes;
};
void node_cache_stats(struct node_cache *nc, struct node_cache_stats *out);

DEFINE_CLEANUP(node, struct node *, node_unref)

#endif

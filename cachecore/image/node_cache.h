/* Decoded nodes of one image's chunk index, held in memory within a limit and fetched through the
 * chunk cache when they are not. */
#ifndef GRANARY_IMAGE_NODE_CACHE_H
#define GRANARY_IMAGE_NODE_CACHE_H

#include "base/counter.h"
#include "cache/cache.h"
#include "format/index.h"
#include "format/manifest.h"

struct node_cache;
struct node;

/* What a node's place in the tree says it must be. */
struct node_place {
    unsigned level;
    uint64_t number; /* of the node within its level */
};

struct node_cache_config {
    struct cache *cache; /* not owned, like the next two */
    struct store *store;
    const struct manifest *manifest;
    size_t memory; /* bytes of decoded nodes kept; those in use may exceed it */
};

GR_MUST_CHECK int node_cache_new(const struct node_cache_config *config, struct node_cache **out);
void node_cache_free(struct node_cache *nc); /* no node may be referenced any more */

/* The node that `child` describes (not a hole), at `place`. *out: node_unref. Any thread; blocks
 * while the node is fetched. -EBADMSG: the node is not what its place demands. */
GR_MUST_CHECK int node_cache_get(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                 struct node **out);
/* The same without keeping the node, for who looks through a whole image and must not push out what
 * its readers use: from memory, from the cache, or else from `store` (NULL: -ENODATA, no sentence). */
GR_MUST_CHECK int node_cache_peek(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                  struct store *store, struct node **out);
/* The same for who warms: what had to be asked of `store` is kept in the cache, and *fetched grows by its bytes. */
GR_MUST_CHECK int node_cache_bring(struct node_cache *nc, const struct index_child *child, struct node_place place,
                                   struct store *store, struct node **out, counter *fetched);
/* Have the node on disk too, be it in memory or not: without it nothing it describes can be read while
 * the store is away. Errors are cache_ensure's. */
GR_MUST_CHECK int node_cache_keep(struct node_cache *nc, const struct index_child *child);
void node_unref(struct node *node);
size_t node_cache_memory(struct node_cache *nc); /* as configured, or set last */
/* What is over it goes now. */
void node_cache_set_memory(struct node_cache *nc, size_t bytes);
const struct index_node *node_index(const struct node *node);

/* Nodes in memory for one lookup; see image_counters. */
struct node_cache_stats {
    uint64_t hits, misses, evictions, bytes, nodes;
};
void node_cache_stats(struct node_cache *nc, struct node_cache_stats *out);

DEFINE_CLEANUP(node, struct node *, node_unref)

#endif

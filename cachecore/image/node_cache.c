/* The chunk index of an image: its nodes in memory, and the path from the root to the leaf of a chunk.
 *
 * Nodes are kept by digest; the least recently used is evicted first.
 *
 *    table (by digest) --> node <--> node <--> node      newest ... oldest, by use
 *                           ^ one reference of the table, and one of each reader
 *
 * Eviction drops the table's reference. A reader that holds the node goes on using it, and the last reference frees
 * it. Two readers that miss the same node both read it from the chunk cache, whose single flight makes one fetch of
 * it. The second finds the first one's node in the table and drops its own copy. The lock is not held meanwhile.
 *
 * A leaf in memory is what is decoded of it, without the bases of deltas: few leaves have any, and most of the memory
 * would be theirs.
 *
 * A digest proves what a node is, not that it stands in the right place. So its level, its number of entries and its
 * chunks' lengths are compared with the image's geometry once, when it is decoded, and readers may index into it
 * without further checks. */
#include "image/image_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/map.h"
#include "repository/repository.h"

/* A decoded node. Constant but for refs and the links. */
struct node {
    _Atomic unsigned refs;
    struct digest digest;
    struct node_place place;  /* the place it was checked for */
    struct index_node *index; /* an inner node, owned; NULL: a leaf, described by the next three */
    uint32_t count;
    uint8_t *heads;           /* of each, HEAD bytes of its chunk_ref */
    struct chunk_base *bases; /* of each, its base; NULL: none is a delta */
    size_t bytes;
    struct node *newer, *older; /* the list by use, under the lock */
};

/* The fields before the base, which is the last one. */
enum { HEAD = offsetof(struct chunk_ref, base) };
static_assert(HEAD + sizeof(struct chunk_base) == sizeof(struct chunk_ref), "nothing comes after the base");

/* An entry of the table. */
struct node_entry {
    uint64_t hash;
    struct node *node;
};

/* The table and its order of use; one per image. */
struct node_cache {
    struct node_cache_config config;
    pthread_mutex_t lock; /* guards everything below */
    size_t memory;        /* the limit in bytes */
    struct node *newest, *oldest;
    struct node_cache_stats stats;
    struct map nodes;
};

static bool node_entry_is(const void *entry, const void *digest)
{
    return digest_equal(&((const struct node_entry *)entry)->node->digest, digest);
}

static const struct map_type node_entries = {.size = sizeof(struct node_entry), .is = node_entry_is};

int node_cache_new(const struct node_cache_config *config, struct node_cache **out)
{
    struct node_cache *nc = calloc(1, sizeof *nc);
    if (!nc)
        return error_no_memory();
    nc->config = *config;
    nc->memory = config->memory;
    pthread_mutex_init(&nc->lock, NULL);
    *out = nc;
    return 0;
}

void node_unref(struct node *node)
{
    if (!node || atomic_fetch_sub_explicit(&node->refs, 1, memory_order_acq_rel) != 1)
        return;
    index_node_free(node->index);
    free(node->heads);
    free(node->bases);
    free(node);
}

const struct index_node *node_index(const struct node *node)
{
    return node->index;
}

uint8_t *node_chunk_head(const struct node *node, uint32_t i)
{
    return node->heads + (size_t)i * HEAD;
}

bool node_chunk(const struct node *node, uint32_t i, struct chunk_ref *out)
{
    if (i >= node->count)
        return false;
    memcpy(out, node_chunk_head(node, i), HEAD);
    out->base = node->bases ? node->bases[i] : (struct chunk_base){.offset = 0};
    return !chunk_is_hole(out);
}

/* ---- table and order of use ---- */

static struct node_entry *find_entry_locked(struct node_cache *nc, const struct digest *digest)
{
    return map_find(&nc->nodes, &node_entries, digest_hash(digest), digest);
}

static void unlink_locked(struct node_cache *nc, struct node *node)
{
    *(node->newer ? &node->newer->older : &nc->newest) = node->older;
    *(node->older ? &node->older->newer : &nc->oldest) = node->newer;
    node->newer = node->older = NULL;
}

static void link_newest_locked(struct node_cache *nc, struct node *node)
{
    node->older = nc->newest;
    *(nc->newest ? &nc->newest->newer : &nc->oldest) = node;
    nc->newest = node;
}

/* Return the node with a new reference, and make it the newest; NULL: not in memory. */
static struct node *node_cache_find_locked(struct node_cache *nc, const struct digest *digest)
{
    const struct node_entry *entry = find_entry_locked(nc, digest);
    if (!entry)
        return NULL;
    struct node *node = entry->node;
    if (node != nc->newest) {
        unlink_locked(nc, node);
        link_newest_locked(nc, node);
    }
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    return node;
}

/* Drop the table's reference of the oldest node. */
static void evict_oldest_locked(struct node_cache *nc)
{
    struct node *node = nc->oldest;
    unlink_locked(nc, node);
    map_remove(&nc->nodes, &node_entries, find_entry_locked(nc, &node->digest));
    nc->stats.bytes -= node->bytes;
    node_unref(node);
}

void node_cache_free(struct node_cache *nc)
{
    if (!nc)
        return;
    while (nc->oldest)
        evict_oldest_locked(nc);
    pthread_mutex_destroy(&nc->lock);
    map_release(&nc->nodes);
    free(nc);
}

/* Evict down to the limit. The newest node always stays: it is in use. */
static void shrink_locked(struct node_cache *nc)
{
    while (nc->stats.bytes > nc->memory && nc->oldest != nc->newest) {
        evict_oldest_locked(nc);
        nc->stats.evictions++;
    }
}

/* Put a node into the table, or drop it for the one that is there already. Returns the table's node with a reference
 * for the caller; if the table cannot grow, the node is the caller's alone. */
static struct node *insert(struct node_cache *nc, struct node *node)
{
    SCOPED_LOCK(&nc->lock);
    struct node *there = node_cache_find_locked(nc, &node->digest);
    if (there) {
        node_unref(node);
        return there;
    }
    if (map_reserve(&nc->nodes, &node_entries, 1))
        return node;
    map_put(&nc->nodes, &node_entries, &(struct node_entry){.hash = digest_hash(&node->digest), .node = node});
    link_newest_locked(nc, node);
    atomic_fetch_add_explicit(&node->refs, 1, memory_order_relaxed);
    nc->stats.bytes += node->bytes;
    shrink_locked(nc);
    return node;
}

/* ---- geometry ---- */

/* Does the node fit its place? -EBADMSG with a message if not. */
static int check_place(const struct manifest *m, struct node_place place, const struct digest *digest,
                       const struct index_node *index)
{
    int rc = index_node_check(index, place.level, place.number, m->size, m->chunk_size);
    char hex[DIGEST_HEX_SIZE];
    if (rc == -EBADMSG)
        return error_prefix(rc,
                            "image: index node %s does not fit its place (level %u, number %llu), the image was "
                            "built wrong, build it again",
                            digest_hex(digest, hex), place.level, (unsigned long long)place.number);
    return rc;
}

/* ---- fetch ---- */

/* Keep what is decoded of a leaf. */
static int keep_leaf(struct node *node, const struct index_node *leaf)
{
    bool deltas = false;
    node->heads = calloc(leaf->count, HEAD);
    for (uint32_t i = 0; i < leaf->count; i++)
        deltas = deltas || chunk_is_delta(&leaf->chunks[i]);
    node->count = leaf->count;
    node->bytes += leaf->count * (HEAD + (deltas ? sizeof *node->bases : 0));
    node->bases = deltas ? calloc(leaf->count, sizeof *node->bases) : NULL;
    if (!node->heads || (deltas && !node->bases))
        return error_no_memory();
    for (uint32_t i = 0; i < leaf->count; i++) {
        memcpy(node_chunk_head(node, i), &leaf->chunks[i], HEAD);
        if (deltas)
            node->bases[i] = leaf->chunks[i].base;
    }
    return 0;
}

/* check_place for a node in memory. */
static int check_kept(const struct manifest *m, struct node_place place, const struct node *node)
{
    if (node->index)
        return check_place(m, place, &node->digest, node->index);
    CLEANUP_FREE struct chunk_ref *chunks = calloc(node->count, sizeof *chunks);
    if (!chunks)
        return error_no_memory();
    for (uint32_t i = 0; i < node->count; i++)
        (void)node_chunk(node, i, &chunks[i]);
    const struct index_node leaf = {.count = node->count, .chunks = chunks};
    return check_place(m, place, &node->digest, &leaf);
}

/* Decode and check a node's bytes. *out has one reference. */
static int make_node(struct node_cache *nc, const struct index_child *child, struct node_place place,
                     const uint8_t *data, size_t len, struct node **out)
{
    CLEANUP(cleanup_index_node) struct index_node *index = NULL;
    int rc = index_decode(data, len, &index);
    if (!rc)
        rc = check_place(nc->config.manifest, place, &child->digest, index);
    if (rc)
        return rc;
    CLEANUP(cleanup_node) struct node *node = calloc(1, sizeof *node);
    if (!node)
        return error_no_memory();
    atomic_init(&node->refs, 1);
    node->digest = child->digest;
    node->place = place;
    node->bytes = sizeof *node;
    if (index->level) {
        node->bytes += sizeof *index + index->count * sizeof *index->children;
        node->index = steal_ptr(&index);
    } else {
        rc = keep_leaf(node, index);
    }
    if (!rc)
        *out = steal_ptr(&node);
    return rc;
}

/* Refuse a node that is longer than any can be, before memory is allocated for it. */
static int check_length(const struct index_child *child)
{
    if (child->len > INDEX_NODE_MAX)
        return error_set(-EBADMSG, "image: an index node of %u bytes is longer than any node may be", child->len);
    return 0;
}

int node_cache_keep(struct node_cache *nc, const struct index_child *child)
{
    const struct cache_piece piece = {.ref = index_child_ref(child), .store = nc->config.store};
    int rc = check_length(child);
    return rc ? rc : cache_ensure(nc->config.cache, &piece, 1, PRIORITY_WARM);
}

/* Read a node through the chunk cache. The piece is a demand read: a reader waits for it. peeks: what is read only to
 * see what is cached is no hit in the statistics. */
static int fetch_node(struct node_cache *nc, const struct index_child *child, struct node_place place, bool peeks,
                      struct node **out)
{
    int rc = check_length(child);
    if (rc)
        return rc;
    CLEANUP_FREE uint8_t *data = malloc(child->len);
    if (!data)
        return error_no_memory();
    const struct cache_piece piece = {.ref = index_child_ref(child),
                                      .store = nc->config.store,
                                      .len = child->len,
                                      .fenced = nc->config.fenced,
                                      .dst = data};
    if (!peeks || !cache_read_kept(nc->config.cache, &piece))
        rc = cache_read(nc->config.cache, &piece, 1, NULL, 0, PRIORITY_DEMAND);
    return rc ? rc : make_node(nc, child, place, data, child->len, out);
}

/* Look in memory only; *out is NULL if the node is not there. -EBADMSG: it does not fit this place. */
static int find_node(struct node_cache *nc, const struct index_child *child, struct node_place place, struct node **out)
{
    bool fits;
    {
        SCOPED_LOCK(&nc->lock);
        *out = node_cache_find_locked(nc, &child->digest);
        fits = *out && (*out)->place.number == place.number && (*out)->place.level == place.level;
        nc->stats.misses += !*out;
        nc->stats.hits += fits;
    }
    if (!*out || fits)
        return 0;
    /* Equal subtrees share a node, and what fits one place need not fit another. */
    int rc = check_kept(nc->config.manifest, place, *out);
    if (rc) {
        node_unref(steal_ptr(out));
        return rc;
    }
    SCOPED_LOCK(&nc->lock);
    nc->stats.hits++;
    return 0;
}

int node_cache_get(struct node_cache *nc, const struct index_child *child, struct node_place place, struct node **out)
{
    int rc = find_node(nc, child, place, out);
    if (rc || *out)
        return rc;
    struct node *fresh = NULL;
    rc = fetch_node(nc, child, place, false, &fresh);
    if (!rc)
        *out = insert(nc, fresh);
    return rc;
}

/* Fetch a node straight from the store, past the cache. `object` receives its bytes. */
static int fetch_from_store(struct node_cache *nc, const struct index_child *child, struct node_place place,
                            struct store *store, struct bytes *object, struct node **out)
{
    int rc = repository_get_object(store, OBJECT_INDEX, &child->digest, INDEX_NODE_MAX, object);
    return rc ? rc : make_node(nc, child, place, object->data, object->len, out);
}

int node_cache_peek(struct node_cache *nc, const struct index_child *child, struct node_place place,
                    struct store *store, struct node **out)
{
    int rc = find_node(nc, child, place, out);
    if (rc || *out)
        return rc;
    if (cache_has(nc->config.cache, &child->digest))
        return fetch_node(nc, child, place, true, out);
    if (!store)
        return -ENODATA;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    return fetch_from_store(nc, child, place, store, &object, out);
}

/* Only inner nodes are kept in memory: many leaves are reached through each. */
int node_cache_bring(struct node_cache *nc, const struct index_child *child, struct node_place place,
                     struct store *store, struct node **out, counter *fetched)
{
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    int rc = node_cache_peek(nc, child, place, NULL, out);
    if (rc == -ENODATA)
        rc = fetch_from_store(nc, child, place, store, &object, out);
    if (rc)
        return rc;
    const struct chunk_ref ref = index_child_ref(child);
    if (object.len == ref.plain_len) {
        counter_add(fetched, object.len);
        (void)!cache_put(nc->config.cache, &ref, object.data); /* if it fails, the next read fetches the node again */
    }
    if (place.level)
        *out = insert(nc, *out);
    return 0;
}

/* ---- from the root to a leaf ---- */

/* Get one node, by the means that `how` names (enum span_nodes). */
static int span_get_node(struct node_cache *nc, const struct index_child *child, struct node_place place,
                         enum span_nodes how, struct node **out)
{
    if (how == SPAN_HELD) {
        int rc = find_node(nc, child, place, out);
        return rc || *out ? rc : -ENODATA;
    }
    if (how == SPAN_CACHED)
        return node_cache_peek(nc, child, place, NULL, out);
    int rc = how == SPAN_KEPT ? node_cache_keep(nc, child) : 0;
    return rc ? rc : node_cache_get(nc, child, place, out);
}

/* Stops at the first zero digest: everything below it is holes. */
int span_locate(struct node_cache *nc, uint64_t chunk, enum span_nodes how, struct span *span)
{
    const struct manifest *m = nc->config.manifest;
    struct index_child child = m->index_root;
    uint64_t total = manifest_chunk_count(m);
    for (unsigned level = m->index_levels; level-- > 0;) {
        uint64_t below = image_chunks_below(level + 1);
        struct node_place place = {.level = level, .number = chunk / below};
        span->first = place.number * below;
        span->end = GR_MIN(span->first + below, total);
        span->leaf = NULL;
        if (digest_is_zero(&child.digest))
            return 0;
        int rc = span_get_node(nc, &child, place, how, &span->leaf);
        if (rc)
            return rc;
        if (level) {
            child = node_index(span->leaf)->children[chunk / image_chunks_below(level) % INDEX_FANOUT];
            node_unref(steal_ptr(&span->leaf));
        }
    }
    return 0;
}

bool span_chunk(const struct span *span, uint64_t chunk, struct chunk_ref *out)
{
    return span->leaf && node_chunk(span->leaf, (uint32_t)(chunk - span->first), out);
}

/* ---- figures ---- */

size_t node_cache_memory(struct node_cache *nc)
{
    SCOPED_LOCK(&nc->lock);
    return nc->memory;
}

void node_cache_set_memory(struct node_cache *nc, size_t bytes)
{
    SCOPED_LOCK(&nc->lock);
    nc->memory = bytes;
    shrink_locked(nc);
}

void node_cache_stats(struct node_cache *nc, struct node_cache_stats *out)
{
    SCOPED_LOCK(&nc->lock);
    *out = nc->stats;
    out->nodes = nc->nodes.count;
}

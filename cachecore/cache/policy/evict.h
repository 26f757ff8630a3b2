/* Eviction: which slot is freed next, and whether a chunk is admitted when there is no room. One interface for all
 * policies (docs/internals/cache.md).
 *
 * A policy knows slots by number, in pools, one pool for each slot size; a victim comes from the pool that needs a
 * slot. It keeps its state in the evict_node of each slot, which the owner stores. It holds exactly the slots that were
 * inserted and not removed.
 *
 *   a read of a chunk   in the cache: evict_hit       missing: evict_miss
 *   a fill              free slot: evict_insert       no free slot: evict_admit? then evict_victim, evict_remove of the
 *                       victim, evict_insert
 *
 * Keys are 64 evenly distributed bits of the chunk's digest. The policies are deterministic: the same calls in the same
 * order have the same result. Not thread-safe: the caller holds the lock that guards its slots.
 */
#ifndef GRANARY_CACHE_POLICY_EVICT_H
#define GRANARY_CACHE_POLICY_EVICT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* "No slot". */
#define EVICT_NONE UINT32_MAX

enum { EVICT_WHOLE = 128 }; /* parts of a chunk are counted in 128ths */

/* A slot's node, in the owner's memory: 12 bytes for each slot of the cache. All zero before evict_insert. */
struct evict_node {
    uint32_t prev, next;   /* neighbours in a list, or EVICT_NONE */
    uint8_t bits;          /* the policy's: see BITS_COUNT */
    uint8_t read;          /* the policy's: how much of the chunk was read in the current pass over it, in 128ths */
    _Atomic uint16_t pins; /* the owner's; here because there would be padding */
};

/* Return the owner's node of a slot. */
typedef struct evict_node *evict_node_at(void *arg, uint32_t slot);
/* Is the slot pinned, so that it cannot be evicted now? */
typedef bool evict_busy(void *arg, uint32_t slot);

/* ---- a doubly linked list of slots; also the owner's list of free ones ---- */

/* EVICT_NONE: empty. */
struct evict_list {
    uint32_t head, tail;
};

void evict_list_init(struct evict_list *l);
void evict_list_push_head(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_push_tail(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_remove(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);

/* ---- the policies ---- */

enum evict_policy {
    EVICT_AUTO,   /* follows the policy that has the most hits on a sample of the reads */
    EVICT_LRU,    /* evicts the least recently used */
    EVICT_S3FIFO, /* a small queue before the main one: a chunk that is read once leaves soon */
    EVICT_STICKY, /* keeps what is cached; when full, admits only chunks that are forced in */
};
enum { EVICT_POLICIES = 4 };

/* Parse "auto", "lru", "s3fifo" or "sticky". -EINVAL with a sentence. */
GR_MUST_CHECK int evict_policy_parse(const char *text, enum evict_policy *out);
const char *evict_policy_name(enum evict_policy policy);

/* Constant; copied by evict_new. */
struct evict_config {
    enum evict_policy policy;
    uint32_t pools;    /* number of pools */
    uint64_t capacity; /* slots of all pools at most; determines the memory of the policy */
    evict_node_at *node_at;
    evict_busy *busy;
    void *arg; /* passed to node_at and busy */
};

struct evict;

/* Create an eviction without slots. Uses at most 8 bytes per slot of the capacity plus 400 KiB, all of it allocated
 * here. -ENOMEM with a sentence. */
GR_MUST_CHECK int evict_new(const struct evict_config *config, struct evict **out);
/* NULL is allowed. Does not touch the owner's nodes. */
void evict_free(struct evict *e);

/* Return a read of len bytes of a chunk as the `part` of the functions below: in 128ths of chunk_len, rounded. */
static inline unsigned evict_part(uint32_t len, uint32_t chunk_len)
{
    return chunk_len ? (unsigned)(((uint64_t)len * EVICT_WHOLE + chunk_len / 2) / chunk_len) : 0;
}

/* A slot received a chunk. Recent reads that missed the chunk count as reads of it. */
void evict_insert(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key);
/* Part of a cached chunk was read. part 0: it is in use, but no client read it. */
void evict_hit(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key, unsigned part);
/* A slot lost its chunk: it was evicted, or the chunk proved bad. */
void evict_remove(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key);
/* Part of a chunk that is not cached was read. Not to be called for chunks that no client requested (readahead). */
void evict_miss(struct evict *e, uint32_t pool, uint64_t key, unsigned part);
/* The pool is full: is this chunk worth more than one of those in it? A policy that compares with a certain slot
 * remembers it for the next evict_victim. */
bool evict_admit(struct evict *e, uint32_t pool, uint64_t key);
/* The chunk is inserted regardless of the policy (warming), for future readers: forget the earlier reads that missed
 * it. */
void evict_force(struct evict *e, uint64_t key);
/* Return the least recently used slot that is not busy, or EVICT_NONE if a bounded walk finds none. */
uint32_t evict_oldest(struct evict *e, uint32_t pool);
/* Return the slot to evict; it is held until evict_remove. EVICT_NONE: a bounded walk found no slot that is not busy.
 */
uint32_t evict_victim(struct evict *e, uint32_t pool);

/* Return the name of the policy in effect: under EVICT_AUTO, of the one that is followed now. */
const char *evict_following(const struct evict *e);
/* Return its number for metrics: 1 lru, 2 s3fifo, 3 sticky, 4 lfu, 5 lfu-firm, 6 parts. */
unsigned evict_followed(const struct evict *e);

#endif

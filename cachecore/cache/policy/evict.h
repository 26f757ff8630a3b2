/* Which slot goes next, and whether a chunk may come in at all when there is no room. One interface
 * for every policy (docs/internals/cache.md).
 *
 * A policy knows slots by number, in pools: a victim is of the pool that needs one. It keeps its
 * state in the evict_node of each slot, which the owner stores. It holds exactly the slots that were
 * inserted and not removed. Keys are 64 evenly spread bits of the chunk's digest. The same calls in
 * the same order have the same outcome. The caller locks.
 */
#ifndef GRANARY_CACHE_POLICY_EVICT_H
#define GRANARY_CACHE_POLICY_EVICT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

#define EVICT_NONE UINT32_MAX

/* How much of a chunk, in 128ths. */
enum { EVICT_WHOLE = 128 };

struct evict_node {
    uint32_t prev, next;
    uint8_t bits;          /* the policy's, like */
    uint8_t read;          /* how much of the chunk was asked for since it came in, or since all of it had been */
    _Atomic uint16_t pins; /* the owner's: there would be a gap here */
};

/* The owner's node of a slot. */
typedef struct evict_node *evict_node_at(void *arg, uint32_t slot);
/* true: the slot cannot go now (pinned). */
typedef bool evict_busy(void *arg, uint32_t slot);

/* ---- a doubly linked list of slots; also the owner's list of free ones ---- */

struct evict_list {
    uint32_t head, tail;
};

void evict_list_init(struct evict_list *l);
void evict_list_push_head(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_push_tail(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_remove(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);

/* ---- the policies ---- */

enum evict_policy {
    EVICT_AUTO,   /* follows what does best on a sample of the chunks asked for */
    EVICT_LRU,    /* the one used longest ago goes */
    EVICT_S3FIFO, /* three queues: a chunk asked for once goes soon */
    EVICT_STICKY, /* what is in stays; when it is full nothing comes in unless it is forced */
};
enum { EVICT_POLICIES = 4 };

/* "auto", "lru", "s3fifo", "sticky". -EINVAL with a sentence. */
GR_MUST_CHECK int evict_policy_parse(const char *text, enum evict_policy *out);
const char *evict_policy_name(enum evict_policy policy);

struct evict_config {
    enum evict_policy policy;
    uint32_t pools;
    uint64_t capacity; /* how many slots there may be, all pools together; memory goes by it */
    evict_node_at *node_at;
    evict_busy *busy;
    void *arg; /* of both */
};

struct evict;

/* Takes at most 8 bytes for each slot of the capacity and 400 KiB. -ENOMEM. */
GR_MUST_CHECK int evict_new(const struct evict_config *config, struct evict **out);
/* NULL is allowed. */
void evict_free(struct evict *e);

/* What an ask for len of a chunk's chunk_len bytes is in 128ths, for `part` below. */
static inline unsigned evict_part(uint32_t len, uint32_t chunk_len)
{
    return chunk_len ? (unsigned)(((uint64_t)len * EVICT_WHOLE + chunk_len / 2) / chunk_len) : 0;
}

/* A slot got a chunk. What was asked of it lately while it was missing counts as read. */
void evict_insert(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key);
/* Part of a chunk that has a slot was asked for; 0: it is used, and nobody has read it. */
void evict_hit(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key, unsigned part);
/* A slot lost its chunk: to make room, or because it proved bad. */
void evict_remove(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key);
/* Part of a chunk that has no slot was asked for. Not for chunks nobody asked for (readahead). */
void evict_miss(struct evict *e, uint32_t pool, uint64_t key, unsigned part);
/* The pool has no room: is this chunk worth one of those in it? */
bool evict_admit(struct evict *e, uint32_t pool, uint64_t key);
/* It comes in whatever the policy thinks of it, for a reader to come: what was asked of it before does not count. */
void evict_force(struct evict *e, uint64_t key);
/* The slot used longest ago of those that are not busy, as far as a bounded walk finds; EVICT_NONE. */
uint32_t evict_oldest(struct evict *e, uint32_t pool);
/* The slot to give up, still held; EVICT_NONE: none that is not busy was found in a bounded walk. */
uint32_t evict_victim(struct evict *e, uint32_t pool);

/* What is followed now: the name of a policy, under EVICT_AUTO of the one it has chosen. */
const char *evict_following(const struct evict *e);
/* Its number: 1 lru, 2 s3fifo, 3 sticky, 4 lfu, 5 lfu-firm, 6 parts. */
unsigned evict_followed(const struct evict *e);

#endif

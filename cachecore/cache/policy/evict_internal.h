/* What the files of this folder share; not to be included elsewhere.
 *
 *   evict.c         names, construction
 *   evict_calls.c   the calls of evict.h, whatever the policy
 *   evict_policies.c    the lists of a pool
 *   evict_ghost.c   counts of chunks that are not cached
 *   evict_lru.c, evict_s3fifo.c, evict_lfu.c, evict_parts.c   the policies
 *   evict_auto.c    shadow caches, which choose among them
 *   evict_sim.c     replays a trace
 */
#ifndef GRANARY_CACHE_POLICY_EVICT_INTERNAL_H
#define GRANARY_CACHE_POLICY_EVICT_INTERNAL_H

#include "cache/policy/evict.h"
#include "cache/policy/evict_ghost.h"

/* evict_node.bits: how often the chunk was read (saturating), the ageing round the node has had, and whether it is in
 * the main list. */
enum { BITS_COUNT = 0x3f, BITS_ROUND = 0x40, BITS_MAIN = 0x80 };
/* Bounds of a count, and of the tables in struct evict. */
enum { COUNT_MAX = GHOST_COUNT_MAX, RECENT_MAX = 256, MISSED_MAX = 512 };
/* A chunk of which this much was read counts as read whole: the rest may be dead bytes, or the padding of its last
 * file. */
enum { READ_ENOUGH = EVICT_WHOLE * 15 / 16 };

/* The slots of one size. */
struct evict_pool {
    struct evict_list small, main; /* most recent at the head */
    uint32_t small_count, main_count;
    uint32_t hand;   /* the next slot of main that ageing visits */
    uint32_t chosen; /* the victim for which evict_admit admitted a chunk; EVICT_NONE: none */
};

/* A policy. Several can work on the same pools in turn, because the lists have the same form for all. */
struct evict_ops {
    const char *name;
    /* Which chunks the ghosts count: none, those that left, or those that were missed as well. */
    enum { REMEMBER_NOTHING, REMEMBER_LEFT, REMEMBER_ASKED } remember;
    uint8_t margin;      /* lfu: by how many reads a newcomer must exceed its victim */
    uint8_t half_life;   /* counts are halved when each slot was hit this often; 0: never */
    bool counts_its_own; /* the policy itself lowers the counts in the nodes: ageing leaves them alone */
    /* See evict.h for the calls. The count in the node is updated before `hit`. */
    void (*insert)(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key);
    void (*hit)(struct evict *e, struct evict_pool *p, uint32_t slot);
    bool (*admit)(struct evict *e, struct evict_pool *p, uint64_t key);
    uint32_t (*victim)(struct evict *e, struct evict_pool *p);
};

extern const struct evict_ops evict_lru, evict_sticky, evict_s3fifo;
extern const struct evict_ops evict_lfu, evict_lfu_firm, evict_parts;

/* A round of ageing, in which all counts are halved; see evict_lfu.c. */
struct evict_ageing {
    uint64_t time;   /* weighted reads since the last round began */
    uint32_t pool;   /* the pool being aged; config.pools: no round is in progress */
    uint8_t round;   /* BITS_ROUND of the nodes that have had this round */
    bool ghosts_due; /* the ghosts come before the nodes */
};

/* How much of a missing chunk was read, until it is inserted. */
struct evict_missed {
    uint32_t print; /* the upper 32 bits of the key */
    uint32_t read;  /* in 128ths */
};

/* A policy above the policies: sees each read, and decides which policy to follow (evict_auto.c). */
struct evict_shadows {
    /* Part of a chunk was read. held: slots the cache uses, or 0 as long as it has room. Returns the policy to follow
     * from now on. */
    const struct evict_ops *(*ask)(struct evict_shadows *shadows, uint64_t key, unsigned part, uint64_t held);
    /* More of a chunk was read that was passed to `ask` a moment ago. */
    void (*more)(struct evict_shadows *shadows, uint64_t key, unsigned part);
    void (*free)(struct evict_shadows *shadows);
};

/* One eviction, as its owner sees it: a policy over pools. */
struct evict {
    struct evict_config config;
    const struct evict_ops *ops;   /* the policy followed now; constant except under EVICT_AUTO */
    struct evict_shadows *shadows; /* EVICT_AUTO only, else NULL */
    struct ghost ghost;            /* sets 0: unused */
    bool counts;                   /* missed chunks are counted, and all counts age */
    bool full;                     /* some pool has run out of room at some time */
    uint64_t held;                 /* slots in use, all pools */
    struct evict_ageing ageing;
    uint32_t recent_mask;                   /* of the table `recent`; 0: every read counts */
    uint32_t recent[RECENT_MAX];            /* keys read lately; see evict_calls.c */
    struct evict_missed missed[MISSED_MAX]; /* direct-mapped by key */
    struct evict_pool pools[];
};

/* As evict_new, for any policy, and counting every read. -ENOMEM without a sentence. */
GR_MUST_CHECK int evict_new_ops(const struct evict_config *config, const struct evict_ops *ops, struct evict **out);

static inline struct evict_node *evict_node(const struct evict *e, uint32_t slot)
{
    return e->config.node_at(e->config.arg, slot);
}

static inline bool evict_is_busy(const struct evict *e, uint32_t slot)
{
    return e->config.busy(e->config.arg, slot);
}

static inline unsigned evict_count(const struct evict *e, uint32_t slot)
{
    return evict_node(e, slot)->bits & BITS_COUNT;
}

/* Was the chunk read whole in this pass? */
static inline bool evict_is_read(const struct evict *e, uint32_t slot)
{
    return evict_node(e, slot)->read >= READ_ENOUGH;
}

/* More of a chunk was read right after a read that was counted. Never begins a new pass. */
void evict_more(struct evict *e, uint32_t slot, unsigned part);
/* The same for a chunk that is missing. */
void evict_missed_more(struct evict *e, uint64_t key, unsigned part);
/* Return how much of a missing chunk was read, in 128ths, as far as that is still known. */
unsigned evict_missed_part(const struct evict *e, uint64_t key);

/* Add a slot at the head of a list. The node keeps its count. */
void pool_push_small(struct evict *e, struct evict_pool *p, uint32_t slot);
void pool_push_main(struct evict *e, struct evict_pool *p, uint32_t slot);
/* Add a slot at the head of main, with the count that the ghosts have of the key, at least 1. */
void pool_insert_counted(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key);
/* Remove a slot from its list. */
void pool_unlink(struct evict *e, struct evict_pool *p, uint32_t slot);
/* Move a slot to the head of main, or to the head of the list it is in. */
void pool_renew(struct evict *e, struct evict_pool *p, uint32_t slot);
void pool_rotate(struct evict *e, struct evict_pool *p, uint32_t slot);
/* Return the least recently used slot that is not busy, of small before main; EVICT_NONE if a bounded walk finds none.
 */
uint32_t pool_oldest(struct evict *e, struct evict_pool *p);
bool pool_admit_always(struct evict *e, struct evict_pool *p, uint64_t key);

/* Advance ageing by one read (evict_lfu.c). */
void evict_age(struct evict *e, bool hit);

/* Create the shadow caches of EVICT_AUTO for a cache of `capacity` slots. -ENOMEM without a sentence. */
GR_MUST_CHECK int shadows_new(uint64_t capacity, struct evict_shadows **out);

#endif

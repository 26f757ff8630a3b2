/* What the files of the eviction share. Only they include it. */
#ifndef GRANARY_CACHE_POLICY_EVICT_INTERNAL_H
#define GRANARY_CACHE_POLICY_EVICT_INTERNAL_H

#include "cache/policy/evict.h"
#include "cache/policy/evict_ghost.h"

/* evict_node.bits: how often the chunk was asked for, the round of ageing that it has had, and
 * whether it is on the list main. */
enum { BITS_COUNT = 0x3f, BITS_ROUND = 0x40, BITS_MAIN = 0x80 };
enum { COUNT_MAX = GHOST_COUNT_MAX, RECENT_MAX = 256, MISSED_MAX = 512 };
/* Of a chunk that was read so far nobody wants more: what is left of it may be dead, or the slack of its last file. */
enum { READ_ENOUGH = EVICT_WHOLE * 15 / 16 };

struct evict_pool {
    struct evict_list small, main; /* heads: the young ends */
    uint32_t small_count, main_count;
    uint32_t hand;   /* the next of main that ageing comes to */
    uint32_t chosen; /* what a chunk was admitted for */
};

/* A way to choose. Several may work on the same pools, one after the other. */
struct evict_ops {
    const char *name;
    enum { REMEMBER_NOTHING, REMEMBER_LEFT, REMEMBER_ASKED } remember; /* in the ghosts */
    uint8_t margin;      /* lfu: how much oftener a newcomer must have been asked for */
    uint8_t half_life;   /* counts are halved when each slot was hit that often; 0: never */
    bool counts_its_own; /* counts in nodes are not to be aged */
    void (*insert)(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key);
    void (*hit)(struct evict *e, struct evict_pool *p, uint32_t slot);
    bool (*admit)(struct evict *e, struct evict_pool *p, uint64_t key);
    uint32_t (*victim)(struct evict *e, struct evict_pool *p);
};

extern const struct evict_ops evict_lru, evict_sticky, evict_s3fifo;
extern const struct evict_ops evict_lfu, evict_lfu_firm, evict_parts;

struct evict_ageing {
    uint64_t time; /* since the last round began */
    uint32_t pool; /* which the round is in; config.pools: it is over */
    uint8_t round; /* BITS_ROUND of who has had it */
    bool ghosts_due;
};

/* What was asked of a chunk that is missing, until it comes in. */
struct evict_missed {
    uint32_t print;
    uint32_t read;
};

/* What is told of each ask, and says what to follow: a policy above the policies. */
struct evict_shadows {
    /* Part of a chunk was asked for; held: the slots the cache has in use, 0 as long as it has room. What to follow
     * from now on. */
    const struct evict_ops *(*ask)(struct evict_shadows *shadows, uint64_t key, unsigned part, uint64_t held);
    /* More of a chunk that was asked for just now. */
    void (*more)(struct evict_shadows *shadows, uint64_t key, unsigned part);
    void (*free)(struct evict_shadows *shadows);
};

struct evict {
    struct evict_config config;
    const struct evict_ops *ops;   /* under EVICT_AUTO: what is followed now */
    struct evict_shadows *shadows; /* EVICT_AUTO, else NULL */
    struct ghost ghost;            /* sets 0: nothing is remembered */
    bool counts;                   /* what is asked for and missing, and all counts get older */
    bool full;                     /* some pool has been without room */
    uint64_t held;                 /* slots in all pools */
    struct evict_ageing ageing;
    uint32_t recent_mask; /* 0: nothing is passed over */
    uint32_t recent[RECENT_MAX];
    struct evict_missed missed[MISSED_MAX];
    struct evict_pool pools[];
};

/* evict_new of any ops, without passing over what is asked for again at once. */
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

static inline bool evict_is_read(const struct evict *e, uint32_t slot)
{
    return evict_node(e, slot)->read >= READ_ENOUGH;
}

/* More of a chunk was read, in the moment of an ask that was counted. What is read twice then is not read anew. */
void evict_more(struct evict *e, uint32_t slot, unsigned part);
/* The same of one that is missing. */
void evict_missed_more(struct evict *e, uint64_t key, unsigned part);
/* What was asked of the chunk while it was missing, as far as that is known. */
unsigned evict_missed_part(const struct evict *e, uint64_t key);

/* At the young end; the node's count stays. */
void pool_push_small(struct evict *e, struct evict_pool *p, uint32_t slot);
void pool_push_main(struct evict *e, struct evict_pool *p, uint32_t slot);
/* The same, with the count that the ghosts have of the key, one at least. */
void pool_insert_counted(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key);
void pool_unlink(struct evict *e, struct evict_pool *p, uint32_t slot);
/* To the young end of main, or of the list it is on. */
void pool_renew(struct evict *e, struct evict_pool *p, uint32_t slot);
void pool_rotate(struct evict *e, struct evict_pool *p, uint32_t slot);
/* The oldest that is not busy, of small before main; a bounded walk. */
uint32_t pool_oldest(struct evict *e, struct evict_pool *p);
bool pool_admit_always(struct evict *e, struct evict_pool *p, uint64_t key);

/* Something was asked for: evict_lfu.c. */
void evict_age(struct evict *e, bool hit);

/* The shadow caches that EVICT_AUTO follows: evict_auto.c. capacity: of the cache, in slots. -ENOMEM. */
GR_MUST_CHECK int shadows_new(uint64_t capacity, struct evict_shadows **out);

#endif

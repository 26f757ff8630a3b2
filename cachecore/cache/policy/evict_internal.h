/* What the files of this folder share; not to be included elsewhere.
 *
 *   evict.c            names, construction; EVICT_AUTO, which chooses among the policies
 *   evict_calls.c      the calls of evict.h, whatever the policy
 *   evict_policies.c   the lists of a pool, and the policies over them
 *   evict_ghost.c      counts of chunks that are not cached
 *   evict_sim.c        replays a trace
 */
#ifndef GRANARY_CACHE_POLICY_EVICT_INTERNAL_H
#define GRANARY_CACHE_POLICY_EVICT_INTERNAL_H

#include "cache/policy/evict.h"

/* ---- evict_ghost.c ---- */

/* Counts of chunks that are not cached, but were missed or evicted recently: a table of fingerprints with a count each.
 * Bounded and approximate: entries are overwritten, and about two keys in ten thousand share a fingerprint. A hint
 * for the policies, no more. */

enum { GHOST_COUNT_MAX = 63 };

/* The table. sets 0: unused. */
struct ghost {
    uint32_t *cells;       /* sets of four; see evict_ghost.c */
    uint32_t sets;         /* number of sets */
    uint32_t hand;         /* the set that ageing visits next */
    uint32_t turn;         /* rotates which cell of a set is examined first */
    uint64_t window, left; /* the clock of "recently": evicted chunks, in all; a window of them */
};

/* Allocate cells for about `keys` keys, 4 bytes each. A key that was evicted counts as evicted recently until `window`
 * more keys were. -ENOMEM. */
GR_MUST_CHECK int ghost_init(struct ghost *g, uint64_t keys, uint64_t window);
void ghost_release(struct ghost *g);

/* A key that is not cached was read. Returns its count, including this read. */
unsigned ghost_ask(struct ghost *g, uint64_t key);
/* Return the key's count; 0: unknown. */
unsigned ghost_count(const struct ghost *g, uint64_t key);
/* The key was evicted with this count. */
void ghost_leave(struct ghost *g, uint64_t key, unsigned count);
/* The key is cached again: remove it here. Returns its count. *out_lately: it was evicted recently. */
unsigned ghost_take(struct ghost *g, uint64_t key, bool *out_lately);
/* Halve the counts of the next n sets. True: this completed a round over all sets. */
bool ghost_age(struct ghost *g, uint32_t n);

/* ---- nodes, pools, policies ---- */

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

/* A round of ageing, in which all counts are halved; see evict_age. */
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

/* A policy above the policies: sees each read, and decides which policy to follow (evict.c). */
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

/* As evict_new, for any policy, and counting every read. -ENOMEM. */
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

/* ---- evict_calls.c ---- */

/* More of a chunk was read right after a read that was counted. Never begins a new pass. */
void evict_more(struct evict *e, uint32_t slot, unsigned part);
/* The same for a chunk that is missing. */
void evict_missed_more(struct evict *e, uint64_t key, unsigned part);
/* The place of a key in evict.missed. Skips the low bits: all keys in the shadow caches' sample have the same ones. */
static inline size_t evict_missed_place(uint64_t key)
{
    return (key >> 24) % MISSED_MAX;
}

/* Return how much of a missing chunk was read, in 128ths, as far as that is still known. */
static inline unsigned evict_missed_part(const struct evict *e, uint64_t key)
{
    const struct evict_missed *m = &e->missed[evict_missed_place(key)];
    return m->print == (uint32_t)(key >> 32) ? m->read : 0;
}

/* ---- evict_policies.c ---- */

/* Remove a slot from its list. */
void pool_unlink(struct evict *e, struct evict_pool *p, uint32_t slot);
/* Return the least recently used slot that is not busy, of small before main; EVICT_NONE if a bounded walk finds none.
 */
uint32_t pool_oldest(struct evict *e, struct evict_pool *p);
/* Advance ageing by one read. */
void evict_age(struct evict *e, bool hit);

#endif

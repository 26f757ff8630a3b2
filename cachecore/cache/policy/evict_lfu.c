/* lfu: a chunk is admitted only if it was read more often than the least-read of the few least recently used. The
 * counts of cached chunks are in their nodes, the others' in the ghosts. All counts are halved from time to time, so
 * that formerly popular chunks can leave.
 *
 * Two variants, between which EVICT_AUTO chooses:
 *
 *   lfu        long memory, no margin: for stable popularity (Zipf)
 *   lfu-firm   a margin: when all chunks are read equally often (shuffled epochs), a newcomer leads its victim by one
 *              only because its turn came earlier in this epoch. Exchanging them gains nothing and loses the cached one
 *
 * Ageing is driven by hits, not by time. Without hits nothing happens that would make the counts wrong; only a long
 * period without any (nothing cached is useful) ages them too. A round walks over the ghosts, then over the nodes, a
 * few with each read. In between, newcomers look worse than they are, which is harmless. A node that moves to the head
 * of its list is met a second time: BITS_ROUND says that it has been aged.
 */
#include "cache/policy/evict_internal.h"

/* A victim is chosen from LOOKED_AT candidates. A round of ageing begins after half_life hits per slot, or HIT_WEIGHT
 * misses per slot; each read then ages STEP entries. HELD_MIN bounds the rounds of a small cache. */
enum { LOOKED_AT = 4, STEP = 2, HELD_MIN = 64, HIT_WEIGHT = 200 };

/* Return the least-read of the LOOKED_AT least recently used slots. */
static uint32_t lfu_victim(struct evict *e, struct evict_pool *p)
{
    uint32_t best = pool_oldest(e, p), slot = best;
    if (p->small_count)
        return best;
    for (unsigned i = 1; i < LOOKED_AT && slot != EVICT_NONE; i++) {
        slot = evict_node(e, slot)->prev;
        if (slot != EVICT_NONE && evict_count(e, slot) < evict_count(e, best) && !evict_is_busy(e, slot))
            best = slot;
    }
    return best;
}

/* Compare the newcomer's count with the victim's. A victim whose count has aged to 0 is always replaced. */
static bool lfu_admit(struct evict *e, struct evict_pool *p, uint64_t key)
{
    uint32_t slot = lfu_victim(e, p);
    if (p->small_count || slot == EVICT_NONE)
        return true;
    unsigned its = evict_count(e, slot), mine = ghost_count(&e->ghost, key);
    if (its == 0 || mine > its + e->ops->margin) {
        p->chosen = slot;
        return true;
    }
    if (e->ops->margin == 0) /* examine others next time; with a margin, the order of use says more */
        pool_rotate(e, p, p->main.tail);
    return false;
}

/* Begin a round of ageing if it is time. */
static bool begin_round(struct evict *e)
{
    struct evict_ageing *a = &e->ageing;
    if (a->time < GR_MAX(e->held, (uint64_t)HELD_MIN) * e->ops->half_life * HIT_WEIGHT)
        return false;
    a->time = 0;
    a->round ^= BITS_ROUND;
    a->pool = 0;
    a->ghosts_due = true;
    e->pools[0].hand = e->pools[0].main.tail;
    return true;
}

/* Age the next node of the round. */
static void age_next(struct evict *e)
{
    struct evict_ageing *a = &e->ageing;
    struct evict_pool *p = &e->pools[a->pool];
    uint32_t slot = p->hand;
    if (slot == EVICT_NONE) {
        if (++a->pool < e->config.pools)
            e->pools[a->pool].hand = e->pools[a->pool].main.tail;
        return;
    }
    struct evict_node *n = evict_node(e, slot);
    p->hand = n->prev;
    if ((n->bits & BITS_ROUND) == a->round)
        return;
    unsigned count = (n->bits & BITS_COUNT) >> !e->ops->counts_its_own;
    n->bits = (uint8_t)((n->bits & BITS_MAIN) | a->round | count);
}

void evict_age(struct evict *e, bool hit)
{
    struct evict_ageing *a = &e->ageing;
    a->time += hit ? HIT_WEIGHT : e->ops->half_life;
    if (a->pool == e->config.pools && !begin_round(e))
        return;
    if (a->ghosts_due) {
        a->ghosts_due = !ghost_age(&e->ghost, STEP);
        return;
    }
    for (unsigned i = 0; i < STEP && a->pool < e->config.pools; i++)
        age_next(e);
}

#define LFU(called, ...)                                                                                               \
    {                                                                                                                  \
        .name = called, .remember = REMEMBER_ASKED, __VA_ARGS__, .insert = pool_insert_counted, .hit = pool_renew,     \
        .admit = lfu_admit, .victim = lfu_victim,                                                                      \
    }

const struct evict_ops evict_lfu = LFU("lfu", .half_life = 32);
const struct evict_ops evict_lfu_firm = LFU("lfu-firm", .half_life = 16, .margin = 2);

/* s3fifo (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023):
 *
 *   insert --> [ small: a tenth ] --no hit--> evicted, remembered in the ghosts
 *                     | hit                        | comes back while remembered
 *                     v                            v
 *              [ main: the rest  ] <---------------+
 *                ^             | at its end: one more round per hit, at most three, then evicted
 *                +-------------+
 *
 * A hit only increments the node's count; nothing moves. The paper requires two hits in the small queue; one hit was
 * better on the Zipf traces here.
 */
#include "cache/policy/evict_internal.h"

enum { SMALL_PART = 10, ROUNDS_MAX = 3, STEPS_MAX = 64 };

/* A chunk that comes back soon was evicted too early: it goes to main. */
static void s3fifo_insert(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    bool lately;
    ghost_take(&e->ghost, key, &lately);
    if (lately)
        pool_push_main(e, p, slot);
    else
        pool_push_small(e, p, slot);
}

static void s3fifo_hit(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    (void)e;
    (void)p;
    (void)slot; /* evict_hit has counted it */
}

/* Examine the end of one queue. Returns the slot to evict, or EVICT_NONE if that slot got another round. */
static uint32_t evict_s3fifo_step(struct evict *e, struct evict_pool *p)
{
    uint64_t total = (uint64_t)p->small_count + p->main_count;
    bool small = p->main_count == 0 || (p->small_count && (uint64_t)p->small_count * SMALL_PART >= total);
    uint32_t slot = small ? p->small.tail : p->main.tail;
    unsigned count = evict_count(e, slot);
    if (count == 0)
        return slot;
    pool_unlink(e, p, slot);
    pool_push_main(e, p, slot);
    struct evict_node *n = evict_node(e, slot);
    unsigned left = small ? 0 : GR_MIN(count, (unsigned)ROUNDS_MAX) - 1;
    n->bits = (uint8_t)((n->bits & ~BITS_COUNT) | left);
    return EVICT_NONE;
}

/* The walk would end by itself after three rounds of main. STEPS_MAX keeps a call short; beyond it, the oldest is good
 * enough. */
static uint32_t s3fifo_victim(struct evict *e, struct evict_pool *p)
{
    for (unsigned i = 0; i < STEPS_MAX && p->small_count + p->main_count; i++) {
        uint32_t slot = evict_s3fifo_step(e, p);
        if (slot == EVICT_NONE)
            continue;
        if (!evict_is_busy(e, slot))
            return slot;
        pool_rotate(e, p, slot);
    }
    return pool_oldest(e, p);
}

const struct evict_ops evict_s3fifo = {
    .name = "s3fifo",
    .remember = REMEMBER_LEFT,
    .half_life = 8,
    .counts_its_own = true,
    .insert = s3fifo_insert,
    .hit = s3fifo_hit,
    .admit = pool_admit_always,
    .victim = s3fifo_victim,
};

/* lru: one list, used last at the head. sticky: the same list, but nothing comes in on its own; what
 * is forced in takes the place of the one used longest ago.
 */
#include "cache/policy/evict_internal.h"

static void lru_insert(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    (void)key;
    pool_push_main(e, p, slot);
}

/* A pool without any slot gets one, at the cost of another pool: a size of chunk that came late
 * would otherwise be fetched every time. */
static bool sticky_admit(struct evict *e, struct evict_pool *p, uint64_t key)
{
    (void)e;
    (void)key;
    return p->small_count + p->main_count == 0;
}

const struct evict_ops evict_lru = {
    .name = "lru",
    .half_life = 8,
    .insert = lru_insert,
    .hit = pool_renew,
    .admit = pool_admit_always,
    .victim = pool_oldest,
};

const struct evict_ops evict_sticky = {
    .name = "sticky",
    .insert = lru_insert,
    .hit = pool_renew,
    .admit = sticky_admit,
    .victim = pool_oldest,
};

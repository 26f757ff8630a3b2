/* lru: one list, the most recently used at its head. sticky: the same list, but only forced chunks are admitted, each
 * in place of the least recently used. */
#include "cache/policy/evict_internal.h"

static void lru_insert(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    (void)key;
    pool_push_main(e, p, slot);
}

/* A pool without a slot gets one, at the cost of another pool. Otherwise chunks of a size that first appears late would
 * be fetched at each read. */
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

/* parts: for whole files in random order, epoch after epoch, where several of them share a chunk or a file has parts of
 * several. Every byte is wanted once an epoch. So of a chunk that was read in part the rest is wanted still in this
 * epoch, and of one that was read whole nothing before the next; and of those the one read whole last has the longest
 * to wait, since the others may have their turn of the next epoch at any moment.
 *
 * So a victim is a chunk read whole, of those used last, else of those used longest ago; a few are looked at at either
 * end. A chunk that is missing comes in for such a one, unless all of it was wanted at once. Where there is none it
 * does not come in: to exchange parts for parts gains nothing, and loses everything when there are too many of them.
 */
#include "cache/policy/evict_internal.h"

enum { LOOKED_AT = 128 };

static bool may_go(const struct evict *e, uint32_t slot)
{
    return evict_is_read(e, slot) && !evict_is_busy(e, slot);
}

static uint32_t find_read(const struct evict *e, const struct evict_pool *p)
{
    uint32_t slot = p->main.head;
    for (unsigned i = 0; i < LOOKED_AT && slot != EVICT_NONE; i++, slot = evict_node(e, slot)->next)
        if (may_go(e, slot))
            return slot;
    slot = p->main.tail;
    for (unsigned i = 0; i < LOOKED_AT && slot != EVICT_NONE; i++, slot = evict_node(e, slot)->prev)
        if (may_go(e, slot))
            return slot;
    return EVICT_NONE;
}

static uint32_t parts_victim(struct evict *e, struct evict_pool *p)
{
    uint32_t slot = p->small_count ? EVICT_NONE : find_read(e, p);
    return slot != EVICT_NONE ? slot : pool_oldest(e, p);
}

static bool parts_admit(struct evict *e, struct evict_pool *p, uint64_t key)
{
    uint32_t slot = parts_victim(e, p);
    if (p->small_count || slot == EVICT_NONE)
        return true;
    bool forgotten = evict_count(e, slot) == 0;
    if (!forgotten && (!evict_is_read(e, slot) || evict_missed_part(e, key) >= READ_ENOUGH))
        return false;
    p->chosen = slot;
    return true;
}

const struct evict_ops evict_parts = {
    .name = "parts",
    .remember = REMEMBER_ASKED,
    .half_life = 16,
    .insert = pool_insert_counted,
    .hit = pool_renew,
    .admit = parts_admit,
    .victim = parts_victim,
};

/* parts: for files that are read whole, in random order, epoch after epoch, where several files share a chunk or a file
 * spans several.
 *
 * Each byte is needed once an epoch. The rest of a chunk that was read in part is therefore still needed in this epoch.
 * A chunk that was read whole is not needed before the next epoch. Among those, the one read last has the longest to
 * wait: the next epoch may reach the others at any moment.
 *
 * Victim: a chunk that was read whole, the most recently used first; a bounded number of slots is examined at either
 * end of main. If there is none, the least recently used.
 *
 * Admission: a missing chunk replaces a chunk that was read whole, unless it was itself needed as a whole at once.
 * Without such a victim it is refused: exchanging partly read chunks gains nothing, and loses all hits if there are too
 * many of them.
 */
#include "cache/policy/evict_internal.h"

enum { LOOKED_AT = 128 }; /* slots examined at each end */

static bool may_go(const struct evict *e, uint32_t slot)
{
    return evict_is_read(e, slot) && !evict_is_busy(e, slot);
}

/* Return a slot whose chunk was read whole, or EVICT_NONE. */
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

/* A victim that ageing has brought to count 0 may always be replaced. */
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

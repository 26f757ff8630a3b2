/* Which slots can be read and written now: their pins, and the health of their directories. Pins are released without
 * cache.lock. A thread that waits for a pin raises c->waiters before it looks at the pin, and cache_unpin looks at
 * c->waiters after it has released the pin, so one of the two sees the other. */
#include "cache/cache_internal.h"

bool cache_readable_locked(const struct cache *c, uint32_t id)
{
    return space_slot_at(&c->space, id)->state == SLOT_READY && cache_dir_reads(c->dirs[space_dir_of(&c->space, id)]);
}

void cache_unpin(struct cache *c, const struct space_slot *slot)
{
    space_unpin(slot->pins);
    if (atomic_load(&c->waiters) == 0)
        return;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    pthread_cond_broadcast(&c->changed);
}

void cache_dir_changed(struct cache *c, unsigned dir)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    space_dir_writable(&c->space, dir,
                       cache_dir_fills(c->dirs[dir])); /* read again under the lock: another change may be under way */
    pthread_cond_broadcast(&c->changed);               /* threads that wait for a slot there must look again */
}

void cache_note(struct cache *c, unsigned dir, enum cache_direction direction, int rc)
{
    if (cache_dir_note(c->dirs[dir], direction, rc))
        cache_dir_changed(c, dir);
}

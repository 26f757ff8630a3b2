/* How the memory tier and the disk cache work together. A chunk enters memory in two ways:
 *
 *    landed from a store   by a fill thread, before it is written to disk and its in-flight fetch is retired: at a
 *                          lookup under cache.lock it is still in memory, or on disk, or in flight, or really missing
 *    hit on disk, whole    by the reader itself, from its own buffer
 *
 * Hits in memory would make a chunk look cold to the disk's eviction policy, which would then evict the chunks used
 * most. So a random sample of them is reported to it.
 */
#include <errno.h>
#include <time.h>

#include "cache/cache_internal.h"

enum { PUT_TRIES = 2000, PUT_PAUSE_MS = 1 }; /* for callers that wait: readers hold a slot for microseconds */

/* Count a hit in memory as a use on disk. Never waits for the lock: this is the fastest path. */
static void tell_disk(struct cache *c, const struct digest *digest)
{
    if (!c->dir_count || pthread_mutex_trylock(&c->lock))
        return; /* another hit will report it */
    uint32_t id = space_find(&c->space, digest);
    struct space_slot slot;
    if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY && space_can_pin(&c->space, id)) {
        space_pin(&c->space, id, &slot);
        space_unpin(slot.pins);
    }
    space_assert(&c->space);
    pthread_mutex_unlock(&c->lock);
}

bool cache_memory_read(struct cache *c, const struct cache_piece *p)
{
    if (!c->memory_tier)
        return false;
    enum memory_tier_result rc =
        memory_tier_read(c->memory_tier, &p->ref.digest, p->ref.plain_len, p->offset, p->len, p->dst);
    if (rc == MEMORY_TIER_HIT_TELL)
        tell_disk(c, &p->ref.digest);
    return rc != MEMORY_TIER_MISS;
}

bool cache_memory_has(const struct cache *c, const struct digest *digest)
{
    return c->memory_tier && memory_tier_has(c->memory_tier, digest);
}

bool cache_memory_drop(struct cache *c, const struct digest *digest)
{
    return c->memory_tier && memory_tier_drop(c->memory_tier, digest);
}

void cache_memory_clear(struct cache *c)
{
    if (c->memory_tier)
        memory_tier_clear(c->memory_tier);
}

void cache_memory_disk_hit(struct cache *c, const struct cache_piece *p)
{
    if (c->memory_tier && p->len == p->ref.plain_len)
        memory_tier_put(c->memory_tier, &p->ref.digest, p->dst, p->len,
                        false); /* a refusal is no fault: it stays on disk only */
}

int cache_memory_landed(struct cache *c, const struct digest *digest, const struct buf *plain, bool wait)
{
    if (!c->memory_tier)
        return 0;
    int rc = memory_tier_put(c->memory_tier, digest, plain->data, (uint32_t)plain->len, wait);
    for (int i = 0; wait && rc == -EAGAIN && i < PUT_TRIES; i++) {
        nanosleep(&(struct timespec){.tv_nsec = PUT_PAUSE_MS * 1000000L}, NULL);
        rc = memory_tier_put(c->memory_tier, digest, plain->data, (uint32_t)plain->len, wait);
    }
    return rc;
}

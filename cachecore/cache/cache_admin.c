/* What tools ask and change while the server runs: query, evict, pin, and sweeps over everything.
 *
 * An evicted chunk leaves the eviction policy first and stays in the index as `filling`: no reader finds it, no fill
 * starts for it, and its slot is not reused. When its last reader is done, its record is blanked on disk so that a
 * restart does not bring it back. Only then is the slot free. Readers never wait for any of this.
 */
#include <errno.h>

#include "base/clock.h"
#include "cache/cache_internal.h"

enum {
    READERS_WAIT_MS = 10000, /* a slower reader finds its record gone, which is a miss */
    SWEEP_TAKE = 16,         /* slots taken, and visited, in one locked section */
    SWEEP_LOOK = 2048,
};

void cache_query(struct cache *c, const struct digest *chunks, size_t n, struct cache_chunk *out)
{
    memset(out, 0, n * sizeof *out);
    for (size_t i = 0; !c->dir_count && i < n; i++)
        out[i].cached = memory_tier_has(c->memory_tier, &chunks[i]);
    if (!c->dir_count)
        return;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    for (size_t i = 0; i < n; i++) {
        uint32_t id = space_find(&c->space, &chunks[i]);
        if (id == SPACE_NONE || space_slot_at(&c->space, id)->state != SLOT_READY)
            continue;
        out[i].cached = true;
        unsigned flags = space_slot_at(&c->space, id)->flags;
        out[i].pinned = space_record_flags(flags) & RECORD_PINNED;
        out[i].held = flags & SPACE_SESSION_PINNED;
        out[i].stored_bytes = space_slot_at(&c->space, id)->stored_len;
    }
}

/* Each place is asked under its own lock, so a chunk that moves meanwhile may be seen at neither; the next look finds
 * it. */
void cache_look(struct cache *c, const struct store *store, const struct chunk_ref *const *chunks, size_t n,
                enum cache_where *out)
{
    enum { LOOKED = 64 };
    struct cache_chunk found[LOOKED];
    struct digest digests[LOOKED];
    bool coming[LOOKED];
    for (size_t at = 0; at < n; at += LOOKED) {
        size_t count = GR_MIN(n - at, (size_t)LOOKED);
        for (size_t i = 0; i < count; i++)
            digests[i] = chunks[at + i]->digest;
        cache_query(c, digests, count, found);
        fetch_look(c->fetch, store, chunks + at, count, coming);
        for (size_t i = 0; i < count; i++)
            out[at + i] = memory_tier_has(c->memory_tier, &digests[i]) ? CACHE_IN_MEMORY
                          : found[i].cached                            ? CACHE_ON_DISK
                          : coming[i]                                  ? CACHE_COMING
                                                                       : CACHE_NOWHERE;
    }
}

/* ---- records ---- */

/* Blank a slot's record (flags NULL), or write its flags. -EIO: its directory is down; -EAGAIN: no writer ring came
 * free; else -errno of the disk. */
static int write_record(struct cache *c, const struct space_slot *slot, const uint8_t *flags)
{
    uint64_t timeout_ms = (uint64_t)c->disk_timeout_ms * WRITE_TIMEOUT_FACTOR;
    struct cache_dir *dir = c->dirs[slot->dir];
    if (cache_dir_state(dir, CACHE_WRITING) == HEALTH_DOWN)
        return -EIO;
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + timeout_ms);
    if (!ring)
        return -EAGAIN;
    uint64_t deadline_ms = clock_now_ms() + timeout_ms;
    int rc = flags ? cache_dir_write_flags(dir, ring, slot, *flags, deadline_ms)
                   : cache_dir_blank(dir, ring, slot, deadline_ms);
    cache_note(c, slot->dir, CACHE_WRITING, rc); /* before the ring is returned */
    rings_return(ring);
    return rc;
}

/* ---- evict ---- */

/* Wait until no reader has the slot pinned, or READERS_WAIT_MS have passed. */
static void wait_for_readers(struct cache *c, _Atomic uint16_t *pins)
{
    if (!atomic_load(pins))
        return;
    const struct timespec until = clock_at_ms(clock_now_ms() + READERS_WAIT_MS);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    atomic_fetch_add(&c->waiters, 1); /* before looking at pins: cache_unpin looks in the other order */
    space_assert(&c->space);
    while (atomic_load(pins) && !pthread_cond_timedwait(&c->changed, &c->lock, &until))
        ;
    atomic_fetch_sub(&c->waiters, 1);
}

void cache_blank_slot(struct cache *c, const struct space_slot *slot)
{
    wait_for_readers(c, slot->pins);
    (void)write_record(c, slot, NULL);
}

/* Blank the records of slots that space_retake gave, then free the slots. */
static void forget(struct cache *c, const struct space_slot *slots, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cache_blank_slot(c, &slots[i]);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    for (size_t i = 0; i < n; i++)
        space_abort(&c->space, slots[i].id);
    pthread_cond_broadcast(&c->changed);
}

/* Does the slot hold a chunk that no thread is filling or moving? */
static bool may_go_locked(const struct cache *c, uint32_t id)
{
    enum slot_state state = space_slot_at(&c->space, id)->state;
    return state == SLOT_READY || state == SLOT_DAMAGED;
}

/* Take a cached chunk's slot for eviction. */
static int retake(struct cache *c, const struct digest *chunk, bool pinned, struct space_slot *slot)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = c->dir_count ? space_find(&c->space, chunk) : SPACE_NONE;
    if (id == SPACE_NONE || !may_go_locked(c, id))
        return -ENOENT;
    if (!pinned && space_slot_at(&c->space, id)->flags & RECORD_PINNED)
        return -EPERM;
    space_retake(&c->space, id, slot);
    return 0;
}

int cache_evict(struct cache *c, const struct digest *chunk, bool pinned)
{
    struct space_slot slot;
    int rc = retake(c, chunk, pinned, &slot);
    if (rc == -ENOENT) /* the chunk may be in memory only */
        return memory_tier_drop(c->memory_tier, chunk) ? 0 : rc;
    if (rc)
        return rc;
    forget(c, &slot, 1);
    memory_tier_drop(c->memory_tier,
                     chunk); /* only now: until its pin went, a reader from disk could put it into memory */
    return 0;
}

/* ---- pin ---- */

/* Change the pin in memory, and hold the slot as a reader would, so that it stays this chunk's until its record is
 * written. */
static int set_pinned_locked(struct cache *c, uint32_t id, bool on, struct space_slot *out)
{
    if (id == SPACE_NONE || space_slot_at(&c->space, id)->state != SLOT_READY || !space_can_pin(&c->space, id))
        return -ENOENT;
    int rc = space_set_pinned(&c->space, id, on);
    if (!rc)
        space_pin(&c->space, id, out);
    return rc;
}

static uint8_t flags_now(struct cache *c, const struct space_slot *slot)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    return space_record_flags(space_slot_at(&c->space, slot->id)->flags);
}

/* Write the pin to the record until it agrees with memory, then release the slot. */
static int write_pinned(struct cache *c, const struct space_slot *slot)
{
    int rc;
    uint8_t written, now = space_record_flags(slot->flags);
    do { /* another thread may have changed the pin meanwhile */
        written = now;
        rc = write_record(c, slot, &written);
        now = flags_now(c, slot);
    } while (!rc && now != written);
    cache_unpin(c, slot);
    return rc;
}

/* Unpinning a damaged slot drops it: it was only kept for its pin. */
int cache_pin(struct cache *c, const struct digest *chunk, bool on)
{
    struct space_slot slot;
    if (!c->dir_count)
        return -ENOENT;
    int rc = 0;
    bool damaged;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        uint32_t id = space_find(&c->space, chunk);
        damaged = !on && id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_DAMAGED;
        if (damaged)
            space_retake(&c->space, id, &slot);
        else
            rc = set_pinned_locked(c, id, on, &slot);
    }
    if (damaged)
        forget(c, &slot, 1);
    return rc || damaged ? rc : write_pinned(c, &slot);
}

int cache_session_pin(struct cache *c, const struct digest *chunk)
{
    if (!c->dir_count)
        return -ENOENT;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, chunk);
    if (id == SPACE_NONE || space_slot_at(&c->space, id)->state != SLOT_READY)
        return -ENOENT;
    return space_session_pin(&c->space, id);
}

void cache_session_unpin(struct cache *c, const struct digest *chunk)
{
    if (!c->dir_count)
        return;
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, chunk);
    if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY)
        space_session_unpin(&c->space, id);
}

/* ---- everything ---- */

/* Start the operation on one slot. true: *out must be finished without the lock. */
static bool sweep_slot_locked(struct cache *c, uint32_t id, enum cache_bulk_operation operation,
                              struct cache_sweep *sweep, struct space_slot *out)
{
    const struct slot *slot = space_slot_at(&c->space, id);
    bool pinned = space_record_flags(slot->flags) & RECORD_PINNED;
    if (!may_go_locked(c, id) || slot->flags & RECORD_META)
        return false;
    if (slot->state == SLOT_DAMAGED && operation == CACHE_UNPIN) {
        space_give_up(&c->space, id); /* its record is overwritten when the slot is used again */
        sweep->changed++;
        return false;
    }
    if ((operation == CACHE_PIN && pinned) || (operation == CACHE_UNPIN && !pinned))
        return false;
    int rc = 0;
    if (operation == CACHE_PIN || operation == CACHE_UNPIN)
        rc = set_pinned_locked(c, id, operation == CACHE_PIN, out);
    else if (slot->flags & RECORD_PINNED && operation == CACHE_EVICT)
        rc = -EPERM;
    else
        space_retake(&c->space, id, out);
    sweep->changed += !rc;
    sweep->changed_bytes += rc ? 0 : out->stored_len;
    sweep->refused += rc != 0;
    return !rc;
}

/* Visit slots from where the sweep stopped. Bounded, so that readers get the lock in between. */
static size_t sweep_locked(struct cache *c, enum cache_bulk_operation operation, struct cache_sweep *sweep,
                           struct space_slot out[SWEEP_TAKE])
{
    size_t taken = 0;
    unsigned looked = 0;
    while (sweep->slab < c->space.slab_count && taken < SWEEP_TAKE && looked++ < SWEEP_LOOK) {
        const struct slab *slab = &c->space.slabs[sweep->slab];
        if (sweep->slot < slab->slot_count) {
            uint32_t id = sweep->slab << SPACE_SLOT_BITS | sweep->slot++;
            taken += sweep_slot_locked(c, id, operation, sweep, &out[taken]);
            continue;
        }
        sweep->bytes_done += c->space.dirs[slab->dir].geometry.slab_size;
        sweep->slab++;
        sweep->slot = 0;
    }
    return taken;
}

bool cache_sweep_next(struct cache *c, enum cache_bulk_operation operation, struct cache_sweep *sweep)
{
    struct space_slot slots[SWEEP_TAKE];
    bool evict = operation == CACHE_EVICT || operation == CACHE_EVICT_PINNED_TOO, more;
    size_t n;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        sweep->bytes_total = c->space.capacity;
        n = sweep_locked(c, operation, sweep, slots);
        more = sweep->slab < c->space.slab_count;
    }
    if (evict)
        forget(c, slots, n);
    for (size_t i = 0; i < n && !evict; i++)
        (void)write_pinned(c, &slots[i]); /* if the disk refuses, the pin holds until the next restart */
    if (evict && !more)
        memory_tier_clear(c->memory_tier);
    return more;
}

/* The invariants of space.h's state table as assertions: every slot is where its state says, and every sum is the sum
 * of its slots. For tests, and for builds with GRANARY_CHECK (space_lock.h). */
#include <assert.h>

#include "cache/index/space_internal.h"
#include "cache/index/space_lock.h"

/* What a walk over all slots adds up, to be compared with the sums the space keeps. */
struct sums {
    uint64_t in_free[SPACE_DIRS_MAX][CACHE_CLASSES], slots, ready, used, meta, pinned, charged[SPACE_GROUPS_MAX];
};

static void check_slot(const struct space *s, const struct slab *slab, uint32_t id)
{
    const struct slot *slot = space_slot_at(s, id);
    if (slot->state == SLOT_FREE)
        return;
    uint32_t found = space_find_key(s, slot->key);
    assert((found == id) == (slot->state != SLOT_MOVING)); /* in the index, once */
    assert(cache_class_of(slot->stored_len) == slab->class);
    assert(slot->flags & RECORD_ZSTD ? slot->stored_len < slot->plain_len : slot->stored_len == slot->plain_len);
}

/* Check every slot of a slab, add them to the sums, and compare the slab's own count. */
static void check_slab(const struct space *s, uint32_t number, struct sums *sums)
{
    const struct slab *slab = &s->slabs[number];
    uint32_t size = cache_class_slot_size(slab->class), kept = 0;
    sums->slots += slab->slot_count;
    for (uint32_t k = 0; k < slab->slot_count; k++) {
        uint32_t id = number << SPACE_SLOT_BITS | k;
        const struct slot *slot = space_slot_at(s, id);
        bool taken = slot->state != SLOT_FREE;
        check_slot(s, slab, id);
        sums->in_free[slab->dir][slab->class] += !taken;
        sums->ready += slot->state == SLOT_READY;
        sums->used += slot->state == SLOT_READY ? size : 0;
        sums->meta += taken && slot->flags & RECORD_META ? size : 0;
        if (taken && slot->group && !(slot->flags & RECORD_META))
            sums->charged[slot->group - 1] += size;
        sums->pinned += taken && slot->flags & RECORD_PINNED ? size : 0;
        kept += taken && space_kept(slot->flags);
    }
    assert(kept == slab->kept);
}

/* Walk a free list, check its links, and return its length. */
static uint32_t free_length(const struct space *s, unsigned dir, unsigned class)
{
    const struct evict_list *list = &s->dirs[dir].free[class];
    uint32_t n = 0, prev = SPACE_NONE;
    for (uint32_t id = list->head; id != SPACE_NONE; id = space_slot_at(s, id)->node.next) {
        const struct slot *slot = space_slot_at(s, id);
        assert(slot->state == SLOT_FREE && slot->node.prev == prev);
        assert(space_slab_of(s, id)->class == class && space_slab_of(s, id)->dir == dir);
        prev = id;
        n++;
    }
    assert(list->tail == prev);
    return n;
}

/* A slab without slots is either in its directory's list of unbound slabs or yielded. */
static void check_unbound(const struct space *s)
{
    for (size_t i = 0; i < s->dir_count; i++) {
        const struct space_dir *d = &s->dirs[i];
        uint32_t without_slots = 0, yielded = 0;
        for (uint32_t k = 0; k < d->geometry.slab_count; k++) {
            without_slots += !s->slabs[d->first + k].slots;
            yielded += s->slabs[d->first + k].yielded;
            assert(!s->slabs[d->first + k].yielded || !s->slabs[d->first + k].slots);
        }
        assert(yielded == d->yielded && without_slots == d->unbound.len + yielded);
        for (size_t k = 0; k < d->unbound.len; k++)
            assert(!s->slabs[d->first + d->unbound.items[k]].slots &&
                   !s->slabs[d->first + d->unbound.items[k]].yielded);
    }
}

/* Check everything; return the number of slots. */
static uint64_t space_check_all(const struct space *s)
{
    struct sums sums = {0};
    for (uint32_t i = 0; i < s->slab_count; i++)
        check_slab(s, i, &sums);
    for (unsigned d = 0; d < s->dir_count; d++)
        for (unsigned c = 0; c < CACHE_CLASSES; c++)
            assert(free_length(s, d, c) == sums.in_free[d][c]);
    check_unbound(s);
    assert(sums.ready == s->entries);
    assert(sums.used == s->used_bytes);
    assert(sums.meta == s->meta_bytes);
    assert(sums.pinned == s->pinned_bytes);
    for (size_t i = 0; i < s->group_count; i++)
        assert(sums.charged[i] == s->groups[i].used);
    return sums.slots;
}

void space_check(const struct space *s)
{
    space_check_all(s);
}

#ifdef GRANARY_CHECK
void space_assert(struct space *s)
{
    if (s->unchecked-- == 0)
        s->unchecked = space_check_all(s) / SPACE_CHECK_SLOTS;
}
#endif

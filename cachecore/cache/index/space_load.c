/* Loading millions of records within seconds.
 *
 *    records, in any order --> fields of their slots
 *    all read              --> slots sorted by fill --> index and policy --> the rest: free lists
 *
 * Records only set the fields of their slots. At the end the slots are sorted by their fills and enter index and
 * policy in that order, so that the latest fill is evicted last. Each one touches a slot and a bucket anywhere in
 * memory: both are prefetched some steps ahead. Until then the slots of a loaded slab are in no list; those that stay
 * free enter the free lists last.
 */
#include <stdlib.h>

#include "base/error.h"
#include "cache/index/space_internal.h"

/* How many steps ahead slots and buckets are prefetched. */
enum { AHEAD_SLOT = 32, AHEAD_BUCKET = 16 };

void space_load_yielded(struct space *s, unsigned dir, uint32_t slab)
{
    s->slabs[s->dirs[dir].first + slab].yielded = true;
    s->dirs[dir].yielded++;
}

int space_load_slab(struct space *s, unsigned dir, const struct cache_place *place)
{
    uint32_t number = s->dirs[dir].first + place->slab;
    if (space_bind_slab(s, number, place->class, place->epoch))
        return error_no_memory();
    s->slabs[number].announced = true;
    return 0;
}

/* Return a record's group. Most records have the owner of one of the records before. */
static uint16_t load_group(struct space *s, struct space_load *load, uint64_t owner)
{
    uint16_t *at = &load->groups[owner % SPACE_LOAD_OWNERS];
    if (!*at || s->groups[*at - 1].quota.owner != owner)
        *at = (uint16_t)space_group_of(s, owner, SPACE_GROUPS_MAX / 2);
    return *at;
}

int space_load_slot(struct space *s, struct space_load *load, unsigned dir, const struct cache_place *place,
                    const struct cache_record *record)
{
    uint32_t id = (s->dirs[dir].first + place->slab) << SPACE_SLOT_BITS | place->slot;
    struct slot *slot = space_slot_at(s, id);
    /* sort key: the low 32 bits of the fill's number above, the slot's id below */
    if (vec_push(&load->slots, record->seq << 32 | id))
        return -ENOMEM;
    slot->recorded = true;
    slot->key = space_key_of(&record->digest);
    slot->plain_len = record->plain_len;
    slot->stored_len = record->stored_len;
    slot_set_flags(slot, record->flags);
    if (slot->flags & RECORD_PINNED && load->pinned_bytes + cache_class_slot_size(place->class) > space_pin_limit(s))
        slot_set_flags(slot,
                       slot->flags & ~(unsigned)RECORD_PINNED); /* the directory is smaller now: over the pin limit */
    load->pinned_bytes += slot->flags & RECORD_PINNED ? cache_class_slot_size(place->class) : 0;
    slot->group = record->owner ? load_group(s, load, record->owner) : 0;
    s->clock = GR_MAX(s->clock, record->seq);
    return 0;
}

/* Sort by the upper 32 bits: a radix sort, least significant digit first, of 11 bits a pass. */
static int sort_loaded(struct space_load *load)
{
    enum { BITS = 11, BINS = 1 << BITS, PASSES = 3 };
    size_t n = load->slots.len;
    if (!n)
        return 0;
    uint64_t *from = load->slots.items, *to = malloc(n * sizeof *to), *const scratch = to;
    if (!to)
        return error_no_memory();
    for (unsigned pass = 0; pass < PASSES; pass++) {
        unsigned shift = 32 + pass * BITS;
        size_t start[BINS + 1] = {0};
        for (size_t i = 0; i < n; i++)
            start[(from[i] >> shift & (BINS - 1)) + 1]++;
        for (unsigned b = 0; b < BINS; b++)
            start[b + 1] += start[b];
        for (size_t i = 0; i < n; i++)
            to[start[from[i] >> shift & (BINS - 1)]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    memcpy(load->slots.items, scratch,
           n * sizeof *scratch); /* after an odd number of passes the result is in `scratch` */
    free(scratch);
    return 0;
}

/* Enter one slot as ready. It was used when it was filled. */
static void load_one(struct space *s, uint32_t id, uint32_t seq)
{
    struct slot *slot = space_slot_at(s, id);
    uint32_t twin = space_find_key(s, slot->key);
    if (twin !=
        SPACE_NONE) { /* two records of one chunk: the older one's blanking was lost, and the newer one counts */
        space_forget(s, twin);
        space_slot_at(s, twin)->state = SLOT_FREE;
    }
    space_enter(s, id, SLOT_FILLING);
    space_commit(s, id);
    space_slab_of(s, id)->used = slot->used = seq;
}

/* Enter all slots in the order of their fills. All fills lie within 32 bits of the clock, so keys above the clock's
 * low bits are of the time before it wrapped, and come first. */
static void enter_all(struct space *s, struct space_load *load)
{
    const uint64_t *items = load->slots.items;
    size_t n = load->slots.len, first = 0;
    while (first < n && items[first] >> 32 <= (uint32_t)s->clock)
        first++;
    for (size_t i = 0; i < n; i++) {
        size_t at = first + i < n ? first + i : first + i - n;
        size_t soon = at + AHEAD_SLOT < n ? at + AHEAD_SLOT : at, next = at + AHEAD_BUCKET < n ? at + AHEAD_BUCKET : at;
        __builtin_prefetch(space_slot_at(s, (uint32_t)items[soon]), 1);
        __builtin_prefetch(space_bucket_of(s, space_slot_at(s, (uint32_t)items[next])->key), 1);
        load_one(s, (uint32_t)items[at], (uint32_t)(items[at] >> 32));
    }
}

/* Put the slots that no record claimed into the free lists. */
static void free_the_rest(struct space *s)
{
    for (uint32_t number = 0; number < s->slab_count; number++)
        for (uint32_t i = 0; i < s->slabs[number].slot_count; i++)
            if (s->slabs[number].slots[i].state == SLOT_FREE)
                space_make_free(s, number << SPACE_SLOT_BITS | i);
}

int space_load_finish(struct space *s, struct space_load *load)
{
    for (size_t i = 0; i < s->dir_count; i++) {
        struct space_dir *d = &s->dirs[i];
        d->unbound.len = 0;
        for (uint32_t k = d->geometry.slab_count; k-- > 0;) {
            struct slab *slab = &s->slabs[d->first + k];
            if (!slab->slots && !slab->yielded)
                d->unbound.items[d->unbound.len++] = k;
            slab->used =
                (uint32_t)s->clock - (UINT32_C(1) << 30); /* long ago, unless one of its slots was used later */
        }
    }
    int rc = sort_loaded(load);
    if (!rc)
        enter_all(s, load);
    free_the_rest(s);
    vec_release(&load->slots);
    return rc;
}

/* The invariants of space.h's state table, written as assertions. */
#include <assert.h>

#include "cache/space.h"

static void check_slot(const struct space *s, const struct slab *slab, uint32_t id)
{
    const struct slot *slot = space_slot_at(s, id);
    uint32_t found = slot->state == SLOT_FREE ? SPACE_NONE : space_find(s, &slot->digest);
    assert(slot->state == SLOT_FREE || found == id); /* in the index, once */
    assert(slot->state == SLOT_FREE || cache_class_of(slot->plain_len) == slab->class);
    assert(slot->state != SLOT_FILLING || atomic_load(&slot->pins) == 0);
}

static uint32_t list_length(const struct space *s, const struct evict_list *list, unsigned class, int state)
{
    uint32_t n = 0, prev = SPACE_NONE;
    for (uint32_t id = list->head; id != SPACE_NONE; id = space_slot_at(s, id)->node.next) {
        const struct slot *slot = space_slot_at(s, id);
        assert(slot->state == state && slot->node.prev == prev);
        assert(s->slabs[id >> SPACE_SLOT_BITS].class == class);
        prev = id;
        n++;
    }
    assert(list->tail == prev);
    return n;
}

void space_check(const struct space *s)
{
    uint64_t count[CACHE_CLASSES][3] = {{0}}, ready = 0, used = 0;
    for (uint32_t i = 0; i < s->slab_count; i++)
        for (uint32_t k = 0; k < s->slabs[i].slot_count; k++) {
            uint32_t id = i << SPACE_SLOT_BITS | k;
            check_slot(s, &s->slabs[i], id);
            count[s->slabs[i].class][space_slot_at(s, id)->state]++;
        }
    for (unsigned c = 0; c < CACHE_CLASSES; c++) {
        uint32_t in_free = list_length(s, &s->free[c], c, SLOT_FREE);
        uint32_t in_policy = list_length(s, &s->evict[c].list, c, SLOT_READY);
        assert(in_free == count[c][SLOT_FREE]);
        assert(in_policy == count[c][SLOT_READY]);
        ready += in_policy;
        used += (uint64_t)in_policy * cache_class_slot_size(c);
    }
    assert(ready == s->entries);
    assert(used == s->used_bytes);
}

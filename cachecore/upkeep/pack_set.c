/* A vector that is sorted and merged whenever it has doubled, so it holds at most about twice the number of packs.
 * Neighbouring chunks mostly share a pack, so nearly every add only extends the last entry. */
#include "upkeep/upkeep_internal.h"

enum { PACK_SET_MERGE_MIN = 4096 };

static int pack_need_order(const void *a, const void *b)
{
    return memcmp(&((const struct pack_need *)a)->pack, &((const struct pack_need *)b)->pack, DIGEST_SIZE);
}

void pack_set_finish(struct pack_set *set)
{
    size_t kept = 0;
    if (set->needs.items)
        qsort(set->needs.items, set->needs.len, sizeof *set->needs.items, pack_need_order);
    for (size_t i = 0; i < set->needs.len; i++) {
        struct pack_need *need = &set->needs.items[i];
        struct pack_need *last = kept ? &set->needs.items[kept - 1] : NULL;
        if (last && digest_equal(&last->pack, &need->pack))
            last->len = GR_MAX(last->len, need->len);
        else
            set->needs.items[kept++] = *need;
    }
    set->needs.len = set->merged = kept;
}

static int pack_set_need(struct pack_set *set, const struct digest *pack, uint64_t end)
{
    struct pack_need *last = set->needs.len ? &set->needs.items[set->needs.len - 1] : NULL;
    if (last && digest_equal(&last->pack, pack)) {
        last->len = GR_MAX(last->len, end);
        return 0;
    }
    /* Merging only after doubling keeps an add cheap on average. */
    if (set->needs.len >= PACK_SET_MERGE_MIN && set->needs.len >= 2 * set->merged)
        pack_set_finish(set);
    struct pack_need need = {.pack = *pack, .len = end};
    return vec_push(&set->needs, need);
}

int pack_set_add(struct pack_set *set, const struct chunk_ref *ref)
{
    int rc = pack_set_need(set, &ref->object, (uint64_t)ref->offset + ref->stored_len);
    if (rc || !chunk_is_delta(ref))
        return rc;
    return pack_set_need(set, &ref->base.object, (uint64_t)ref->base.offset + ref->base.stored_len);
}

void pack_set_release(struct pack_set *set)
{
    vec_release(&set->needs);
    set->merged = 0;
}

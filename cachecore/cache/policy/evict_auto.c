/* auto: shadow caches, small ones, one a policy, each run by the real code on the same sample of keys
 * (by hash: one in 2^shift of all chunks, in a cache 2^shift times smaller, behaves like the whole).
 * The big cache follows the one that has hit most.
 *
 * Another is followed when it is ahead by more than chance explains: of the asks where the two
 * differed it won by three standard deviations. What was long ago counts less: both sums are halved
 * every five times their slots. The shadow caches begin with the first ask, so there is an opinion when the
 * cache gets full.
 *
 * The seats' table is no map of base/map.h: a panel is one block of fixed size, and nothing is allocated, and so
 * nothing can fail, while the cache's lock is held.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/evict_internal.h"

enum { SHADOWS = 5, SLOTS_MAX = 2048, SLOTS_MIN = 8, LEAD_MIN = 16, DEVIATIONS = 3, MEMORY = 5 };

struct slot {
    uint64_t key;
    struct evict_node node;
    uint32_t hash_next; /* or the next free one */
};

struct shadow {
    struct evict *e;
    int64_t ahead, differed; /* of the one followed, and from it; of late, in half asks */
    uint32_t held, used;     /* slots taken now; that ever were */
    uint32_t free;           /* chain of those given back */
    uint32_t buckets[SLOTS_MAX];
    struct slot slots[SLOTS_MAX];
};

struct shadows {
    struct evict_shadows base;
    unsigned shift, followed;
    uint64_t asked; /* since the sums were halved */
    struct shadow caches[SHADOWS];
};

/* The first is followed until another proves better. */
static const struct evict_ops *const followable[SHADOWS] = {
    &evict_lfu_firm, &evict_lfu, &evict_s3fifo, &evict_lru, &evict_parts,
};

static struct evict_node *slot_node(void *arg, uint32_t slot)
{
    struct shadow *m = arg;
    return &m->slots[slot].node;
}

static bool slot_busy(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return false;
}

/* ---- one shadow cache ---- */

static uint32_t *evict_auto_bucket_of(struct shadow *m, uint64_t key)
{
    return &m->buckets[(key >> 32) % SLOTS_MAX];
}

static uint32_t evict_auto_find(struct shadow *m, uint64_t key)
{
    uint32_t slot = *evict_auto_bucket_of(m, key);
    while (slot != EVICT_NONE && m->slots[slot].key != key)
        slot = m->slots[slot].hash_next;
    return slot;
}

static void leave(struct shadow *m)
{
    uint32_t slot = evict_victim(m->e, 0);
    uint64_t key = m->slots[slot].key;
    evict_remove(m->e, 0, slot, key);
    uint32_t *link = evict_auto_bucket_of(m, key);
    while (*link != slot)
        link = &m->slots[*link].hash_next;
    *link = m->slots[slot].hash_next;
    m->slots[slot].hash_next = m->free;
    m->free = slot;
    m->held--;
}

static void evict_auto_enter(struct shadow *m, uint64_t key)
{
    uint32_t slot = m->free, *bucket = evict_auto_bucket_of(m, key);
    if (slot != EVICT_NONE)
        m->free = m->slots[slot].hash_next;
    else
        slot = m->used++;
    m->slots[slot].key = key;
    m->slots[slot].hash_next = *bucket;
    *bucket = slot;
    evict_insert(m->e, 0, slot, key);
    m->held++;
}

/* true: a hit. */
static bool shadow_ask(struct shadow *m, uint64_t key, unsigned part, uint32_t slots)
{
    while (m->held > slots)
        leave(m);
    uint32_t slot = evict_auto_find(m, key);
    if (slot != EVICT_NONE) {
        evict_hit(m->e, 0, slot, key, part);
        return true;
    }
    evict_miss(m->e, 0, key, part);
    bool full = m->held == slots;
    if (full && !evict_admit(m->e, 0, key))
        return false;
    if (full)
        leave(m);
    evict_auto_enter(m, key);
    return false;
}

static int shadow_init(struct shadow *m, const struct evict_ops *ops)
{
    m->free = EVICT_NONE;
    for (unsigned i = 0; i < SLOTS_MAX; i++)
        m->buckets[i] = EVICT_NONE;
    struct evict_config config = {.pools = 1, .capacity = SLOTS_MAX, .node_at = slot_node, .busy = slot_busy, .arg = m};
    return evict_new_ops(&config, ops, &m->e);
}

/* ---- the shadow caches ---- */

static void shadows_free(struct evict_shadows *base)
{
    struct shadows *shadows = (struct shadows *)base;
    for (unsigned i = 0; i < SHADOWS; i++)
        evict_free(shadows->caches[i].e);
    free(shadows);
}

static void evict_auto_follow(struct shadows *shadows, unsigned which)
{
    shadows->followed = which;
    shadows->asked = 0;
    for (unsigned i = 0; i < SHADOWS; i++)
        shadows->caches[i].ahead = shadows->caches[i].differed = 0;
}

static void evict_auto_judge(struct shadows *shadows, const bool hit[SHADOWS], uint32_t slots)
{
    unsigned best = shadows->followed;
    bool halve = ++shadows->asked >= (uint64_t)MEMORY * slots;
    for (unsigned i = 0; i < SHADOWS; i++) {
        struct shadow *m = &shadows->caches[i];
        m->ahead += 2 * (hit[i] - hit[shadows->followed]);
        m->differed += 2 * (hit[i] != hit[shadows->followed]);
        if (halve) {
            m->ahead /= 2;
            m->differed /= 2;
        }
        if (m->ahead > shadows->caches[best].ahead)
            best = i;
    }
    if (halve)
        shadows->asked = 0;
    const struct shadow *m = &shadows->caches[best];
    if (m->ahead > 2 * LEAD_MIN && m->ahead * m->ahead > 2 * DEVIATIONS * DEVIATIONS * m->differed)
        evict_auto_follow(shadows, best);
}

static bool is_sampled(const struct shadows *shadows, uint64_t key)
{
    return (key & ((UINT64_C(1) << shadows->shift) - 1)) == 0;
}

static void shadows_more(struct evict_shadows *base, uint64_t key, unsigned part)
{
    struct shadows *shadows = (struct shadows *)base;
    for (unsigned i = 0; is_sampled(shadows, key) && i < SHADOWS; i++) {
        struct shadow *m = &shadows->caches[i];
        uint32_t slot = evict_auto_find(m, key);
        if (slot != EVICT_NONE)
            evict_more(m->e, slot, part);
        else
            evict_missed_more(m->e, key, part);
    }
}

static const struct evict_ops *shadows_ask(struct evict_shadows *base, uint64_t key, unsigned part, uint64_t held)
{
    struct shadows *shadows = (struct shadows *)base;
    if (is_sampled(shadows, key)) {
        uint64_t share = GR_MIN(GR_MAX(held >> shadows->shift, (uint64_t)SLOTS_MIN), (uint64_t)SLOTS_MAX);
        uint32_t slots = held ? (uint32_t)share : SLOTS_MAX;
        bool hit[SHADOWS];
        for (unsigned i = 0; i < SHADOWS; i++)
            hit[i] = shadow_ask(&shadows->caches[i], key, part, slots);
        if (held)
            evict_auto_judge(shadows, hit, slots);
    }
    return followable[shadows->followed];
}

int shadows_new(uint64_t capacity, struct evict_shadows **out)
{
    _Static_assert(sizeof(struct shadows) < 296 << 10, "evict.h and docs/internals/cache.md state the memory");
    struct shadows *shadows = calloc(1, sizeof *shadows);
    if (!shadows)
        return -ENOMEM;
    while (capacity >> shadows->shift > SLOTS_MAX)
        shadows->shift++;
    for (unsigned i = 0; i < SHADOWS; i++)
        if (shadow_init(&shadows->caches[i], followable[i])) {
            shadows_free(&shadows->base);
            return -ENOMEM;
        }
    shadows->base = (struct evict_shadows){.ask = shadows_ask, .more = shadows_more, .free = shadows_free};
    *out = &shadows->base;
    return 0;
}

/* Which policy is followed: the named one, or with EVICT_AUTO the best of several.
 *
 * auto: runs small shadow caches, one per policy, on a sample of the keys, by the code of the real policies. One key in
 * 2^shift, in a cache that is 2^shift times smaller, behaves like the whole (Waldspurger et al., "Cache modeling and
 * optimization using miniature simulations", ATC 2017). The real cache follows the shadow with the most hits.
 *
 * It switches when another shadow leads by more than chance explains: it must have won the reads in which the two
 * differed by three standard deviations. Older reads count less: both sums are halved after every MEMORY reads per
 * slot. The shadows run from the first read on, so that there is an opinion when the cache becomes full.
 *
 * A shadow's table is not base/map.h's: it is one block of fixed size, so that nothing is allocated, and nothing can
 * fail, under the cache's lock.
 *
 * Reads in quick succession of one chunk count once only if the policy uses counts (it has ghosts). The table of recent
 * keys must be small compared to the cache: otherwise real second reads would be lost.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cache/policy/evict_internal.h"

enum { SHADOWS = 5, SLOTS_MAX = 2048, SLOTS_MIN = 8, LEAD_MIN = 16, DEVIATIONS = 3, MEMORY = 5 };

/* A chunk of a shadow cache. */
struct slot {
    uint64_t key;
    struct evict_node node;
    uint32_t hash_next; /* next in its bucket, or next free slot */
};

/* One small cache with its policy. */
struct shadow {
    struct evict *e;
    int64_t ahead, differed; /* in half reads, recent ones: lead over the shadow followed; reads with another result */
    uint32_t held, used;     /* slots in use now; slots that ever were */
    uint32_t free;           /* list of slots that were used and are free */
    uint32_t buckets[SLOTS_MAX];
    struct slot slots[SLOTS_MAX];
};

/* All of them. Allocated once, about 300 KiB. */
struct shadows {
    struct evict_shadows base;
    unsigned shift, followed; /* one key in 2^shift is sampled; index into caches */
    uint64_t asked;           /* sampled reads since the sums were halved */
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

/* Nothing pins a slot of a shadow. */
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

/* Return the slot of a key, or EVICT_NONE. */
static uint32_t evict_auto_find(struct shadow *m, uint64_t key)
{
    uint32_t slot = *evict_auto_bucket_of(m, key);
    while (slot != EVICT_NONE && m->slots[slot].key != key)
        slot = m->slots[slot].hash_next;
    return slot;
}

/* Evict a chunk from a shadow. */
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

/* Insert a chunk into a shadow that has room. */
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

/* Read part of a chunk through a shadow of `slots` slots. True: a hit. */
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

/* Compare the shadows after a sampled read, and switch if one leads significantly. Under the null hypothesis the lead
 * is a random walk of `differed` steps, so its variance is `differed`; ahead^2 > 9 differed means three standard
 * deviations. Both sums are doubled so that halving loses no half. */
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

/* While the real cache has room, the shadows learn with all their slots, but are not compared. */
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

/* Create the shadow caches for a cache of `capacity` slots. The sample is chosen so that a full cache's share fits into
 * SLOTS_MAX slots. -ENOMEM. */
static int shadows_new(uint64_t capacity, struct evict_shadows **out)
{
    _Static_assert(sizeof(struct shadows) < 296 << 10, "evict.h and docs/internals/cache.md state the memory");
    struct shadows *shadows = calloc(1, sizeof *shadows);
    if (!shadows)
        return error_no_memory();
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

/* ---- names, construction ---- */

enum { RECENT_PART = 256 }; /* the table has at most this part of the capacity as entries */

static const struct {
    const char *name;
    const struct evict_ops *ops; /* initially */
} policies[EVICT_POLICIES] = {
    [EVICT_AUTO] = {"auto", &evict_lfu_firm},
    [EVICT_LRU] = {"lru", &evict_lru},
    [EVICT_S3FIFO] = {"s3fifo", &evict_s3fifo},
    [EVICT_STICKY] = {"sticky", &evict_sticky},
};

int evict_policy_parse(const char *text, enum evict_policy *out)
{
    for (unsigned i = 0; i < EVICT_POLICIES; i++)
        if (!strcmp(text, policies[i].name)) {
            *out = (enum evict_policy)i;
            return 0;
        }
    return error_set(-EINVAL, "eviction: '%s' is none of auto, lru, s3fifo, sticky", text);
}

const char *evict_policy_name(enum evict_policy policy)
{
    return policies[policy].name;
}

int evict_new(const struct evict_config *config, struct evict **out)
{
    struct evict *e = NULL;
    int rc = evict_new_ops(config, policies[config->policy].ops, &e);
    if (!rc && config->policy == EVICT_AUTO)
        rc = shadows_new(config->capacity, &e->shadows);
    if (rc) {
        evict_free(e);
        return rc;
    }
    if (e->ghost.sets) {
        e->recent_mask = RECENT_MAX - 1;
        while (e->recent_mask > config->capacity / RECENT_PART)
            e->recent_mask /= 2;
    }
    *out = e;
    return 0;
}

unsigned evict_followed(const struct evict *e)
{
    static const struct evict_ops *const numbered[] = {
        &evict_lru, &evict_s3fifo, &evict_sticky, &evict_lfu, &evict_lfu_firm, &evict_parts,
    };
    unsigned i = 0;
    while (numbered[i] != e->ops)
        i++;
    return i + 1;
}

/* The policies, and the lists of a pool that they share: `small`, then `main`.
 *
 *   victims <-- tail [ small ] head      only s3fifo inserts here
 *   victims <-- tail [ main  ] head
 *
 * Under EVICT_AUTO, the other policies find what s3fifo left in small and evict that first. So switching policies costs
 * nothing: the slots stay in their lists, and are only treated differently from then on.
 */
#include "cache/policy/evict_internal.h"

enum { WALK_MAX = 256 }; /* slots of one walk over busy ones */

/* ---- lists ---- */

void evict_list_init(struct evict_list *l)
{
    l->head = l->tail = EVICT_NONE;
}

void evict_list_push_head(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot)
{
    struct evict_node *n = at(arg, slot);
    n->prev = EVICT_NONE;
    n->next = l->head;
    if (l->head != EVICT_NONE)
        at(arg, l->head)->prev = slot;
    else
        l->tail = slot;
    l->head = slot;
}

void evict_list_push_tail(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot)
{
    struct evict_node *n = at(arg, slot);
    n->next = EVICT_NONE;
    n->prev = l->tail;
    if (l->tail != EVICT_NONE)
        at(arg, l->tail)->next = slot;
    else
        l->head = slot;
    l->tail = slot;
}

void evict_list_remove(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot)
{
    struct evict_node *n = at(arg, slot);
    if (n->prev != EVICT_NONE)
        at(arg, n->prev)->next = n->next;
    else
        l->head = n->next;
    if (n->next != EVICT_NONE)
        at(arg, n->next)->prev = n->prev;
    else
        l->tail = n->prev;
}

/* ---- a pool's ---- */

/* Add a slot at the head of small. The node keeps its count. */
static void pool_push_small(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    evict_node(e, slot)->bits &= (uint8_t)~BITS_MAIN;
    evict_list_push_head(&p->small, e->config.node_at, e->config.arg, slot);
    p->small_count++;
}

/* Add a slot at the head of main. The node keeps its count. */
static void pool_push_main(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    evict_node(e, slot)->bits |= BITS_MAIN;
    evict_list_push_head(&p->main, e->config.node_at, e->config.arg, slot);
    p->main_count++;
}

/* Neither ageing's hand nor the chosen victim may point to a slot that has left the list. */
void pool_unlink(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    struct evict_node *n = evict_node(e, slot);
    if (p->hand == slot)
        p->hand = n->prev;
    if (p->chosen == slot)
        p->chosen = EVICT_NONE;
    bool main = n->bits & BITS_MAIN;
    evict_list_remove(main ? &p->main : &p->small, e->config.node_at, e->config.arg, slot);
    --*(main ? &p->main_count : &p->small_count);
}

/* Move a slot to the head of main. */
static void pool_renew(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    if (p->main.head == slot)
        return;
    pool_unlink(e, p, slot);
    pool_push_main(e, p, slot);
}

/* Move a slot to the head of the list it is in. */
static void pool_rotate(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    bool main = evict_node(e, slot)->bits & BITS_MAIN;
    pool_unlink(e, p, slot);
    if (main)
        pool_push_main(e, p, slot);
    else
        pool_push_small(e, p, slot);
}

/* Return the last slot of a list that is not busy. Busy slots are moved to the head, so that the next walk does not
 * meet them again. */
static uint32_t oldest_of(struct evict *e, struct evict_pool *p, const struct evict_list *list, uint32_t count)
{
    for (uint32_t i = GR_MIN(count, (uint32_t)WALK_MAX); i > 0; i--) {
        uint32_t slot = list->tail;
        if (!evict_is_busy(e, slot))
            return slot;
        pool_rotate(e, p, slot);
    }
    return EVICT_NONE;
}

uint32_t pool_oldest(struct evict *e, struct evict_pool *p)
{
    uint32_t slot = oldest_of(e, p, &p->small, p->small_count);
    return slot != EVICT_NONE ? slot : oldest_of(e, p, &p->main, p->main_count);
}

/* Add a slot at the head of main, with the count that the ghosts have of the key, at least 1. */
static void pool_insert_counted(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    bool lately;
    unsigned count = ghost_take(&e->ghost, key, &lately);
    evict_node(e, slot)->bits |= (uint8_t)GR_MAX(count, 1u);
    pool_push_main(e, p, slot);
}

static bool pool_admit_always(struct evict *e, struct evict_pool *p, uint64_t key)
{
    (void)e;
    (void)p;
    (void)key;
    return true;
}

/* ---- lru, sticky ----
 *
 * lru: one list, the most recently used at its head. sticky: the same list, but only forced chunks are admitted, each
 * in place of the least recently used.
 */

static void lru_insert(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    (void)key;
    pool_push_main(e, p, slot);
}

/* A pool without a slot gets one, at the cost of another pool. Otherwise chunks of a size that first appears late would
 * be fetched at each read. */
static bool sticky_admit(struct evict *e, struct evict_pool *p, uint64_t key)
{
    (void)e;
    (void)key;
    return p->small_count + p->main_count == 0;
}

const struct evict_ops evict_lru = {
    .name = "lru",
    .half_life = 8,
    .insert = lru_insert,
    .hit = pool_renew,
    .admit = pool_admit_always,
    .victim = pool_oldest,
};

const struct evict_ops evict_sticky = {
    .name = "sticky",
    .insert = lru_insert,
    .hit = pool_renew,
    .admit = sticky_admit,
    .victim = pool_oldest,
};

/* ---- s3fifo ----
 *
 * s3fifo (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023):
 *
 *   insert --> [ small: a tenth ] --no hit--> evicted, remembered in the ghosts
 *                     | hit                        | comes back while remembered
 *                     v                            v
 *              [ main: the rest  ] <---------------+
 *                ^             | at its end: one more round per hit, at most three, then evicted
 *                +-------------+
 *
 * A hit only increments the node's count; nothing moves. The paper requires two hits in the small queue; one hit was
 * better on the Zipf traces here.
 */

enum { SMALL_PART = 10, ROUNDS_MAX = 3, STEPS_MAX = 64 };

/* A chunk that comes back soon was evicted too early: it goes to main. */
static void s3fifo_insert(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    bool lately;
    ghost_take(&e->ghost, key, &lately);
    if (lately)
        pool_push_main(e, p, slot);
    else
        pool_push_small(e, p, slot);
}

static void s3fifo_hit(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    (void)e;
    (void)p;
    (void)slot; /* evict_hit has counted it */
}

/* Examine the end of one queue. Returns the slot to evict, or EVICT_NONE if that slot got another round. */
static uint32_t evict_s3fifo_step(struct evict *e, struct evict_pool *p)
{
    uint64_t total = (uint64_t)p->small_count + p->main_count;
    bool small = p->main_count == 0 || (p->small_count && (uint64_t)p->small_count * SMALL_PART >= total);
    uint32_t slot = small ? p->small.tail : p->main.tail;
    unsigned count = evict_count(e, slot);
    if (count == 0)
        return slot;
    pool_unlink(e, p, slot);
    pool_push_main(e, p, slot);
    struct evict_node *n = evict_node(e, slot);
    unsigned left = small ? 0 : GR_MIN(count, (unsigned)ROUNDS_MAX) - 1;
    n->bits = (uint8_t)((n->bits & ~BITS_COUNT) | left);
    return EVICT_NONE;
}

/* The walk would end by itself after three rounds of main. STEPS_MAX keeps a call short; beyond it, the oldest is good
 * enough. */
static uint32_t s3fifo_victim(struct evict *e, struct evict_pool *p)
{
    for (unsigned i = 0; i < STEPS_MAX && p->small_count + p->main_count; i++) {
        uint32_t slot = evict_s3fifo_step(e, p);
        if (slot == EVICT_NONE)
            continue;
        if (!evict_is_busy(e, slot))
            return slot;
        pool_rotate(e, p, slot);
    }
    return pool_oldest(e, p);
}

const struct evict_ops evict_s3fifo = {
    .name = "s3fifo",
    .remember = REMEMBER_LEFT,
    .half_life = 8,
    .counts_its_own = true,
    .insert = s3fifo_insert,
    .hit = s3fifo_hit,
    .admit = pool_admit_always,
    .victim = s3fifo_victim,
};

/* ---- lfu ----
 *
 * lfu: a chunk is admitted only if it was read more often than the least-read of the few least recently used. The
 * counts of cached chunks are in their nodes, the others' in the ghosts. All counts are halved from time to time, so
 * that formerly popular chunks can leave.
 *
 * Two variants, between which EVICT_AUTO chooses:
 *
 *   lfu        long memory, no margin: for stable popularity (Zipf)
 *   lfu-firm   a margin: when all chunks are read equally often (shuffled epochs), a newcomer leads its victim by one
 *              only because its turn came earlier in this epoch. Exchanging them gains nothing and loses the cached one
 *
 * Ageing is driven by hits, not by time. Without hits nothing happens that would make the counts wrong; only a long
 * period without any (nothing cached is useful) ages them too. A round walks over the ghosts, then over the nodes, a
 * few with each read. In between, newcomers look worse than they are, which is harmless. A node that moves to the head
 * of its list is met a second time: BITS_ROUND says that it has been aged.
 */

/* A victim is chosen from CANDIDATES candidates. A round of ageing begins after half_life hits per slot, or HIT_WEIGHT
 * misses per slot; each read then ages STEP entries. HELD_MIN bounds the rounds of a small cache. */
enum { CANDIDATES = 4, STEP = 2, HELD_MIN = 64, HIT_WEIGHT = 200 };

/* Return the least-read of the CANDIDATES least recently used slots. */
static uint32_t lfu_victim(struct evict *e, struct evict_pool *p)
{
    uint32_t best = pool_oldest(e, p), slot = best;
    if (p->small_count)
        return best;
    for (unsigned i = 1; i < CANDIDATES && slot != EVICT_NONE; i++) {
        slot = evict_node(e, slot)->prev;
        if (slot != EVICT_NONE && evict_count(e, slot) < evict_count(e, best) && !evict_is_busy(e, slot))
            best = slot;
    }
    return best;
}

/* Compare the newcomer's count with the victim's. A victim whose count has aged to 0 is always replaced. */
static bool lfu_admit(struct evict *e, struct evict_pool *p, uint64_t key)
{
    uint32_t slot = lfu_victim(e, p);
    if (p->small_count || slot == EVICT_NONE)
        return true;
    unsigned its = evict_count(e, slot), mine = ghost_count(&e->ghost, key);
    if (its == 0 || mine > its + e->ops->margin) {
        p->chosen = slot;
        return true;
    }
    if (e->ops->margin == 0) /* examine others next time; with a margin, the order of use says more */
        pool_rotate(e, p, p->main.tail);
    return false;
}

/* Begin a round of ageing if it is time. */
static bool begin_round(struct evict *e)
{
    struct evict_ageing *a = &e->ageing;
    if (a->time < GR_MAX(e->held, (uint64_t)HELD_MIN) * e->ops->half_life * HIT_WEIGHT)
        return false;
    a->time = 0;
    a->round ^= BITS_ROUND;
    a->pool = 0;
    a->ghosts_due = true;
    e->pools[0].hand = e->pools[0].main.tail;
    return true;
}

/* Age the next node of the round. */
static void age_next(struct evict *e)
{
    struct evict_ageing *a = &e->ageing;
    struct evict_pool *p = &e->pools[a->pool];
    uint32_t slot = p->hand;
    if (slot == EVICT_NONE) {
        if (++a->pool < e->config.pools)
            e->pools[a->pool].hand = e->pools[a->pool].main.tail;
        return;
    }
    struct evict_node *n = evict_node(e, slot);
    p->hand = n->prev;
    if ((n->bits & BITS_ROUND) == a->round)
        return;
    unsigned count = (n->bits & BITS_COUNT) >> !e->ops->counts_its_own;
    n->bits = (uint8_t)((n->bits & BITS_MAIN) | a->round | count);
}

void evict_age(struct evict *e, bool hit)
{
    struct evict_ageing *a = &e->ageing;
    a->time += hit ? HIT_WEIGHT : e->ops->half_life;
    if (a->pool == e->config.pools && !begin_round(e))
        return;
    if (a->ghosts_due) {
        a->ghosts_due = !ghost_age(&e->ghost, STEP);
        return;
    }
    for (unsigned i = 0; i < STEP && a->pool < e->config.pools; i++)
        age_next(e);
}

#define LFU(called, ...)                                                                                               \
    {                                                                                                                  \
        .name = called, .remember = REMEMBER_ASKED, __VA_ARGS__, .insert = pool_insert_counted, .hit = pool_renew,     \
        .admit = lfu_admit, .victim = lfu_victim,                                                                      \
    }

const struct evict_ops evict_lfu = LFU("lfu", .half_life = 32);
const struct evict_ops evict_lfu_firm = LFU("lfu-firm", .half_life = 16, .margin = 2);

/* ---- parts ----
 *
 * parts: for files that are read whole, in random order, epoch after epoch, where several files share a chunk or a file
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

enum { ENDS = 128 }; /* slots examined at each end */

static bool may_go(const struct evict *e, uint32_t slot)
{
    return evict_is_read(e, slot) && !evict_is_busy(e, slot);
}

/* Return a slot whose chunk was read whole, or EVICT_NONE. */
static uint32_t find_read(const struct evict *e, const struct evict_pool *p)
{
    uint32_t slot = p->main.head;
    for (unsigned i = 0; i < ENDS && slot != EVICT_NONE; i++, slot = evict_node(e, slot)->next)
        if (may_go(e, slot))
            return slot;
    slot = p->main.tail;
    for (unsigned i = 0; i < ENDS && slot != EVICT_NONE; i++, slot = evict_node(e, slot)->prev)
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

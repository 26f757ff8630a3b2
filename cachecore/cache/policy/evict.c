/* What all policies have in common: the lists of a pool, and the way of each call.
 *
 * Two lists do for every policy: main, and small before it. s3fifo alone puts something on small;
 * under EVICT_AUTO the others find what it left there and take that first. So to follow another
 * policy costs nothing at the moment of the change: the same slots are on the same lists, only what
 * is done with them differs from then on.
 *
 * A chunk is asked for once for every piece of it that is read, many times in a moment when a file
 * is read in order. To count these would make each file read once look popular: what was asked for
 * among the last few hundred (recent: a direct-mapped table) is passed over. How much of the chunk was
 * read is added up all the same: in the node, and for a chunk that is missing in another such table (missed).
 */
#include "cache/policy/evict_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { WALK_MAX = 256, GHOSTS_ASKED = 2 /* a slot */, RECENT_PART = 256 };

_Static_assert(sizeof(struct evict_node) == 12, "docs/cache.md states the memory of a chunk");

static const struct {
    const char *name;
    const struct evict_ops *ops; /* to begin with */
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

void pool_push_small(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    evict_node(e, slot)->bits &= (uint8_t)~BITS_MAIN;
    evict_list_push_head(&p->small, e->config.node_at, e->config.arg, slot);
    p->small_count++;
}

void pool_push_main(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    evict_node(e, slot)->bits |= BITS_MAIN;
    evict_list_push_head(&p->main, e->config.node_at, e->config.arg, slot);
    p->main_count++;
}

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

void pool_renew(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    if (p->main.head == slot)
        return;
    pool_unlink(e, p, slot);
    pool_push_main(e, p, slot);
}

void pool_rotate(struct evict *e, struct evict_pool *p, uint32_t slot)
{
    bool main = evict_node(e, slot)->bits & BITS_MAIN;
    pool_unlink(e, p, slot);
    if (main)
        pool_push_main(e, p, slot);
    else
        pool_push_small(e, p, slot);
}

/* Busy ones go to the young end: the next walk does not meet them again. */
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

void pool_insert_counted(struct evict *e, struct evict_pool *p, uint32_t slot, uint64_t key)
{
    bool lately;
    unsigned count = ghost_take(&e->ghost, key, &lately);
    evict_node(e, slot)->bits |= (uint8_t)GR_MAX(count, 1u);
    pool_push_main(e, p, slot);
}

bool pool_admit_always(struct evict *e, struct evict_pool *p, uint64_t key)
{
    (void)e;
    (void)p;
    (void)key;
    return true;
}

/* ---- life ---- */

int evict_new_ops(const struct evict_config *config, const struct evict_ops *ops, struct evict **out)
{
    struct evict *e = calloc(1, sizeof *e + config->pools * sizeof e->pools[0]);
    if (!e)
        return -ENOMEM;
    e->config = *config;
    e->ops = ops;
    e->counts = ops->remember == REMEMBER_ASKED;
    e->ageing.pool = config->pools;
    for (uint32_t i = 0; i < config->pools; i++) {
        struct evict_pool *p = &e->pools[i];
        evict_list_init(&p->small);
        evict_list_init(&p->main);
        p->hand = p->chosen = EVICT_NONE;
    }
    uint64_t ghosts = config->capacity * (e->counts ? GHOSTS_ASKED : 1);
    int rc = ops->remember == REMEMBER_NOTHING ? 0 : ghost_init(&e->ghost, ghosts, config->capacity);
    if (rc) {
        evict_free(e);
        return rc;
    }
    *out = e;
    return 0;
}

int evict_new(const struct evict_config *config, struct evict **out)
{
    struct evict *e = NULL;
    int rc = evict_new_ops(config, policies[config->policy].ops, &e);
    if (!rc && config->policy == EVICT_AUTO)
        rc = panel_new(config->capacity, &e->panel);
    if (rc) {
        evict_free(e);
        return error_set(rc, "cache: out of memory for the eviction");
    }
    if (e->ghost.sets) {
        e->recent_mask = RECENT_MAX - 1;
        while (e->recent_mask > config->capacity / RECENT_PART)
            e->recent_mask /= 2;
    }
    *out = e;
    return 0;
}

void evict_free(struct evict *e)
{
    if (!e)
        return;
    panel_free(e->panel);
    ghost_release(&e->ghost);
    free(e);
}

const char *evict_following(const struct evict *e)
{
    return e->ops->name;
}

unsigned evict_followed(const struct evict *e)
{
    static const struct evict_ops *const numbered[] = {
        &evict_lru,      &evict_s3fifo,   &evict_sticky,     &evict_lfu,
        &evict_lfu_keen, &evict_lfu_firm, &evict_lfu_firmer, &evict_parts,
    };
    unsigned i = 0;
    while (numbered[i] != e->ops)
        i++;
    return i + 1;
}

/* ---- the calls ---- */

static struct evict_pool *pool_of(struct evict *e, uint32_t pool)
{
    assert(pool < e->config.pools);
    return &e->pools[pool];
}

static bool asked_just_now(struct evict *e, uint64_t key)
{
    if (!e->recent_mask)
        return false;
    uint32_t *cell = &e->recent[(key >> 8) & e->recent_mask], print = (uint32_t)(key >> 32);
    bool same = *cell == print;
    *cell = print;
    return same;
}

static void asked(struct evict *e, uint64_t key, unsigned part, bool hit)
{
    if (e->panel)
        e->ops = panel_ask(e->panel, key, part, e->full ? e->held : 0);
    if (e->counts)
        evict_age(e, hit);
}

static unsigned add_parts(unsigned a, unsigned b)
{
    return GR_MIN(a + b, (unsigned)EVICT_WHOLE);
}

/* The keys of a panel's sample have their low bits in common. */
static size_t missed_place(uint64_t key)
{
    return (key >> 24) % MISSED_MAX;
}

/* It has come in, or what was asked of it before does not count. */
static void forget_missed(struct evict *e, uint64_t key)
{
    if (evict_missed_part(e, key))
        e->missed[missed_place(key)] = (struct evict_missed){0};
}

unsigned evict_missed_part(const struct evict *e, uint64_t key)
{
    const struct evict_missed *m = &e->missed[missed_place(key)];
    return m->print == (uint32_t)(key >> 32) ? m->read : 0;
}

void evict_missed_more(struct evict *e, uint64_t key, unsigned part)
{
    unsigned before = evict_missed_part(e, key);
    before = before >= READ_ENOUGH ? 0 : before; /* that was an earlier pass */
    e->missed[missed_place(key)] =
        (struct evict_missed){.print = (uint32_t)(key >> 32), .read = add_parts(before, part)};
}

void evict_insert(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key)
{
    struct evict_node *n = evict_node(e, slot);
    n->bits = e->ageing.round;
    n->read = (uint8_t)evict_missed_part(e, key);
    forget_missed(e, key);
    e->ops->insert(e, pool_of(e, pool), slot, key);
    e->held++;
}

void evict_more(struct evict *e, uint32_t slot, unsigned part)
{
    struct evict_node *n = evict_node(e, slot);
    if (!evict_is_read(e, slot))
        n->read = (uint8_t)add_parts(n->read, part);
}

void evict_hit(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key, unsigned part)
{
    struct evict_pool *p = pool_of(e, pool);
    if (asked_just_now(e, key)) {
        evict_more(e, slot, part);
        if (e->panel)
            panel_more(e->panel, key, part);
        return;
    }
    struct evict_node *n = evict_node(e, slot);
    if ((n->bits & BITS_COUNT) < COUNT_MAX)
        n->bits++;
    if (part)
        n->read = (uint8_t)add_parts(evict_is_read(e, slot) ? 0 : n->read, part);
    e->ops->hit(e, p, slot);
    asked(e, key, part, true);
}

void evict_remove(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key)
{
    pool_unlink(e, pool_of(e, pool), slot);
    e->held--;
    if (e->ghost.sets)
        ghost_leave(&e->ghost, key, evict_count(e, slot));
}

void evict_miss(struct evict *e, uint32_t pool, uint64_t key, unsigned part)
{
    (void)pool_of(e, pool);
    evict_missed_more(e, key, part);
    if (asked_just_now(e, key)) {
        if (e->panel)
            panel_more(e->panel, key, part);
        return;
    }
    if (e->counts)
        ghost_ask(&e->ghost, key);
    asked(e, key, part, false);
}

bool evict_admit(struct evict *e, uint32_t pool, uint64_t key)
{
    e->full = true;
    return e->ops->admit(e, pool_of(e, pool), key);
}

void evict_force(struct evict *e, uint64_t key)
{
    forget_missed(e, key);
}

uint32_t evict_oldest(struct evict *e, uint32_t pool)
{
    return pool_oldest(e, pool_of(e, pool));
}

uint32_t evict_victim(struct evict *e, uint32_t pool)
{
    e->full = true;
    struct evict_pool *p = pool_of(e, pool);
    uint32_t slot = p->chosen;
    p->chosen = EVICT_NONE;
    return slot != EVICT_NONE && !evict_is_busy(e, slot) ? slot : e->ops->victim(e, p);
}

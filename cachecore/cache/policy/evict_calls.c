/* The calls of evict.h, whatever the policy.
 *
 * A chunk is read once for each piece of it: many times in a moment when a file is read sequentially. Counting all of
 * these would make every file that is read once look popular. So a read of one of the last few hundred keys does not
 * count (`recent`, a direct-mapped table).
 *
 * How much of the chunk was read is still summed up: in its node, or for a missing chunk in a second such table
 * (`missed`). A sum that reaches READ_ENOUGH means that a pass over the chunk is complete; the next counted read begins
 * a new pass.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/error.h"
#include "cache/policy/evict_internal.h"

enum { GHOSTS_ASKED = 2 }; /* ghosts per slot if missed chunks are counted */

_Static_assert(sizeof(struct evict_node) == 12, "docs/internals/cache.md states the memory of a chunk");

/* ---- life ---- */

/* The ghosts have two entries per slot if missed chunks are counted too, one if only evicted ones are remembered. */
int evict_new_ops(const struct evict_config *config, const struct evict_ops *ops, struct evict **out)
{
    struct evict *e = calloc(1, sizeof *e + config->pools * sizeof e->pools[0]);
    if (!e)
        return error_no_memory();
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

void evict_free(struct evict *e)
{
    if (!e)
        return;
    if (e->shadows)
        e->shadows->free(e->shadows);
    ghost_release(&e->ghost);
    free(e);
}

const char *evict_following(const struct evict *e)
{
    return e->ops->name;
}

/* ---- the calls ---- */

static struct evict_pool *pool_of(struct evict *e, uint32_t pool)
{
    assert(pool < e->config.pools);
    return &e->pools[pool];
}

/* Is the key among the recently read ones? Records it in any case. */
static bool asked_just_now(struct evict *e, uint64_t key)
{
    if (!e->recent_mask)
        return false;
    uint32_t *cell = &e->recent[(key >> 8) & e->recent_mask], print = (uint32_t)(key >> 32);
    bool same = *cell == print;
    *cell = print;
    return same;
}

/* A counted read: advance the shadow caches and ageing. */
static void asked(struct evict *e, uint64_t key, unsigned part, bool hit)
{
    if (e->shadows)
        e->ops = e->shadows->ask(e->shadows, key, part, e->full ? e->held : 0);
    if (e->counts)
        evict_age(e, hit);
}

static unsigned add_parts(unsigned a, unsigned b)
{
    return GR_MIN(a + b, (unsigned)EVICT_WHOLE);
}

/* Forget the reads of a missing chunk: it was inserted, or they do not count. */
static void forget_missed(struct evict *e, uint64_t key)
{
    if (evict_missed_part(e, key))
        e->missed[evict_missed_place(key)] = (struct evict_missed){0};
}

void evict_missed_more(struct evict *e, uint64_t key, unsigned part)
{
    unsigned before = evict_missed_part(e, key);
    before = before >= READ_ENOUGH ? 0 : before; /* READ_ENOUGH: that was an earlier pass */
    e->missed[evict_missed_place(key)] =
        (struct evict_missed){.print = (uint32_t)(key >> 32), .read = add_parts(before, part)};
}

/* Counts of a key that was missed come from the ghosts, by the policy's insert. */
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

/* The first counted read after a whole pass begins the next pass. */
void evict_hit(struct evict *e, uint32_t pool, uint32_t slot, uint64_t key, unsigned part)
{
    struct evict_pool *p = pool_of(e, pool);
    if (asked_just_now(e, key)) {
        evict_more(e, slot, part);
        if (e->shadows)
            e->shadows->more(e->shadows, key, part);
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

/* The count goes to the ghosts, for the case that the chunk comes back. */
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
        if (e->shadows)
            e->shadows->more(e->shadows, key, part);
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

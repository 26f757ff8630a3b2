/* The lists of a pool, shared by all policies: `small`, then `main`.
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

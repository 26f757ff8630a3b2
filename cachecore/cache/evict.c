/* lru: one list, used last at the head. A touched slot moves there, so busy ones (pinned while they
 * are read) stand near the head and the walk from the tail is short.
 */
#include "cache/evict.h"

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

void evict_init(struct evict *e, evict_node_at *at, void *arg)
{
    e->at = at;
    e->arg = arg;
    evict_list_init(&e->list);
}

void evict_insert(struct evict *e, uint32_t slot)
{
    evict_list_push_head(&e->list, e->at, e->arg, slot);
}

void evict_touch(struct evict *e, uint32_t slot)
{
    if (e->list.head == slot)
        return;
    evict_list_remove(&e->list, e->at, e->arg, slot);
    evict_list_push_head(&e->list, e->at, e->arg, slot);
}

void evict_remove(struct evict *e, uint32_t slot)
{
    evict_list_remove(&e->list, e->at, e->arg, slot);
}

uint32_t evict_victim(struct evict *e, evict_busy *busy)
{
    uint32_t slot = e->list.tail;
    while (slot != EVICT_NONE && busy(e->arg, slot))
        slot = e->at(e->arg, slot)->prev;
    return slot;
}

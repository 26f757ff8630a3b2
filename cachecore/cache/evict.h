/* Which slot goes next. One interface for every policy; lru is the one there is.
 *
 * A policy knows slots by number and keeps its state in the evict_node of each, which the owner
 * stores. It holds exactly the slots that were inserted and not removed. The caller locks.
 */
#ifndef GRANARY_CACHE_EVICT_H
#define GRANARY_CACHE_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#define EVICT_NONE UINT32_MAX

struct evict_node {
    uint32_t prev, next;
};

/* The owner's node of a slot. */
typedef struct evict_node *evict_node_at(void *arg, uint32_t slot);
/* true: the slot cannot go now (pinned). */
typedef bool evict_busy(void *arg, uint32_t slot);

/* A doubly linked list of slots; also the owner's list of free ones. */
struct evict_list {
    uint32_t head, tail;
};

struct evict {
    evict_node_at *at;
    void *arg;
    struct evict_list list; /* head: used last */
};

void evict_list_init(struct evict_list *l);
void evict_list_push_head(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_push_tail(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);
void evict_list_remove(struct evict_list *l, evict_node_at *at, void *arg, uint32_t slot);

void evict_init(struct evict *e, evict_node_at *at, void *arg);
/* A slot got a chunk: it counts as just used. */
void evict_insert(struct evict *e, uint32_t slot);
/* A slot was read. */
void evict_touch(struct evict *e, uint32_t slot);
/* A slot lost its chunk. */
void evict_remove(struct evict *e, uint32_t slot);
/* The slot to give up, still held; EVICT_NONE: none that is not busy. */
uint32_t evict_victim(struct evict *e, evict_busy *busy);

#endif

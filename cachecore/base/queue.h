/* A bounded first-in first-out queue of pointers between threads. */
#ifndef GRANARY_BASE_QUEUE_H
#define GRANARY_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct queue;

/* A queue of at most limit items; NULL when out of memory. */
struct queue *queue_new(size_t limit);
/* The queue must be idle: no thread in push or pop. Items still in it are the caller's loss: drain
 * first. */
void queue_free(struct queue *q);

/* Wait for room, append. false: the queue was closed and the item stays the caller's. */
GR_MUST_CHECK bool queue_push(struct queue *q, void *item);
/* Append if there is room now. */
GR_MUST_CHECK bool queue_try_push(struct queue *q, void *item);
/* Wait for an item. NULL: closed and empty. */
void *queue_pop(struct queue *q);
/* No more pushes; pops drain what is left, then return NULL. May be called twice. */
void queue_close(struct queue *q);

#endif

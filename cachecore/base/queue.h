/* A bounded first-in, first-out queue of pointers between threads. Any number of threads push and pop. */
#ifndef GRANARY_BASE_QUEUE_H
#define GRANARY_BASE_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct queue;

/* Return a queue of at most limit items (at least 1); NULL when out of memory. */
struct queue *queue_new(size_t limit);
/* Free the queue; no thread may be in push or pop. Items still in it are not released: drain it first. NULL is allowed.
 */
void queue_free(struct queue *q);

/* Wait for room and append item, which must not be NULL. false: the queue is closed; the caller keeps the item. */
GR_MUST_CHECK bool queue_push(struct queue *q, void *item);
/* The same without waiting. false: closed or full. */
GR_MUST_CHECK bool queue_try_push(struct queue *q, void *item);
/* Wait for the oldest item and remove it. NULL: the queue is closed and empty. */
void *queue_pop(struct queue *q);
/* Close the queue: pushes fail, pops return the remaining items and then NULL. Threads that wait are woken. May be
 * called twice. */
void queue_close(struct queue *q);

#endif

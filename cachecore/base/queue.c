/* A circular array under one lock. The two conditions keep threads that push from waking others that push. One signal
 * for one item is enough, since each item or free place serves one thread; closing concerns all and broadcasts.
 */
#include "base/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"

struct queue {
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t not_empty, not_full;
    bool closed;
    size_t limit, head, len; /* head: the oldest item's place */
    void *items[];
};

struct queue *queue_new(size_t limit)
{
    struct queue *q = calloc(1, sizeof *q + limit * sizeof *q->items);
    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->not_empty, NULL);
    pthread_cond_init(&q->not_full, NULL);
    q->limit = limit;
    return q;
}

void queue_free(struct queue *q)
{
    if (!q)
        return;
    pthread_cond_destroy(&q->not_full);
    pthread_cond_destroy(&q->not_empty);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* Append an item; there is room. */
static void queue_append_locked(struct queue *q, void *item)
{
    q->items[(q->head + q->len++) % q->limit] = item;
    pthread_cond_signal(&q->not_empty);
}

bool queue_push(struct queue *q, void *item)
{
    SCOPED_LOCK(&q->lock);
    while (!q->closed && q->len == q->limit)
        pthread_cond_wait(&q->not_full, &q->lock);
    if (q->closed)
        return false;
    queue_append_locked(q, item);
    return true;
}

bool queue_try_push(struct queue *q, void *item)
{
    SCOPED_LOCK(&q->lock);
    if (q->closed || q->len == q->limit)
        return false;
    queue_append_locked(q, item);
    return true;
}

void *queue_pop(struct queue *q)
{
    SCOPED_LOCK(&q->lock);
    while (!q->closed && !q->len)
        pthread_cond_wait(&q->not_empty, &q->lock);
    if (!q->len) /* closed: items that are left are still delivered */
        return NULL;
    void *item = q->items[q->head];
    q->head = (q->head + 1) % q->limit;
    q->len--;
    pthread_cond_signal(&q->not_full);
    return item;
}

void queue_close(struct queue *q)
{
    SCOPED_LOCK(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
}

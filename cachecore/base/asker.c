/* Whom a thread works for is the thread's own, as its last error is (error.h): the layers between the front, which
 * knows him, and those that wait have nothing to do with it.
 *
 * No wake-up is lost: `gone` is set before each condition is signalled under its mutex, and looked at under it.
 */
#include "base/asker.h"

#include "base/cleanup.h"

static _Thread_local struct asker *current;

void asker_init(struct asker *a)
{
    pthread_mutex_init(&a->lock, NULL);
    atomic_init(&a->gone, false);
    a->waits = NULL;
}

void asker_release(struct asker *a)
{
    pthread_mutex_destroy(&a->lock);
}

void asker_serve(struct asker *a)
{
    current = a;
}

void asker_go(struct asker *a)
{
    SCOPED_LOCK(&a->lock);
    atomic_store_explicit(&a->gone, true, memory_order_release);
    for (struct asker_wait *w = a->waits; w; w = w->next) {
        SCOPED_LOCK(w->mutex);
        pthread_cond_broadcast(w->cond);
    }
}

void asker_wait_begin(struct asker_wait *w, pthread_mutex_t *mutex, pthread_cond_t *cond)
{
    *w = (struct asker_wait){.asker = current, .mutex = mutex, .cond = cond};
    if (!w->asker)
        return;
    SCOPED_LOCK(&w->asker->lock);
    w->next = w->asker->waits;
    if (w->next)
        w->next->prev = w;
    w->asker->waits = w;
}

void asker_wait_end(struct asker_wait *w)
{
    if (!w->asker)
        return;
    SCOPED_LOCK(&w->asker->lock);
    if (w->prev)
        w->prev->next = w->next;
    else
        w->asker->waits = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

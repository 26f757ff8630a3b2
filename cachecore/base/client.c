/* The current client is thread-local, like the last error (error.h). The front end knows the client and the fetch layer
 * waits; the layers between them do not have to pass it along.
 *
 * Lock order: the client's lock, then a wait's mutex. No wake-up is lost:
 *
 *   client_set_disconnected          waiter
 *   set `disconnected`               lock mutex
 *   for each wait: lock mutex        test `disconnected`
 *     broadcast                      pthread_cond_wait, which unlocks
 *
 * The broadcast needs the mutex, so it comes either before the waiter's test, which then sees the flag, or after the
 * waiter has begun to wait. A wait that begins after the loop sees the flag at its first test.
 */
#include "base/client.h"

#include "base/cleanup.h"

static _Thread_local struct client *current; /* the client that this thread works for; NULL: none */

void client_init(struct client *c)
{
    pthread_mutex_init(&c->lock, NULL);
    atomic_init(&c->disconnected, false);
    c->waits = NULL;
}

void client_release(struct client *c)
{
    pthread_mutex_destroy(&c->lock);
}

void client_bind_thread(struct client *c)
{
    current = c;
}

void client_set_disconnected(struct client *c)
{
    SCOPED_LOCK(&c->lock);
    atomic_store_explicit(&c->disconnected, true, memory_order_release);
    for (struct client_wait *w = c->waits; w; w = w->next) {
        SCOPED_LOCK(w->mutex);
        pthread_cond_broadcast(w->cond);
    }
}

void client_wait_begin(struct client_wait *w, pthread_mutex_t *mutex, pthread_cond_t *cond)
{
    *w = (struct client_wait){.client = current, .mutex = mutex, .cond = cond};
    if (!w->client)
        return;
    SCOPED_LOCK(&w->client->lock);
    w->next = w->client->waits;
    if (w->next)
        w->next->prev = w;
    w->client->waits = w;
}

void client_wait_end(struct client_wait *w)
{
    if (!w->client)
        return;
    SCOPED_LOCK(&w->client->lock);
    if (w->prev)
        w->prev->next = w->next;
    else
        w->client->waits = w->next;
    if (w->next)
        w->next->prev = w->prev;
}

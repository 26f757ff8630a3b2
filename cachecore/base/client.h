/* Whom a thread works for: a client of a server, say, who may go away while threads wait on his behalf. Then their
 * waits end; what they waited for goes on, for others may want it too.
 */
#ifndef GRANARY_BASE_CLIENT_H
#define GRANARY_BASE_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct client {
    pthread_mutex_t lock; /* before the mutexes of what is waited for */
    _Atomic bool disconnected;
    struct client_wait *waits;
};

void client_init(struct client *c);
/* No thread works for him any more. */
void client_release(struct client *c);

/* The calling thread works for him from now on; NULL: for nobody in particular. */
void client_bind_thread(struct client *c);

/* He has gone: whoever waits for him, now or later, ends that at once. Any thread. */
void client_set_disconnected(struct client *c);
static inline bool client_is_disconnected(const struct client *c)
{
    return atomic_load_explicit(&c->disconnected, memory_order_acquire);
}

/* A wait of the calling thread for its client, on a condition. Begun and ended without the condition's mutex; in
 * between the mutex is there, and the condition is signalled when he goes. Where the thread has no client all this is
 * nothing.
 */
struct client_wait {
    struct client *client;
    struct client_wait *prev, *next;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
};
void client_wait_begin(struct client_wait *w, pthread_mutex_t *mutex, pthread_cond_t *cond);
void client_wait_end(struct client_wait *w);
/* There is nobody to wait for; asked with the mutex held. */
static inline bool client_wait_is_over(const struct client_wait *w)
{
    return w->client && client_is_disconnected(w->client);
}

#endif

/* The client of a server that a thread currently works for. A client may disconnect while threads wait on its behalf;
 * those waits then end early. The work they waited for, a fetch for example, continues: other clients may need it.
 */
#ifndef GRANARY_BASE_CLIENT_H
#define GRANARY_BASE_CLIENT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct client {
    pthread_mutex_t lock;      /* guards `waits`; taken before any client_wait's mutex */
    _Atomic bool disconnected; /* set once, never cleared */
    struct client_wait *waits; /* waits in progress, in no order */
};

void client_init(struct client *c);
/* Destroy c. No thread may be bound to it or wait for it. */
void client_release(struct client *c);

/* Bind the calling thread to c: its waits from now on are on behalf of c. NULL: on behalf of no client. */
void client_bind_thread(struct client *c);

/* Mark c as disconnected: every wait on its behalf, now or later, ends at once. Any thread; holds none of the waits'
 * mutexes. */
void client_set_disconnected(struct client *c);
static inline bool client_is_disconnected(const struct client *c)
{
    return atomic_load_explicit(&c->disconnected, memory_order_acquire);
}

/* A wait on a condition by the calling thread, on behalf of its client:
 *
 *   client_wait_begin(&w, &mutex, &cond);
 *   lock mutex;
 *   while (!done && !client_wait_is_over(&w))
 *       pthread_cond_wait(&cond, &mutex);
 *   unlock mutex;
 *   client_wait_end(&w);
 *
 * The condition is broadcast when the client disconnects. Begin and end take the client's lock, so they are called
 * without the mutex; mutex and condition must exist from begin to end. For a thread without a client both do nothing.
 */
struct client_wait {
    struct client *client;           /* NULL: the thread had none */
    struct client_wait *prev, *next; /* in the client's list; guarded by its lock */
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
};
void client_wait_begin(struct client_wait *w, pthread_mutex_t *mutex, pthread_cond_t *cond);
void client_wait_end(struct client_wait *w);
/* Has the client disconnected? Called with the mutex held, so that no broadcast can be missed. */
static inline bool client_wait_is_over(const struct client_wait *w)
{
    return w->client && client_is_disconnected(w->client);
}

#endif

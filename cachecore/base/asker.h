/* Whom a thread works for: a client of a server, say, who may go away while threads wait on his behalf. Then their
 * waits end; what they waited for goes on, for others may want it too.
 */
#ifndef GRANARY_BASE_ASKER_H
#define GRANARY_BASE_ASKER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct asker {
    pthread_mutex_t lock; /* before the mutexes of what is waited for */
    _Atomic bool gone;
    struct asker_wait *waits;
};

void asker_init(struct asker *a);
/* No thread works for him any more. */
void asker_release(struct asker *a);

/* The calling thread works for him from now on; NULL: for nobody in particular. */
void asker_serve(struct asker *a);

/* He has gone: whoever waits for him, now or later, ends that at once. Any thread. */
void asker_go(struct asker *a);
static inline bool asker_is_gone(const struct asker *a)
{
    return atomic_load_explicit(&a->gone, memory_order_acquire);
}

/* A wait of the calling thread for its asker, on a condition. Begun and ended without the condition's mutex; in between
 * the mutex is there, and the condition is signalled when he goes. Where the thread has no asker all this is nothing.
 */
struct asker_wait {
    struct asker *asker;
    struct asker_wait *prev, *next;
    pthread_mutex_t *mutex;
    pthread_cond_t *cond;
};
void asker_wait_begin(struct asker_wait *w, pthread_mutex_t *mutex, pthread_cond_t *cond);
void asker_wait_end(struct asker_wait *w);
/* There is nobody to wait for; asked with the mutex held. */
static inline bool asker_wait_is_over(const struct asker_wait *w)
{
    return w->asker && asker_is_gone(w->asker);
}

#endif

#include "net/http_places.h"

#include <assert.h>
#include <errno.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"

void http_places_init(struct http_places *p, unsigned limit)
{
    assert(limit);
    *p = (struct http_places){.limit = limit};
    pthread_mutex_init(&p->lock, NULL);
    thread_cond_init(&p->freed);
}

void http_places_release(struct http_places *p)
{
    assert(!p->taken);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
}

bool http_places_take(struct http_places *p, uint64_t deadline_ms)
{
    const struct timespec until = clock_at_ms(deadline_ms);
    SCOPED_LOCK(&p->lock);
    while (p->taken >= p->limit)
        if (!deadline_ms)
            pthread_cond_wait(&p->freed, &p->lock);
        else if (pthread_cond_timedwait(&p->freed, &p->lock, &until) == ETIMEDOUT)
            return false;
    p->taken++;
    return true;
}

void http_places_give(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    p->taken--;
    pthread_cond_signal(&p->freed);
}

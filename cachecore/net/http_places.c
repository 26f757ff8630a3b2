#include "net/http_places.h"

#include <assert.h>

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
    int rc = 0;
    SCOPED_LOCK(&p->lock);
    p->waiting++;
    while (!rc && p->taken >= p->limit)
        rc = deadline_ms ? pthread_cond_timedwait(&p->freed, &p->lock, &until) : pthread_cond_wait(&p->freed, &p->lock);
    p->waiting--;
    p->taken += !rc;
    return !rc;
}

void http_places_give(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    p->taken--;
    pthread_cond_signal(&p->freed);
}

unsigned http_places_waiting(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    return p->waiting;
}

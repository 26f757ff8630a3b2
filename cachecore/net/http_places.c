#include "net/http_places.h"

#include <assert.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/share.h"
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
    assert(!p->taken && !p->users);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
}

void http_places_join(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    p->users++;
}

void http_places_leave(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    p->users--;
    pthread_cond_broadcast(&p->freed);
}

static bool has_place_locked(const struct http_places *p, const struct http_places_user *user,
                             enum http_place_kind kind)
{
    unsigned free = p->limit - p->taken, most = GR_MAX(p->limit * 3 / 8, 1u);
    if (p->users < 2)
        return free > 0;
    return share_allows(user->taken, free) &&
           (kind == HTTP_PLACE_DATA || share_allows(user->lookups, most - GR_MIN(most, p->lookups)));
}

bool http_places_take(struct http_places *p, struct http_places_user *user, enum http_place_kind kind,
                      uint64_t deadline_ms)
{
    const struct timespec until = clock_at_ms(deadline_ms);
    int rc = 0;
    SCOPED_LOCK(&p->lock);
    p->waiting++;
    while (!rc && !has_place_locked(p, user, kind))
        rc = deadline_ms ? pthread_cond_timedwait(&p->freed, &p->lock, &until) : pthread_cond_wait(&p->freed, &p->lock);
    p->waiting--;
    p->taken += !rc;
    user->taken += !rc;
    p->lookups += !rc && kind == HTTP_PLACE_LOOKUP;
    user->lookups += !rc && kind == HTTP_PLACE_LOOKUP;
    return !rc;
}

void http_places_give(struct http_places *p, struct http_places_user *user, enum http_place_kind kind)
{
    SCOPED_LOCK(&p->lock);
    p->taken--;
    user->taken--;
    p->lookups -= kind == HTTP_PLACE_LOOKUP;
    user->lookups -= kind == HTTP_PLACE_LOOKUP;
    if (p->users < 2)
        pthread_cond_signal(&p->freed);
    else
        pthread_cond_broadcast(&p->freed); /* not everyone who waits may have it */
}

unsigned http_places_waiting(struct http_places *p)
{
    SCOPED_LOCK(&p->lock);
    return p->waiting;
}

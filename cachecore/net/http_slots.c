/* Counters under one lock; a thread that may not take a slot waits on one condition. With a single user any waiter may
 * take a released slot, so one is woken. With several, only some of the waiters may, and all are woken to check.
 *
 * A lookup with several users needs two permissions: its user's share of all slots, and its user's share of the part
 * for lookups, which is at least one slot.
 */
#include "net/http.h"

#include <assert.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/share.h"
#include "base/thread.h"

void http_slots_init(struct http_slots *p, unsigned limit)
{
    assert(limit);
    *p = (struct http_slots){.limit = limit};
    pthread_mutex_init(&p->lock, NULL);
    thread_cond_init(&p->freed);
}

void http_slots_release(struct http_slots *p)
{
    assert(!p->in_use && !p->users && !p->idle);
    pthread_cond_destroy(&p->freed);
    pthread_mutex_destroy(&p->lock);
}

void http_slots_join(struct http_slots *p)
{
    SCOPED_LOCK(&p->lock);
    p->users++;
}

void http_slots_leave(struct http_slots *p)
{
    SCOPED_LOCK(&p->lock);
    p->users--;
    pthread_cond_broadcast(&p->freed);
}

/* May this user take a slot of this kind now? */
static bool has_place_locked(const struct http_slots *p, const struct http_slots_user *user, enum http_slot_kind kind)
{
    unsigned free = p->limit - p->in_use, most = GR_MAX(p->limit * 3 / 8, 1u);
    if (p->users < 2)
        return free > 0;
    return share_allows(user->in_use, free) &&
           (kind == HTTP_SLOT_DATA || share_allows(user->lookups, most - GR_MIN(most, p->lookups)));
}

bool http_slots_take(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind, uint64_t deadline_ms)
{
    const struct timespec until = clock_at_ms(deadline_ms);
    int rc = 0;
    SCOPED_LOCK(&p->lock);
    p->waiting++;
    while (!rc && !has_place_locked(p, user, kind))
        rc = deadline_ms ? pthread_cond_timedwait(&p->freed, &p->lock, &until) : pthread_cond_wait(&p->freed, &p->lock);
    p->waiting--;
    p->in_use += !rc;
    user->in_use += !rc;
    p->lookups += !rc && kind == HTTP_SLOT_LOOKUP;
    user->lookups += !rc && kind == HTTP_SLOT_LOOKUP;
    return !rc;
}

void http_slots_give(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind)
{
    SCOPED_LOCK(&p->lock);
    p->in_use--;
    user->in_use--;
    p->lookups -= kind == HTTP_SLOT_LOOKUP;
    user->lookups -= kind == HTTP_SLOT_LOOKUP;
    if (p->users < 2)
        pthread_cond_signal(&p->freed);
    else
        pthread_cond_broadcast(&p->freed); /* not every waiter may take it */
}

bool http_slots_keep(struct http_slots *p)
{
    SCOPED_LOCK(&p->lock);
    bool keep = p->idle < HTTP_IDLE_TIMES * p->limit;
    p->idle += keep;
    return keep;
}

void http_slots_unkeep(struct http_slots *p, size_t n)
{
    SCOPED_LOCK(&p->lock);
    p->idle -= (unsigned)n;
}

unsigned http_slots_waiting(struct http_slots *p)
{
    SCOPED_LOCK(&p->lock);
    return p->waiting;
}

/* The lock that guards a space. A build with GRANARY_CHECK (debug, sanitizers) asserts the state table before it
 * unlocks: after every locked section while few slots are bound, later only after as many sections that each pays for
 * SPACE_CHECK_SLOTS slots on average. */
#ifndef GRANARY_CACHE_INDEX_SPACE_LOCK_H
#define GRANARY_CACHE_INDEX_SPACE_LOCK_H

#include <pthread.h>

#include "base/cleanup.h"
#include "cache/index/space.h"

enum { SPACE_CHECK_SLOTS = 512 };

#ifdef GRANARY_CHECK
/* Call it before anything that unlocks, a wait for a condition included. */
void space_assert(struct space *s);
#else
static inline void space_assert(struct space *s)
{
}
#endif

/* What the end of the scope needs. */
struct space_locked {
    pthread_mutex_t *mutex;
    struct space *space;
};

static inline void space_unlock_(struct space_locked *l)
{
    space_assert(l->space);
    pthread_mutex_unlock(l->mutex);
}

/* Lock mutex, which guards the space, until the end of the scope. */
#define SCOPED_SPACE_LOCK(guard, guarded)                                                                              \
    CLEANUP(space_unlock_)                                                                                             \
    struct space_locked CLEANUP_CONCAT_(space_locked_, __LINE__) = {.mutex = (guard), .space = (guarded)};             \
    pthread_mutex_lock(CLEANUP_CONCAT_(space_locked_, __LINE__).mutex)

#endif

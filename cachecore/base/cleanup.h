/* Scope-bound cleanup: declare a resource with its CLEANUP_* macro, and every return releases it. A function that
 * succeeds hands the resource over with steal_ptr or steal_fd, which leave nothing to release:
 *
 *   CLEANUP(cleanup_thing) struct thing *t = thing_new();
 *   if (!t || prepare(t))
 *       return -EIO;              // t is released
 *   *out = steal_ptr(&t);         // t is the caller's now
 *   return 0;
 */
#ifndef GRANARY_BASE_CLEANUP_H
#define GRANARY_BASE_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* `unused`: some variables exist only for what happens at the end of their scope. */
#define CLEANUP(fn) __attribute__((cleanup(fn), unused))

/* Define cleanup_NAME(TYPE *p), which runs release(*p) unless *p is NULL. Use it as
 * `CLEANUP(cleanup_NAME) TYPE x = NULL;`. The variable must be initialized. */
#define DEFINE_CLEANUP(name, type, release)                                                                            \
    static inline void cleanup_##name(type *p)                                                                         \
    {                                                                                                                  \
        if (*p)                                                                                                        \
            release(*p);                                                                                               \
    }

static inline void cleanup_free_(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_fd_(int *fd)
{
    if (*fd >= 0)
        close(*fd);
}

static inline void cleanup_unlock_(pthread_mutex_t **m)
{
    if (*m)
        pthread_mutex_unlock(*m);
}

/* CLEANUP_FREE frees a pointer from malloc; CLEANUP_FD closes a descriptor unless it is negative. */
#define CLEANUP_FREE CLEANUP(cleanup_free_)
#define CLEANUP_FD CLEANUP(cleanup_fd_)

#define CLEANUP_CONCAT2_(a, b) a##b
#define CLEANUP_CONCAT_(a, b) CLEANUP_CONCAT2_(a, b)

/* Lock mutex (a pthread_mutex_t *) until the end of the scope. Expands to a declaration and a statement, so it needs a
 * block around it. */
#define SCOPED_LOCK(mutex)                                                                                             \
    CLEANUP(cleanup_unlock_)                                                                                           \
    pthread_mutex_t *CLEANUP_CONCAT_(scoped_lock_, __LINE__) = (mutex);                                                \
    pthread_mutex_lock(CLEANUP_CONCAT_(scoped_lock_, __LINE__))

/* Take the pointer out of *pp and leave NULL, so that the cleanup of *pp does nothing. */
#define steal_ptr(pp)                                                                                                  \
    ({                                                                                                                 \
        __typeof__(*(pp)) stolen_ = *(pp);                                                                             \
        *(pp) = NULL;                                                                                                  \
        stolen_;                                                                                                       \
    })

/* Take the descriptor out of *fd and leave -1. */
static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif

/* Scope-bound cleanup: a resource is declared with its CLEANUP_*, success hands it over with
 * steal_ptr/steal_fd. */
#ifndef GRANARY_BASE_CLEANUP_H
#define GRANARY_BASE_CLEANUP_H

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Some stand there for their end alone. */
#define CLEANUP(fn) __attribute__((cleanup(fn), unused))

/* Define cleanup_NAME(TYPE *p): runs release(*p) unless *p is NULL. Use: CLEANUP(cleanup_NAME) TYPE
 * x = NULL; */
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

#define CLEANUP_FREE CLEANUP(cleanup_free_)
#define CLEANUP_FD CLEANUP(cleanup_fd_)

#define CLEANUP_CONCAT2_(a, b) a##b
#define CLEANUP_CONCAT_(a, b) CLEANUP_CONCAT2_(a, b)

/* Lock mutex (a pthread_mutex_t *) until the end of the scope. */
#define SCOPED_LOCK(mutex)                                                                                             \
    CLEANUP(cleanup_unlock_)                                                                                           \
    pthread_mutex_t *CLEANUP_CONCAT_(scoped_lock_, __LINE__) = (mutex);                                                \
    pthread_mutex_lock(CLEANUP_CONCAT_(scoped_lock_, __LINE__))

/* Take the pointer out of *pp, leaving NULL: what a successful function returns of a CLEANUP
 * variable. */
#define steal_ptr(pp)                                                                                                  \
    ({                                                                                                                 \
        __typeof__(*(pp)) stolen_ = *(pp);                                                                             \
        *(pp) = NULL;                                                                                                  \
        stolen_;                                                                                                       \
    })

static inline int steal_fd(int *fd)
{
    int stolen = *fd;
    *fd = -1;
    return stolen;
}

#endif

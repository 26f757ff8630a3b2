/* A new thread inherits the signal mask of its creator. The creator therefore blocks all signals around
 * pthread_create; if the new thread blocked them itself, a signal could be delivered to it before.
 */
#include "base/thread.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

int thread_start(pthread_t *out, thread_run *run, void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc ? error_set(-rc, "cannot start a thread: %s; raise the limit of processes (ulimit -u)", strerror(rc)) : 0;
}

void thread_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

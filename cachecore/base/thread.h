/* Start threads and make conditions for timed waits. */
#ifndef GRANARY_BASE_THREAD_H
#define GRANARY_BASE_THREAD_H

#include <pthread.h>

#include "base/compiler.h"

typedef void *thread_run(void *arg);

/* Start run(arg) in a new joinable thread. It blocks every signal: signals are for the front end's own threads. -errno
 * with a sentence; *out is undefined then. */
GR_MUST_CHECK int thread_start(pthread_t *out, thread_run *run, void *arg);

/* Initialize a condition whose timed waits use CLOCK_MONOTONIC, with deadlines from clock_at_ms or clock_at_us. */
void thread_cond_init(pthread_cond_t *cond);

#endif

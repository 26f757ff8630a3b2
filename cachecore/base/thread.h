/* Threads of the library: no signal is ever theirs. */
#ifndef GRANARY_BASE_THREAD_H
#define GRANARY_BASE_THREAD_H

#include <pthread.h>

#include "base/compiler.h"

typedef void *thread_run(void *arg);

/* Start run(arg) in a new joinable thread that blocks every signal: they are the front end's business.
 * -errno with a sentence; then *out is undefined. */
GR_MUST_CHECK int thread_start(pthread_t *out, thread_run *run, void *arg);

/* A condition whose timed waits end by CLOCK_MONOTONIC (clock_at_ms). */
void thread_cond_init(pthread_cond_t *cond);

#endif

/* The threads that read what a device's own thread does not: as many as there is work, up to a limit. A quarter of them
 * is for work whose data is cached, so that a silent store never holds all. */
#ifndef GRANARY_UBLK_POOL_H
#define GRANARY_UBLK_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct pool;

/* A piece of work. It belongs to the pool from pool_give until `run` is called, which may give it again. */
struct pool_work {
    void (*run)(struct pool_work *w); /* on a thread of the pool */
    bool cached;                      /* it will not wait for a store, as far as is known */
    struct pool_work *next;           /* the pool's */
};

/* Make a pool with its first thread. threads_max: at least 1. -ENOMEM, or the errno of the thread. */
GR_MUST_CHECK int pool_new(unsigned threads_max, struct pool **out);
/* Queue work. Never blocks. Any thread. */
void pool_give(struct pool *p, struct pool_work *w);
/* Is it short of threads, so that it matters what is cached? Any thread. */
bool pool_is_short(struct pool *p);
/* The number of its threads, busy or idle. */
unsigned pool_threads(struct pool *p);
/* Run what is queued, end the threads, free the pool. NULL is allowed. */
void pool_free(struct pool *p);

#endif

/* Items 0, 1, 2, ... each done once by one of a few threads, while the calling thread looks after the rest. */
#ifndef GRANARY_BASE_PARALLEL_H
#define GRANARY_BASE_PARALLEL_H

#include <stddef.h>

#include "base/compiler.h"

enum { PARALLEL_STEP_MS = 200 };

struct parallel {
    size_t count;     /* of items */
    unsigned threads; /* at least 1; fewer will do where they cannot be started */
    /* Any of the threads. The first that is not 0 ends the work with that value and that thread's sentence; items that
     * others have begun are ended, the rest is not begun. */
    int (*item)(void *arg, size_t i);
    /* The calling thread, every PARALLEL_STEP_MS and once at the end; not 0 ends the work like an item's failure. NULL:
     * nothing to look after. */
    int (*step)(void *arg);
    void *arg;
};

/* Returns when no item is being done any more. */
GR_MUST_CHECK int parallel_run(const struct parallel *work);

#endif

/* Process the items 0, 1, 2, ..., each once, on a few threads, while the calling thread does the housekeeping: progress
 * output, renewing a lease, checking for a signal.
 */
#ifndef GRANARY_BASE_PARALLEL_H
#define GRANARY_BASE_PARALLEL_H

#include <stddef.h>

#include "base/compiler.h"

enum { PARALLEL_STEP_MS = 200 };

struct parallel {
    size_t count;     /* of items */
    unsigned threads; /* at least 1; fewer do the work if not all can be started */
    /* Process item i, on any of the threads. The first call that does not return 0 ends the work: parallel_run returns
     * that value with that thread's sentence. Items already begun are finished, no others begin. */
    int (*item)(void *arg, size_t i);
    /* Called on the calling thread every PARALLEL_STEP_MS, and once at the end. A return value other than 0 ends the
     * work as an item's failure does. May be NULL. */
    int (*step)(void *arg);
    void *arg;
};

/* Run the work; returns when all threads have ended. 0, the first failure of an item or a step, -ENOMEM, or an error
 * with a sentence when no thread can be started. */
GR_MUST_CHECK int parallel_run(const struct parallel *work);

#endif

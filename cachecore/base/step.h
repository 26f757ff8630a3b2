/* What long work calls again and again, in the calling thread and between any two requests: it renews a lease, shows
 * progress, or looks whether to stop. */
#ifndef GRANARY_BASE_STEP_H
#define GRANARY_BASE_STEP_H

#include "base/compiler.h"

/* All zero: nothing is called. */
struct step {
    int (*call)(void *arg); /* 0, or -errno with a sentence, which ends the work; NULL: nothing is called */
    void *arg;
};

GR_MUST_CHECK static inline int step_take(const struct step *step)
{
    return step->call ? step->call(step->arg) : 0;
}

#endif

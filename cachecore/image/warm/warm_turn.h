/* Runs that warm the same image take turns at its index nodes, and at its metadata if nothing else is warmed. A
 * server warms what it is started with, and a mount asks for the same a moment later: the second run waits for the
 * first, and finds everything cached, or gets its failure. */
#ifndef GRANARY_IMAGE_WARM_WARM_TURN_H
#define GRANARY_IMAGE_WARM_WARM_TURN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

/* The turn of one image. */
struct warm_turns {
    pthread_mutex_t lock; /* held for a few instructions */
    pthread_cond_t given; /* broadcast when the turn is released */
    bool taken;           /* some run has the turn */
    struct error failed;  /* the last turn's error; code 0: it went well, or was cancelled */
};

void warm_turns_init(struct warm_turns *t);
void warm_turns_release(struct warm_turns *t); /* no thread may be waiting */

/* Wait for the turn. wait(arg) is called now and then; its non-zero result ends the wait. If not 0, this run does not
 * have the turn: the result of `wait`, or the error of the run that was waited for. */
GR_MUST_CHECK int warm_turn_take(struct warm_turns *t, int (*wait)(void *arg), void *arg);
/* Release the turn. rc: the run's result. Leaves the thread's error message as it is. */
void warm_turn_give(struct warm_turns *t, int rc);

#endif

/* Runs that warm one image take turns at its index nodes, and at the metadata where it alone is warmed. A server warms
 * what it is started with, and a mount asks for the same a moment later: the second waits for the first, and finds all
 * cached, or has its failure. */
#ifndef GRANARY_IMAGE_WARM_WARM_TURN_H
#define GRANARY_IMAGE_WARM_WARM_TURN_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"

struct warm_turns {
    pthread_mutex_t lock; /* for a few instructions */
    pthread_cond_t given;
    bool taken;
    struct error failed; /* of the last turn; code 0: it went well, or was cancelled */
};

void warm_turns_init(struct warm_turns *t);
void warm_turns_release(struct warm_turns *t); /* nobody waits any more */

/* Blocks for others; wait(arg) is called now and then meanwhile, and what it returns ends that. Not 0: there is no turn
 * to give back; that of wait, or the failure of who was waited for. */
GR_MUST_CHECK int warm_turn_take(struct warm_turns *t, int (*wait)(void *arg), void *arg);
/* rc: how the turn went; the thread's sentence stays as it is. */
void warm_turn_give(struct warm_turns *t, int rc);

#endif

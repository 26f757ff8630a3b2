/* The turn is a flag: no thread holds the lock while it warms. A run that has waited gets the error of the run before
 * it, instead of trying the same again. */
#include <errno.h>

#include "base/clock.h"
#include "base/thread.h"
#include "image/image_internal.h"

enum { LOOK_MS = 200 }; /* interval of the waiting run's callback */

void warm_turns_init(struct warm_turns *t)
{
    pthread_mutex_init(&t->lock, NULL);
    thread_cond_init(&t->given);
}

void warm_turns_release(struct warm_turns *t)
{
    pthread_cond_destroy(&t->given);
    pthread_mutex_destroy(&t->lock);
}

/* Take the turn if it comes free within LOOK_MS. false: another run has it. *failed: that run's error, if this one
 * waited. */
static bool try_turn(struct warm_turns *t, bool *waited, struct error *failed)
{
    struct timespec until = clock_at_ms(clock_now_ms() + LOOK_MS);
    SCOPED_LOCK(&t->lock);
    *waited |= t->taken;
    if (t->taken)
        (void)!pthread_cond_timedwait(&t->given, &t->lock, &until);
    if (t->taken)
        return false;
    if (*waited)
        *failed = t->failed;
    t->taken = !failed->code;
    return true;
}

/* The step is taken without the lock: it may block. */
int warm_turn_take(struct warm_turns *t, const struct step *step)
{
    struct error failed = {0};
    bool waited = false;
    while (!try_turn(t, &waited, &failed)) {
        int rc = step_take(step);
        if (rc)
            return rc;
    }
    return failed.code ? error_restore(&failed) : 0;
}

/* A cancelled turn leaves no error: the next run does the work itself. */
void warm_turn_give(struct warm_turns *t, int rc)
{
    struct error failed = {0};
    if (rc && rc != -ECANCELED)
        error_take(&failed, rc);
    SCOPED_LOCK(&t->lock);
    t->taken = false;
    t->failed = failed;
    pthread_cond_broadcast(&t->given);
}

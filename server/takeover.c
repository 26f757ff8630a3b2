/* Takes over what belongs to this node since another one is leaving. One thread, which looks once a second whether a
 * node has said so, and then goes through all exports. What it asks for are the workers that fetch for other nodes, at
 * the priority of warming, so readers come first. */
#include "server/server_internal.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

enum { LOOK_MS = 1000 };

struct takeover {
    struct stack *stack;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t ends;
    volatile int ending; /* set under lock; read without it, too */
};

/* A failure does no harm: what was not taken over is fetched when it is read. */
static void take_all(struct takeover *t)
{
    uint64_t sum = 0, taken = 0;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    while (!cancel_asked(&t->ending) && (e = stack_next(t->stack, e))) {
        if (stack_take_over(t->stack, e, &t->ending, &taken) && !cancel_asked(&t->ending))
            log_warning("export '%s': not all was taken over from the node that leaves: %s", stack_export_name(e),
                        error_text());
        sum += taken;
    }
    counter_add(&stack_peer_counts(t->stack)->taken, sum);
    log_info("took over %llu chunks from nodes that leave", (unsigned long long)sum);
}

/* Sleep for LOOK_MS. False: the server ends. */
static bool pause_a_while(struct takeover *t)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + LOOK_MS);
    SCOPED_LOCK(&t->lock);
    while (!t->ending && pthread_cond_timedwait(&t->ends, &t->lock, &until) != ETIMEDOUT)
        continue;
    return !t->ending;
}

static void *run(void *arg)
{
    struct takeover *t = arg;
    unsigned seen = 0;
    while (pause_a_while(t)) {
        unsigned now = stack_departures(t->stack);
        if (now != seen)
            take_all(t);
        seen = now;
    }
    return NULL;
}

int takeover_begin(struct stack *stack, struct takeover **out)
{
    struct takeover *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
    t->stack = stack;
    pthread_mutex_init(&t->lock, NULL);
    thread_cond_init(&t->ends);
    int rc = thread_start(&t->thread, run, t);
    if (rc)
        free(t);
    else
        *out = t;
    return rc;
}

void takeover_end(struct takeover *t)
{
    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    __atomic_store_n(&t->ending, 1, __ATOMIC_RELAXED);
    pthread_cond_signal(&t->ends);
    pthread_mutex_unlock(&t->lock);
    pthread_join(t->thread, NULL);
    pthread_cond_destroy(&t->ends);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Each thread takes the next item number until all are taken. A failure sets the next number to the end, which stops
 * the other threads after their current items. No lock is held during an item or a step.
 */
#include "base/parallel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

/* One call of parallel_run, on its stack. */
struct running {
    const struct parallel *work;
    _Atomic size_t next;  /* the next item's number; >= count: none is left */
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t ended; /* a thread has ended */
    unsigned alive;       /* threads that have not ended */
    struct error failed;  /* the first failure; code 0: none */
};

/* Keep the calling thread's error if it is the first, and let no more items begin. */
static void parallel_fail(struct running *r, int rc)
{
    SCOPED_LOCK(&r->lock);
    if (!r->failed.code) /* other threads may fail while they finish their items */
        error_take(&r->failed, rc);
    atomic_store(&r->next, r->work->count);
}

static void *work_main(void *arg)
{
    struct running *r = arg;
    for (size_t i; (i = atomic_fetch_add(&r->next, 1)) < r->work->count;) {
        int rc = r->work->item(r->work->arg, i);
        if (rc)
            parallel_fail(r, rc);
    }
    SCOPED_LOCK(&r->lock);
    r->alive--;
    pthread_cond_signal(&r->ended);
    return NULL;
}

/* Wait until all threads have ended, at most for PARALLEL_STEP_MS. Returns whether any is still alive. */
static bool wait_alive(struct running *r)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + PARALLEL_STEP_MS);
    SCOPED_LOCK(&r->lock);
    while (r->alive)
        if (pthread_cond_timedwait(&r->ended, &r->lock, &until))
            break;
    return r->alive > 0;
}

/* Take a step after each wait, so one more step follows the end of the last thread. */
static void look_after(struct running *r)
{
    bool alive, stepping = r->work->step != NULL;
    do {
        alive = wait_alive(r);
        int rc = stepping ? r->work->step(r->work->arg) : 0;
        if (rc) {
            parallel_fail(r, rc);
            stepping = false;
        }
    } while (alive);
}

int parallel_run(const struct parallel *work)
{
    struct running r = {.work = work, .lock = PTHREAD_MUTEX_INITIALIZER};
    unsigned want = (unsigned)GR_MIN((size_t)work->threads, work->count), started = 0;
    CLEANUP_FREE pthread_t *threads = calloc(want + 1, sizeof *threads);
    if (!threads)
        return error_no_memory();
    thread_cond_init(&r.ended);
    r.alive = want; /* all of them before the first starts, since a thread may end at once */
    while (started < want) {
        int rc = thread_start(&threads[started], work_main, &r);
        if (!rc) {
            started++;
            continue;
        }
        if (!started)
            parallel_fail(&r, rc);
        /* Threads that did not start will not count themselves out. */
        SCOPED_LOCK(&r.lock);
        r.alive -= want - started;
        break;
    }
    look_after(&r);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    pthread_cond_destroy(&r.ended);
    pthread_mutex_destroy(&r.lock);
    return r.failed.code ? error_restore(&r.failed) : 0;
}

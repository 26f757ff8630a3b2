/* Threads draw the next number until there is none or somebody failed. `lock` guards everything but that number; it is
 * not held while an item is done or a step taken.
 */
#include "base/parallel.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

struct running {
    const struct parallel *work;
    _Atomic size_t next;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned alive;      /* threads that have not ended */
    struct error failed; /* the first */
};

static void parallel_fail(struct running *r, int rc)
{
    SCOPED_LOCK(&r->lock);
    if (!r->failed.code)
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

/* Wait until no thread is left, a step's time at the most; false: none is. */
static bool wait_alive(struct running *r)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + PARALLEL_STEP_MS);
    SCOPED_LOCK(&r->lock);
    while (r->alive)
        if (pthread_cond_timedwait(&r->ended, &r->lock, &until))
            break;
    return r->alive > 0;
}

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
    r.alive = want;
    while (started < want) {
        int rc = thread_start(&threads[started], work_main, &r);
        if (!rc) {
            started++;
            continue;
        }
        if (!started)
            parallel_fail(&r, rc);
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

/* One job at a time, handed over under a lock.
 *
 *    idle --run--> working --done--> idle
 *                     `-- deadline: given_up; the operation in progress goes on, no other is begun
 *                            `-- orphan: done(arg), then the thread frees itself
 */
#include "cache/disk/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"

/* `lock` guards ops to arg; the operations themselves belong to the thread while it works. */
struct io_thread {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    struct io_calls calls;
    struct io_op *ops; /* the job's operations; NULL: idle */
    size_t count, at;  /* of the job: operations, and the one in progress */
    bool given_up, stopping;
    void (*orphaned)(void *arg);
    void *arg;
};

/* ---- the thread's side ---- */

/* Do the rest of an operation from byte `done` on; return the bytes done, or -errno. */
static ssize_t do_part(const struct io_calls *calls, const struct io_op *op, size_t done)
{
    off_t off = (off_t)(op->off + done);
    size_t left = op->len - done;
    ssize_t n = -1;
    switch (op->kind) {
    case IO_READ:
        n = calls->pread(op->fd, op->data + done, left, off);
        break;
    case IO_WRITE:
        n = calls->pwrite(op->fd, op->data + done, left, off);
        break;
    case IO_ALLOCATE:
        n = calls->fallocate(op->fd, op->mode, off, (off_t)left) ? -1 : (ssize_t)left;
    }
    return n < 0 ? -errno : n;
}

/* Do all of an operation. -EIO: the file ended early. */
static int do_op(const struct io_calls *calls, const struct io_op *op)
{
    size_t done = 0;
    while (done < op->len) {
        ssize_t n = do_part(calls, op, done);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return n ? (int)n : -EIO;
        done += (size_t)n;
    }
    return 0;
}

/* Note which operation is in progress, unless the caller gave up. */
static bool may_begin(struct io_thread *t, size_t i)
{
    SCOPED_LOCK(&t->lock);
    if (!t->given_up)
        t->at = i;
    return !t->given_up;
}

/* Do the job's operations in order. Failed reads do not end it: they are independent of each other. */
static void do_job(struct io_thread *t)
{
    int failed = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct io_op *op = &t->ops[i];
        if (failed || !may_begin(t, i)) {
            op->rc = -ECANCELED;
            continue;
        }
        op->rc = do_op(&t->calls, op);
        failed = op->kind == IO_READ ? 0 : op->rc;
    }
}

static void destroy(struct io_thread *t)
{
    pthread_cond_destroy(&t->work);
    pthread_cond_destroy(&t->idle);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

/* Wait for a job. false: the thread is to end. */
static bool wait_for_work(struct io_thread *t)
{
    SCOPED_LOCK(&t->lock);
    while (!t->ops && !t->stopping)
        pthread_cond_wait(&t->work, &t->lock);
    return t->ops;
}

/* Report the job as done. true: the thread is an orphan. */
static bool finish_job(struct io_thread *t)
{
    SCOPED_LOCK(&t->lock);
    t->ops = NULL;
    pthread_cond_signal(&t->idle);
    return t->orphaned;
}

/* The thread: one job after another, until it is freed or orphaned. */
static void *work(void *arg)
{
    struct io_thread *t = arg;
    while (wait_for_work(t)) {
        do_job(t);
        if (!finish_job(t))
            continue;
        t->orphaned(t->arg);
        destroy(t);
        break;
    }
    return NULL;
}

/* ---- the others' side ---- */

int io_thread_new(const struct io_calls *calls, struct io_thread **out)
{
    struct io_thread *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->calls.pread = calls->pread ? calls->pread : pread;
    t->calls.pwrite = calls->pwrite ? calls->pwrite : pwrite;
    t->calls.fallocate = calls->fallocate ? calls->fallocate : fallocate;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->work, NULL);
    thread_cond_init(&t->idle);
    int rc = thread_start(&t->thread, work, t);
    if (rc) {
        destroy(t);
        return rc;
    }
    *out = t;
    return 0;
}

/* given_up stays set: this thread is never used again. */
bool io_thread_run(struct io_thread *t, struct io_op *ops, size_t n, uint64_t deadline_ms, size_t *out_at)
{
    struct timespec until = clock_at_ms(deadline_ms);
    SCOPED_LOCK(&t->lock);
    t->ops = ops;
    t->count = n;
    t->at = 0;
    pthread_cond_signal(&t->work);
    while (t->ops && !t->given_up)
        t->given_up = pthread_cond_timedwait(&t->idle, &t->lock, &until) == ETIMEDOUT && t->ops;
    *out_at = t->at;
    return !t->given_up;
}

bool io_thread_is_idle(struct io_thread *t)
{
    SCOPED_LOCK(&t->lock);
    return !t->ops;
}

void io_thread_free(struct io_thread *t)
{
    if (!t)
        return;
    {
        SCOPED_LOCK(&t->lock);
        t->stopping = true;
        pthread_cond_signal(&t->work);
    }
    pthread_join(t->thread, NULL);
    destroy(t);
}

void io_thread_orphan(struct io_thread *t, void (*done)(void *arg), void *arg)
{
    {
        SCOPED_LOCK(&t->lock);
        if (t->ops) {
            t->orphaned = done;
            t->arg = arg;
            pthread_detach(t->thread);
            return;
        }
    }
    done(arg); /* it finished a moment ago */
    io_thread_free(t);
}

/* Two lists, in order of arrival: cached work goes first, and other work takes at most three quarters of the threads.
 */
#include "ublk/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"

enum { RESERVE_PART = 4 };

struct pool_list {
    struct pool_work *first, **last;
    unsigned len;
};

/* Everything is under the lock. */
struct pool {
    pthread_mutex_t lock;
    pthread_cond_t given;
    struct pool_list cached, others;
    unsigned threads, threads_max, idle;
    unsigned others_running; /* at most others_max */
    bool ending;
    pthread_t ids[]; /* threads_max */
};

static void list_add(struct pool_list *l, struct pool_work *w)
{
    w->next = NULL;
    *l->last = w;
    l->last = &w->next;
    l->len++;
}

static struct pool_work *list_take(struct pool_list *l)
{
    struct pool_work *w = l->first;
    l->first = w->next;
    if (!l->first)
        l->last = &l->first;
    l->len--;
    return w;
}

/* How much other work may begin. */
static unsigned others_room_locked(const struct pool *p)
{
    return p->threads_max - p->threads_max / RESERVE_PART - p->others_running;
}

/* Return the next work that may run; NULL: none. */
static struct pool_work *take_locked(struct pool *p, bool *out_other)
{
    *out_other = false;
    if (p->cached.first)
        return list_take(&p->cached);
    if (!p->others.first || !others_room_locked(p))
        return NULL;
    *out_other = true;
    p->others_running++;
    return list_take(&p->others);
}

static void *pool_run(void *arg)
{
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        bool other;
        struct pool_work *w = take_locked(p, &other);
        if (w) {
            pthread_mutex_unlock(&p->lock);
            w->run(w);
            pthread_mutex_lock(&p->lock);
            p->others_running -= other;
            continue;
        }
        if (p->ending) /* what does not fit is left to those that run */
            break;
        p->idle++;
        pthread_cond_wait(&p->given, &p->lock);
        p->idle--;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int add_thread_locked(struct pool *p)
{
    int rc = thread_start(&p->ids[p->threads], pool_run, p);
    p->threads += !rc;
    return rc;
}

int pool_new(unsigned threads_max, struct pool **out)
{
    struct pool *p = calloc(1, sizeof *p + threads_max * sizeof *p->ids);
    if (!p)
        return error_no_memory();
    p->threads_max = threads_max;
    p->cached.last = &p->cached.first;
    p->others.last = &p->others.first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->given, NULL);
    int rc;
    {
        SCOPED_LOCK(&p->lock);
        rc = add_thread_locked(p);
    }
    if (rc)
        pool_free(p);
    else
        *out = p;
    return rc;
}

/* An idle thread that is woken counts as idle until it runs. A thread that cannot be started is no error: those there
 * are take the work. */
void pool_give(struct pool *p, struct pool_work *w)
{
    SCOPED_LOCK(&p->lock);
    list_add(w->cached ? &p->cached : &p->others, w);
    unsigned may_run = p->cached.len + GR_MIN(p->others.len, others_room_locked(p));
    if (may_run > p->idle && p->threads < p->threads_max) {
        if (add_thread_locked(p))
            log_debug("%s", error_text());
    }
    if (may_run && p->idle)
        pthread_cond_signal(&p->given);
}

bool pool_is_short(struct pool *p)
{
    SCOPED_LOCK(&p->lock);
    return !others_room_locked(p) || p->others.first;
}

unsigned pool_threads(struct pool *p)
{
    SCOPED_LOCK(&p->lock);
    return p->threads;
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    {
        SCOPED_LOCK(&p->lock);
        p->ending = true;
        pthread_cond_broadcast(&p->given);
    }
    for (unsigned i = 0; i < p->threads; i++)
        pthread_join(p->ids[i], NULL);
    pthread_cond_destroy(&p->given);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

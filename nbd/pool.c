/* Tasks, the queues in which they wait, and the server's threads.
 *
 *    ring[which]:  connection -> connection -> ...      connections with a waiting task take turns
 *                      `-> waiting[which]: task -> task -> ...
 *
 * pool_start gets the function that the threads run: nothing here depends on what a task is. Threads are started one
 * after the other, up to config.threads, and only when work waits and no thread is idle.
 */
#include <stdlib.h>

#include "base/error.h"
#include "base/thread.h"
#include "nbd/server_internal.h"

enum { RESERVE_PART = 16 /* 1/16 of the threads is the reserve */ };

/* ---- tasks ---- */

void task_list_push(struct task_list *l, struct task *t)
{
    t->next = NULL;
    if (l->first)
        l->last->next = t;
    else
        l->first = t;
    l->last = t;
}

struct task *task_list_pop(struct task_list *l)
{
    struct task *t = l->first;
    if (t)
        l->first = t->next;
    return t;
}

void task_list_push_first(struct task_list *l, struct task *t)
{
    t->next = l->first;
    if (!l->first)
        l->last = t;
    l->first = t;
}

void task_take_memory_locked(struct task *t, size_t bytes, size_t *of)
{
    struct connection *c = t->connection;
    t->memory = bytes;
    t->memory_of = of;
    *of += bytes;
    c->memory += of == &c->server->memory ? bytes : 0;
}

void task_give_memory_locked(struct task *t)
{
    struct connection *c = t->connection;
    if (!t->memory)
        return;
    *t->memory_of -= t->memory;
    c->memory -= t->memory_of == &c->server->memory ? t->memory : 0;
    t->memory = 0;
}

/* Memory that becomes free may let another request run. */
void task_free_locked(struct task *t)
{
    struct connection *c = t->connection;
    bool held = t->memory;
    task_give_memory_locked(t);
    c->unanswered--;
    if (held)
        pool_wake_locked(c->server);
    buf_unref(t->data);
    free(t);
}

/* ---- rings of connections that have a task waiting ---- */

void ring_push(struct ring *ring, enum waiting which, struct connection *c)
{
    c->ring_next[which] = NULL;
    if (ring->first)
        ring->last->ring_next[which] = c;
    else
        ring->first = c;
    ring->last = c;
    ring->count++;
}

struct connection *ring_pop(struct ring *ring, enum waiting which)
{
    struct connection *c = ring->first;
    ring->first = c->ring_next[which];
    ring->count--;
    return c;
}

/* Remove one connection, keeping the order of the others. */
static void ring_remove(struct ring *ring, enum waiting which, const struct connection *gone)
{
    for (size_t n = ring->count; n--;) {
        struct connection *c = ring_pop(ring, which);
        if (c != gone)
            ring_push(ring, which, c);
    }
}

void pool_push_locked(struct task *t, enum waiting which)
{
    struct connection *c = t->connection;
    if (!c->waiting[which].first)
        ring_push(&c->server->rings[which], which, c);
    if (t == c->broken_off)
        task_list_push_first(&c->waiting[which], t);
    else
        task_list_push(&c->waiting[which], t);
}

struct task *pool_take_locked(struct connection *c, enum waiting which)
{
    struct task *t = task_list_pop(&c->waiting[which]);
    if (!c->waiting[which].first)
        ring_remove(&c->server->rings[which], which, c);
    return t;
}

void pool_forget_locked(struct connection *c)
{
    if (c->store && c->store->first == c)
        c->store->first = NULL;
    for (enum waiting which = 0; which < WAITINGS; which++) {
        if (c->waiting[which].first)
            ring_remove(&c->server->rings[which], which, c);
        while (c->waiting[which].first)
            task_free_locked(task_list_pop(&c->waiting[which]));
    }
}

/* ---- threads ---- */

/* A flag, not the queue, ends the wait: the waker chooses the thread. */
void pool_idle_locked(struct worker *w)
{
    struct nbd_server *s = w->server;
    w->next_idle = s->idle;
    s->idle = w;
    w->woken = false;
    while (!w->woken)
        pthread_cond_wait(&w->wake, &s->lock);
    s->waking--;
}

/* Wake the thread that was idle last. */
static void wake_idle_locked(struct nbd_server *s)
{
    struct worker *w = s->idle;
    s->idle = w->next_idle;
    s->waking++;
    w->woken = true;
    pthread_cond_signal(&w->wake);
}

/* Start a thread. The place in the list is reserved first, so that a started thread is always joined. */
static int add_locked(struct nbd_server *s)
{
    struct worker *w = calloc(1, sizeof *w);
    int rc = w && !vec_reserve(&s->workers, 1) ? 0 : error_no_memory();
    if (rc) {
        free(w);
        return rc;
    }
    w->server = s;
    pthread_cond_init(&w->wake, NULL);
    rc = thread_start(&w->thread, s->run, w);
    s->starting += !rc;
    if (!rc)
        return vec_push(&s->workers, w);
    pthread_cond_destroy(&w->wake);
    free(w);
    return rc;
}

/* Does a task wait that one more thread may take? Only ordinary threads take what is missing, and each looks for it
 * when it has finished a task. */
static bool has_work_locked(const struct nbd_server *s)
{
    return s->rings[WAITING_UNSORTED].count ||
           (s->rings[WAITING_MISSING].count && s->busy < s->config.threads - s->reserve);
}

/* Threads that have just started or been woken look for work themselves, so no second one is started or woken
 * meanwhile: the first wakes it if it leaves work. What comes until it runs is taken together. */
void pool_wake_locked(struct nbd_server *s)
{
    if (s->waking || !has_work_locked(s))
        return;
    if (s->idle)
        wake_idle_locked(s);
    else if (!s->starting && !s->threads_short && s->workers.len < s->config.threads && add_locked(s))
        s->threads_short = true;
}

int pool_start(struct nbd_server *s, void *(*run)(void *worker))
{
    s->run = run;
    s->reserve = (s->config.threads + RESERVE_PART - 1) / RESERVE_PART;
    if (s->reserve >= s->config.threads)
        s->reserve = s->config.threads - 1;
    SCOPED_LOCK(&s->lock);
    int rc = 0;
    for (unsigned i = 0; !rc && i <= s->reserve; i++) /* the reserve and one more always exist */
        rc = add_locked(s);
    return rc;
}

void pool_stop(struct nbd_server *s)
{
    {
        SCOPED_LOCK(&s->lock);
        s->ending = true;
        while (s->idle)
            wake_idle_locked(s);
    }
    for (size_t i = 0; i < s->workers.len; i++) { /* no thread is added any more */
        struct worker *w = s->workers.items[i];
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->wake);
        free(w);
    }
    vec_release(&s->workers);
}

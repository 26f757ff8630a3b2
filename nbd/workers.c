/* Which request is next, and what a thread does with it.
 *
 * Clients take turns, a request each. Of the threads and of the memory a part is kept in reserve for reads of what is
 * cached: a store that is silent may hold all the others. Only when those are all in use is it looked whether a request
 * is for what is cached; one that is not then waits with the missing, until another thread or other memory is free.
 *
 * Replies whose clients take nothing do not count: they are given up where a request needs their memory (replies.c). So
 * a request waits for reads alone, and of these the reserve leaves a quarter free. A request that is larger than that
 * quarter has memory of its own, for one at a time: no other waits until so much is free.
 *
 * A thread that ends its work looks for more, and wakes another idle one if there is any. The thread that worked last
 * is woken first.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "nbd/server_internal.h"

/* ---- which is next ---- */

static size_t memory_for(const struct task *t)
{
    return t->request.kind == REQUEST_READ ? GR_ALIGN_UP((size_t)t->request.len, (size_t)BUF_ALIGN) : 0;
}

/* Others would wait for too much. */
static bool is_large(const struct nbd_server *s, size_t need)
{
    return need > s->config.memory / MEMORY_RESERVE_PART;
}

/* May it be read for, as far as its own client goes? All other replies of the client wait for what was broken off. */
static bool client_may_locked(const struct connection *c, const struct task *t, size_t need)
{
    if (c->given_up || c->broken_off)
        return !c->given_up && t == c->broken_off;
    return is_large(c->server, need) || c->memory + need <= c->server->config.memory / CLIENT_PART;
}

static bool fits_locked(const struct nbd_server *s, size_t need, size_t memory)
{
    return is_large(s, need) ? !s->large_memory : s->memory + need <= memory;
}

static bool make_room_locked(const struct connection *c, size_t need, size_t memory)
{
    struct nbd_server *s = c->server;
    bool fits = fits_locked(s, need, memory);
    if (!fits)
        s->short_ms = clock_now_ms();
    while (!fits && !is_large(s, need) && replies_give_up_locked(c, need))
        fits = fits_locked(s, need, memory);
    return fits;
}

/* The next one whose client may have so much; NULL: none, or reads have the memory, and a client that has nothing waits
 * for it; one that has something waits for that. It holds what it needs then. A
 * large one whose turn has not come goes to the missing, out of the way of what is cached. */
static struct task *next_locked(struct nbd_server *s, enum waiting which, size_t memory)
{
    struct ring *ring = &s->rings[which];
    for (size_t n = ring->count; n--;) {
        struct connection *c = ring->first;
        struct task *t = c->waiting[which].first;
        size_t need = memory_for(t);
        bool may = client_may_locked(c, t, need), fits = may && make_room_locked(c, need, memory);
        bool large = is_large(s, need), moves = may && !fits && large && which == WAITING_UNSORTED;
        if (may && !fits && !large && !c->blocked && !c->memory)
            return NULL;
        ring_pop(ring, which);
        if (fits || moves)
            task_list_pop(&c->waiting[which]);
        if (c->waiting[which].first)
            ring_push(ring, which, c);
        if (moves)
            pool_push_locked(t, WAITING_MISSING);
        if (!fits)
            continue;
        task_take_memory_locked(t, need, large ? &s->large_memory : &s->memory);
        c->working++;
        return t;
    }
    return NULL;
}

static struct task *next_of_any_locked(struct nbd_server *s)
{
    size_t memory = s->config.memory - s->config.memory / MEMORY_RESERVE_PART;
    if (s->busy >= s->config.threads - s->reserve)
        return NULL;
    struct task *t = next_locked(s, WAITING_MISSING, memory);
    if (!t)
        t = next_locked(s, WAITING_UNSORTED, memory);
    s->busy += t != NULL;
    return t;
}

/* Back, to where those wait that are not cached. */
static void put_back_locked(struct task *t)
{
    struct connection *c = t->connection;
    task_give_memory_locked(t);
    if (c->dead)
        task_free_locked(t);
    else
        pool_push_locked(t, WAITING_MISSING);
    connection_left_locked(c);
}

/* The lock is let go while it is looked what is cached. */
static struct task *next_cached_locked(struct nbd_server *s)
{
    struct task *t;
    if (s->reserve_busy >= s->reserve)
        return NULL;
    s->reserve_busy++;
    while ((t = next_locked(s, WAITING_UNSORTED, s->config.memory))) {
        const struct request *r = &t->request;
        pthread_mutex_unlock(&s->lock);
        bool cached = image_is_cached(t->connection->export->image, r->offset, r->len);
        pthread_mutex_lock(&s->lock);
        if (cached)
            return t;
        put_back_locked(t);
    }
    s->reserve_busy--;
    return NULL;
}

/* ---- working ---- */

static void perform(struct task *t)
{
    struct connection *c = t->connection;
    struct serving *serving = c->server->config.serving;
    struct request *r = &t->request;
    struct image *image = c->export->image;
    int rc;
    asker_serve(&c->asker);
    if (r->kind == REQUEST_CACHE)
        rc = image_prefetch(image, r->offset, r->len);
    else if (!(t->data = buf_new(r->len)))
        rc = error_no_memory();
    else
        rc = image_read(image, t->data->data, r->offset, r->len);
    asker_serve(NULL);
    if (!rc)
        return;
    buf_unref(steal_ptr(&t->data));
    r->error = asker_is_gone(&c->asker) ? EIO : (uint32_t)serving_request_failed(serving, rc);
}

/* Of a task that a thread took. */
static void finish_locked(struct task *t)
{
    struct connection *c = t->connection;
    if (t == c->broken_off && t->request.error) /* it cannot be told any more */
        connection_kill_locked(c);
    if (c->dead)
        task_free_locked(t);
    else
        connection_answer_locked(c, t);
    connection_left_locked(c);
}

void *workers_run(void *arg)
{
    struct worker *w = arg;
    struct nbd_server *s = w->server;
    pthread_mutex_lock(&s->lock);
    s->starting--;
    while (!s->ending) {
        struct task *t = next_of_any_locked(s);
        bool reserve = !t;
        if (!t)
            t = next_cached_locked(s);
        if (!t && (t = next_of_any_locked(s))) /* was put back, or came, while the lock was let go */
            reserve = false;
        if (!t && !s->ending) {
            pool_idle_locked(w);
            continue;
        }
        if (!t)
            break;
        pool_wake_locked(s);
        pthread_mutex_unlock(&s->lock);
        perform(t);
        pthread_mutex_lock(&s->lock);
        *(reserve ? &s->reserve_busy : &s->busy) -= 1;
        finish_locked(t);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

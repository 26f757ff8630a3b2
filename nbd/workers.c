/* Which request is next, and what a thread does with it.
 *
 * Clients take turns, one request each, or some short ones. A part of the threads and of the memory is reserved for
 * reads of cached data, since a silent store may hold all the others:
 *
 *    any request           threads - reserve      3/4 of the memory
 *    cached data only      reserve                all of it
 *
 * Of what the ordinary threads have, the clients of one store get at most twice what is left (base/share.h), so a
 * silent store never holds all of it. Only when these threads are all busy, or the memory or the store's share is used
 * up, does a thread of the reserve look whether a request is for cached data. One that is not goes to waiting[MISSING],
 * until an ordinary thread and memory are free.
 *
 * Replies whose clients take nothing do not count: they are dropped when a request needs their memory (replies.c). So
 * a request waits only for reads, which leave the reserved quarter free. A reply larger than that quarter is read and
 * sent in parts of that size, so no request needs more.
 *
 * A thread that takes a task wakes another idle one if more tasks wait. The thread that worked last is woken first.
 *
 * A client that sends a request when it has the reply to the one before is kept by the thread that answered: this
 * thread receives the next request itself, and the connections' thread is not woken for it. The client is let go as
 * soon as it has two requests, or one that the cache does not serve by itself, or none for LISTEN_MS.
 *
 * A thread that takes a short read takes the next short ones of the same client with it. What is cached of them is read
 * in one submission to the disk and sent in one system call (over TLS, one by one). The rest goes back to
 * waiting[UNSORTED], to be taken alone: it may be cached all the same, and what is must not wait for a store.
 */
#include <assert.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/share.h"
#include "nbd/server_internal.h"

/* Bytes of replies that wait to be sent to a client before the server reads more for it. What is read long before it is
 * sent has left the CPU's cache by then: 1 MiB was faster than 0.5 and than 2 for four connections, and no limit
 * slowest. */
enum { READY_MOST = 1 << 20 };

/* Reads taken together: their number, the longest of them, and the bytes of all, which are no more than a long read of
 * a kernel: else the replies would wait for each other for too long. */
enum { TOGETHER_MAX = 16, TOGETHER_LEN = 128 << 10, TOGETHER_BYTES = 256 << 10 };
static_assert((int)TOGETHER_MAX <= (int)IMAGE_READS_MAX, "they are one call");

enum { LISTEN_MS = 1 }; /* how long a thread waits for the next request of the client that it keeps */

/* ---- which is next ---- */

/* The bytes of data to be read for the reply: those that have not been sent, up to the size of a part. */
static size_t next_part(const struct task *t)
{
    const size_t most = t->connection->server->config.memory / MEMORY_RESERVE_PART;
    return t->request.kind == REQUEST_READ ? GR_MIN(t->request.len - reply_data_sent(t), most) : 0;
}

/* Does its client's share allow the request? While a reply is broken off, all the client's other requests wait. So do
 * reads while READY_MOST bytes wait to be sent. */
static bool client_may_locked(const struct connection *c, const struct task *t, size_t need)
{
    if (c->given_up || c->broken_off)
        return !c->given_up && t == c->broken_off;
    return (!need || c->out_memory < READY_MOST) && c->memory + need <= c->server->config.memory / CLIENT_PART;
}

/* Does its store's share allow the request? If not, and the store's own requests are why, a client that holds nothing
 * becomes the next of its store: else small requests of other clients could keep a large one waiting. */
static bool store_may_locked(const struct connection *c, size_t need)
{
    const struct nbd_server *s = c->server;
    struct store_share *o = c->store;
    size_t memory = s->config.memory - s->config.memory / MEMORY_RESERVE_PART;
    if (o->first && o->first != c)
        return false;
    if (share_allows_part(o->memory, need, s->busy_memory, memory) &&
        share_allows_part(o->busy, 1, s->busy, s->config.threads - s->reserve))
        return true;
    if (!c->memory)
        o->first = o->busy ? c : NULL;
    return false;
}

/* Make room for the request by dropping replies. Notes that memory is short. */
static bool make_room_locked(const struct connection *c, size_t need, size_t memory)
{
    struct nbd_server *s = c->server;
    if (s->memory + need > memory)
        s->short_ms = clock_now_ms();
    while (s->memory + need > memory)
        if (!replies_give_up_locked(c, need))
            return false;
    return true;
}

/* Take the next task that may run, with its memory; reserve: for a thread of the reserve. Clients take turns. NULL:
 * there is none; or reads hold the memory, and the next client, which holds none, waits for it first (a client that
 * holds memory waits for its own instead). */
static struct task *next_locked(struct nbd_server *s, enum waiting which, bool reserve)
{
    struct ring *ring = &s->rings[which];
    size_t memory = s->config.memory - (reserve ? 0 : s->config.memory / MEMORY_RESERVE_PART);
    for (size_t n = ring->count; n--;) {
        struct connection *c = ring->first;
        struct task *t = c->waiting[which].first;
        size_t need = GR_ALIGN_UP(next_part(t), (size_t)BUF_ALIGN);
        bool may = client_may_locked(c, t, need) && (reserve || store_may_locked(c, need));
        bool fits = may && make_room_locked(c, need, memory);
        if (may && !fits && !c->blocked && !c->memory)
            return NULL;
        ring_pop(ring, which);
        if (fits)
            task_list_pop(&c->waiting[which]);
        if (c->waiting[which].first)
            ring_push(ring, which, c);
        if (!fits)
            continue;
        task_take_memory_locked(t, need, &s->memory);
        c->working++;
        if (c->store->first == c)
            c->store->first = NULL;
        return t;
    }
    return NULL;
}

/* An ordinary thread begins its work for a task. threads: 1, or 0 for one that it reads together with another. */
static void begin_work_locked(const struct task *t, unsigned threads)
{
    struct connection *c = t->connection;
    c->server->busy += threads;
    c->server->busy_memory += t->memory;
    c->store->busy += threads;
    c->store->memory += t->memory;
}

/* Take the next task for an ordinary thread. Tasks known to be missing go first: only ordinary threads may take them.
 */
static struct task *next_of_any_locked(struct nbd_server *s)
{
    if (s->busy >= s->config.threads - s->reserve)
        return NULL;
    struct task *t = next_locked(s, WAITING_MISSING, false);
    if (!t)
        t = next_locked(s, WAITING_UNSORTED, false);
    if (t)
        begin_work_locked(t, 1);
    return t;
}

/* May the task be read together with others? Not if it needs more than one part: those are all read at once. */
static bool is_short(const struct task *t)
{
    return !t->alone && t->request.kind == REQUEST_READ && t->request.len <= TOGETHER_LEN &&
           next_part(t) == t->request.len;
}

/* Take more short reads of the client of tasks[0], as far as the memory would do for each by itself. Returns the number
 * of tasks. */
static size_t take_more_locked(struct task *tasks[TOGETHER_MAX])
{
    struct connection *c = tasks[0]->connection;
    struct nbd_server *s = c->server;
    size_t memory = s->config.memory - s->config.memory / MEMORY_RESERVE_PART, n = 1, bytes = tasks[0]->request.len;
    if (c->store->first && c->store->first != c)
        return 1; /* its store's share is that one's first */
    for (const struct task *t; n < TOGETHER_MAX && (t = c->waiting[WAITING_UNSORTED].first) && is_short(t); n++) {
        size_t need = GR_ALIGN_UP(next_part(t), (size_t)BUF_ALIGN);
        bytes += t->request.len;
        if (bytes > TOGETHER_BYTES || s->memory + need > memory || !client_may_locked(c, t, need) ||
            !share_allows_part(c->store->memory, need, s->busy_memory, memory))
            break;
        tasks[n] = pool_take_locked(c, WAITING_UNSORTED);
        task_take_memory_locked(tasks[n], need, &s->memory);
        c->working++;
        begin_work_locked(tasks[n], 0);
    }
    return n;
}

/* A thread has finished its work for a task; threads: as when it began. */
static void end_work_locked(const struct task *t, bool reserve, unsigned threads)
{
    struct connection *c = t->connection;
    if (reserve) {
        c->server->reserve_busy--;
        return;
    }
    c->server->busy -= threads;
    c->server->busy_memory -= t->memory;
    c->store->busy -= threads;
    c->store->memory -= t->memory;
}

/* Put a task back, without its memory. */
static void put_back_locked(struct task *t, enum waiting which)
{
    struct connection *c = t->connection;
    task_give_memory_locked(t);
    t->alone = true; /* it must not hold up others, nor wait for them */
    if (c->dead)
        task_free_locked(t);
    else
        pool_push_locked(t, which);
    connection_left_locked(c);
}

/* Take the next task for a reserve thread: one for cached data. The lock is released for the look. */
static struct task *next_cached_locked(struct nbd_server *s)
{
    struct task *t;
    if (s->reserve_busy >= s->reserve)
        return NULL;
    s->reserve_busy++;
    while ((t = next_locked(s, WAITING_UNSORTED, true))) {
        pool_wake_locked(s); /* the look may wait for a disk, and the others that wait need not */
        /* Before the first part is sent, the others are looked at, too (read_part). */
        size_t at = reply_data_sent(t), len = t->sent ? next_part(t) : t->request.len;
        pthread_mutex_unlock(&s->lock);
        bool cached = image_is_cached(t->connection->export->image, t->request.offset + at, len);
        pthread_mutex_lock(&s->lock);
        if (cached)
            return t;
        put_back_locked(t, WAITING_MISSING);
    }
    s->reserve_busy--;
    return NULL;
}

/* ---- a client that sends one request at a time ---- */

/* Would its worker be missed, if it waited for the client's next request? Not while others are there for what comes. */
static bool may_keep_locked(const struct connection *c)
{
    const struct nbd_server *s = c->server;
    return !c->unanswered && !s->rings[WAITING_UNSORTED].count && !s->rings[WAITING_MISSING].count &&
           (s->idle || s->workers.len < s->config.threads);
}

static void let_go_locked(struct worker *w)
{
    connection_let_go_locked(steal_ptr(&w->kept));
}

/* ---- working ---- */

/* Read the next part of a reply. An error can be reported only before the first part is sent. So the other parts are
 * read before it, into the same memory, except for those that are cached; they should be from then on. */
static int read_part(struct task *t)
{
    const struct request *r = &t->request;
    struct image *image = t->connection->export->image;
    size_t len = next_part(t);
    int rc = 0;
    t->data_at = reply_data_sent(t);
    t->data = buf_new(len);
    if (!t->data)
        return error_no_memory();
    for (size_t at = len; !rc && !t->sent && at < r->len; at += len) {
        size_t part = GR_MIN(len, r->len - at);
        if (!image_is_cached(image, r->offset + at, part))
            rc = image_read(image, t->data->data, r->offset + at, part);
    }
    return rc ? rc : image_read(image, t->data->data, r->offset + t->data_at, len);
}

/* Read what is cached of short reads; the others have no data afterwards. */
static void read_together(struct task *const *tasks, size_t n)
{
    struct image_cached_read reads[TOGETHER_MAX];
    for (size_t i = 0; i < n; i++) {
        const struct request *r = &tasks[i]->request;
        tasks[i]->data = buf_new(r->len);
        reads[i] = (struct image_cached_read){
            .dst = tasks[i]->data ? tasks[i]->data->data : NULL, .off = r->offset, .len = tasks[i]->data ? r->len : 0};
    }
    image_read_cached(tasks[0]->connection->export->image, reads, n);
    for (size_t i = 0; i < n; i++)
        if (!reads[i].got)
            buf_unref(steal_ptr(&tasks[i]->data));
}

/* Read for a task, or cache its range, without the lock. Errors become the reply's error. The kept client has its short
 * reads of cached data done here. Anything else may wait for a store, so the client is let go before. */
static void nbd_worker_perform(struct worker *w, struct task *t)
{
    struct connection *c = t->connection;
    if (w->kept && is_short(t))
        read_together(&t, 1);
    if (t->data)
        return;
    if (w->kept) {
        SCOPED_LOCK(&w->server->lock);
        let_go_locked(w);
    }
    struct serving *serving = c->server->config.serving;
    struct request *r = &t->request;
    client_bind_thread(&c->client);
    int rc = r->kind == REQUEST_CACHE ? image_prefetch(c->export->image, r->offset, r->len) : read_part(t);
    client_bind_thread(NULL);
    if (!rc)
        return;
    buf_unref(steal_ptr(&t->data));
    r->error = client_is_disconnected(&c->client) ? EIO : (uint32_t)serving_request_failed(serving, rc);
}

/* Work on several short reads of one client. */
static void work_together_locked(struct task *const *tasks, size_t n)
{
    struct connection *c = tasks[0]->connection;
    c->working++; /* until all of them are done */
    pthread_mutex_unlock(&c->server->lock);
    read_together(tasks, n);
    pthread_mutex_lock(&c->server->lock);
    for (size_t i = 0; i < n; i++) {
        end_work_locked(tasks[i], false, i == 0);
        if (!tasks[i]->data) {
            put_back_locked(tasks[i], WAITING_UNSORTED);
            continue;
        }
        if (c->dead)
            task_free_locked(tasks[i]);
        else
            connection_reply_locked(c, tasks[i]);
        connection_left_locked(c);
    }
    pool_wake_locked(c->server); /* for those that were put back; sending releases the lock */
    connection_send_locked(c);
    connection_left_locked(c);
}

/* Answer a task, or free it if the client is gone. */
static void finish_locked(struct worker *w, struct task *t)
{
    struct connection *c = t->connection;
    bool alone = c->unanswered == 1;
    if (t == c->broken_off &&
        t->request.error) /* half of a good reply has been sent: an error can no longer be reported */
        connection_kill_locked(c);
    if (c->dead)
        task_free_locked(t);
    else
        connection_answer_locked(c, t);
    if (alone && !w->kept && may_keep_locked(c) && connection_keep_locked(c))
        w->kept = c;
    connection_left_locked(c);
}

/* There is no work: wait for the kept client's next request, or to be woken. */
static void rest_locked(struct worker *w)
{
    if (!w->kept)
        pool_idle_locked(w);
    else if (!connection_listen_locked(w->kept, LISTEN_MS))
        let_go_locked(w);
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
        if (!t && (t = next_of_any_locked(s))) /* one was put back, or came, while the lock was released */
            reserve = false;
        if (!t && !s->ending) {
            rest_locked(w);
            continue;
        }
        if (!t)
            break;
        if (w->kept && (t->connection != w->kept || t->connection->unanswered > 1))
            let_go_locked(w);
        struct task *tasks[TOGETHER_MAX] = {t};
        size_t n = !reserve && is_short(t) ? take_more_locked(tasks) : 1;
        pool_wake_locked(s);
        if (n > 1) {
            work_together_locked(tasks, n);
            continue;
        }
        pthread_mutex_unlock(&s->lock);
        nbd_worker_perform(w, t);
        pthread_mutex_lock(&s->lock);
        end_work_locked(t, reserve, 1);
        finish_locked(w, t);
    }
    if (w->kept)
        let_go_locked(w);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

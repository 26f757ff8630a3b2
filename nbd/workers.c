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
 * A thread that takes a short read keeps it in flight at the cache's disk, and the client's next short reads with it.
 * It receives from the client meanwhile, in place of the connections' thread, and answers each read when it has ended:
 *
 *    take more, start --> wait for disk and socket --> answer (one system call; over TLS, one by one)
 *        ^------------------------------------------------'
 *
 * What is not cached, or fails, goes back to waiting[UNSORTED], to be taken alone: it may wait for a store. After
 * TURN_READS or TURN_MS, if other clients wait that no other thread can serve, nothing more is taken until nothing is
 * in flight; then it is the others' turn. When nothing is in flight, the thread still waits LISTEN_MS for the client's
 * next request. The client is let go after that, or before the thread does anything else.
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

/* Short reads: the longest of them, and the bytes of those that one thread has in flight. Others are woken for what is
 * beyond. */
enum { SHORT_LEN = 128 << 10, IN_FLIGHT_BYTES = 256 << 10 };
enum { SEND_TOGETHER = 16 }; /* replies: with more, the client would wait for the last before it has the first */

/* A client's turn, when others wait: a thread that has reads in flight all the time would never serve them. */
enum { TURN_READS = 64, TURN_MS = 10 };

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

/* An ordinary thread begins its work for a task. threads: 1, or 0 for one beside another. */
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

/* May the task be one of several in flight? Not if it needs more than one part: those are all read at once. */
static bool is_short(const struct task *t)
{
    return !t->alone && t->request.kind == REQUEST_READ && t->request.len <= SHORT_LEN &&
           next_part(t) == t->request.len;
}

/* Take more short reads of the client beside the n in tasks and those in flight, as far as the memory would do for each
 * by itself. Returns the number of tasks. */
static size_t take_more_locked(const struct worker *w, struct connection *c, struct task *tasks[IMAGE_READS_MAX],
                               size_t n)
{
    const struct nbd_server *s = w->server;
    size_t memory = s->config.memory - s->config.memory / MEMORY_RESERVE_PART;
    size_t bytes = n ? tasks[0]->request.len : 0;
    if (c->store->first && c->store->first != c)
        return n; /* its store's share is that one's first */
    for (const struct task *t;
         w->in_flight + n < IMAGE_READS_MAX && (t = c->waiting[WAITING_UNSORTED].first) && is_short(t); n++) {
        size_t need = GR_ALIGN_UP(next_part(t), (size_t)BUF_ALIGN);
        bytes += t->request.len;
        if (w->bytes + bytes > IN_FLIGHT_BYTES || !cache_reader_has_room(w->reader, n + 1, bytes) ||
            s->memory + need > memory || !client_may_locked(c, t, need) ||
            !share_allows_part(c->store->memory, need, s->busy_memory, memory))
            break;
        tasks[n] = pool_take_locked(c, WAITING_UNSORTED);
        task_take_memory_locked(tasks[n], need, &c->server->memory);
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

/* ---- receiving in place of the connections' thread ---- */

/* Is there another thread for what comes? */
static bool is_another_locked(const struct nbd_server *s)
{
    return s->idle || (s->workers.len < s->config.threads && !s->threads_short);
}

/* Would the worker be missed, if it waited for the client's next request? */
static bool may_keep_locked(const struct connection *c)
{
    const struct nbd_server *s = c->server;
    return !c->unanswered && !s->rings[WAITING_UNSORTED].count && !s->rings[WAITING_MISSING].count &&
           is_another_locked(s);
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

/* Read for a task, or cache its range, without the lock. Errors become the reply's error. */
static void nbd_worker_perform(struct task *t)
{
    struct connection *c = t->connection;
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

/* ---- short reads in flight ---- */

/* Start them, without the lock. */
static void start_readings(struct worker *w, struct task *const *tasks, size_t n)
{
    struct image_cached_read *reads[IMAGE_READS_MAX];
    struct reading *at = w->readings;
    for (size_t i = 0; i < n; i++, at++) {
        const struct request *r = &tasks[i]->request;
        while (at->task)
            at++;
        at->task = tasks[i];
        at->task->data = buf_new(r->len);
        at->read.dst = at->task->data ? at->task->data->data : NULL;
        at->read.off = r->offset;
        at->read.len = at->task->data ? r->len : 0; /* such a read fails, and is done otherwise */
        w->bytes += r->len;
        reads[i] = &at->read;
    }
    w->in_flight += n;
    image_start_cached(tasks[0]->connection->export->image, w->reader, reads, n);
}

/* Take some of those that have ended, without the lock. A task that must be read otherwise has no data. */
static size_t take_readings(struct worker *w, struct task *tasks[SEND_TOGETHER])
{
    struct image_cached_read *read;
    size_t n = 0;
    while (n < SEND_TOGETHER && (read = image_take_cached(w->reader))) {
        struct task *t = steal_ptr(&((struct reading *)read)->task);
        if (!read->got)
            buf_unref(steal_ptr(&t->data));
        w->bytes -= t->request.len;
        w->in_flight--;
        tasks[n++] = t;
    }
    return n;
}

/* Answer some of those that have ended. false: none has. */
static bool answer_readings_locked(struct worker *w, struct connection *c)
{
    struct task *tasks[SEND_TOGETHER];
    pthread_mutex_unlock(&w->server->lock);
    size_t n = take_readings(w, tasks);
    pthread_mutex_lock(&w->server->lock);
    for (size_t i = 0; i < n; i++) {
        end_work_locked(tasks[i], false, 0);
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
    connection_send_locked(c);
    return n;
}

/* What a thread does for a client while it has reads in flight for it. */
struct turn {
    size_t reads;      /* taken so far */
    uint64_t until_ms; /* from then on it may be over */
    bool over;         /* nothing more is taken */
};

/* Do other clients wait that no other thread can serve? A thread of the reserve may not take what is missing. */
static bool is_missed_locked(const struct connection *c)
{
    const struct nbd_server *s = c->server;
    const struct ring *ring = &s->rings[WAITING_UNSORTED];
    bool missing = s->rings[WAITING_MISSING].count, others = ring->count && (ring->count > 1 || ring->first != c);
    if (is_another_locked(s))
        return missing && s->busy >= s->config.threads - s->reserve;
    return missing || others;
}

/* Once it is over it stays over: clients that come later need not wait for another turn. */
static bool is_over_locked(const struct connection *c, struct turn *turn)
{
    if (!turn->over && is_missed_locked(c))
        turn->over = turn->reads >= TURN_READS || clock_now_ms() >= turn->until_ms;
    return turn->over;
}

/* If the client is next, put it behind all others that wait. */
static void end_turn_locked(struct connection *c)
{
    struct ring *ring = &c->server->rings[WAITING_UNSORTED];
    if (ring->first == c)
        ring_push(ring, WAITING_UNSORTED, ring_pop(ring, WAITING_UNSORTED));
}

/* Wait for the disk, and for the client's next requests unless another thread receives them. */
static void await_readings_locked(struct worker *w, struct connection *c, bool wait)
{
    int wait_ms = 0, fd = wait ? cache_reader_fd(w->reader, &wait_ms) : -1;
    if (!w->kept && is_another_locked(w->server) && connection_keep_locked(c))
        w->kept = c;
    connection_listen_locked(c, fd, wait_ms, w->kept);
}

/* Read for a client as long as some of its short reads are in flight: those that come meanwhile are started, and each
 * is answered when it has ended. */
static void serve_short_reads_locked(struct worker *w, struct task *first)
{
    struct connection *c = first->connection;
    struct nbd_server *s = w->server;
    struct task *tasks[IMAGE_READS_MAX] = {first};
    struct turn turn = {.until_ms = clock_now_ms() + TURN_MS};
    size_t n = 1;
    c->working++;
    for (;;) {
        if (!is_over_locked(c, &turn))
            n = take_more_locked(w, c, tasks, n);
        turn.reads += n;
        pool_wake_locked(s);
        if (n) {
            pthread_mutex_unlock(&s->lock);
            start_readings(w, tasks, n);
            pthread_mutex_lock(&s->lock);
        }
        bool some = answer_readings_locked(w, c);
        if (!some && !w->in_flight)
            break;
        pool_wake_locked(s); /* for those that were put back */
        await_readings_locked(w, c, !some);
        n = 0;
    }
    s->busy--;
    c->store->busy--;
    end_turn_locked(c);
    connection_left_locked(c);
}

/* ---- the thread ---- */

/* There is no work: wait for the kept client's next request, or to be woken. */
static void rest_locked(struct worker *w)
{
    if (!w->kept)
        pool_idle_locked(w);
    else if (!connection_listen_locked(w->kept, -1, LISTEN_MS, true))
        let_go_locked(w);
}

void *workers_run(void *arg)
{
    struct worker *w = arg;
    struct nbd_server *s = w->server;
    if (cache_reader_new(stack_cache(s->config.serving->stack), &w->reader))
        log_debug("%s", error_text());
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
        bool is_reading = !reserve && w->reader && is_short(t);
        if (w->kept && (t->connection != w->kept || !is_reading))
            let_go_locked(w); /* what is done alone may wait for a store */
        if (is_reading) {
            serve_short_reads_locked(w, t);
            continue;
        }
        pool_wake_locked(s);
        pthread_mutex_unlock(&s->lock);
        nbd_worker_perform(t);
        pthread_mutex_lock(&s->lock);
        end_work_locked(t, reserve, 1);
        finish_locked(w, t);
    }
    if (w->kept)
        let_go_locked(w);
    pthread_mutex_unlock(&s->lock);
    cache_reader_free(w->reader);
    return NULL;
}

/* One connection. The connections' thread receives; the thread that has a reply sends it, so that a reply needs no
 * second thread unless the client is slow: then the rest waits until the socket takes more.
 *
 * Requests are taken from the socket up to a number, and all that have been received are queued. A client that reads
 * no replies so stops being read, and costs no more than its bounds.
 */
#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "nbd/server_internal.h"

enum { SEND_AT_ONCE = 16, PROBE_IDLE_S = 30, PROBE_EVERY_S = 10, PROBES = 3, SEND_BUFFER = 4 << 20 };

static_assert((int)CONNECTION_IN >= (int)HANDSHAKE_OPTION_MAX + (int)sizeof(struct nbd_wire_option_head),
              "an option that is looked at fits");

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

void connection_task_free_locked(struct task *t)
{
    struct connection *c = t->connection;
    c->server->memory -= t->memory;
    c->memory -= t->memory;
    c->unanswered--;
    if (t->memory)
        workers_wake_locked(c->server);
    buf_unref(t->data);
    free(t);
}

static size_t bytes_of(const struct task *t)
{
    return t->head_len + (t->data ? t->data->len : 0);
}

/* ---- what is waited for ---- */

static void update_events_locked(struct connection *c)
{
    bool full = c->unanswered >= (c->transmitting ? CONNECTION_UNANSWERED_MAX : 1);
    uint32_t events = (c->ended || full || c->stalled ? 0u : (uint32_t)EPOLLIN) | (c->blocked ? (uint32_t)EPOLLOUT : 0);
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (events != c->events && !c->dead && !epoll_ctl(c->server->epoll, EPOLL_CTL_MOD, c->fd, &event))
        c->events = events;
}

/* ---- the end ---- */

void connection_left_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (--c->working || !c->dead)
        return;
    while (c->out.first)
        connection_task_free_locked(task_list_pop(&c->out));
    c->next = s->dead;
    s->dead = c;
    server_wake(s);
}

void connection_kill_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (c->dead)
        return;
    c->dead = true;
    asker_go(&c->asker);
    workers_forget_locked(c);
    epoll_ctl(s->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    shutdown(c->fd, SHUT_RDWR);
    *(c->prev ? &c->prev->next : &s->first) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->working++;
    connection_left_locked(c);
}

/* After each change: it may be the last. */
static void settle_locked(struct connection *c)
{
    if (c->ended && !c->unanswered)
        connection_kill_locked(c);
    else
        update_events_locked(c);
}

void connection_end_locked(struct connection *c)
{
    c->ended = true;
    c->heard_ms = clock_now_ms();
    settle_locked(c);
}

/* Over TCP a client that closed its connection looks like one that shut its sending direction, until something is sent
 * to it, and a silent store sends nothing: its reads would hold threads, and itself a place, for as long. */
bool connection_is_gone_locked(const struct connection *c, uint64_t now_ms)
{
    return c->ended && !c->out.first && now_ms >= c->heard_ms + LEAVING_MS;
}

void connection_free(struct connection *c)
{
    if (c->export)
        serving_disconnect(c->export);
    asker_release(&c->asker);
    close(c->fd);
    free(c);
}

/* The client does what it must not, or something is short. */
static void complain(struct connection *c)
{
    log_limited(&c->server->complaints, LOG_LEVEL_WARNING, "a client is disconnected: %s", error_text());
    SCOPED_LOCK(&c->server->lock);
    connection_kill_locked(c);
}

/* ---- sending ---- */

static size_t gather(struct task *t, struct iovec out[2 * SEND_AT_ONCE])
{
    size_t n = 0;
    for (int i = 0; t && i < SEND_AT_ONCE; t = t->next, i++) {
        size_t in_data = t->sent > t->head_len ? t->sent - t->head_len : 0;
        if (t->sent < t->head_len)
            out[n++] = (struct iovec){(uint8_t *)&t->head + t->sent, t->head_len - t->sent};
        if (t->data)
            out[n++] = (struct iovec){t->data->data + in_data, t->data->len - in_data};
    }
    return n;
}

static void sent_locked(struct connection *c, size_t bytes)
{
    c->watched_taken += bytes;
    if (c->ended)
        c->heard_ms = clock_now_ms();
    for (struct task *t; bytes && (t = c->out.first);) {
        size_t now = GR_MIN(bytes, bytes_of(t) - t->sent);
        t->sent += now;
        bytes -= now;
        if (t->sent == bytes_of(t))
            connection_task_free_locked(task_list_pop(&c->out));
    }
}

static void watch_locked(struct connection *c)
{
    c->watched_ms = clock_now_ms();
    c->watched_taken = c->watched_waiting = 0;
    for (const struct task *t = c->out.first; t; t = t->next)
        c->watched_waiting += bytes_of(t) - t->sent;
}

void connection_send_locked(struct connection *c)
{
    struct nbd_server *s = c->server;
    if (c->sending || c->blocked || c->dead)
        return;
    c->sending = true;
    c->working++;
    while (c->out.first && !c->blocked && !c->dead) {
        struct iovec parts[2 * SEND_AT_ONCE];
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = gather(c->out.first, parts)};
        pthread_mutex_unlock(&s->lock);
        ssize_t n = sendmsg(c->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        int code = n < 0 ? errno : 0;
        pthread_mutex_lock(&s->lock);
        if (n >= 0)
            sent_locked(c, (size_t)n);
        else if (code == EAGAIN)
            c->blocked = true;
        else if (code != EINTR)
            connection_kill_locked(c);
    }
    c->sending = false;
    if (!c->blocked)
        c->watched_ms = 0;
    else if (!c->watched_ms)
        watch_locked(c);
    if (!c->dead)
        settle_locked(c);
    connection_left_locked(c);
}

bool connection_is_slow_locked(struct connection *c, uint64_t now_ms)
{
    enum { PART = 4 };
    if (!c->watched_ms || now_ms < c->watched_ms + c->server->config.slow_ms)
        return false;
    bool slow = c->server->short_ms >= c->watched_ms && c->watched_taken < c->watched_waiting / PART;
    watch_locked(c);
    return slow;
}

void connection_answer_locked(struct connection *c, struct task *t)
{
    t->head = (struct nbd_wire_simple_reply){
        .magic = htobe32(NBD_WIRE_SIMPLE_MAGIC), .error = htobe32(t->request.error), .cookie = t->request.cookie};
    t->head_len = sizeof t->head;
    task_list_push(&c->out, t);
    connection_send_locked(c);
}

/* ---- the handshake ---- */

/* False: the connection is dead. */
static bool say(struct connection *c, const struct bytes *text)
{
    struct nbd_server *s = c->server;
    struct task *t = text->len ? calloc(1, sizeof *t) : NULL;
    struct buf *data = t ? buf_new(text->len) : NULL;
    if (!data) {
        free(t);
        if (text->len) {
            (void)error_set(-ENOMEM, "out of memory");
            complain(c);
        }
        return !text->len;
    }
    memcpy(data->data, text->data, text->len);
    *t = (struct task){.connection = c, .data = data, .memory = data->cap};
    SCOPED_LOCK(&s->lock);
    c->unanswered++;
    c->memory += t->memory;
    s->memory += t->memory;
    task_list_push(&c->out, t);
    connection_send_locked(c);
    return !c->dead;
}

static void describe(struct nbd_server *s, const struct stack_export *e, struct handshake_export *out)
{
    const struct manifest *m = image_manifest(stack_export_image(e));
    *out = (struct handshake_export){.size = m->size,
                                     .preferred = m->chunk_size,
                                     .request_max = REQUEST_LEN_MAX,
                                     .name = stack_export_name(e),
                                     .description = serving_describe(e, s->description)};
}

static int connect_to(const struct connection *c, const char *name, struct serving_export **out)
{
    const struct nbd_server_config *config = &c->server->config;
    if (c->refused)
        return error_set(-EBUSY,
                         "this server has %u clients, and takes no more; disconnect one, or start another server",
                         config->clients);
    return serving_connect(config->serving, name, out);
}

static int open_export(void *arg, const char *name, struct handshake_export *out)
{
    struct connection *c = arg;
    struct serving_export *e;
    int rc = connect_to(c, name, &e);
    if (rc) {
        log_limited(&c->server->complaints, LOG_LEVEL_ERROR, "%s", error_text());
        return rc;
    }
    if (c->export)
        serving_disconnect(c->export);
    c->export = e;
    describe(c->server, e->export, out);
    return 0;
}

static int list_exports(void *arg, int (*visit)(void *visit_arg, const struct handshake_export *e), void *visit_arg)
{
    const struct connection *c = arg;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    struct handshake_export told;
    int rc = 0;
    while (!rc && (e = stack_next(c->server->config.serving->stack, e))) {
        describe(c->server, e, &told);
        rc = visit(visit_arg, &told);
    }
    return rc;
}

static const struct handshake_exports exports = {.open = open_export, .list = list_exports};

/* One step; what is said is on its way before the next. Returns the bytes taken; 0: there is nothing to do for now. */
static size_t shake_hands(struct connection *c, const uint8_t *at, size_t len)
{
    CLEANUP_BYTES text = BYTES_INIT(HANDSHAKE_OUT_MAX);
    enum handshake_step step;
    size_t used;
    int rc = handshake_take(&c->handshake, at, len, &used, &text, &step);
    if (rc) {
        complain(c);
        return 0;
    }
    c->transmitting = step == HANDSHAKE_READY;
    if (!say(c, &text))
        return 0;
    if (step == HANDSHAKE_OVER) {
        SCOPED_LOCK(&c->server->lock);
        connection_end_locked(c);
        return 0;
    }
    return used;
}

/* A handshake waits until what was said has been taken, and while others hold all the memory. */
static bool may_shake_hands(struct connection *c)
{
    SCOPED_LOCK(&c->server->lock);
    c->stalled = c->server->memory >= c->server->config.memory;
    if (c->stalled)
        c->server->short_ms = clock_now_ms();
    update_events_locked(c);
    return !c->stalled && !c->unanswered && !c->ended && !c->dead;
}

/* ---- requests ---- */

static int take_request(struct connection *c, const struct request *r)
{
    struct nbd_server *s = c->server;
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        return error_set(-ENOMEM, "out of memory");
    *t = (struct task){.connection = c, .request = *r};
    SCOPED_LOCK(&s->lock);
    if (c->dead) {
        free(t);
        return 0;
    }
    c->unanswered++;
    if (r->kind == REQUEST_ANSWERED)
        connection_answer_locked(c, t);
    else
        workers_queue_locked(t);
    return 0;
}

/* Returns the bytes taken; 0: more are needed, or it has ended. */
static size_t take_one(struct connection *c, const uint8_t *at, size_t len)
{
    struct request r;
    if (len < REQUEST_SIZE)
        return 0;
    int rc = request_parse(at, image_manifest(c->export->image)->size, &r);
    if (!rc && r.kind == REQUEST_DISCONNECT) {
        SCOPED_LOCK(&c->server->lock);
        if (!c->dead)
            connection_end_locked(c);
        return 0;
    }
    if (!rc && r.skip) {
        c->skip = r.skip;
        c->skipped = r;
    } else if (!rc)
        rc = take_request(c, &r);
    if (rc)
        complain(c);
    return rc ? 0 : REQUEST_SIZE;
}

static size_t pass_over(struct connection *c, size_t len)
{
    size_t now = GR_MIN(len, (size_t)c->skip);
    c->skip -= (uint32_t)now;
    if (!c->skip && take_request(c, &c->skipped))
        complain(c);
    return now;
}

static bool is_over(struct connection *c)
{
    SCOPED_LOCK(&c->server->lock);
    return c->ended || c->dead;
}

/* ---- receiving ---- */

void connection_continue(struct connection *c)
{
    size_t at = 0, used = 1;
    while (used && at < c->in_len && !is_over(c)) {
        const uint8_t *rest = c->in + at;
        size_t len = c->in_len - at;
        if (!c->transmitting)
            used = may_shake_hands(c) ? shake_hands(c, rest, len) : 0;
        else
            used = c->skip ? pass_over(c, len) : take_one(c, rest, len);
        at += used;
    }
    c->in_len -= at;
    memmove(c->in, c->in + at, c->in_len);
    SCOPED_LOCK(&c->server->lock);
    if (!c->dead)
        update_events_locked(c);
}

/* A client that shut its sending direction alone may still want answers, and gets those that come soon. */
void connection_receive(struct connection *c)
{
    ssize_t n =
        c->in_len == CONNECTION_IN ? -1 : recv(c->fd, c->in + c->in_len, CONNECTION_IN - c->in_len, MSG_DONTWAIT);
    if (n < 0 && (c->in_len == CONNECTION_IN || errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        SCOPED_LOCK(&c->server->lock);
        if (n < 0)
            connection_kill_locked(c);
        else if (!c->dead)
            connection_end_locked(c);
        return;
    }
    c->in_len += (size_t)n;
    connection_continue(c);
}

/* ---- the beginning ---- */

/* Of TCP alone, and not worth an error: replies leave at once, and a client whose machine has gone is noticed. */
static void set_up_socket(int fd)
{
    static const int one = 1, idle = PROBE_IDLE_S, every = PROBE_EVERY_S, probes = PROBES, room = SEND_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

int connection_new(struct nbd_server *s, int fd, bool refused)
{
    CLEANUP_BYTES greeting = BYTES_INIT(HANDSHAKE_OUT_MAX);
    struct connection *c = calloc(1, sizeof *c);
    struct epoll_event event = {.data.ptr = c};
    if (!c || handshake_greet(&greeting) || epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event)) {
        free(c);
        close(fd);
        return error_set(-ENOMEM, "cannot take a client: out of memory");
    }
    set_up_socket(fd);
    c->server = s;
    c->fd = fd;
    c->refused = refused;
    c->since_ms = clock_now_ms();
    c->handshake = (struct handshake){.exports = &exports, .arg = c};
    asker_init(&c->asker);
    {
        SCOPED_LOCK(&s->lock);
        c->next = s->first;
        if (c->next)
            c->next->prev = c;
        s->first = c;
        s->connections++;
    }
    say(c, &greeting);
    return 0;
}

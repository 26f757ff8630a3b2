/* One connection's input: first the handshake, then requests. The connections' thread receives it, or the worker that
 * keeps the client (workers.c): never both (`receiving`, `kept`).
 *
 *    greeting --> options --+--> STARTTLS --> TLS handshake --> options --+--> requests
 *                           `---------------------------------------------'
 *
 * Every request that has been received is queued at once. Input is received only while the client has fewer than a
 * number of requests in flight: so a client that reads no replies is not read from, and costs no more than its
 * bounds.
 */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/log.h"
#include "nbd/server_internal.h"

enum { PROBE_IDLE_S = 30, PROBE_EVERY_S = 10, PROBES = 3, SEND_BUFFER = 4 << 20 };

static_assert((int)CONNECTION_IN >= (int)HANDSHAKE_OPTION_MAX + (int)sizeof(struct nbd_wire_option_head),
              "an option that is looked at fits");

/* Log the thread's error message and disconnect: the client broke the protocol, or memory is short. */
static void complain(struct connection *c)
{
    log_limited(&c->server->complaints, LOG_LEVEL_WARNING, "a client is disconnected: %s", error_text());
    SCOPED_LOCK(&c->server->lock);
    connection_kill_locked(c);
}

/* ---- the handshake ---- */

/* Queue a message of the handshake and send it. false: the connection is dead. */
static bool nbd_connection_say(struct connection *c, const struct bytes *text)
{
    struct nbd_server *s = c->server;
    struct task *t = text->len ? calloc(1, sizeof *t) : NULL;
    struct buf *data = t ? buf_new(text->len) : NULL;
    if (!data) {
        free(t);
        if (text->len) {
            (void)error_no_memory();
            complain(c);
        }
        return !text->len;
    }
    memcpy(data->data, text->data, text->len);
    *t = (struct task){.connection = c, .data = data};
    SCOPED_LOCK(&s->lock);
    c->unanswered++;
    task_take_memory_locked(t, data->cap, &s->text_memory);
    task_list_push(&c->out, t);
    connection_send_locked(c);
    return !c->dead;
}

/* Describe an export for the handshake. The strings live until the next call. */
static void describe(struct nbd_server *s, const struct stack_export *e, struct handshake_export *out)
{
    const struct manifest *m = image_manifest(stack_export_image(e));
    *out = (struct handshake_export){.size = m->size,
                                     .preferred = m->chunk_size,
                                     .request_max = REQUEST_LEN_MAX,
                                     .name = stack_export_name(e),
                                     .description = serving_describe(e, s->description)};
}

static int nbd_connection_connect_to(const struct connection *c, const char *name, struct serving_export **out)
{
    const struct nbd_server_config *config = &c->server->config;
    if (c->refused)
        return error_set(-EBUSY,
                         "this server has %u clients, and takes no more; disconnect one, or start another server",
                         config->clients);
    return serving_connect(config->serving, name, out);
}

/* handshake_exports.open: hold the export; an export opened before is released. */
static int open_export(void *arg, const char *name, struct handshake_export *out)
{
    struct connection *c = arg;
    struct serving_export *e;
    int rc = nbd_connection_connect_to(c, name, &e);
    if (rc) {
        log_limited(&c->server->complaints, LOG_LEVEL_ERROR, "%s", error_text());
        return rc;
    }
    if (c->export)
        serving_disconnect(c->export);
    c->export = e;
    const char *store = stack_export_ref(e->export)->store;
    c->store = &c->server->stores[crc32c(store, strlen(store)) % STORE_SHARES];
    describe(c->server, e->export, out);
    out->single = e->followed;
    return 0;
}

/* handshake_exports.list. */
static int list_exports(void *arg, int (*visit)(void *visit_arg, const struct handshake_export *e), void *visit_arg)
{
    const struct connection *c = arg;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    struct handshake_export described;
    struct stack *stack = c->server->config.serving->stack;
    const char *name;
    int rc = 0;
    for (size_t i = 0; !rc && (name = stack_followed(stack, i)); i++) {
        CLEANUP(cleanup_stack_export) struct stack_export *to = stack_get(stack, name);
        if (!to) /* it leads nowhere yet */
            continue;
        describe(c->server, to, &described);
        described.name = name;
        rc = visit(visit_arg, &described);
    }
    while (!rc && (e = stack_next(stack, e))) {
        describe(c->server, e, &described);
        rc = visit(visit_arg, &described);
    }
    return rc;
}

static const struct handshake_exports exports = {.open = open_export, .list = list_exports};

/* Do one step of the handshake; its answer is queued before the next step. Returns the bytes taken; 0: nothing more
 * to do for now. */
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
    c->securing = step == HANDSHAKE_SECURES;
    if (!nbd_connection_say(c, &text))
        return 0;
    if (step == HANDSHAKE_OVER) {
        SCOPED_LOCK(&c->server->lock);
        connection_end_locked(c);
        return 0;
    }
    return used;
}

/* May a handshake go on? It waits until the client has taken the last answer, and while other handshakes hold all the
 * memory for messages, whose number and size clients choose. */
static bool may_shake_hands(struct connection *c)
{
    SCOPED_LOCK(&c->server->lock);
    c->stalled = c->server->text_memory >= c->server->config.memory / TEXT_PART;
    if (c->stalled)
        c->server->short_ms = clock_now_ms();
    connection_wait_locked(c);
    return !c->stalled && !c->unanswered && !c->ended && !c->dead;
}

/* ---- TLS ---- */

/* Do a step of the TLS handshake. Nothing said in plaintext is kept: no export is open before it. */
static void secure(struct connection *c)
{
    struct nbd_server *s = c->server;
    bool sends = false;
    if (!may_shake_hands(c))
        return;
    int rc = c->tls ? 0 : tls_session_new(s->config.tls, c->fd, &c->tls);
    if (!rc)
        rc = tls_session_handshake(c->tls, &sends);
    if (rc && rc != -EAGAIN) {
        complain(c);
        return;
    }
    c->securing = rc;
    SCOPED_LOCK(&s->lock);
    c->blocked |= sends;
    connection_wait_locked(c);
}

/* ---- requests ---- */

/* Queue a request, or answer it at once if it is refused. No thread is woken yet: requests that arrive together are
 * taken together (workers.c). -ENOMEM. */
static int take_request(struct connection *c, const struct request *r)
{
    struct nbd_server *s = c->server;
    struct task *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
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
        pool_push_locked(t, WAITING_UNSORTED);
    return 0;
}

/* Take one request. Returns the bytes taken; 0: it is not complete, or the connection has ended. */
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

/* Skip the data of a refused write; answer it after the last byte. */
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

/* Act on all complete input, and keep the rest for later. */
static void take_all(struct connection *c)
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
}

/* Receive what fits. false: nothing came. A client that shut down its sending direction may still want answers, and
 * gets those that come soon (LEAVING_MS). */
static bool receive_some(struct connection *c)
{
    size_t room = CONNECTION_IN - c->in_len;
    if (!room || is_over(c))
        return false;
    ssize_t n =
        c->tls ? tls_session_recv(c->tls, c->in + c->in_len, room) : recv(c->fd, c->in + c->in_len, room, MSG_DONTWAIT);
    if (n > 0) {
        c->in_len += (size_t)n;
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    SCOPED_LOCK(&c->server->lock);
    if (n < 0)
        connection_kill_locked(c);
    else if (!c->dead)
        connection_end_locked(c);
    return false;
}

/* Act on bytes received before. Bytes that TLS has decrypted cause no event of the socket, so they are taken at once,
 * or when the handshake goes on. */
static void go_on(struct connection *c)
{
    do {
        take_all(c);
        if (c->securing)
            secure(c);
    } while (c->tls && !c->securing && tls_session_has_more(c->tls) && receive_some(c));
    SCOPED_LOCK(&c->server->lock);
    pool_wake_locked(c->server);
    if (!c->dead)
        connection_wait_locked(c);
}

/* Until the connections' thread has finished, no worker keeps the client: a request that is queued here may be answered
 * before. */
static void take_input(struct connection *c, bool arrived)
{
    {
        SCOPED_LOCK(&c->server->lock);
        c->receiving = !c->kept; /* a worker may have taken it over after the event */
        if (c->kept)
            return;
    }
    if (!arrived || c->securing || receive_some(c))
        go_on(c);
    SCOPED_LOCK(&c->server->lock);
    c->receiving = false;
}

void connection_receive(struct connection *c)
{
    take_input(c, true);
}

void connection_continue(struct connection *c)
{
    take_input(c, false);
}

/* ---- by a worker ---- */

bool connection_keep_locked(struct connection *c)
{
    if (c->receiving || c->kept || c->ended || c->dead)
        return false;
    c->kept = true;
    c->working++;
    connection_wait_locked(c);
    return true;
}

void connection_let_go_locked(struct connection *c)
{
    c->kept = false;
    connection_wait_locked(c);
    connection_left_locked(c);
}

bool connection_listen_locked(struct connection *c, int other_fd, int wait_ms, bool kept)
{
    struct nbd_server *s = c->server;
    bool hears = kept && !c->ended && !c->dead && c->unanswered < CONNECTION_UNANSWERED_MAX;
    struct pollfd on[] = {{.fd = hears ? c->fd : -1, .events = POLLIN}, {.fd = other_fd, .events = POLLIN}};
    if (!hears && other_fd < 0)
        return false;
    pthread_mutex_unlock(&s->lock);
    bool came = (hears && !wait_ms) || (poll(on, GR_ARRAY_SIZE(on), wait_ms) > 0 && on[0].revents);
    pthread_mutex_lock(&s->lock);
    if (!came)
        return false;
    s->waking++; /* this thread looks for work next: no other need be woken for what comes now */
    pthread_mutex_unlock(&s->lock);
    came = receive_some(c);
    if (came)
        go_on(c);
    pthread_mutex_lock(&s->lock);
    s->waking--;
    return came;
}

/* ---- a new connection ---- */

/* Set TCP options; on other sockets they fail, which does not matter. Replies leave at once, and a client whose
 * machine has vanished is noticed. */
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
    int rc = !c || handshake_greet(&greeting) ? error_no_memory() : 0;
    if (!rc && epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event))
        rc = error_set(-errno, "a client cannot be watched: %s", strerror(errno));
    if (rc) {
        free(c);
        close(fd);
        return rc;
    }
    set_up_socket(fd);
    c->server = s;
    c->fd = fd;
    c->refused = refused;
    c->since_ms = clock_now_ms();
    c->handshake = (struct handshake){
        .exports = &exports, .arg = c, .tls = s->config.tls ? HANDSHAKE_TLS_REQUIRED : HANDSHAKE_TLS_NONE};
    client_init(&c->client);
    {
        SCOPED_LOCK(&s->lock);
        c->next = s->first;
        if (c->next)
            c->next->prev = c;
        s->first = c;
        s->connections++;
    }
    nbd_connection_say(c, &greeting);
    return 0;
}

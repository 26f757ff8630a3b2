/* One thread polls the listening socket, an eventfd and all connections; nothing else touches a session. A call's
 * thread puts the finished call into `done` and wakes it. It joins that thread before it gives the reply to the
 * session, so no thread of a call is left when the last call is finished.
 *
 * Connections that wait in the listen queue while all calls' connections are taken are served later. */
#include "csi/grpc/grpc.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/thread.h"
#include "csi/grpc/grpc_session.h"

struct connection {
    int fd;
    struct grpc_session *session;
    uint64_t active_ms;     /* when bytes went in or out the last time, or a call ended */
    const uint8_t *pending; /* of the session's; what the peer does not take yet */
    size_t pending_len;
};

/* A call in its thread. */
struct running {
    struct grpc_server *server;
    struct grpc_call *call;
    pthread_t thread;
    struct running *next; /* in done */
};

struct grpc_server {
    struct grpc_config config;
    int event_fd;
    pthread_t thread;
    pthread_mutex_t lock; /* guards done, stops */
    struct running *done;
    bool stops;
    /* the polling thread's */
    unsigned running;
    size_t count;
    struct connection connections[GRPC_CONNECTIONS_MAX];
};

/* ---- calls ---- */

static void wake(struct grpc_server *server)
{
    uint64_t one = 1;
    (void)!write(server->event_fd, &one, sizeof one); /* it fails only when it is awake already */
}

/* Wipe what the functions that were called have left on the stack. The dynamic linker saves vector registers there when
 * a library's function is called for the first time, and they hold what memcpy moved last: a secret of a request. */
__attribute__((noinline)) static void wipe_stack(void)
{
    uint8_t below[128 << 10];
    explicit_bzero(below, sizeof below);
}

static void *run_thread(void *arg)
{
    struct running *r = arg;
    struct grpc_call *call = r->call;
    struct grpc_server *server = r->server;
    server->config.answer(server->config.arg, call->path, call->request.data + GRPC_PREFIX,
                          call->request.len - GRPC_PREFIX, &call->reply);
    wipe_stack();
    SCOPED_LOCK(&server->lock);
    r->next = server->done;
    server->done = r;
    wake(server);
    return NULL;
}

/* grpc_run: start a thread for the call. */
static void run(void *arg, struct grpc_call *call)
{
    struct grpc_server *server = arg;
    struct running *r = server->running < GRPC_CALLS_MAX ? malloc(sizeof *r) : NULL;
    if (r)
        *r = (struct running){.server = server, .call = call};
    if (!r || thread_start(&r->thread, run_thread, r)) {
        free(r);
        (void)grpc_fail(&call->reply, GRPC_RESOURCE_EXHAUSTED, "%u calls run already; ask again later",
                        server->running);
        grpc_call_finish(call);
        return;
    }
    server->running++;
}

/* Give the replies of finished calls to their sessions. */
static void finish_calls(struct grpc_server *server)
{
    struct running *r;
    {
        SCOPED_LOCK(&server->lock);
        r = steal_ptr(&server->done);
    }
    for (struct running *next; r; r = next) {
        next = r->next;
        pthread_join(r->thread, NULL);
        grpc_call_finish(r->call);
        free(r);
        server->running--;
    }
}

/* ---- connections ---- */

static void connection_close(struct grpc_server *server, size_t i)
{
    struct connection *c = &server->connections[i];
    grpc_session_free(c->session);
    close(c->fd);
    *c = server->connections[--server->count];
}

/* Return the connection without a call that is idle for longest; server->count: all have calls. */
static size_t idlest(const struct grpc_server *server)
{
    size_t found = server->count;
    for (size_t i = 0; i < server->count; i++) {
        const struct connection *c = &server->connections[i];
        if (!grpc_session_busy(c->session) &&
            (found == server->count || c->active_ms < server->connections[found].active_ms))
            found = i;
    }
    return found;
}

/* Accept one connection, if there is or can be made room. */
static void take_connection(struct grpc_server *server, uint64_t now_ms)
{
    struct grpc_session *session;
    if (server->count == GRPC_CONNECTIONS_MAX) {
        size_t i = idlest(server);
        if (i == server->count)
            return;
        connection_close(server, i);
    }
    int fd = accept4(server->config.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (grpc_session_new(run, server, &session)) {
        log_warning("grpc: %s", error_text());
        close(fd);
        return;
    }
    server->connections[server->count++] = (struct connection){.fd = fd, .session = session, .active_ms = now_ms};
}

/* Send what the session has, as far as the peer takes it. False: the connection is to end. */
static bool send_pending(struct connection *c, uint64_t now_ms)
{
    for (;;) {
        if (!c->pending_len) {
            ssize_t n = grpc_session_send(c->session, &c->pending);
            if (n <= 0)
                return !n && !grpc_session_over(c->session);
            c->pending_len = (size_t)n;
        }
        ssize_t n = send(c->fd, c->pending, c->pending_len, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        c->pending += n;
        c->pending_len -= (size_t)n;
        c->active_ms = now_ms;
    }
}

/* Take what the peer has sent. While it does not take our answers, its bytes wait: a session that cannot send must not
 * be made to answer more. False: the connection is to end. */
static bool take_bytes(struct connection *c, uint64_t now_ms)
{
    uint8_t buffer[16384];
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    c->active_ms = now_ms;
    bool ok = n && !grpc_session_receive(c->session, buffer, (size_t)n, now_ms);
    explicit_bzero(buffer, (size_t)n); /* a request may hold secrets */
    wipe_stack();
    return ok;
}

/* One connection's turn. False: it is to end. */
static bool serve_connection(struct grpc_server *server, struct connection *c, short events, uint64_t now_ms)
{
    if (events & (POLLIN | POLLHUP | POLLERR) && !c->pending_len && !take_bytes(c, now_ms))
        return false;
    if (events & (POLLHUP | POLLERR) && c->pending_len) /* nobody will take it */
        return false;
    grpc_session_expire(c->session, now_ms);
    if (grpc_session_busy(c->session))
        c->active_ms = now_ms;
    return send_pending(c, now_ms) && now_ms - c->active_ms < server->config.idle_ms;
}

/* Return for how long poll may wait: until a deadline, or until a connection has been idle for too long. */
static int wait_ms(const struct grpc_server *server, uint64_t now_ms)
{
    uint64_t until = UINT64_MAX;
    for (size_t i = 0; i < server->count; i++) {
        const struct connection *c = &server->connections[i];
        uint64_t deadline = grpc_session_deadline(c->session);
        uint64_t idle = grpc_session_busy(c->session) ? UINT64_MAX : c->active_ms + server->config.idle_ms;
        until = GR_MIN(until, GR_MIN(deadline, idle));
    }
    if (until == UINT64_MAX)
        return -1;
    return until <= now_ms ? 0 : (int)GR_MIN(until - now_ms, (uint64_t)60000);
}

static bool stops(struct grpc_server *server)
{
    SCOPED_LOCK(&server->lock);
    return server->stops;
}

/* One wait, and what came of it. */
static void turn(struct grpc_server *server)
{
    enum { LISTEN, EVENT, FIRST };
    struct pollfd p[FIRST + GRPC_CONNECTIONS_MAX];
    size_t count = server->count;
    bool room = count < GRPC_CONNECTIONS_MAX || idlest(server) < count;
    p[LISTEN] = (struct pollfd){.fd = room ? server->config.listen_fd : -1, .events = POLLIN};
    p[EVENT] = (struct pollfd){.fd = server->event_fd, .events = POLLIN};
    for (size_t i = 0; i < count; i++) {
        const struct connection *c = &server->connections[i];
        p[FIRST + i] = (struct pollfd){.fd = c->fd, .events = c->pending_len ? POLLOUT : POLLIN};
    }
    if (poll(p, (nfds_t)(FIRST + count), wait_ms(server, clock_now_ms())) < 0)
        return; /* EINTR */
    uint64_t now_ms = clock_now_ms(), events;
    if (p[EVENT].revents)
        (void)!read(server->event_fd, &events, sizeof events);
    finish_calls(server);
    for (size_t i = count; i-- > 0;) /* backwards: the last one takes the place of one that ends */
        if (!serve_connection(server, &server->connections[i], p[FIRST + i].revents, now_ms))
            connection_close(server, i);
    if (p[LISTEN].revents)
        take_connection(server, now_ms);
}

static void *serve_thread(void *arg)
{
    struct grpc_server *server = arg;
    uint64_t events;
    while (!stops(server))
        turn(server);
    while (server->count)
        connection_close(server, 0);
    while (server->running) { /* their streams are gone; their threads end by themselves */
        (void)!read(server->event_fd, &events, sizeof events);
        finish_calls(server);
    }
    return NULL;
}

static void server_free(struct grpc_server *server)
{
    if (server->event_fd >= 0)
        close(server->event_fd);
    pthread_mutex_destroy(&server->lock);
    free(server);
}
DEFINE_CLEANUP(server, struct grpc_server *, server_free)

int grpc_server_start(const struct grpc_config *config, struct grpc_server **out)
{
    CLEANUP(cleanup_server) struct grpc_server *server = calloc(1, sizeof *server);
    if (!server)
        return error_no_memory();
    server->config = *config;
    if (!server->config.idle_ms)
        server->config.idle_ms = GRPC_IDLE_MS;
    pthread_mutex_init(&server->lock, NULL);
    server->event_fd = eventfd(0, EFD_CLOEXEC);
    if (server->event_fd < 0)
        return error_set(-errno, "cannot make an eventfd: %s", strerror(errno));
    int rc = thread_start(&server->thread, serve_thread, server);
    if (!rc)
        *out = steal_ptr(&server);
    return rc;
}

void grpc_server_stop(struct grpc_server *server)
{
    if (!server)
        return;
    {
        SCOPED_LOCK(&server->lock);
        server->stops = true;
    }
    wake(server);
    pthread_join(server->thread, NULL);
    server_free(server);
}

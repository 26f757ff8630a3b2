/* The connections' thread. It waits in epoll and does everything that never blocks:
 *
 *    accept --> handshake --> receive requests --> queue (workers read)     EPOLLOUT: send the rest of a reply
 *    tick:   disconnect clients that are overdue, slow or lost; retry what waited for memory or descriptors
 *    end:    drain, then disconnect
 *
 * Only this thread frees connections, after the events of a round, so that no event meets a freed connection.
 */
#include "nbd/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "nbd/server_internal.h"

enum { EVENTS = 64, ACCEPT_AT_ONCE = 64 };

/* ---- new clients ---- */

/* Wait for input on a descriptor, or stop waiting. The event carries `what`. */
static int wait_for(struct nbd_server *s, int fd, void *what, bool on)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    if (!epoll_ctl(s->epoll, on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event))
        return 0;
    return error_set(-errno, "epoll: %s", strerror(errno));
}

/* Accept no connection until the next tick. */
static void pause_accepting(struct nbd_server *s, const char *why)
{
    log_limited(&s->complaints, LOG_LEVEL_WARNING, "no client can be accepted now: %s", why);
    s->paused = !wait_for(s, s->config.listen_fd, &s->config.listen_fd, false);
}

/* Accept the connections that wait, up to a number, so that other events get their turn. */
static void take_clients(struct nbd_server *s)
{
    for (int i = 0; i < ACCEPT_AT_ONCE && !s->paused; i++) {
        int fd = accept4(s->config.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            pause_accepting(s, strerror(errno));
        if (fd < 0)
            return;
        if (s->connections >= s->config.clients + REFUSED_MAX)
            close(fd);
        else if (connection_new(s, fd, s->connections >= s->config.clients))
            pause_accepting(s, error_text());
    }
}

/* ---- the clock ---- */

/* Has its handshake taken too long? */
static bool is_overdue(const struct nbd_server *s, const struct connection *c, uint64_t now)
{
    return !c->transmitting && now - c->since_ms >= s->config.handshake_ms;
}

/* What a tick found. It is logged after the lock has been released. */
struct tick_report {
    unsigned overdue, slow; /* clients that were disconnected */
    bool threads_short;
    size_t threads;
};

/* Disconnect clients that are overdue, slow or lost. If a thread could not be started, try again. */
static struct tick_report disconnect_idlers(struct nbd_server *s, uint64_t now)
{
    SCOPED_LOCK(&s->lock);
    struct tick_report report = {.threads_short = s->threads_short, .threads = s->workers.len};
    s->threads_short = false;
    if (report.threads_short)
        pool_wake_locked(s);
    for (struct connection *c = s->first, *next; c; c = next) {
        next = c->next;
        bool overdue = is_overdue(s, c, now), slow = !overdue && connection_is_slow_locked(c, now);
        if (overdue || slow || connection_is_lost_locked(c, now))
            connection_kill_locked(c);
        report.overdue += overdue;
        report.slow += slow;
    }
    return report;
}

/* Log what a tick found. */
static void log_report(struct nbd_server *s, const struct tick_report *r)
{
    if (r->overdue)
        log_limited(&s->complaints, LOG_LEVEL_WARNING, "%u NBD clients asked for no export in time: disconnected",
                    r->overdue);
    if (r->slow)
        log_limited(&s->complaints, LOG_LEVEL_WARNING,
                    "%u NBD clients do not read their replies, and others need the memory: disconnected", r->slow);
    if (r->threads_short)
        log_limited(&s->complaints, LOG_LEVEL_WARNING,
                    "no more than %zu threads can be started to read: the limit of processes or memory is reached",
                    r->threads);
}

/* Return a connection whose handshake waits for memory, if there is some now. */
static struct connection *find_stalled(struct nbd_server *s)
{
    SCOPED_LOCK(&s->lock);
    struct connection *c = s->text_memory < s->config.memory / TEXT_PART ? s->first : NULL;
    while (c && !c->stalled)
        c = c->next;
    if (c)
        c->stalled = false;
    return c;
}

static void nbd_server_tick(struct nbd_server *s)
{
    struct connection *c;
    if (s->paused)
        s->paused = wait_for(s, s->config.listen_fd, &s->config.listen_fd, true) != 0;
    struct tick_report report = disconnect_idlers(s, clock_now_ms());
    log_report(s, &report);
    while ((c = find_stalled(s)))
        connection_continue(c);
}

/* ---- the end ---- */

/* Free the connections that died. Takes the list under the lock, and frees without it. */
static void free_dead(struct nbd_server *s)
{
    struct connection *c;
    {
        SCOPED_LOCK(&s->lock);
        c = steal_ptr(&s->dead);
    }
    while (c) {
        struct connection *next = c->next;
        connection_free(c);
        SCOPED_LOCK(&s->lock);
        s->connections--;
        c = next;
    }
}

/* Disconnect what can go now: everything once the time is over, else handshakes; and take no more input of the rest.
 * false: no connection is left. */
static bool nbd_server_drain(struct nbd_server *s)
{
    if (!s->paused)
        s->paused = !wait_for(s, s->config.listen_fd, &s->config.listen_fd, false);
    SCOPED_LOCK(&s->lock);
    bool late = clock_now_ms() >= s->drain_until_ms;
    for (struct connection *c = s->first, *next; c; c = next) {
        next = c->next;
        if (late || !c->transmitting)
            connection_kill_locked(c);
        else if (!c->ended)
            connection_end_locked(c);
    }
    return s->connections;
}

/* ---- the thread ---- */

/* Handle one event: of the listening socket, of the wake-up descriptor, or of a connection. */
static void take_event(struct nbd_server *s, const struct epoll_event *e)
{
    eventfd_t count;
    if (e->data.ptr == &s->config.listen_fd) {
        take_clients(s);
        return;
    }
    if (e->data.ptr == &s->wake_fd) {
        eventfd_read(s->wake_fd, &count);
        return;
    }
    struct connection *c = e->data.ptr;
    if (e->events & (EPOLLHUP | EPOLLERR)) {
        SCOPED_LOCK(&s->lock);
        connection_kill_locked(c);
        return;
    }
    if (e->events & EPOLLOUT) {
        SCOPED_LOCK(&s->lock);
        connection_unblock_locked(c);
    }
    if (e->events & EPOLLIN)
        connection_receive(c);
    else if (!c->transmitting)
        connection_continue(c);
}

static bool is_draining(struct nbd_server *s)
{
    SCOPED_LOCK(&s->lock);
    return s->draining;
}

/* The loop. Without a connection and without a pause there is no tick: an idle server sleeps. */
static void *nbd_server_run(void *arg)
{
    struct nbd_server *s = arg;
    uint64_t tick_ms = clock_now_ms();
    for (bool going = true; going;) {
        struct epoll_event events[EVENTS];
        bool clock = s->connections || s->paused;
        uint64_t now = clock_now_ms();
        int n = epoll_wait(s->epoll, events, EVENTS, !clock ? -1 : tick_ms > now ? (int)(tick_ms - now) : 0);
        for (int i = 0; i < n; i++)
            take_event(s, &events[i]);
        free_dead(s);
        bool draining = is_draining(s);
        if (draining)
            going = nbd_server_drain(s);
        if (clock_now_ms() >= tick_ms) {
            if (!draining)
                nbd_server_tick(s);
            tick_ms = clock_now_ms() + s->tick_ms;
        }
        free_dead(s);
    }
    return NULL;
}

/* ---- life ---- */

static void set_defaults(struct nbd_server_config *c)
{
    c->threads = c->threads ? c->threads : NBD_SERVER_THREADS;
    c->clients = c->clients ? c->clients : NBD_SERVER_CLIENTS;
    c->memory = c->memory ? c->memory : NBD_SERVER_MEMORY;
    c->handshake_ms = c->handshake_ms ? c->handshake_ms : NBD_SERVER_HANDSHAKE_MS;
    c->slow_ms = c->slow_ms ? c->slow_ms : NBD_SERVER_SLOW_MS;
}

static int open_events(struct nbd_server *s)
{
    int flags = fcntl(s->config.listen_fd, F_GETFL);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->epoll < 0 || s->wake_fd < 0 || flags < 0 || fcntl(s->config.listen_fd, F_SETFL, flags | O_NONBLOCK))
        return error_set(-errno, "cannot wait for clients: %s", strerror(errno));
    int rc = wait_for(s, s->wake_fd, &s->wake_fd, true);
    return rc ? rc : wait_for(s, s->config.listen_fd, &s->config.listen_fd, true);
}

/* Free a server whose connections are gone, also a half-started one. */
static void nbd_server_release(struct nbd_server *s)
{
    pool_stop(s);
    if (s->epoll >= 0)
        close(s->epoll);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* What the control socket's status shows of this front end. */
static void tell_stack(void *arg, struct stack_front_end *out)
{
    struct nbd_server *s = arg;
    struct nbd_server_stats now;
    nbd_server_stats(s, &now);
    *out = (struct stack_front_end){.connections = now.clients,
                                    .connections_max = s->config.clients,
                                    .threads = now.threads,
                                    .threads_max = s->config.threads,
                                    .reply_bytes = now.memory,
                                    .reply_bytes_max = s->config.memory};
}

int nbd_server_start(const struct nbd_server_config *config, struct nbd_server **out)
{
    struct nbd_server *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    *s = (struct nbd_server){.config = *config, .epoll = -1, .wake_fd = -1, .complaints = LOG_LIMIT_INIT};
    set_defaults(&s->config);
    s->tick_ms = GR_MIN(GR_MIN(s->config.handshake_ms, s->config.slow_ms), (unsigned)TICK_MS);
    pthread_mutex_init(&s->lock, NULL);
    int rc = open_events(s);
    if (!rc)
        rc = pool_start(s, workers_run);
    if (!rc)
        rc = thread_start(&s->thread, nbd_server_run, s);
    if (rc)
        nbd_server_release(s);
    else
        stack_set_front_end(config->serving->stack, tell_stack, *out = s);
    return rc;
}

void nbd_server_stop(struct nbd_server *s, unsigned drain_ms)
{
    if (!s)
        return;
    stack_set_front_end(s->config.serving->stack, NULL, NULL);
    {
        SCOPED_LOCK(&s->lock);
        s->draining = true;
        s->drain_until_ms = clock_now_ms() + drain_ms;
    }
    eventfd_write(s->wake_fd, 1);
    pthread_join(s->thread, NULL);
    nbd_server_release(s);
}

void nbd_server_stats(struct nbd_server *s, struct nbd_server_stats *out)
{
    SCOPED_LOCK(&s->lock);
    *out = (struct nbd_server_stats){
        .clients = s->connections, .threads = (unsigned)s->workers.len, .memory = s->memory + s->text_memory};
}

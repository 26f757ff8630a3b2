/* To find a connection's descriptor, the accepted sockets of the process are compared with what nbdkit reports: the
 * same peer address (for unix sockets, whose clients have no names, the same peer process), and not the socket of a
 * known client. The right one is always among them, so a single match is certain. It is duplicated, since nbdkit may
 * close its own descriptor and another socket get that number.
 *
 * One thread waits by epoll until a socket hangs up. A client that shut down only its sending direction may still want
 * answers, so that is not taken for its end. TCP shows no more than that by itself when a host vanishes, so keepalive
 * probes are switched on.
 *
 * Returning a vanished client's requests one by one: `leaving` says that a request has been returned and its thread
 * still runs. The thread-specific key `leaver` has a destructor, end_turn, so the thread's end lets the next request
 * go.
 *
 * Locks, outermost first: plugin_clients.lock, a client's (base/client.h), plugin_client.lock. */
#include "plugin/plugin_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/client.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"

enum {
    TURN_MAX_MS = 5000, /* how long to wait for a thread of nbdkit to end: longer means that it will not */
    PROBE_IDLE_S = 30,
    PROBE_EVERY_S = 10,
    PROBES = 3
};

/* A connection's client. plugin_clients.lock guards the list, fd and socket. */
struct plugin_client {
    struct plugin_clients *clients;
    struct plugin_client *prev, *next;
    uint64_t number; /* unique; what epoll reports, since a pointer might be freed by then */
    int fd;          /* a duplicate of the connection's; -1: unknown */
    ino_t socket;    /* the socket's inode; 0: unknown */
    struct client client;
    pthread_mutex_t lock; /* guards leaving */
    pthread_cond_t left;
    bool leaving; /* one of its requests was returned, and that request's thread still runs */
};

/* All clients of the process. */
struct plugin_clients {
    struct sockaddr_un control; /* address of the control socket; path "": none */
    int epoll, ending;          /* ending: an eventfd that ends the thread */
    pthread_key_t leaver;       /* per thread: the client whose request it has returned */
    pthread_t thread;
    bool keyed, started;
    pthread_mutex_t lock; /* guards the members below, and each client's links, fd and socket */
    struct plugin_client *first;
    uint64_t last_number; /* numbers begin at 1; 0 is `ending` */
};
DEFINE_CLEANUP(plugin_clients, struct plugin_clients *, plugin_clients_close)

/* ---- returning requests one by one ---- */

/* The thread that returned a request ends: the next request may return. */
static void end_turn(void *arg)
{
    struct plugin_client *c = arg;
    SCOPED_LOCK(&c->lock);
    c->leaving = false;
    pthread_cond_signal(&c->left);
}

/* Wait until the thread of the request before has ended, at most TURN_MAX_MS. A thread that has taken its turn already
 * is nbdkit's one thread of this connection and need not wait for itself. */
static void take_turn(struct plugin_client *c)
{
    struct timespec until = clock_at_ms(clock_now_ms() + TURN_MAX_MS);
    if (pthread_getspecific(c->clients->leaver) == c)
        return;
    SCOPED_LOCK(&c->lock);
    while (c->leaving && !pthread_cond_timedwait(&c->left, &c->lock, &until))
        ;
    c->leaving = !pthread_setspecific(c->clients->leaver, c);
}

/* ---- finding the socket ---- */

/* Whether a descriptor is a connection to the control socket. */
static bool is_controls(const struct plugin_clients *cs, int fd)
{
    struct sockaddr_un own = {0};
    socklen_t len = sizeof own;
    return *cs->control.sun_path && !getsockname(fd, (struct sockaddr *)&own, &len) && own.sun_family == AF_UNIX &&
           !strcmp(own.sun_path, cs->control.sun_path);
}

/* Whether that process connected the unix socket. */
static bool connected_by(int fd, int64_t pid)
{
    struct ucred of;
    socklen_t len = sizeof of;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &of, &len) && of.pid == pid;
}

/* Whether a descriptor is an accepted socket whose other end is peer. */
static bool is_the_peers(const struct plugin_clients *cs, int fd, const struct plugin_client_peer *peer)
{
    struct sockaddr_storage other = {0};
    socklen_t len = sizeof other;
    int listening = 0;
    socklen_t listening_len = sizeof listening;
    if (getpeername(fd, (struct sockaddr *)&other, &len) || len != peer->address_len ||
        memcmp(&other, &peer->address, len) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &listening_len) || listening)
        return false;
    return other.ss_family != AF_UNIX || (connected_by(fd, peer->pid) && !is_controls(cs, fd));
}

/* Return a descriptor's inode number, 0 on failure. */
static ino_t socket_of(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : st.st_ino;
}

/* Does the socket belong to a client already? */
static bool is_known_locked(const struct plugin_clients *cs, ino_t socket)
{
    for (const struct plugin_client *c = cs->first; c; c = c->next)
        if (c->socket == socket)
            return true;
    return false;
}

/* Return a duplicate of the only descriptor that fits, or -1. The loop may meet the duplicate itself, which has the
 * same inode and does not count. */
static int plugin_client_find_locked(const struct plugin_clients *cs, const struct plugin_client_peer *peer,
                                     ino_t *out_socket)
{
    CLEANUP_FD int found = -1;
    unsigned count = 0;
    ino_t last = 0;
    DIR *dir = peer->address_len ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *e; dir && (e = readdir(dir));) {
        int fd = (int)strtol(e->d_name, NULL, 10);
        ino_t socket = *e->d_name == '.' || !is_the_peers(cs, fd, peer) ? 0 : socket_of(fd);
        if (!socket || socket == last || is_known_locked(cs, socket))
            continue;
        if (!count++)
            found = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        last = socket;
    }
    if (dir)
        closedir(dir);
    if (count != 1 || found < 0 || socket_of(found) != last)
        return -1;
    *out_socket = last;
    return steal_fd(&found);
}

/* Have TCP probe the peer, so that a host that vanished is noticed. No effect on a unix socket. */
static void have_probed(int fd)
{
    static const int on = 1, idle = PROBE_IDLE_S, every = PROBE_EVERY_S, probes = PROBES;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

/* ---- clients ---- */

/* Find the client's socket and watch it. EPOLLHUP is reported without being asked for; one report is enough. */
static void watch_locked(struct plugin_clients *cs, struct plugin_client *c, const struct plugin_client_peer *peer)
{
    struct epoll_event hung_up = {.events = EPOLLONESHOT, .data.u64 = c->number};
    c->fd = plugin_client_find_locked(cs, peer, &c->socket);
    if (c->fd < 0)
        return;
    have_probed(c->fd);
    if (epoll_ctl(cs->epoll, EPOLL_CTL_ADD, c->fd, &hung_up)) {
        close(c->fd);
        c->fd = -1;
        c->socket = 0;
    }
}

int plugin_client_new(struct plugin_clients *cs, const struct plugin_client_peer *peer, struct plugin_client **out)
{
    struct plugin_client *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->clients = cs;
    client_init(&c->client);
    pthread_mutex_init(&c->lock, NULL);
    thread_cond_init(&c->left);
    SCOPED_LOCK(&cs->lock);
    c->number = ++cs->last_number;
    watch_locked(cs, c, peer);
    c->next = cs->first;
    if (c->next)
        c->next->prev = c;
    cs->first = c;
    *out = c;
    return 0;
}

/* epoll may still report the socket while nbdkit's own descriptor is open; then no client has that number. */
void plugin_client_free(struct plugin_client *c)
{
    if (pthread_getspecific(c->clients->leaver) == c) /* nbdkit's one thread of the connection: it outlives c */
        pthread_setspecific(c->clients->leaver, NULL);
    {
        SCOPED_LOCK(&c->clients->lock);
        *(c->prev ? &c->prev->next : &c->clients->first) = c->next;
        if (c->next)
            c->next->prev = c->prev;
        if (c->fd >= 0)
            close(c->fd);
    }
    pthread_cond_destroy(&c->left);
    pthread_mutex_destroy(&c->lock);
    client_release(&c->client);
    free(c);
}

void plugin_client_begin(struct plugin_client *c)
{
    client_bind_thread(&c->client);
}

/* A request of a vanished client takes its turn here (see the top); others return at once. */
bool plugin_client_end(struct plugin_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    client_bind_thread(NULL);
    if (poll(&p, 1, 0) > 0) /* never so for fd -1 */
        take_turn(c);
    return !client_is_disconnected(&c->client);
}

/* ---- watching ---- */

/* The thread: one event at a time, until `ending` is written. The client may not exist any more. */
static void *plugin_client_watch(void *arg)
{
    struct plugin_clients *cs = arg;
    struct epoll_event e;
    for (;;) {
        int n = epoll_wait(cs->epoll, &e, 1, -1);
        if (n > 0 && !e.data.u64)
            return NULL;
        if (n <= 0)
            continue;
        SCOPED_LOCK(&cs->lock);
        struct plugin_client *c = cs->first;
        while (c && c->number != e.data.u64)
            c = c->next;
        if (c)
            client_set_disconnected(&c->client);
    }
}

/* A path too long for sun_path cannot be a socket's: nothing is compared with it then. */
int plugin_clients_open(const char *control, struct plugin_clients **out)
{
    CLEANUP(cleanup_plugin_clients) struct plugin_clients *cs = calloc(1, sizeof *cs);
    if (!cs)
        return error_no_memory();
    cs->epoll = cs->ending = -1;
    pthread_mutex_init(&cs->lock, NULL);
    int rc = pthread_key_create(&cs->leaver, end_turn);
    cs->keyed = !rc;
    if (!rc) {
        cs->epoll = epoll_create1(EPOLL_CLOEXEC);
        cs->ending = eventfd(0, EFD_CLOEXEC);
    }
    if (control && strlen(control) < sizeof cs->control.sun_path)
        snprintf(cs->control.sun_path, sizeof cs->control.sun_path, "%s", control);
    struct epoll_event end = {.events = EPOLLIN};
    if (rc || cs->epoll < 0 || cs->ending < 0 || epoll_ctl(cs->epoll, EPOLL_CTL_ADD, cs->ending, &end))
        return error_set(rc ? -rc : -errno, "cannot watch clients: %s", strerror(rc ? rc : errno));
    *out = steal_ptr(&cs);
    return 0;
}

int plugin_clients_start(struct plugin_clients *cs)
{
    int rc = thread_start(&cs->thread, plugin_client_watch, cs);
    cs->started = !rc;
    return rc;
}

/* Without the key, a thread of nbdkit that ends later calls no destructor. */
void plugin_clients_close(struct plugin_clients *cs)
{
    if (!cs)
        return;
    if (cs->started && !eventfd_write(cs->ending, 1))
        pthread_join(cs->thread, NULL);
    if (cs->keyed)
        pthread_key_delete(cs->leaver);
    close(cs->ending);
    close(cs->epoll);
    pthread_mutex_destroy(&cs->lock);
    free(cs);
}

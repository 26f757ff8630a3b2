/* libmicrohttpd serves a listening socket that we made. One thread serves all connections and must never block: a
 * document is made of counters and constants, and everything slower is a job with its own thread (control_job.c).
 *
 * Idle clients must not lock others out. At most CONNECTIONS_MAX connections are open; from CONNECTIONS_MANY on, each
 * new one ends the connection that has been idle longest. The list of clients is kept in that order: a client moves to
 * the end when it connects and after each answer. Clients that a job answers are skipped.
 *
 * The socket is bound before any fork, so that the process that starts the server reports what is wrong with the path.
 * Requests wait in the backlog until control_start. */

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "net/listen.h"
#include "server/control_internal.h"
#include "server/http_daemon.h"

enum {
    CONNECTIONS_MAX = 64,
    CONNECTIONS_MANY = 48, /* from here on a new connection ends an idle one */
    IDLE_TIMEOUT_S = 10,   /* libmicrohttpd's own limit for a connection without data */
    /* Bytes for a request's head and the part of its body that has arrived, S3 keys perhaps. Of more than 32 KiB they
     * are a mapping, which is unmapped with the connection; fewer would be freed as they are, and stay in the heap. */
    CONNECTION_MEMORY = 64 << 10,
};

/* A connection. Only the daemon's thread uses it. */
struct client {
    struct client *prev, *next; /* idle longest first */
    int fd;                     /* the daemon's; -1: we have shut it down */
    bool working;               /* a job answers it, so it is not idle */
};

/* The control socket. Constant after control_start, except for the list of clients, which the daemon's thread owns. */
struct control {
    char *path;
    int fd; /* the listening socket; -1: the daemon owns it */
    dev_t dev;
    ino_t ino; /* of the socket we made */
    struct MHD_Daemon *daemon;
    struct control_routes routes;
    struct client *first, *last;
    unsigned clients;
};
DEFINE_CLEANUP(control, struct control *, control_close)

/* ---- requests ---- */

/* Return the connection's entry; NULL: it has none. */
static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

/* libmicrohttpd's access handler: answer, and mark the client busy if a job does. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    struct control *c = arg;
    bool by_job = false;
    enum MHD_Result result;
    if (http_daemon_refuses(connection, *state, &result))
        return result;
    result = control_routes_take(&c->routes, connection, url, method, data, data_len, state, &by_job);
    struct client *client = client_of(connection);
    if (client && by_job)
        client->working = true;
    return result;
}

/* ---- connections ---- */

static void unlink_client(struct control *c, struct client *client)
{
    *(client->prev ? &client->prev->next : &c->first) = client->next;
    *(client->next ? &client->next->prev : &c->last) = client->prev;
    c->clients--;
}

/* Append a client: it is the one that was active last. */
static void link_client(struct control *c, struct client *client)
{
    client->prev = c->last;
    client->next = NULL;
    *(c->last ? &c->last->next : &c->first) = client;
    c->last = client;
    c->clients++;
}

/* libmicrohttpd opened or closed a connection. */
static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct control *c = arg;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            unlink_client(c, *context);
        free(*context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct client *client = info ? calloc(1, sizeof *client) : NULL;
    if (!client)
        return; /* the connection works without its entry, it is only never ended for being idle */
    client->fd = info->connect_fd;
    link_client(c, client);
    *context = client;
    if (c->clients <= CONNECTIONS_MANY)
        return;
    /* Shut down the connection that has been idle longest; the daemon closes it when it reads the end of the stream. */
    struct client *idle = c->first;
    while (idle && (idle->working || idle->fd < 0))
        idle = idle->next;
    if (idle) {
        shutdown(idle->fd, SHUT_RDWR);
        idle->fd = -1;
    }
}

/* After an answer the client is idle, as of now: move it to the end of the list. */
static void on_answered(void *arg, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode code)
{
    struct control *c = arg;
    control_routes_done(&c->routes, *state);
    *state = NULL;
    struct client *client = client_of(connection);
    if (!client)
        return;
    client->working = false;
    unlink_client(c, client);
    link_client(c, client);
}

/* ---- life ---- */

/* Everything that can fail at the start fails here: memory, the socket, the first sample of the history. The socket's
 * inode is remembered, so that control_close does not remove another server's. */
int control_open(const char *path, struct stack *stack, struct added_exports *added, struct reports *reports,
                 struct control **out)
{
    CLEANUP(cleanup_control) struct control *c = calloc(1, sizeof *c);
    struct stat st;
    if (!c)
        return error_no_memory();
    c->fd = -1;
    c->routes.stack = stack;
    c->routes.added = added;
    c->routes.reports = reports;
    c->path = strdup(path);
    if (!c->path)
        return error_no_memory();
    int rc = history_new(stack, &c->routes.history);
    if (!rc)
        rc = control_jobs_new(&c->routes.jobs);
    if (!rc)
        rc = control_jobs_new(&c->routes.changes);
    if (rc)
        return rc;
    rc = listen_unix(c->path, &c->fd);
    if (rc)
        return error_prefix(rc, "control");
    if (lstat(c->path, &st) < 0)
        return error_set(-errno, "control: %s: %s", c->path, strerror(errno));
    c->dev = st.st_dev;
    c->ino = st.st_ino;
    *out = steal_ptr(&c);
    return 0;
}

int control_start(struct control *c)
{
    struct MHD_OptionItem options[] = {{MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
                                       {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
                                       {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL},
                                       {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, c},
                                       {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_answered, c},
                                       {MHD_OPTION_END, 0, NULL}};
    int rc = history_start(c->routes.history);
    if (rc)
        return error_prefix(rc, "control");
    c->daemon = http_daemon_start(c->fd, MHD_ALLOW_SUSPEND_RESUME, on_request, c, options);
    if (!c->daemon)
        return error_set(-EIO, "control: cannot start the thread that serves %s", c->path);
    c->fd = -1;
    return 0;
}

/* The socket is removed first, so that no new client comes. Jobs are stopped before the daemon: libmicrohttpd does not
 * stop while a connection is suspended. */
void control_close(struct control *c)
{
    if (!c)
        return;
    struct stat st;
    if (c->ino && lstat(c->path, &st) == 0 && st.st_dev == c->dev && st.st_ino == c->ino)
        unlink(c->path);
    control_jobs_stop(c->routes.jobs); /* no connection may be suspended when the daemon stops */
    control_jobs_stop(c->routes.changes);
    if (c->daemon)
        MHD_stop_daemon(c->daemon);
    control_jobs_free(c->routes.jobs);
    control_jobs_free(c->routes.changes);
    history_free(c->routes.history);
    if (c->fd >= 0)
        close(c->fd);
    free(c->path);
    free(c);
}

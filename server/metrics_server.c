/* Every client that reaches the port may ask, so a client gets little: a connection is for one request, ends after
 * IDLE_TIMEOUT_S of silence, and is one of CONNECTIONS_MAX, of which one address may hold half. One thread answers all
 * requests one after the other; metrics_write never blocks. */
#include "server/server_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/listen.h"
#include "server/http_daemon.h"

/* A scraper needs one connection. Half of them at most are for one address. */
enum { CONNECTIONS_MAX = 32, CONNECTIONS_OF_ONE_MAX = CONNECTIONS_MAX / 2, IDLE_TIMEOUT_S = 60 };

/* Constant after metrics_server_start. */
struct metrics_server {
    struct stack *stack;
    int fd; /* the listening socket; -1: the daemon owns it */
    unsigned port;
    struct MHD_Daemon *daemon;
};

static enum MHD_Result answer_metrics(struct metrics_server *m, struct MHD_Connection *connection)
{
    CLEANUP_BYTES body = BYTES_INIT(METRICS_DOCUMENT_MAX);
    if (metrics_write(m->stack, &body))
        return http_daemon_answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n", true);
    return http_daemon_answer(connection, MHD_HTTP_OK, METRICS_TYPE, body.data, body.len, true);
}

/* libmicrohttpd's access handler: GET or HEAD /metrics, and nothing else. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    enum MHD_Result refusal;
    if (http_daemon_refuses(connection, *state, &refusal))
        return refusal;
    if (!http_daemon_whole(data_len, state))
        return MHD_YES;
    if (strcmp(url, "/metrics") != 0)
        return http_daemon_answer_text(connection, MHD_HTTP_NOT_FOUND, "not found; there is /metrics\n", true);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return http_daemon_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                       "GET and HEAD alone are understood here\n", true);
    return answer_metrics(arg, connection);
}

/* Binds before any fork, so that the process that starts the server reports a bad address. */
int metrics_server_open(const char *address, struct stack *stack, struct metrics_server **out)
{
    CLEANUP_FREE struct metrics_server *m = calloc(1, sizeof *m);
    if (!m)
        return error_no_memory();
    m->stack = stack;
    int rc = listen_tcp(address, &m->fd, &m->port);
    if (rc)
        return error_prefix(rc, "metrics");
    *out = steal_ptr(&m);
    return 0;
}

unsigned metrics_server_port(const struct metrics_server *m)
{
    return m->port;
}

int metrics_server_start(struct metrics_server *m)
{
    struct MHD_OptionItem options[] = {{MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
                                       {MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE_MAX, NULL},
                                       {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL},
                                       {MHD_OPTION_END, 0, NULL}};
    m->daemon = http_daemon_start(m->fd, 0, on_request, m, options);
    if (!m->daemon)
        return error_set(-EIO, "metrics: cannot start the thread that serves port %u", m->port);
    m->fd = -1;
    return 0;
}

void metrics_server_close(struct metrics_server *m)
{
    if (!m)
        return;
    if (m->daemon)
        MHD_stop_daemon(m->daemon);
    if (m->fd >= 0)
        close(m->fd);
    free(m);
}

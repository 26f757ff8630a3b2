/* libmicrohttpd calls an access handler several times for one request, and keeps a pointer in between. Here that
 * pointer is the address of one of two markers, so a request without a body needs no memory. */
#include "server/http_daemon.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "net/listen.h"

#define REFUSAL "{\"error\":\"the URL holds %00; no name has a NUL\"}"
/* The markers: the request's header has been seen; its URL is refused. */
static char begun, refused;

/* Return the request's first state. libmicrohttpd decodes the path into a C string, which would end at %00 and so name
 * something else than the client meant. */
static void *look_at_uri(void *arg, const char *uri, struct MHD_Connection *connection)
{
    return strstr(uri, "%00") ? &refused : NULL;
}

/* Signals are for the front end, so the thread blocks all of them. */
struct MHD_Daemon *http_daemon_start(int fd, unsigned flags, MHD_AccessHandlerCallback handler, void *arg,
                                     struct MHD_OptionItem *options)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | flags, 0, NULL, NULL, handler, arg, MHD_OPTION_LISTEN_SOCKET,
        fd, MHD_OPTION_URI_LOG_CALLBACK, look_at_uri, NULL, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

int http_port_open(struct http_port *p, const char *address)
{
    int rc = listen_tcp(address, &p->fd, &p->number);
    return rc ? error_prefix(rc, "%s", p->option) : 0;
}

int http_port_start(struct http_port *p, unsigned flags, MHD_AccessHandlerCallback handler, void *arg,
                    struct MHD_OptionItem *options)
{
    p->daemon = http_daemon_start(p->fd, flags, handler, arg, options);
    if (!p->daemon)
        return error_set(-EIO, "%s: cannot start the thread that serves port %u", p->option, p->number);
    p->fd = -1;
    return 0;
}

void http_port_close(struct http_port *p)
{
    if (p->daemon)
        MHD_stop_daemon(p->daemon);
    if (p->fd >= 0)
        close(p->fd);
    p->daemon = NULL;
    p->fd = -1;
}

bool http_daemon_owns(const void *state)
{
    return state == &begun || state == &refused;
}

bool http_daemon_refuses(struct MHD_Connection *connection, const void *state, enum MHD_Result *out)
{
    if (state != &refused)
        return false;
    *out = http_daemon_answer(connection, MHD_HTTP_BAD_REQUEST, "application/json", REFUSAL, sizeof REFUSAL - 1, true);
    return true;
}

/* libmicrohttpd's protocol: the first call has only the header, each further one a part of the body, and a call without
 * data after the first means that the request is complete. Setting *data_len to 0 says that the part was consumed. */
bool http_daemon_whole(size_t *data_len, void **state)
{
    bool first = !*state, more = *data_len;
    *state = &begun;
    *data_len = 0;
    return !first && !more;
}

/* queue_response takes its own reference, so the response is destroyed here in either case. */
enum MHD_Result http_daemon_queue(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response)
{
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

enum MHD_Result http_daemon_answer(struct MHD_Connection *connection, unsigned status, const char *type,
                                   const void *body, size_t len, bool last)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (last)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    return http_daemon_queue(connection, status, response);
}

enum MHD_Result http_daemon_answer_text(struct MHD_Connection *connection, unsigned status, const char *text, bool last)
{
    return http_daemon_answer(connection, status, "text/plain", text, strlen(text), last);
}

/* What a server's HTTP sockets, for control, metrics, the console and other nodes, share: libmicrohttpd on a listening
 * socket that we made, with one thread each. */
#ifndef GRANARY_SERVER_HTTP_DAEMON_H
#define GRANARY_SERVER_HTTP_DAEMON_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* Start the thread that serves fd; on success fd belongs to the daemon. flags: more of MHD_FLAG. options ends with
 * MHD_OPTION_END. NULL: it cannot be started. */
struct MHD_Daemon *http_daemon_start(int fd, unsigned flags, MHD_AccessHandlerCallback handler, void *arg,
                                     struct MHD_OptionItem *options);

/* A port of TCP with its daemon. Begin with HTTP_PORT_INIT of the option's name, for sentences. */
struct http_port {
    const char *option;
    int fd; /* the listening socket; -1: there is none, or the daemon owns it */
    unsigned number;
    struct MHD_Daemon *daemon; /* NULL: it was not started */
};
#define HTTP_PORT_INIT(name)                                                                                           \
    {                                                                                                                  \
        .option = (name), .fd = -1                                                                                     \
    }
/* Bind and listen at HOST:PORT; port 0 takes a free one. Before any fork, so that the process that starts the server
 * reports a bad address. The errors of listen_tcp. */
GR_MUST_CHECK int http_port_open(struct http_port *p, const char *address);
/* http_daemon_start. Call it in the process that serves. -EIO. */
GR_MUST_CHECK int http_port_start(struct http_port *p, unsigned flags, MHD_AccessHandlerCallback handler, void *arg,
                                  struct MHD_OptionItem *options);
/* Stop answering. In any state. */
void http_port_close(struct http_port *p);

/* For an access handler that wants no body: skip its parts. Returns true at the last call, when the request is
 * complete. */
bool http_daemon_whole(size_t *data_len, void **state);
/* For an access handler, first of all: refuse a URL that contains %00, since no C string can hold it. Returns true when
 * it did; the refusal is queued and the handler returns *out. */
bool http_daemon_refuses(struct MHD_Connection *connection, const void *state, enum MHD_Result *out);
/* Whether a request's state is one of this file's markers, which the handler must not free. */
bool http_daemon_owns(const void *state);

/* Queue a response, and drop the caller's reference to it. */
enum MHD_Result http_daemon_queue(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response);
/* Queue an answer; body is copied. last: close the connection after it. Returns MHD_NO when out of memory. */
enum MHD_Result http_daemon_answer(struct MHD_Connection *connection, unsigned status, const char *type,
                                   const void *body, size_t len, bool last);
enum MHD_Result http_daemon_answer_text(struct MHD_Connection *connection, unsigned status, const char *text,
                                        bool last);

#endif

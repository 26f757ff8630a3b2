/* What a server's HTTP sockets, for control, metrics and other nodes, share: libmicrohttpd on a listening socket that
 * we made, with one thread each. */
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

/* For an access handler that wants no body: skip its parts. Returns true at the last call, when the request is
 * complete. */
bool http_daemon_whole(size_t *data_len, void **state);
/* For an access handler, first of all: refuse a URL that contains %00, since no C string can hold it. Returns true when
 * it did; the refusal is queued and the handler returns *out. */
bool http_daemon_refuses(struct MHD_Connection *connection, const void *state, enum MHD_Result *out);
/* Whether a request's state is one of this file's markers, which the handler must not free. */
bool http_daemon_owns(const void *state);

/* Queue an answer; body is copied. last: close the connection after it. Returns MHD_NO when out of memory. */
enum MHD_Result http_daemon_answer(struct MHD_Connection *connection, unsigned status, const char *type,
                                   const void *body, size_t len, bool last);
enum MHD_Result http_daemon_answer_text(struct MHD_Connection *connection, unsigned status, const char *text,
                                        bool last);

#endif

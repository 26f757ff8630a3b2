/* What the plugin's two HTTP servers, the control socket and the metrics, have in common: libmicrohttpd on a listening
 * socket of our own, one thread each. */
#ifndef GRANARY_SERVER_HTTP_DAEMON_H
#define GRANARY_SERVER_HTTP_DAEMON_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* Start the thread that serves fd, which from then on is the daemon's. options ends with MHD_OPTION_END. NULL: it
 * cannot be started. */
struct MHD_Daemon *http_daemon_start(int fd, unsigned flags, MHD_AccessHandlerCallback handler, void *arg,
                                     struct MHD_OptionItem *options);

/* For a handler, which is called with the header, then for each part of a body, which is passed over, then once more:
 * is the request whole? */
bool http_daemon_whole(size_t *data_len, void **state);
/* For a handler, first of all: is the request one whose URL no string can hold (%00)? Then *out is what the handler
 * returns: the refusal has been queued. */
bool http_daemon_refuses(struct MHD_Connection *connection, const void *state, enum MHD_Result *out);
/* Does a request's state belong to this file? Then the handler does not free it. */
bool http_daemon_owns(const void *state);

/* Send body, which is copied, and end the connection or keep it. */
enum MHD_Result http_daemon_answer(struct MHD_Connection *connection, unsigned status, const char *type,
                                   const void *body, size_t len, bool last);
enum MHD_Result http_daemon_answer_text(struct MHD_Connection *connection, unsigned status, const char *text,
                                        bool last);

#endif

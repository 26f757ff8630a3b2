/* GET /metrics over TCP and nothing else. It serves the document of the control socket (metrics.h) to a Prometheus on
 * another machine, which must not reach the rest of the control socket. */
#ifndef GRANARY_SERVER_METRICS_SERVER_H
#define GRANARY_SERVER_METRICS_SERVER_H

#include "base/compiler.h"
#include "stack.h"

struct metrics_server;

/* Bind and listen at HOST:PORT ([v6]:PORT; port 0 takes a free one). Makes no thread. The stack is not owned and
 * outlives the server. -EADDRINUSE: another process listens there; -EINVAL: no such address; -ENOMEM, or the errno of
 * the socket calls. */
GR_MUST_CHECK int metrics_server_open(const char *address, struct stack *stack, struct metrics_server **out);
/* The port it listens at. */
unsigned metrics_server_port(const struct metrics_server *m);
/* Start the thread that answers. Call it in the process that serves, after any fork. -EIO. */
GR_MUST_CHECK int metrics_server_start(struct metrics_server *m);
/* NULL is allowed. */
void metrics_server_close(struct metrics_server *m);

#endif

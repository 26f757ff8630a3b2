/* GET /metrics over TCP, and nothing else: the document of the control socket (metrics.h) for a Prometheus on another
 * machine, which may not have what else the control socket does. */
#ifndef GRANARY_SERVER_METRICS_SERVER_H
#define GRANARY_SERVER_METRICS_SERVER_H

#include "base/compiler.h"
#include "stack.h"

struct metrics_server;

/* Bind and listen at HOST:PORT ([v6]:PORT; port 0 takes a free one). -EADDRINUSE: somebody listens there. Makes no
 * thread. The stack is not owned and outlives the server. */
GR_MUST_CHECK int metrics_server_open(const char *address, struct stack *stack, struct metrics_server **out);
unsigned metrics_server_port(const struct metrics_server *m);
/* Answer requests, after a fork. */
GR_MUST_CHECK int metrics_server_start(struct metrics_server *m);
void metrics_server_close(struct metrics_server *m);

#endif

/* Sockets that a server listens on, and the way to them. */
#ifndef GRANARY_NET_LISTEN_H
#define GRANARY_NET_LISTEN_H

#include "base/compiler.h"

/* Bind and listen at a unix path (mode 0600). A socket that nobody listens on any more is replaced;
 * -EADDRINUSE: somebody does; -EEXIST: something else is there. *out: close. */
GR_MUST_CHECK int listen_unix(const char *path, int *out);

/* Bind and listen at HOST:PORT ([v6]:PORT); port 0 takes a free one. *out_port: the port. -EADDRINUSE:
 * another program has it. *out: close. */
GR_MUST_CHECK int listen_tcp(const char *address, int *out, unsigned *out_port);

/* -EINVAL: it is not HOST:PORT. Nobody is asked whether there is such a host. */
GR_MUST_CHECK int listen_tcp_check(const char *address);

/* Whether somebody listens at a unix path: 1, 0, or -errno. Does not wait for him. */
int listen_answered(const char *path);

/* A connection to who listens at an absolute unix path or at HOST:PORT. The socket sends and receives with
 * that limit until others are set. -ETIMEDOUT, -ECONNREFUSED, -ENOENT and others: nobody is there. *out: close. */
GR_MUST_CHECK int listen_connect(const char *address, unsigned timeout_s, int *out);
/* The same of a unix path alone, which may be relative. */
GR_MUST_CHECK int listen_connect_unix(const char *path, unsigned timeout_s, int *out);

#endif

/* Sockets of servers: listen at a unix path or a TCP port, and connect to one. Functions that return int return 0 or
 * -errno with a sentence; the caller closes *out. Any thread.
 */
#ifndef GRANARY_NET_LISTEN_H
#define GRANARY_NET_LISTEN_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

/* Listen at a unix path, with mode 0600. A stale socket, which no process listens on, is replaced. -EADDRINUSE: another
 * process listens there; -EEXIST: the path is not a socket; -EINVAL: the path is too long. */
GR_MUST_CHECK int listen_unix(const char *path, int *out);

/* Listen at HOST:PORT or [V6]:PORT; port 0 takes a free one. *out_port: the port. -EADDRINUSE: another program uses it;
 * -EINVAL: not such an address, or the host does not resolve. */
GR_MUST_CHECK int listen_tcp(const char *address, int *out, unsigned *out_port);

/* Copy the host of such an address, without brackets, to out; cut if it does not fit. */
void listen_host(const char *address, char *out, size_t size);
/* Can only programs of this machine reach a listening socket? */
bool listen_is_loopback(int fd);

/* Check the form HOST:PORT, without resolving the host. -EINVAL: it is not that. */
GR_MUST_CHECK int listen_tcp_check(const char *address);

/* Does a process listen at a unix path? 1: yes, 0: no, or -errno. Never blocks. */
int listen_answered(const char *path);

/* Connect to an absolute unix path or to HOST:PORT. timeout_s limits the connect, and each later send and receive on
 * the socket until the caller sets others. -ETIMEDOUT, -ECONNREFUSED, -ENOENT and others: no server is there. */
GR_MUST_CHECK int listen_connect(const char *address, unsigned timeout_s, int *out);
/* The same for a unix path only, which may be relative. */
GR_MUST_CHECK int listen_connect_unix(const char *path, unsigned timeout_s, int *out);

/* Take an IPv4 or IPv6 address without its port, in one form for both. false: it is neither. NULL is allowed. */
bool listen_ip(const struct sockaddr *a, struct in6_addr *out);

#endif

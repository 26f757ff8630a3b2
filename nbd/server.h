/* Serve exports to NBD clients over a listening socket. One thread handles all connections; a pool of threads,
 * bounded for the process and not for each connection, reads. No client can harm another: the requests that a client
 * may have in flight are bounded, memory held by replies it does not read is taken back when others need it, and a
 * client that vanishes leaves nothing behind.
 */
#ifndef GRANARY_NBD_SERVER_H
#define GRANARY_NBD_SERVER_H

#include "base/compiler.h"
#include "nbd/tls.h"
#include "server/serving.h"

enum {
    NBD_SERVER_THREADS = 256,
    NBD_SERVER_CLIENTS = 1024,
    NBD_SERVER_MEMORY = 16 << 20,
    NBD_SERVER_HANDSHAKE_MS = 30000,
    NBD_SERVER_SLOW_MS = 10000,
    NBD_SERVER_DRAIN_MS = 10000,
};

struct nbd_server;

/* 0 in a field: the default above. */
struct nbd_server_config {
    struct serving *serving; /* open and started; must outlive the server */
    struct tls *tls;         /* clients must use TLS; must outlive the server; NULL: clients cannot use it */
    int listen_fd;           /* belongs to the caller, and is made non-blocking */
    unsigned threads;        /* the most threads that read; a read that waits for a store holds one */
    unsigned clients;        /* the most connections; further ones are refused with a message */
    size_t memory;           /* bytes for replies; a quarter is reserved for reads of cached data; a reply larger than a
                                quarter is read and sent in parts of that size */
    unsigned handshake_ms; /* a client that has not opened an export by then, by TLS where required, is disconnected */
    unsigned slow_ms; /* a client that for this long takes less than a quarter of what waits for it, while others need
                         the memory, is disconnected */
};

/* Start the threads and accept clients. *out: nbd_server_stop. -ENOMEM, -EAGAIN, or -errno of epoll, with a message. */
GR_MUST_CHECK int nbd_server_start(const struct nbd_server_config *config, struct nbd_server **out);

/* Stop: accept no client and take no request, answer what was requested for at most drain_ms, then disconnect every
 * client and free the server. Blocks. NULL is allowed. */
void nbd_server_stop(struct nbd_server *s, unsigned drain_ms);

struct nbd_server_stats {
    unsigned clients, threads; /* now; threads that read, busy or idle */
    size_t memory;             /* bytes that replies hold now */
};
/* Any thread. */
void nbd_server_stats(struct nbd_server *s, struct nbd_server_stats *out);

#endif

/* Exports to NBD's clients, over a listening socket: one thread for all connections, and threads that read, whose
 * number is bounded for the process and not by connection. No client can harm another one: what a client may have under
 * way is bounded, the memory that its unread replies hold is taken from it where others need it, and a client that
 * vanishes leaves nothing behind. */
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
    struct serving *serving; /* open and started; outlives the server */
    struct tls *tls;         /* clients must speak TLS; outlives the server; NULL: they cannot */
    int listen_fd;           /* stays the caller's, and becomes non-blocking */
    unsigned threads;        /* that read, at most; a read that waits for a store holds one */
    unsigned clients;        /* connections at a time; one more is told so, and refused */
    size_t memory;           /* bytes of replies; a quarter is kept for reads of what is cached; a read of more than
                         a quarter has memory beside it, one at a time */
    unsigned
        handshake_ms; /* a client that has not asked for an export by then, by TLS where it must, is disconnected */
    unsigned slow_ms; /* how long a client may take less than a quarter of what waits for it, while others need
                         the memory; then it is disconnected */
};

GR_MUST_CHECK int nbd_server_start(const struct nbd_server_config *config, struct nbd_server **out);

/* No client is accepted and no request taken any more; what was asked is answered, for at most drain_ms; then every
 * client is disconnected. NULL is allowed. */
void nbd_server_stop(struct nbd_server *s, unsigned drain_ms);

struct nbd_server_stats {
    unsigned clients, threads; /* now; threads: that read, busy or idle */
    size_t memory;             /* bytes that replies hold now */
};
void nbd_server_stats(struct nbd_server *s, struct nbd_server_stats *out);

#endif

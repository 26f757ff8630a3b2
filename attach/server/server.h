/* A supervised server: granary-nbd on a socket that the supervisor holds, or granary-fuse on a mount that it holds. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_H
#define GRANARY_ATTACH_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "attach/server/socket_access.h"
#include "base/bytes.h"

enum { SERVER_THREADS = 256 }; /* a read that waits for a store occupies one */

/* What to serve, where, and who may connect. */
struct server_config {
    const char *const *images; /* by digest: a restart must not resolve a tag again */
    size_t image_count;
    const char *const *parameters; /* "KEY=VALUE" for the front end; without image and control */
    size_t parameter_count;
    const char *socket;  /* unix path, or NULL: */
    const char *listen;  /* HOST:PORT, or NULL: */
    const char *fuse;    /* a directory in which granary-fuse shows the exports as files */
    const char *control; /* unix path of the control socket */
    struct socket_access socket_access, control_access;
    const char *tls_certificates, *tls_psk; /* clients must use TLS; both NULL: no TLS */
    bool tls_verify_peer;
    unsigned threads;   /* 0: SERVER_THREADS */
    const char **again; /* how another program is started in this one's place (granary upgrade): [0] is left for its
                           path, [1] its verb, images by digest; NULL ends */
    /* Called when the server answers for the first time; where: the unix path or HOST:PORT it
     * listens on, or the directory. */
    void (*ready)(void *arg, const char *where);
    void *arg;
};

/* Serve until SIGTERM or SIGINT, then return 0; restart the server when it dies. -EIO, with the server's last line: its
 * first start exited, or was killed five times in a row. A server that has served once is restarted without limit.
 * Removes its sockets. Blocks SIGTERM, SIGINT and SIGCHLD; call it from a process with one thread. */
GR_MUST_CHECK int server_run(const struct server_config *config);

/* Store the table of resolved images (resolver_hand) for a server, before it starts or before an image is added, so
 * that it need not fetch those manifests again. A failure only costs those requests. */
void server_hand(const char *control, const struct bytes *images);

/* Check whether the server would accept its parameters, without touching stores, caches or sockets. */
GR_MUST_CHECK int server_check(const struct server_config *config);

#endif

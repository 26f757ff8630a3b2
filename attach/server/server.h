/* A supervised server: granary-nbd on a socket that the supervisor holds or
 * granary-fuse on a mount that it holds. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_H
#define GRANARY_ATTACH_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>

#include "attach/server/socket_access.h"
#include "base/bytes.h"

enum { SERVER_THREADS = 256 }; /* of the server. A read that waits for a store holds one */

struct server_config {
    const char *const *images; /* by digest: a restart must not resolve a tag again */
    size_t image_count;
    const char *const *parameters; /* of the plugin, "KEY=VALUE"; not image, not control */
    size_t parameter_count;
    const char *socket;  /* unix path, or NULL: */
    const char *listen;  /* HOST:PORT, or NULL: */
    const char *fuse;    /* a directory to show the exports in as files, by granary-fuse */
    const char *control; /* unix path of the control socket */
    struct socket_access socket_access, control_access;
    const char *tls_certificates, *tls_psk; /* no client comes without TLS; NULL: without */
    bool tls_verify_peer;
    unsigned threads;   /* 0: SERVER_THREADS */
    const char **again; /* how another program is started in this one's place (granary upgrade): [0] is left for its
                           path, [1] its verb, images by digest; NULL ends */
    /* Called when the server answers for the first time; where: the unix path or HOST:PORT it
     * listens on, or the directory. */
    void (*ready)(void *arg, const char *where);
    void *arg;
};

/* Serve until SIGTERM or SIGINT (0), restarting the server when it dies. Gives up when its first start
 * ends by exit, or is killed five times in a row (-EIO, with its last words); one that served, never. Removes its
 * sockets. Blocks those signals and SIGCHLD in the calling thread; call it from a process's only thread. */
GR_MUST_CHECK int server_run(const struct server_config *config);

/* Hand a server what was resolved for it (resolver_hand), before it is started or an image is added: it then asks its
 * store for none of those manifests again. Best effort. */
void server_hand(const char *control, const struct bytes *images);

/* Would the server take its parameters? Neither stores nor caches nor sockets
 * are touched. */
GR_MUST_CHECK int server_check(const struct server_config *config);

#endif

/* A supervised server: granary-nbd or granary-ublk on a socket that the supervisor holds, or granary-fuse on a mount
 * that it holds. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_H
#define GRANARY_ATTACH_SERVER_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/bytes.h"
#include "base/compiler.h"

/* ---- who may connect to a unix socket: its owner, group and mode (server_socket.c) ---- */

/* All zero: the socket stays as it was made, with mode 0600. */
struct socket_access {
    mode_t mode;
    bool has_owner, has_group;
    uint32_t owner, group;
};

/* Parse mode (octal) and owner (USER, USER:GROUP or :GROUP, by name or number); either may be NULL. With a group the
 * mode defaults to 0660. option: the options' prefix in the sentence of -EINVAL; "socket" for --socket-mode and
 * --socket-owner. -EINVAL; -ENOMEM. */
GR_MUST_CHECK int socket_access_parse(const char *option, const char *mode, const char *owner,
                                      struct socket_access *out);

/* Set owner, group and mode. -EPERM: only root may give a socket to another user, or to a group it is not in. */
GR_MUST_CHECK int socket_access_apply(const struct socket_access *access, const char *path);

/* ---- the server ---- */

/* The programs that answer clients: granary-nbd, granary-fuse, granary-ublk. */
enum server_kind { SERVER_NBD, SERVER_FUSE, SERVER_UBLK };
#define SERVER_UBLK_SOCKET "ublk.sock" /* the name of a ublk server's socket in its directory */

/* Find the program. GRANARY_NBD, GRANARY_FUSE and GRANARY_UBLK name it; else it is beside this program, or its bare
 * name. free *out. */
GR_MUST_CHECK int server_program(enum server_kind kind, char **out);
/* Return what follows the program's own prefix ("granary: error: ") in a line of its log, for a sentence that quotes
 * it; the whole line when there is no prefix. */
const char *server_program_sentence(const char *line);

enum { SERVER_THREADS = 256 }; /* a read that waits for a store occupies one */

/* What to serve, where, and who may connect. */
struct server_config {
    const char *const *images; /* by digest: a restart must not resolve a tag again */
    size_t image_count;
    const char *const *parameters; /* "KEY=VALUE" for the front end; without image and control */
    size_t parameter_count;
    const char *socket;  /* unix path, or NULL: */
    bool ublk;           /* the socket is granary-ublk's: mounts ask there for devices */
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

/* Add a table of resolved images (resolver_hand) to those that a server is handed, before it starts or before an image
 * is added, so that it need not fetch those manifests again. They stay until the server's end, as the proof of
 * signatures for its front ends. A failure costs those requests; and without a cache directory, a front end that starts
 * again may find that a tag names another image, and lack the proof. */
void server_hand(const char *control, const struct bytes *images);

/* Check whether the server would accept its parameters, without touching stores, caches or sockets. */
GR_MUST_CHECK int server_check(const struct server_config *config);

/* ---- the protocol of `granary upgrade` ----
 *
 * Requests come over a unix socket beside the control socket. It belongs to the supervisor, so it exists while the
 * server does not. A client that may connect to it (its owner, root) names the program; the answer is one line, sent
 * when the new program serves or has failed. */

#define UPGRADE_SUFFIX ".upgrade"  /* of the requests' socket, after the control socket's path */
#define UPGRADE_REQUEST "upgrade " /* and the absolute path of a program, and a newline */
#define UPGRADE_DONE "done "       /* FROM TO MS, the versions and how long there was no server; and a newline */
#define UPGRADE_FAILED "failed "   /* and a sentence, and a newline */

enum { UPGRADE_VERSION_MAX = 64 };

#endif

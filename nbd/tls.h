/* TLS on a client's socket that does not block: the handshake in steps, then records. Keys are read from files and
 * stand in no sentence. The end of a stream is not announced (close_notify): NBD's messages say themselves where they
 * end. */
#ifndef GRANARY_NBD_TLS_H
#define GRANARY_NBD_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

/* Certificates or keys, never both. */
struct tls_config {
    const char *certificates; /* a directory with ca-cert.pem, server-cert.pem, server-key.pem, maybe ca-crl.pem */
    const char *psk;          /* a file of psktool's, read at every handshake: a line that is removed is not let in */
    bool verify_peer;         /* with certificates: clients need one, too */
};

struct tls;
/* Read the files. -EINVAL, or why one cannot be read, with a sentence that names it. *out: tls_free, after the last of
 * its sessions. */
GR_MUST_CHECK int tls_new(const struct tls_config *config, struct tls **out);
void tls_free(struct tls *t); /* NULL is allowed */

struct tls_session;
/* The server's side on a connected socket, which stays the caller's. -ENOMEM. *out: tls_session_free. */
GR_MUST_CHECK int tls_session_new(struct tls *t, int fd, struct tls_session **out);
void tls_session_free(struct tls_session *s); /* NULL is allowed; says nothing to the client */

/* Go on with the handshake. 0: it is done; -EAGAIN, without a sentence: again when the socket has bytes, or with
 * *out_sends when it takes some; -EPROTO: over, the client has been told. Before any other call, by one thread. */
GR_MUST_CHECK int tls_session_handshake(struct tls_session *s, bool *out_sends);

/* As recv and sendmsg do on a socket that does not block: bytes, or -1 with errno; a broken stream is EPROTO. One
 * thread may receive while another one sends. What was to be sent when EAGAIN came begins the next call's parts. */
ssize_t tls_session_recv(struct tls_session *s, void *out, size_t len);
ssize_t tls_session_send(struct tls_session *s, const struct iovec *parts, size_t count);
/* Are there received bytes that no event of the socket will tell of? */
bool tls_session_has_more(struct tls_session *s);

#endif

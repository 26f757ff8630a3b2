/* TLS on a client's non-blocking socket: the handshake in steps, then records. Keys are read from files and appear in
 * no message. The end of a stream is not announced (close_notify): NBD messages say themselves where they end. */
#ifndef GRANARY_NBD_TLS_H
#define GRANARY_NBD_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/compiler.h"

/* Certificates or keys, never both. */
struct tls_config {
    const char *certificates; /* a directory with ca-cert.pem, server-cert.pem, server-key.pem and perhaps ca-crl.pem */
    const char *psk;  /* a file made by psktool, read at every handshake: a key whose line is removed is refused */
    bool verify_peer; /* with certificates: clients need one too */
};

struct tls;
/* Read the files. -EINVAL: a file cannot be used; -errno: it cannot be read; both name the file. -ENOMEM. *out:
 * tls_free, after the last of its sessions. */
GR_MUST_CHECK int tls_new(const struct tls_config *config, struct tls **out);
void tls_free(struct tls *t); /* NULL is allowed */

struct tls_session;
/* Begin the server's side on a connected socket, which belongs to the caller. *out: tls_session_free. -ENOMEM. */
GR_MUST_CHECK int tls_session_new(struct tls *t, int fd, struct tls_session **out);
void tls_session_free(struct tls_session *s); /* NULL is allowed; sends nothing to the client */

/* Continue the handshake. 0: it is done; -EAGAIN, without a message: call again when the socket has bytes, or with
 * *out_sends when it accepts some; -EPROTO: it failed, and an alert was sent. One thread must finish the handshake
 * before any other call. */
GR_MUST_CHECK int tls_session_handshake(struct tls_session *s, bool *out_sends);

/* Like recv and sendmsg on a non-blocking socket: the bytes, or -1 with errno; EPROTO: the stream is broken. One
 * thread may receive while another one sends. After EAGAIN the next call must begin with the same bytes. */
ssize_t tls_session_recv(struct tls_session *s, void *out, size_t len);
ssize_t tls_session_send(struct tls_session *s, const struct iovec *parts, size_t count);
/* Does the session hold decrypted bytes, for which the socket raises no event? */
bool tls_session_has_more(struct tls_session *s);

#endif

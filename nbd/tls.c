/* TLS by GnuTLS. Two threads may not use a session at the same time without care, so each session has a lock. It is
 * held for one record of at most 16 KiB at a time, and the socket does not block.
 *
 * After the handshake GnuTLS never sees a full socket: what the socket does not accept waits in the session (`unsent`).
 * The reason is KeyUpdate: if GnuTLS receives one while it holds a half-sent record, the next gnutls_record_send()
 * fails. GnuTLS answers it not when it comes, but before the next record that is sent. So nothing is ever unsent
 * without a reply that waits for the socket, too.
 *
 * What a client can make a session hold is bounded: a record received, a record unsent with a KeyUpdate before it, and
 * a handshake message of HANDSHAKE_MESSAGE_MAX. GnuTLS ends a session whose client changes its keys more than 8 times
 * in a second. There are no session tickets and no second handshake.
 */
#include "nbd/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

enum {
    FILE_MAX = 1 << 20,   /* bytes of a file with keys or certificates */
    RECORD_MAX = 16384,   /* bytes of a record (RFC 8446, 5.1) */
    RECORDS_AT_ONCE = 16, /* records in one call, so that a client takes its turn */
    HANDSHAKE_MESSAGE_MAX = 64 << 10,
    UNSENT_MAX = RECORD_MAX + 1024, /* bytes of a record as it is sent, and of a KeyUpdate before it */
    PATH_SIZE = 4096
};

#define VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

/* Credentials, shared by all sessions; constant. */
struct tls {
    gnutls_certificate_credentials_t certificates;
    gnutls_psk_server_credentials_t keys;
    gnutls_priority_t priority;
    bool verify_peer;
};

/* One client's session. `lock` guards it after the handshake. */
struct tls_session {
    pthread_mutex_t lock;
    gnutls_session_t session;
    int fd;
    bool secured;        /* the handshake is over */
    struct bytes unsent; /* what GnuTLS has sent and the socket has not accepted yet, from unsent_at on */
    size_t unsent_at;
    size_t held; /* bytes of the caller in the record that is unsent */
};

/* ---- files ---- */

/* Read one file of the certificates' directory; its path goes to `path`, for messages. */
static int read_part(const struct tls_config *config, const char *name, char path[PATH_SIZE], struct bytes *out)
{
    snprintf(path, PATH_SIZE, "%s/%s", config->certificates, name);
    int rc = io_read_file(path, out);
    if (rc == -ENOENT)
        return error_set(-ENOENT, "--tls-certificates: there is no %s; put %s there, or name another directory", path,
                         name);
    if (rc)
        return error_set(rc, "--tls-certificates: cannot read %s: %s; let the server's user read it", path,
                         strerror(-rc));
    return 0;
}

static gnutls_datum_t datum(const struct bytes *b)
{
    return (gnutls_datum_t){.data = b->data, .size = (unsigned)b->len};
}

/* The first certificate, or with any_will_do any of them, must be valid today: otherwise no client would accept it,
 * and the reason would be hard to find. */
static int check_times(const char *path, const struct bytes *text, bool any_will_do)
{
    gnutls_x509_crt_t *list = NULL;
    unsigned count = 0;
    const gnutls_datum_t data = datum(text);
    bool valid = false, expired = false;
    int code = gnutls_x509_crt_list_import2(&list, &count, &data, GNUTLS_X509_FMT_PEM, 0);
    if (code < 0)
        return error_set(-EINVAL, "--tls-certificates: %s holds no certificate in PEM: %s; make it anew by certtool",
                         path, gnutls_strerror(code));
    for (unsigned i = 0; i < count; i++) {
        time_t now = time(NULL), end = gnutls_x509_crt_get_expiration_time(list[i]);
        if (!i || any_will_do)
            valid |= now >= gnutls_x509_crt_get_activation_time(list[i]) && now <= end;
        if (!i)
            expired = now > end;
        gnutls_x509_crt_deinit(list[i]);
    }
    gnutls_free(list);
    if (valid)
        return 0;
    return error_set(-EINVAL, "--tls-certificates: the certificate in %s %s; %s", path,
                     expired ? "has expired" : "is not valid yet",
                     expired ? "make a new one by certtool" : "look at this machine's clock");
}

static int refuse_part(const char *path, int code)
{
    return error_set(-EINVAL, "--tls-certificates: %s cannot be used: %s; make it anew by certtool", path,
                     gnutls_strerror(code));
}

/* Load the authority's certificates, and its revocation list if there is one. */
static int load_authority(struct tls *t, const struct tls_config *config)
{
    char path[PATH_SIZE];
    CLEANUP_BYTES authority = BYTES_INIT(FILE_MAX), revoked = BYTES_INIT(FILE_MAX);
    int rc = read_part(config, "ca-cert.pem", path, &authority);
    if (!rc)
        rc = check_times(path, &authority, true);
    if (rc)
        return rc;
    gnutls_datum_t data = datum(&authority);
    int code = gnutls_certificate_set_x509_trust_mem(t->certificates, &data, GNUTLS_X509_FMT_PEM);
    if (code < 0)
        return refuse_part(path, code);
    rc = read_part(config, "ca-crl.pem", path, &revoked);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    data = datum(&revoked);
    code = gnutls_certificate_set_x509_crl_mem(t->certificates, &data, GNUTLS_X509_FMT_PEM);
    return code < 0 ? refuse_part(path, code) : 0;
}

/* Load the server's certificate and key. The copy of the key is overwritten. */
static int load_own(struct tls *t, const struct tls_config *config)
{
    char path[PATH_SIZE], key_path[PATH_SIZE];
    CLEANUP_BYTES own = BYTES_INIT(FILE_MAX), key = BYTES_INIT(FILE_MAX);
    int rc = read_part(config, "server-cert.pem", path, &own);
    if (!rc)
        rc = check_times(path, &own, false);
    if (!rc)
        rc = read_part(config, "server-key.pem", key_path, &key);
    if (rc)
        return rc;
    const gnutls_datum_t own_data = datum(&own), key_data = datum(&key);
    int code = gnutls_certificate_set_x509_key_mem(t->certificates, &own_data, &key_data, GNUTLS_X509_FMT_PEM);
    if (key.len)
        gnutls_memset(key.data, 0, key.len);
    if (code == GNUTLS_E_CERTIFICATE_KEY_MISMATCH)
        return error_set(-EINVAL, "--tls-certificates: %s is not the key of %s; put the two there that belong together",
                         key_path, path);
    return code < 0 ? refuse_part(key_path, code) : 0;
}

static int load_certificates(struct tls *t, const struct tls_config *config)
{
    if (gnutls_certificate_allocate_credentials(&t->certificates) < 0)
        return error_no_memory();
    int rc = load_authority(t, config);
    return rc ? rc : load_own(t, config);
}

/* Check that the file has a key, and have GnuTLS read it at each handshake. */
static int load_keys(struct tls *t, const struct tls_config *config)
{
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    int rc = io_read_file(config->psk, &text);
    if (rc)
        return error_set(rc, "--tls-psk: cannot read %s: %s; make it by psktool, and let the server's user read it",
                         config->psk, strerror(-rc));
    bool any = text.len && memchr(text.data, ':', text.len);
    if (text.len)
        gnutls_memset(text.data, 0, text.len);
    if (!any)
        return error_set(-EINVAL, "--tls-psk: there is no key in %s; add one: psktool -u NAME -p %s", config->psk,
                         config->psk);
    if (gnutls_psk_allocate_server_credentials(&t->keys) < 0)
        return error_no_memory();
    int code = gnutls_psk_set_server_credentials_file(t->keys, config->psk);
    return code < 0 ? error_set(-EINVAL, "--tls-psk: %s: %s", config->psk, gnutls_strerror(code)) : 0;
}

int tls_new(const struct tls_config *config, struct tls **out)
{
    /* With pre-shared keys allow nothing else, and only key exchanges with forward secrecy: a key stolen later must
     * not open recorded sessions. */
    const char *const priority = config->psk ? VERSIONS ":-KX-ALL:+ECDHE-PSK:+DHE-PSK" : VERSIONS;
    struct tls *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
    t->verify_peer = config->verify_peer;
    int rc = config->psk ? load_keys(t, config) : load_certificates(t, config);
    int code = rc ? 0 : gnutls_priority_init(&t->priority, priority, NULL);
    if (code < 0)
        rc = error_set(-EINVAL, "TLS cannot be set up: %s; look at GnuTLS's settings on this machine",
                       gnutls_strerror(code));
    if (rc)
        tls_free(t);
    else
        *out = t;
    return rc;
}

void tls_free(struct tls *t)
{
    if (!t)
        return;
    if (t->priority)
        gnutls_priority_deinit(t->priority);
    if (t->certificates)
        gnutls_certificate_free_credentials(t->certificates);
    if (t->keys)
        gnutls_psk_free_server_credentials(t->keys);
    free(t);
}

/* ---- sessions ---- */

/* GnuTLS sends: like send() until the handshake is over, then all bytes are taken. */
static ssize_t push(gnutls_transport_ptr_t session, const void *data, size_t len)
{
    struct tls_session *s = session;
    ssize_t n = s->unsent.len ? 0 : send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (!s->secured || (n < 0 && errno != EAGAIN && errno != EINTR))
        return n;
    size_t sent = n < 0 ? 0 : (size_t)n;
    if (!bytes_append(&s->unsent, (const uint8_t *)data + sent, len - sent))
        return (ssize_t)len;
    errno = ENOMEM;
    return -1;
}

/* Set up the server's side of a session. Returns GnuTLS's code. */
static int set_up(struct tls_session *s, struct tls *t)
{
    int code = gnutls_init(&s->session, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL | GNUTLS_NO_TICKETS);
    if (code < 0) {
        s->session = NULL;
        return code;
    }
    code = gnutls_priority_set(s->session, t->priority);
    if (code >= 0)
        code = t->keys ? gnutls_credentials_set(s->session, GNUTLS_CRD_PSK, t->keys)
                       : gnutls_credentials_set(s->session, GNUTLS_CRD_CERTIFICATE, t->certificates);
    if (code < 0)
        return code;
    if (t->verify_peer) {
        gnutls_certificate_server_set_request(s->session, GNUTLS_CERT_REQUIRE);
        gnutls_session_set_verify_cert(s->session, NULL, 0);
    }
    gnutls_handshake_set_max_packet_length(s->session, HANDSHAKE_MESSAGE_MAX);
    gnutls_handshake_set_timeout(s->session, 0); /* the server bounds the time itself (handshake_ms) */
    gnutls_transport_set_ptr2(s->session, (gnutls_transport_ptr_t)(intptr_t)s->fd, s);
    gnutls_transport_set_push_function(s->session, push);
    return 0;
}

int tls_session_new(struct tls *t, int fd, struct tls_session **out)
{
    struct tls_session *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    *s = (struct tls_session){.fd = fd, .unsent = BYTES_INIT(UNSENT_MAX)};
    pthread_mutex_init(&s->lock, NULL);
    int code = set_up(s, t);
    if (code < 0) {
        tls_session_free(s);
        return error_set(-ENOMEM, "TLS for a client: %s", gnutls_strerror(code));
    }
    *out = s;
    return 0;
}

void tls_session_free(struct tls_session *s)
{
    if (!s)
        return;
    if (s->session)
        gnutls_deinit(s->session);
    bytes_release(&s->unsent);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Tell the client why by an alert, and set the message for the log. */
static int refuse_client(struct tls_session *s, int code)
{
    gnutls_datum_t why = {0};
    gnutls_alert_send_appropriate(s->session, code);
    if (code != GNUTLS_E_CERTIFICATE_VERIFICATION_ERROR ||
        gnutls_certificate_verification_status_print(gnutls_session_get_verify_cert_status(s->session), GNUTLS_CRT_X509,
                                                     &why, 0) < 0)
        return error_set(-EPROTO, "TLS with it fails: %s", gnutls_strerror(code));
    (void)error_set(-EPROTO, "TLS: its certificate is refused: %s", (const char *)why.data);
    gnutls_free(why.data);
    return -EPROTO;
}

int tls_session_handshake(struct tls_session *s, bool *out_sends)
{
    int code;
    do
        code = gnutls_handshake(s->session);
    while (code < 0 && code != GNUTLS_E_AGAIN && !gnutls_error_is_fatal(code));
    *out_sends = code == GNUTLS_E_AGAIN && gnutls_record_get_direction(s->session);
    s->secured = code >= 0;
    return code >= 0 ? 0 : code == GNUTLS_E_AGAIN ? -EAGAIN : refuse_client(s, code);
}

/* ---- records ---- */

/* Convert a result to that of a system call. A client's request for another handshake is refused as an error. */
static ssize_t result_of(ssize_t code)
{
    if (code >= 0)
        return code;
    errno = code == GNUTLS_E_AGAIN ? EAGAIN : code == GNUTLS_E_INTERRUPTED ? EINTR : EPROTO;
    return -1;
}

ssize_t tls_session_recv(struct tls_session *s, void *out, size_t len)
{
    SCOPED_LOCK(&s->lock);
    return result_of(gnutls_record_recv(s->session, out, len));
}

bool tls_session_has_more(struct tls_session *s)
{
    SCOPED_LOCK(&s->lock);
    return gnutls_record_check_pending(s->session);
}

/* Copy what follows the first `skip` bytes of parts into one record: a reply's head alone would be a record of its
 * own. Returns its length. */
static size_t fill_record(uint8_t out[RECORD_MAX], const struct iovec *parts, size_t count, size_t skip)
{
    size_t len = 0;
    for (size_t i = 0; i < count && len < RECORD_MAX; i++) {
        size_t passed = GR_MIN(skip, parts[i].iov_len), now = GR_MIN(parts[i].iov_len - passed, RECORD_MAX - len);
        skip -= passed;
        if (now)
            memcpy(out + len, (const uint8_t *)parts[i].iov_base + passed, now);
        len += now;
    }
    return len;
}

/* Send what the socket did not accept before. 0, or -1 with errno. */
static int send_unsent(struct tls_session *s)
{
    while (s->unsent_at < s->unsent.len) {
        ssize_t n =
            send(s->fd, s->unsent.data + s->unsent_at, s->unsent.len - s->unsent_at, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0)
            return -1;
        s->unsent_at += (size_t)n;
    }
    bytes_release(&s->unsent);
    s->unsent_at = 0;
    return 0;
}

/* Send one record, or what is unsent of the last one. Returns the caller's bytes in it; 0: there is nothing to send. */
static ssize_t send_record(struct tls_session *s, const struct iovec *parts, size_t count, size_t skip)
{
    uint8_t record[RECORD_MAX];
    SCOPED_LOCK(&s->lock);
    if (!s->held) {
        size_t len = fill_record(record, parts, count, skip);
        ssize_t code = len ? gnutls_record_send(s->session, record, len) : 0;
        if (code <= 0)
            return result_of(code);
        s->held = (size_t)code;
    }
    if (send_unsent(s))
        return -1;
    ssize_t sent = (ssize_t)s->held;
    s->held = 0;
    return sent;
}

ssize_t tls_session_send(struct tls_session *s, const struct iovec *parts, size_t count)
{
    size_t sent = 0;
    for (int i = 0; i < RECORDS_AT_ONCE; i++) {
        ssize_t n = send_record(s, parts, count, sent);
        if (n < 0 && !sent)
            return -1;
        if (n <= 0)
            break;
        sent += (size_t)n;
    }
    return (ssize_t)sent;
}

/* libmicrohttpd does TLS by GnuTLS. It asks for our certificate by a function without an argument, so the directory is
 * global. It asks clients for a certificate when it has an authority's (HTTPS_MEM_TRUST), and leaves it to us to look
 * at what they show. */
#include "server/peer_tls.h"

#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum { FILE_MAX = 1 << 20, PATH_SIZE = 4096, CHAIN_MAX = 8 };

static const char *directory;  /* set once, before the daemon starts */
static struct bytes authority; /* the text of ca.crt for the daemon, which reads it while it starts */
static struct log_limit trouble = LOG_LIMIT_INIT;

/* Read a file of the directory; its path goes to `path`, for messages. */
static int read_part(const char *name, char path[PATH_SIZE], struct bytes *out)
{
    snprintf(path, PATH_SIZE, "%s/%s", directory, name);
    int rc = io_read_file(path, out);
    return rc ? error_prefix(rc, "peer-tls") : 0;
}

static int refuse(const char *path, int code)
{
    return error_set(code == GNUTLS_E_MEMORY_ERROR ? -ENOMEM : -EINVAL,
                     "peer-tls: %s cannot be used: %s; make it anew, as PEM", path, gnutls_strerror(code));
}

static gnutls_datum_t datum(const struct bytes *b)
{
    return (gnutls_datum_t){.data = b->data, .size = (unsigned)b->len};
}

/* ---- what this node shows ---- */

/* The certificates of tls.crt, this node's first. GnuTLS frees them. */
static int read_chain(gnutls_pcert_st **out, unsigned *out_n)
{
    char path[PATH_SIZE];
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    int rc = read_part("tls.crt", path, &text);
    gnutls_pcert_st *chain = rc ? NULL : gnutls_calloc(CHAIN_MAX, sizeof *chain);
    if (!chain)
        return rc ? rc : error_no_memory();
    const gnutls_datum_t data = datum(&text);
    unsigned n = CHAIN_MAX;
    int code = gnutls_pcert_list_import_x509_raw(chain, &n, &data, GNUTLS_X509_FMT_PEM, 0);
    if (code < 0) {
        gnutls_free(chain);
        return refuse(path, code);
    }
    *out = chain;
    *out_n = n;
    return 0;
}

static int read_key(gnutls_privkey_t *out)
{
    char path[PATH_SIZE];
    struct bytes text CLEANUP(bytes_wipe) = BYTES_INIT(FILE_MAX);
    gnutls_privkey_t key;
    int rc = read_part("tls.key", path, &text);
    if (rc)
        return rc;
    if (gnutls_privkey_init(&key) < 0)
        return error_no_memory();
    const gnutls_datum_t data = datum(&text);
    int code = gnutls_privkey_import_x509_raw(key, &data, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code < 0) {
        gnutls_privkey_deinit(key);
        return refuse(path, code);
    }
    *out = key;
    return 0;
}

static void chain_free(gnutls_pcert_st *chain, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        gnutls_pcert_deinit(&chain[i]);
    gnutls_free(chain);
}

/* GnuTLS's question for our certificate, in each handshake. */
static int retrieve(gnutls_session_t session, const struct gnutls_cert_retr_st *info, gnutls_pcert_st **chain,
                    unsigned *chain_len, gnutls_ocsp_data_st **ocsp, unsigned *ocsp_len, gnutls_privkey_t *key,
                    unsigned *flags)
{
    int rc = read_chain(chain, chain_len);
    if (!rc) {
        rc = read_key(key);
        if (rc)
            chain_free(*chain, *chain_len);
    }
    if (rc) {
        log_limited(&trouble, LOG_LEVEL_ERROR, "%s", error_text());
        return -1;
    }
    *ocsp = NULL;
    *ocsp_len = 0;
    *flags = GNUTLS_CERT_RETR_DEINIT_ALL;
    return 0;
}

/* Is the key that of the first certificate? By their key ids, which are hashes of the public key. */
static int check_pair(void)
{
    uint8_t of_key[64], of_chain[64];
    size_t key_len = sizeof of_key, chain_len = sizeof of_chain;
    gnutls_pcert_st *chain;
    gnutls_privkey_t key;
    gnutls_pubkey_t public = NULL;
    unsigned n;
    int rc = read_chain(&chain, &n);
    if (rc)
        return rc;
    rc = read_key(&key);
    if (rc) {
        chain_free(chain, n);
        return rc;
    }
    bool same = gnutls_pubkey_init(&public) >= 0 && gnutls_pubkey_import_privkey(public, key, 0, 0) >= 0 &&
                gnutls_pubkey_get_key_id(public, 0, of_key, &key_len) >= 0 &&
                gnutls_pubkey_get_key_id(chain[0].pubkey, 0, of_chain, &chain_len) >= 0 && key_len == chain_len &&
                !memcmp(of_key, of_chain, key_len);
    if (public)
        gnutls_pubkey_deinit(public);
    gnutls_privkey_deinit(key);
    chain_free(chain, n);
    if (same)
        return 0;
    return error_set(-EINVAL, "peer-tls: %s/tls.key is not the key of tls.crt; put the two there that belong together",
                     directory);
}

/* ---- whom it trusts ---- */

/* Read the authority's certificates as of now. The caller frees *out by gnutls_x509_trust_list_deinit. */
static int read_authority(struct bytes *text, gnutls_x509_trust_list_t *out)
{
    char path[PATH_SIZE];
    gnutls_x509_trust_list_t list;
    int rc = read_part("ca.crt", path, text);
    if (rc)
        return rc;
    if (gnutls_x509_trust_list_init(&list, 0) < 0)
        return error_no_memory();
    const gnutls_datum_t data = datum(text);
    int n = gnutls_x509_trust_list_add_trust_mem(list, &data, NULL, GNUTLS_X509_FMT_PEM, 0, 0);
    if (n <= 0) {
        gnutls_x509_trust_list_deinit(list, 1);
        return refuse(path, n ? n : GNUTLS_E_NO_CERTIFICATE_FOUND);
    }
    *out = list;
    return 0;
}

/* Is a chain, as it came over the wire, of the authority and for clients? */
static bool is_trusted(gnutls_x509_trust_list_t list, const gnutls_datum_t *chain, unsigned n)
{
    gnutls_x509_crt_t certificates[CHAIN_MAX];
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID, .data = (void *)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned made = 0, status = ~0u;
    bool whole = n && n <= CHAIN_MAX;
    for (; whole && made < n; made += whole) {
        if (gnutls_x509_crt_init(&certificates[made]) < 0)
            break;
        whole = gnutls_x509_crt_import(certificates[made], &chain[made], GNUTLS_X509_FMT_DER) >= 0;
        if (!whole)
            gnutls_x509_crt_deinit(certificates[made]);
    }
    bool good = whole && made == n &&
                gnutls_x509_trust_list_verify_crt2(list, certificates, n, &purpose, 1, 0, &status, NULL) >= 0 &&
                !status;
    for (unsigned i = 0; i < made; i++)
        gnutls_x509_crt_deinit(certificates[i]);
    return good;
}

bool peer_tls_is_node(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX);
    gnutls_x509_trust_list_t list;
    unsigned n = 0;
    const gnutls_datum_t *chain =
        info && info->tls_session ? gnutls_certificate_get_peers(info->tls_session, &n) : NULL;
    if (!chain)
        return false;
    if (read_authority(&text, &list)) {
        log_limited(&trouble, LOG_LEVEL_ERROR, "%s", error_text());
        return false;
    }
    bool good = is_trusted(list, chain, n);
    gnutls_x509_trust_list_deinit(list, 1);
    return good;
}

/* ---- the daemon ---- */

int peer_tls_begin(const char *path, struct MHD_OptionItem out[PEER_TLS_OPTIONS])
{
    gnutls_x509_trust_list_t list;
    directory = path;
    authority = (struct bytes)BYTES_INIT(FILE_MAX);
    int rc = check_pair();
    if (!rc)
        rc = read_authority(&authority, &list);
    if (rc)
        return rc;
    gnutls_x509_trust_list_deinit(list, 1);
    char *text = bytes_string(&authority);
    if (!text)
        return -EMSGSIZE;
    out[0] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, text};
    out[1] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_CERT_CALLBACK2, 0, (void *)(intptr_t)retrieve};
    out[2] =
        (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"};
    return 0;
}

void peer_tls_end(void)
{
    bytes_release(&authority);
}

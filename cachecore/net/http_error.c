/* The rule: a failure is permanent if another try would meet it again, as with trust, keys, settings and memory.
 * Whatever the network sends instead of an answer is temporary; it may come from a restarting proxy or a middlebox.
 *
 * Codes of other protocols and of calls that are not made here never occur. They are in the table so that a test can
 * check that no code is missing (test_http_error).
 */
#include "net/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

#define PASSES -EAGAIN, ""
#define NOT_HTTP -EAGAIN, "; check that the address is that of a web server"
#define NOT_HERE -EIO, ""
#define TLS -EACCES, "; check the TLS settings of both sides"

/* By libcurl's code; rc 0: not in the table. */
static const struct {
    int rc;
    const char *remedy;
} failures[] = {
    /* reaching the server */
    [CURLE_COULDNT_RESOLVE_PROXY] = {-EAGAIN, "; check the address and the name service"},
    [CURLE_COULDNT_RESOLVE_HOST] = {-EAGAIN, "; check the address and the name service"},
    [CURLE_COULDNT_CONNECT] = {-EAGAIN, "; check the address, and that the server runs"},
    [CURLE_INTERFACE_FAILED] = {-EIO, ""},
    [CURLE_NO_CONNECTION_AVAILABLE] = {PASSES},
    [CURLE_PROXY] = {PASSES},
    [CURLE_OPERATION_TIMEDOUT] = {-ETIMEDOUT, ""},
    [CURLE_SEND_ERROR] = {PASSES},
    [CURLE_RECV_ERROR] = {PASSES},
    [CURLE_GOT_NOTHING] = {PASSES},
    [CURLE_PARTIAL_FILE] = {PASSES},
    [CURLE_AGAIN] = {PASSES},
    [CURLE_SEND_FAIL_REWIND] = {PASSES},
    [CURLE_UPLOAD_FAILED] = {PASSES},

    /* the answer is not HTTP, or is cut short */
    [CURLE_UNSUPPORTED_PROTOCOL] = {NOT_HTTP}, /* an answer in HTTP/0.9; other schemes never come here */
    [CURLE_WEIRD_SERVER_REPLY] = {NOT_HTTP},
    [CURLE_FILESIZE_EXCEEDED] = {NOT_HTTP}, /* a Content-Length too large for a number */
    [CURLE_BAD_CONTENT_ENCODING] = {NOT_HTTP},
    [100] = {NOT_HTTP},       /* CURLE_TOO_LARGE: endless headers */
    [CURLE_HTTP2] = {PASSES}, /* the server closed the connection, or this request's stream */
    [CURLE_HTTP2_STREAM] = {PASSES},
    [CURLE_HTTP3] = {PASSES},
    [CURLE_QUIC_CONNECT_ERROR] = {PASSES},

    /* TLS */
    [CURLE_SSL_CONNECT_ERROR] = {-EACCES, "; check that the server speaks TLS on this port"}, /* see broke_handshake */
    [CURLE_SSL_SHUTDOWN_FAILED] = {PASSES},
    [CURLE_PEER_FAILED_VERIFICATION] =
        {-EACCES, "; trust the server's authority with AWS_CA_BUNDLE, or check the address; a certificate that has "
                  "expired must be renewed, or this machine's clock is wrong"},
    [CURLE_SSL_CACERT_BADFILE] = {-EACCES, "; check the file named by AWS_CA_BUNDLE"},
    [CURLE_SSL_ENGINE_NOTFOUND] = {TLS},
    [CURLE_SSL_ENGINE_SETFAILED] = {TLS},
    [CURLE_SSL_ENGINE_INITFAILED] = {TLS},
    [CURLE_SSL_CERTPROBLEM] = {TLS},
    [CURLE_SSL_CIPHER] = {TLS},
    [CURLE_SSL_CRL_BADFILE] = {TLS},
    [CURLE_SSL_ISSUER_ERROR] = {TLS},
    [CURLE_SSL_PINNEDPUBKEYNOTMATCH] = {TLS},
    [CURLE_SSL_INVALIDCERTSTATUS] = {TLS},
    [CURLE_SSL_CLIENTCERT] = {TLS},
    [CURLE_USE_SSL_FAILED] = {TLS},
    [101] = {TLS}, /* CURLE_ECH_REQUIRED */

    /* this side */
    [CURLE_URL_MALFORMAT] = {-EINVAL, "; check the address"},
    [CURLE_OUT_OF_MEMORY] = {-ENOMEM, ""},
    [CURLE_FAILED_INIT] = {NOT_HERE},
    [CURLE_NOT_BUILT_IN] = {NOT_HERE},
    [CURLE_WRITE_ERROR] = {NOT_HERE},
    [CURLE_READ_ERROR] = {NOT_HERE},
    [CURLE_RANGE_ERROR] = {NOT_HERE},
    [CURLE_HTTP_POST_ERROR] = {NOT_HERE},
    [CURLE_HTTP_RETURNED_ERROR] = {NOT_HERE},
    [CURLE_BAD_DOWNLOAD_RESUME] = {NOT_HERE},
    [CURLE_FUNCTION_NOT_FOUND] = {NOT_HERE},
    [CURLE_ABORTED_BY_CALLBACK] = {NOT_HERE},
    [CURLE_BAD_FUNCTION_ARGUMENT] = {NOT_HERE},
    [CURLE_TOO_MANY_REDIRECTS] = {NOT_HERE},
    [CURLE_UNKNOWN_OPTION] = {NOT_HERE},
    [CURLE_SETOPT_OPTION_SYNTAX] = {NOT_HERE},
    [CURLE_RECURSIVE_API_CALL] = {NOT_HERE},
    [CURLE_UNRECOVERABLE_POLL] = {NOT_HERE},
    [CURLE_AUTH_ERROR] = {-EACCES, ""},
    [CURLE_LOGIN_DENIED] = {-EACCES, ""},
    [CURLE_REMOTE_ACCESS_DENIED] = {-EACCES, ""},

    /* other protocols, and numbers that libcurl has given up */
    [CURLE_FTP_ACCEPT_FAILED] = {NOT_HERE},
    [CURLE_FTP_WEIRD_PASS_REPLY] = {NOT_HERE},
    [CURLE_FTP_ACCEPT_TIMEOUT] = {NOT_HERE},
    [CURLE_FTP_WEIRD_PASV_REPLY] = {NOT_HERE},
    [CURLE_FTP_WEIRD_227_FORMAT] = {NOT_HERE},
    [CURLE_FTP_CANT_GET_HOST] = {NOT_HERE},
    [CURLE_FTP_COULDNT_SET_TYPE] = {NOT_HERE},
    [CURLE_FTP_COULDNT_RETR_FILE] = {NOT_HERE},
    [CURLE_QUOTE_ERROR] = {NOT_HERE},
    [CURLE_FTP_PORT_FAILED] = {NOT_HERE},
    [CURLE_FTP_COULDNT_USE_REST] = {NOT_HERE},
    [CURLE_FILE_COULDNT_READ_FILE] = {NOT_HERE},
    [CURLE_LDAP_CANNOT_BIND] = {NOT_HERE},
    [CURLE_LDAP_SEARCH_FAILED] = {NOT_HERE},
    [CURLE_TFTP_NOTFOUND] = {NOT_HERE},
    [CURLE_TFTP_PERM] = {NOT_HERE},
    [CURLE_REMOTE_DISK_FULL] = {NOT_HERE},
    [CURLE_TFTP_ILLEGAL] = {NOT_HERE},
    [CURLE_TFTP_UNKNOWNID] = {NOT_HERE},
    [CURLE_REMOTE_FILE_EXISTS] = {NOT_HERE},
    [CURLE_TFTP_NOSUCHUSER] = {NOT_HERE},
    [CURLE_REMOTE_FILE_NOT_FOUND] = {NOT_HERE},
    [CURLE_SSH] = {NOT_HERE},
    [CURLE_FTP_PRET_FAILED] = {NOT_HERE},
    [CURLE_RTSP_CSEQ_ERROR] = {NOT_HERE},
    [CURLE_RTSP_SESSION_ERROR] = {NOT_HERE},
    [CURLE_FTP_BAD_FILE_LIST] = {NOT_HERE},
    [CURLE_CHUNK_FAILED] = {NOT_HERE},
    [20] = {NOT_HERE},
    [24] = {NOT_HERE},
    [29] = {NOT_HERE},
    [32] = {NOT_HERE},
    [40] = {NOT_HERE},
    [44] = {NOT_HERE},
    [46] = {NOT_HERE},
    [50] = {NOT_HERE},
    [51] = {NOT_HERE},
    [57] = {NOT_HERE},
    [62] = {NOT_HERE},
    [75] = {NOT_HERE},
    [76] = {NOT_HERE},
};

bool http_failure_known(int code)
{
    return code > 0 && (size_t)code < GR_ARRAY_SIZE(failures) && failures[code].rc;
}

/* Did the connection break during the TLS handshake? curl has one code for every end of a handshake; a broken
 * connection is temporary, a refused handshake is not. */
static bool broke_handshake(const struct http_failure *q)
{
    if (q->code != CURLE_SSL_CONNECT_ERROR)
        return false;
    return q->os_errno == ECONNRESET || q->os_errno == EPIPE || q->os_errno == ETIMEDOUT ||
           strstr(q->text, "unexpected eof") || strstr(q->text, "SSL_ERROR_SYSCALL") ||
           strstr(q->text, "SSL_ERROR_ZERO_RETURN"); /* OpenSSL's words */
}

/* Is TLS missing from libcurl? curl has one code for that, which is permanent, and for an answer in HTTP/0.9, which is
 * temporary. */
static bool speaks_no_tls(const struct http_failure *q)
{
    return q->code == CURLE_UNSUPPORTED_PROTOCOL && strstr(q->text, "not supported");
}

int http_failure_errno(const struct http_failure *q, const char **remedy)
{
    *remedy = "";
    if (!http_failure_known(q->code))
        return -EIO;
    if (speaks_no_tls(q)) {
        *remedy = "; install a libcurl with TLS";
        return -ENOTSUP;
    }
    *remedy = failures[q->code].remedy;
    return broke_handshake(q) ? -EAGAIN : failures[q->code].rc;
}

static const struct {
    int status, rc;
    const char *meaning;
} statuses[] = {
    {401, -ENOKEY, ""},
    {403, -EACCES, ""},
    {404, -ENOENT, ""},
    {407, -ENOKEY, "the proxy wants a name and password"},
    {408, -EAGAIN, ""},
    {410, -ENOENT, ""},
    {412, -ESTALE, ""},
    {413, -EFBIG, "more is sent than the server takes; raise its limit (nginx: client_max_body_size)"},
    {414, -ENAMETOOLONG, "the address is longer than the server takes"},
    {416, -EBADMSG, ""},
    {421, -EAGAIN, ""},
    {425, -EAGAIN, ""},
    {426, -ENOTSUP, "the server wants another version of HTTP"},
    {429, -EAGAIN, ""},
    {451, -EACCES, ""},
    {499, -EAGAIN, ""},
    {501, -ENOTSUP, "the server does not support this request"},
    {505, -ENOTSUP, "the server does not speak this version of HTTP"},
    {506, -EIO, "the server's settings are wrong"},
    {507, -ENOSPC, "the server has no space left; free some, or raise the quota"},
    {508, -EIO, "the server runs in a loop; check its settings"},
    {510, -EIO, ""},
    {511, -EACCES, "the network on the way wants a login first"},
};

static size_t find_status(int status)
{
    size_t i = 0;
    while (i < GR_ARRAY_SIZE(statuses) && statuses[i].status != status)
        i++;
    return i;
}

int http_status_errno(int status)
{
    size_t i = find_status(status);
    if (i < GR_ARRAY_SIZE(statuses))
        return statuses[i].rc;
    return status >= 200 && status < 300 ? 0 : status >= 500 && status < 600 ? -EAGAIN : -EIO;
}

const char *http_status_meaning(int status)
{
    size_t i = find_status(status);
    return i < GR_ARRAY_SIZE(statuses) ? statuses[i].meaning : "";
}

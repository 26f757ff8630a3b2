/* HTTP(S) requests over kept-alive connections (libcurl), blocking, from any thread. No thread is
 * made here; after a fork only one of the two processes may go on using a struct http. */
#ifndef GRANARY_NET_HTTP_H
#define GRANARY_NET_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/rate.h"
#include "net/http_error.h"
#include "net/http_places.h"

/* What is wanted of an object. */
struct http_part {
    uint64_t off, len;
    bool fresh; /* over a connection that nothing has come over yet */
};

struct http; /* a pool of easy handles; at most `connections` requests run at once, others wait */

struct http_config {
    unsigned connections;        /* 0: 64 */
    struct http_places *places;  /* shared with others, instead of connections; outlives the struct http; NULL: none */
    unsigned connect_timeout_ms; /* 0: 10,000 */
    unsigned stall_timeout_s;    /* a transfer under 1 KiB/s for so long fails with -ETIMEDOUT; 0: 30 */
    const char *ca_bundle;       /* NULL: AWS_CA_BUNDLE, then the system's */
    const char *user_agent;      /* NULL: granary/VERSION */
    bool no_proxy;               /* whatever the environment says */
    struct rate *rate;           /* of bodies, both ways; outlives the struct http; NULL: no limit */
    const volatile int *cancel;  /* set asynchronously: ends waiting for the rate at once, and for the server within a
                                    second, with -EAGAIN; a request made afterwards has two seconds; may be NULL */
};

/* Signing key of AWS Signature 4; NULL members: unsigned. Never logged. */
struct http_signer {
    const char *access_key, *secret_key, *session_token; /* session_token may be NULL */
    const char *region, *service;                        /* "us-east-1", "s3" */
};

/* Receives body bytes of a successful (2xx) answer as they arrive; non-zero stops the transfer with
 * that -errno. */
typedef int http_sink(void *arg, const void *data, size_t len);

enum { HTTP_HEADERS_MAX = 16, HTTP_ETAG_MAX = 256, HTTP_ERROR_BODY_MAX = 64 << 10 };

struct http_request {
    const char *method;                    /* "GET", "PUT", "HEAD", "DELETE", "POST" */
    const char *url;                       /* path and query already in strict percent-encoded form, query sorted */
    const char *headers[HTTP_HEADERS_MAX]; /* "Name: value", NULL ends */
    const void *body;
    size_t body_len;
    const struct http_signer *signer; /* NULL: unsigned */
    const char *netrc; /* a file of names and passwords by host, whose are sent (Basic); NULL: nobody's */
    http_sink *sink;   /* NULL: the body goes to http_response.body */
    void *sink_arg;
    uint64_t deadline_ms; /* on clock_now_ms; 0: none but the stall timeout */
    /* range_len > 0: ask for bytes [range_off, range_off + range_len). The sink gets exactly these
     * or the request fails: an object that ends inside the range comes back as status 416, a server
     * that ignores or misreads Range as -ENOTSUP or -EIO. */
    uint64_t range_off, range_len;
    bool fresh;  /* over a new connection, in place of one that is kept alive */
    bool lookup; /* of names, sizes, small documents: has not all of the shared places */
};

struct http_response {
    int status;               /* e.g. 206 */
    char etag[HTTP_ETAG_MAX]; /* with its quotes, as sent; empty when absent or too long */
    int64_t content_length;   /* -1 unknown */
    int64_t range_total;      /* the total of Content-Range, -1 without one */
    int64_t last_modified;    /* seconds since the epoch, -1 unknown */
    int retry_after_s;        /* -1 without one */
    bool sink_stopped;        /* http_do's result and sentence are the sink's own */
    char *location;           /* of a redirect (never followed), at most 32 KiB; owned here; NULL: none */
    char bucket_region[64];   /* x-amz-bucket-region, else empty */
    struct bytes body;        /* of a non-2xx answer (cut at HTTP_ERROR_BODY_MAX), or all when there is no sink */
};

GR_MUST_CHECK int http_new(const struct http_config *config, struct http **out);
void http_free(struct http *h); /* no request may be running */

/* One request. 0 when an HTTP answer arrived whole, whatever its status. Otherwise -EAGAIN
 * (connect, DNS, reset, cut short), -ETIMEDOUT, -EACCES (TLS refused) or the sink's error, with a
 * sentence naming host and cause. resp->body.max is set by the caller before the call when it wants
 * a body (default HTTP_ERROR_BODY_MAX); http_response_release frees. */
GR_MUST_CHECK int http_do(struct http *h, const struct http_request *req, struct http_response *resp);
void http_response_release(struct http_response *resp);

/* Strict percent-encoding: all but A-Z a-z 0-9 - . _ ~ (and '/' when keep_slash). Appends to out.
 */
GR_MUST_CHECK int http_percent_encode(struct bytes *out, const char *text, size_t len, bool keep_slash);
/* The opposite, in place ('+' stays '+'); the new length, or -EBADMSG for a bad escape. */
long http_percent_decode(char *text, size_t len);

enum { HTTP_SHOWN_MAX = 301 };
/* What a sentence may show of an address that a server gave, in out or a constant: no query, and nothing of one that
 * may have a name and password. */
const char *http_shown(const char *url, char out[HTTP_SHOWN_MAX]);

enum { HTTP_FOLLOW_MAX = 10 };

/* http_do() for GET and HEAD, following at most HTTP_FOLLOW_MAX redirects (301, 302, 303, 307, 308 with a Location),
 * for servers that only know where bytes lie (dataset hosts in front of a CDN). Each call begins at the request's own
 * address: what a redirect names may hold a signature that expires. Method, range and headers go on, but who asks (an
 * Authorization header, netrc) is told to no other scheme, host or port than the request's own, nor to that one once
 * the way has left it; nothing that signs the request may be set.
 *
 * *out_url: the address of the answer, without query, when it is another than the request's; the caller's to free, also
 * after an error; else NULL. As http_do(), and -EACCES: from https to http; -EIO: too many; -EBADMSG: to what is no
 * address of a web server. Sentences show neither what stands behind '?' nor a name and password. */
GR_MUST_CHECK int http_follow(struct http *h, const struct http_request *req, struct http_response *resp,
                              char **out_url);

#endif

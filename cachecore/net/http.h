/* HTTP(S) requests over kept-alive connections, with libcurl. Calls block and may come from any thread. No thread is
 * started here; after a fork, only one of the two processes may go on using a struct http.
 */
#ifndef GRANARY_NET_HTTP_H
#define GRANARY_NET_HTTP_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "base/rate.h"

/* ---- slots (http_slots.c) ----
 *
 * A limit on the requests in flight, for one struct http or for several that share it. With several users, each has a
 * share (base/share.h), so that one whose server does not answer leaves slots to the others. Lookups then have at most
 * three eighths of the slots, shared in the same way, so that lookups never keep data from being read. Any thread. */

enum http_slot_kind { HTTP_SLOT_DATA, HTTP_SLOT_LOOKUP };

/* How many idle connections all users together keep for later requests, for each slot. */
enum { HTTP_IDLE_TIMES = 4 };

/* Private to http_slots.c. */
struct http_slots {
    pthread_mutex_t lock;                     /* guards the rest, and every http_slots_user */
    pthread_cond_t freed;                     /* a slot was released, or a user left */
    unsigned in_use, lookups, limit, waiting; /* slots taken; those by lookups; all; threads waiting for one */
    unsigned users, idle;                     /* idle: connections that are kept for later requests */
};

/* One user's slots. All zero at first. */
struct http_slots_user {
    unsigned in_use, lookups;
};

/* limit: the number of slots, at least 1. */
void http_slots_init(struct http_slots *p, unsigned limit);
void http_slots_release(struct http_slots *p); /* no slot may be taken, every user must have left */

/* A user joins before it takes slots and leaves afterwards. A single user may take all slots. */
void http_slots_join(struct http_slots *p);
void http_slots_leave(struct http_slots *p);

/* Wait for a slot and take it. false: deadline_ms (on clock_now_ms; 0: none) passed before there was one. */
GR_MUST_CHECK bool http_slots_take(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind,
                                   uint64_t deadline_ms);
/* Release a slot. */
void http_slots_give(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind);

/* Count a connection that its user wants to keep for later requests. false: it must close it, because enough are kept:
 * one user for each of hundreds of servers would otherwise use up the process's descriptors. */
GR_MUST_CHECK bool http_slots_keep(struct http_slots *p);
/* n kept connections are in use again, or closed. */
void http_slots_unkeep(struct http_slots *p, size_t n);

/* Return the number of threads that wait for a slot now. */
unsigned http_slots_waiting(struct http_slots *p);

/* ---- requests (http.c, http_answer.c) ---- */

/* The part of an object to read. */
struct http_part {
    uint64_t off, len; /* bytes */
    bool fresh;        /* use a new connection, not one that is kept alive */
};

/* A pool of connections. At most `connections` requests run at once; others wait. */
struct http;

struct http_config {
    unsigned connections;        /* 0: 64 */
    struct http_slots *slots;    /* shared with others, instead of connections; outlives the struct http; NULL: none */
    unsigned connect_timeout_ms; /* 0: 10,000 */
    unsigned stall_timeout_s;    /* a transfer slower than 1 KiB/s for this long fails with -ETIMEDOUT; 0: 30 */
    const char *ca_bundle;       /* NULL: AWS_CA_BUNDLE, then the system's */
    const char *user_agent;      /* NULL: granary/VERSION */
    const char *nodes;           /* a directory with ca.crt, tls.crt and tls.key, which each connection reads: a server
                                    must have a certificate of this authority alone, whatever the name in it, and is
                                    shown tls.crt; NULL: as usual */
    bool no_proxy;               /* use no proxy, whatever the environment says */
    struct rate *rate;           /* limits bodies, both ways; outlives the struct http; NULL: no limit */
    const volatile int *cancel;  /* base/cancel.h: when set, requests fail with -EAGAIN, at once when they wait for the
                                    rate, within a second when they wait for the server; a request begun after that
                                    has two seconds; may be NULL */
};

/* Keys for AWS Signature Version 4. access_key NULL: the request is not signed. Never logged. */
struct http_signer {
    const char *access_key, *secret_key, *session_token; /* session_token may be NULL */
    const char *region, *service;                        /* "us-east-1", "s3" */
};

/* Receives the body of a successful (2xx) answer piece by piece, on the calling thread of http_do. A result other than
 * 0 stops the transfer; http_do returns it. */
typedef int http_sink(void *arg, const void *data, size_t len);

/* In the answers of a server with --peer-listen: its weight among the nodes; 0: it leaves. */
#define HTTP_NODE_HEADER "Granary-Node"

enum { HTTP_HEADERS_MAX = 16, HTTP_ETAG_MAX = 256, HTTP_ERROR_BODY_MAX = 64 << 10 };

struct http_request {
    const char *method;                    /* "GET", "PUT", "HEAD", "DELETE", "POST" */
    const char *url;                       /* path and query strictly percent-encoded, the query sorted */
    const char *headers[HTTP_HEADERS_MAX]; /* "Name: value", NULL ends */
    const void *body;
    size_t body_len;
    const struct http_signer *signer; /* NULL: unsigned */
    const char *netrc; /* a netrc file; the name and password for the host are sent (Basic); NULL: none */
    http_sink *sink;   /* NULL: the body goes to http_response.body */
    void *sink_arg;
    uint64_t deadline_ms; /* on clock_now_ms; 0: only the stall timeout applies */
    /* range_len > 0: request the bytes [range_off, range_off + range_len). The sink gets exactly these bytes, or the
     * request fails: status 416 if the object ends inside the range; -ENOTSUP or -EIO if the server ignores or misreads
     * Range. */
    uint64_t range_off, range_len;
    bool fresh;  /* use a new connection, not one that is kept alive */
    bool lookup; /* a request for names, sizes or small documents: limited to part of the shared slots */
};

struct http_response {
    int status;               /* e.g. 206 */
    char etag[HTTP_ETAG_MAX]; /* with its quotes, as sent; empty when absent or too long */
    int64_t content_length;   /* bytes; -1: unknown */
    int64_t range_total;      /* bytes of the whole object, from Content-Range; -1: unknown */
    int64_t last_modified;    /* seconds since the epoch; -1: unknown */
    int64_t date;             /* the server's clock when it answered, likewise */
    int retry_after_s;        /* -1: the server did not say */
    bool sink_stopped;        /* the sink ended the transfer: http_do's result and sentence are the sink's */
    char *location;           /* Location of a redirect (http_do never follows one), at most 32 KiB; NULL: none */
    char bucket_region[64];   /* x-amz-bucket-region, else empty */
    int64_t node;             /* HTTP_NODE_HEADER's number; -1: no node of Granary answers */
    struct bytes body;        /* of an answer that is not 2xx (cut at HTTP_ERROR_BODY_MAX), or of any without a sink */
};

/* config: copied; NULL: all defaults. -ENOMEM with a sentence. */
GR_MUST_CHECK int http_new(const struct http_config *config, struct http **out);
void http_free(struct http *h); /* no request may be running; NULL is allowed */

/* Do one request. 0: a whole HTTP answer arrived, whatever its status. Otherwise -EAGAIN (connect, DNS, reset, cut
 * short, cancelled), -ETIMEDOUT, -EACCES (TLS), -ENOTSUP or -EIO (a wrong range), another code of http_failure_errno,
 * or the sink's result, with a sentence that names host and cause. *resp is all zero before the first call, except that
 * body.max may limit a successful answer without a sink (0: HTTP_ERROR_BODY_MAX; more is -EMSGSIZE). It may be reused;
 * http_response_release frees it. */
GR_MUST_CHECK int http_do(struct http *h, const struct http_request *req, struct http_response *resp);
void http_response_release(struct http_response *resp);

/* ---- the text of URLs (http_url.c) ---- */

/* Append text to out in strict percent-encoding: every byte except A-Z a-z 0-9 - . _ ~ (and '/' with keep_slash) is
 * escaped. -EMSGSIZE, -ENOMEM; out is unchanged then. */
GR_MUST_CHECK int http_percent_encode(struct bytes *out, const char *text, size_t len, bool keep_slash);
/* Decode percent-encoding in place; '+' stays '+'. Returns the new length, or -EBADMSG (no sentence) for a bad escape.
 */
long http_percent_decode(char *text, size_t len);

enum { HTTP_SHOWN_MAX = 301 };
/* Return what a sentence may show of an address from a server: the part before '?' or '#', or nothing at all if there
 * is an '@', which may follow a name and password. The result is out or a constant. */
const char *http_shown(const char *url, char out[HTTP_SHOWN_MAX]);

/* Has this address a colon after its host and no port? libcurl would ask port 80 or 443, where a port was meant. */
bool http_port_missing(const char *url);

/* Check the http(s) address of a store or source as a user gave it: a host, perhaps a port and path, nothing else.
 * what: "store" or "source"; instead: where credentials belong, for the sentence. -EINVAL. An address with credentials
 * is not repeated in the sentence, because it may contain a password. */
GR_MUST_CHECK int http_check_url(const char *what, const char *url, const char *instead);

/* ---- redirects (http_follow.c) ---- */

enum { HTTP_FOLLOW_MAX = 10 };

/* http_do() for GET and HEAD that follows up to HTTP_FOLLOW_MAX redirects (301, 302, 303, 307, 308 with a Location),
 * for servers that only know where the bytes are, such as dataset hosts in front of a CDN. Each call begins at the
 * request's own address, since an address in a redirect may contain a signature that expires. Method, range and headers
 * stay the same, except that credentials (an Authorization header, netrc) go only to the scheme, host and port of the
 * request itself, and no longer there once a redirect has left it. The request must not be signed.
 *
 * *out_url: the address, without query, that answered, if it differs from the request's; else NULL. The caller frees
 * it, also after an error. Errors as for http_do(), and -EACCES: redirected from https to http; -EIO: too many
 * redirects; -EBADMSG: the target is not an http(s) address. Sentences show neither queries nor names and passwords. */
GR_MUST_CHECK int http_follow(struct http *h, const struct http_request *req, struct http_response *resp,
                              char **out_url);

/* ---- failures (http_error.c) ----
 *
 * Which failures of HTTP are temporary and which are permanent: one table of libcurl's codes, one of HTTP statuses.
 * -EAGAIN and -ETIMEDOUT are worth a retry; every other -errno is final. Any thread. */

/* How a transfer ended that brought no whole answer. */
struct http_failure {
    int code;         /* a CURLcode, not CURLE_OK */
    long os_errno;    /* CURLINFO_OS_ERRNO */
    const char *text; /* CURLOPT_ERRORBUFFER; may be empty */
};

/* Return the failure's -errno; *remedy is a constant, "" or "; check ...". Bytes that are not HTTP, as from a proxy
 * that is restarting, count as temporary. A code that is not in the table, from a newer libcurl, is -EIO. */
int http_failure_errno(const struct http_failure *failure, const char **remedy);
/* Is the code in the table? */
bool http_failure_known(int code);
/* Return a status as 0 or -errno. 0: 2xx. Temporary (-EAGAIN): 408, 421, 425, 429, 499 and every 5xx not listed here.
 * Permanent: 401, 407 -ENOKEY; 403, 451, 511 -EACCES; 404, 410 -ENOENT; 412 -ESTALE; 413 -EFBIG; 414 -ENAMETOOLONG;
 * 416 -EBADMSG; 426, 501, 505 -ENOTSUP; 507 -ENOSPC; 506, 508, 510 and all others -EIO. */
int http_status_errno(int status);
/* Return what a status means and what helps, if that says more than the number; else "". */
const char *http_status_meaning(int status);

#endif

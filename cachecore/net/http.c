/* A request is one transfer of a curl easy handle, run to its end on the caller's thread. http_answer.c receives the
 * answer.
 *
 *   http_do -> do_once: take_handle (waits for a slot) -> set_options -> curl_easy_perform -> conclude -> return_handle
 *      |
 *      +-> do_once again, with HTTP/2, if the server refused HTTP/1.1
 *
 * Idle handles, each with its connection, are on a stack; the one used last, whose connection is most likely still
 * alive, is taken first. Slots (http_slots.c) limit the handles in use. The mutex guards the stack and is never held
 * across a transfer. A handle whose transfer failed is closed, since its connection may be broken.
 *
 * HTTP/1.1 is requested even from servers that know HTTP/2: the pool runs one request per connection, and used like
 * that HTTP/2 is slower (docs/reference/stores.md). A server that refuses HTTP/1.1 is offered both for HTTP2_MS; then
 * HTTP/1.1 is tried again.
 *
 * Left out on purpose: redirects (a signed request must not follow a Location to another host), cookies, and
 * compression (lengths and ranges would lose their meaning).
 */
#include "net/http_internal.h"

#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/vec.h"

/* libcurl makes the buffer for the body anew for each transfer. One that malloc maps (128 KiB and more,
 * pages_limit_heap) costs a page fault for each 4 KiB, and an interrupt of the other CPUs when it is unmapped: 15 % of
 * a server's CPU while readers fill a cache from a near store. */
enum { BODY_BUFFER = 64 << 10, LIMITED_BUFFER = 32 << 10, CANCELLED_MS = 2000 };
enum { REFUSALS_TELL = 3, HTTP2_MS = 10 * 60 * 1000 };
enum { CONNECTIONS = 64, CONNECT_TIMEOUT_MS = 10000, STALL_TIMEOUT_S = 30, STALL_BYTES_PER_S = 1024 };

struct http {
    struct http_slots own, *slots; /* slots: own, or the shared ones */
    struct http_slots_user user;
    pthread_mutex_t mutex; /* guards idle */
    VEC(CURL *) idle;
    unsigned connect_timeout_ms, stall_timeout_s;
    char *ca_bundle, *user_agent;
    char *node_certificate, *node_key; /* NULL: none; otherwise ca_bundle is the nodes' authority */
    bool no_proxy;
    _Atomic unsigned refusals;       /* requests in a row for which HTTP/1.1 was refused and HTTP/2 accepted */
    _Atomic uint64_t http2_until_ms; /* on clock_now_ms: until then HTTP/2 is offered at the first try */
    struct rate *rate;
    const volatile int *cancel;
};

/* Return a copy of `set`, else of `otherwise`; NULL if both are NULL. */
static char *copy_or(const char *set, const char *otherwise)
{
    return set ? strdup(set) : otherwise ? strdup(otherwise) : NULL;
}

/* ---- libcurl's memory: it has copies of keys, and frees them as they are ---- */

/* What is wiped of a block. Keys, and headers and answers with them, are shorter. libcurl's buffers for bodies are
 * larger and used from the start: wiping all of one would touch pages that nothing was written to, 4 % of a server's
 * CPU while it fills a cache. */
enum { WIPED_MAX = 32 << 10 };

static void wiping_free(void *p)
{
    if (p)
        explicit_bzero(p, GR_MIN(malloc_usable_size(p), (size_t)WIPED_MAX));
    free(p);
}

/* realloc would free the old place itself. */
static void *wiping_realloc(void *p, size_t size)
{
    size_t had = p ? malloc_usable_size(p) : 0;
    void *fresh = malloc(size);
    if (!fresh || !p)
        return fresh;
    memcpy(fresh, p, GR_MIN(had, size));
    wiping_free(p);
    return fresh;
}

static char *in_directory(const char *directory, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", directory, name) < 0 ? NULL : path;
}

/* Without one of them libcurl would ask less of the server, so none may be missing. */
static int use_node_files(struct http *h, const char *directory)
{
    free(h->ca_bundle);
    h->ca_bundle = in_directory(directory, "ca.crt");
    h->node_certificate = in_directory(directory, "tls.crt");
    h->node_key = in_directory(directory, "tls.key");
    return h->ca_bundle && h->node_certificate && h->node_key ? 0 : error_no_memory();
}

int http_new(const struct http_config *config, struct http **out)
{
    static const struct http_config defaults = {0};
    if (!config)
        config = &defaults;
    /* counts its calls; starts no thread */
    if (curl_global_init_mem(CURL_GLOBAL_DEFAULT, malloc, wiping_free, wiping_realloc, strdup, calloc))
        return error_set(-ENOMEM, "libcurl cannot be initialised");
    struct http *h = calloc(1, sizeof *h);
    if (!h) {
        curl_global_cleanup();
        return error_no_memory();
    }
    http_slots_init(&h->own, config->connections ? config->connections : CONNECTIONS);
    h->slots = config->slots ? config->slots : &h->own;
    http_slots_join(h->slots);
    pthread_mutex_init(&h->mutex, NULL);
    h->connect_timeout_ms = config->connect_timeout_ms ? config->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    h->stall_timeout_s = config->stall_timeout_s ? config->stall_timeout_s : STALL_TIMEOUT_S;
    h->no_proxy = config->no_proxy;
    h->rate = config->rate;
    h->cancel = config->cancel;
    h->ca_bundle = copy_or(config->ca_bundle, getenv("AWS_CA_BUNDLE"));
    h->user_agent = copy_or(config->user_agent, "granary/" GRANARY_VERSION);
    int rc = config->nodes ? use_node_files(h, config->nodes) : 0;
    if (rc)
        http_free(h);
    else
        *out = h;
    return rc;
}

void http_free(struct http *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->idle.len; i++)
        curl_easy_cleanup(h->idle.items[i]);
    http_slots_unkeep(h->slots, h->idle.len);
    vec_release(&h->idle);
    free(h->ca_bundle);
    free(h->node_certificate);
    free(h->node_key);
    free(h->user_agent);
    http_slots_leave(h->slots);
    http_slots_release(&h->own);
    pthread_mutex_destroy(&h->mutex);
    free(h);
    curl_global_cleanup();
}

static int out_of_time(const struct http_transfer *t)
{
    return error_set(-ETIMEDOUT, "%s: no time is left for the request", t->host);
}

static enum http_slot_kind place_kind(const struct http_request *req)
{
    return req->lookup ? HTTP_SLOT_LOOKUP : HTTP_SLOT_DATA;
}

/* Wait for a slot and take a handle; *out is NULL when out of memory. fresh: a handle without a connection. */
static int take_handle(struct http *h, const struct http_transfer *t, bool fresh, CURL **out)
{
    CURL *curl = NULL;
    if (!http_slots_take(h->slots, &h->user, place_kind(t->req), t->req->deadline_ms))
        return out_of_time(t);
    {
        SCOPED_LOCK(&h->mutex);
        if (h->idle.len)
            curl = h->idle.items[--h->idle.len];
    }
    if (curl)
        http_slots_unkeep(h->slots, 1);
    if (curl && fresh) {
        curl_easy_cleanup(curl);
        curl = NULL;
    }
    if (!curl)
        curl = curl_easy_init();
    *out = curl;
    return 0;
}

/* Put a handle (NULL: none) back on the stack and release its slot. */
static void return_handle(struct http *h, const struct http_request *req, CURL *curl)
{
    bool kept = false;
    if (curl && http_slots_keep(h->slots)) {
        curl_easy_reset(curl); /* keeps the connection, drops keys and pointers into this request */
        SCOPED_LOCK(&h->mutex);
        kept = vec_push(&h->idle, curl) == 0;
        if (!kept)
            http_slots_unkeep(h->slots, 1);
    }
    if (curl && !kept)
        curl_easy_cleanup(curl);
    http_slots_give(h->slots, &h->user, place_kind(req));
}

static int add_header(struct http_transfer *t, const char *line)
{
    struct curl_slist *longer = curl_slist_append(t->headers, line);
    if (!longer)
        return error_no_memory();
    t->headers = longer;
    return 0;
}

/* Set the request's headers and, when it is signed with temporary keys, their session token, which is signed too. */
static int set_headers(struct http_transfer *t)
{
    const struct http_request *q = t->req;
    int rc = 0;
    for (size_t i = 0; !rc && i < HTTP_HEADERS_MAX && q->headers[i]; i++)
        rc = add_header(t, q->headers[i]);
    if (!rc && q->signer && q->signer->session_token) {
        CLEANUP_FREE char *token = NULL;
        if (asprintf(&token, "x-amz-security-token: %s", q->signer->session_token) < 0)
            token = NULL;
        rc = token ? add_header(t, token) : error_no_memory();
        if (token)
            explicit_bzero(token, strlen(token));
    }
    return rc;
}

/* Set method and body. A PUT or POST without a body still sends a length of 0, which servers require. */
static void set_method(CURL *curl, const struct http_request *q)
{
    if (strcmp(q->method, "HEAD") == 0) {
        curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    } else if (q->body || strcmp(q->method, "PUT") == 0 || strcmp(q->method, "POST") == 0) {
        /* POSTFIELDS is not copied, and curl can send it again when a kept connection turns out to be dead */
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, q->body ? q->body : "");
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)q->body_len);
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, q->method);
    } else if (strcmp(q->method, "GET") != 0) {
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, q->method);
    }
}

/* Set Range by its option and not as a header: libcurl signs all headers, and a caching proxy drops Range to fetch the
 * whole object, which would invalidate the signature. */
static void set_range(CURL *curl, const struct http_request *q)
{
    char range[64];
    if (!q->range_len)
        return;
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)q->range_off,
             (unsigned long long)(q->range_off + q->range_len - 1));
    curl_easy_setopt(curl, CURLOPT_RANGE, range);
}

static void set_signer(CURL *curl, struct http_transfer *t)
{
    const struct http_signer *s = t->req->signer;
    if (!s || !s->access_key)
        return;
    snprintf(t->sigv4, sizeof t->sigv4, "aws:amz:%s:%s", s->region, s->service);
    curl_easy_setopt(curl, CURLOPT_AWS_SIGV4, t->sigv4);
    curl_easy_setopt(curl, CURLOPT_USERNAME, s->access_key);
    curl_easy_setopt(curl, CURLOPT_PASSWORD, s->secret_key);
}

/* Called by curl each time before it sends more of the body, and about once a second while nothing moves: apply the
 * rate to what was sent, and check for cancellation. Not 0 ends the transfer. */
static int http_on_progress(void *arg, curl_off_t to_get, curl_off_t got, curl_off_t to_send, curl_off_t sent)
{
    struct http_transfer *t = arg;
    if (cancel_asked(t->cancel) && clock_now_ms() >= t->cancel_from_ms)
        t->failed = http_transfer_cancelled(t);
    else if (sent > t->sent)
        t->failed = http_transfer_pay(t, (uint64_t)(sent - t->sent));
    t->sent = sent;
    return t->failed;
}

/* Let the cancel flag end the transfer. Requests begun after it was set are cleanup, such as removing a lease; they get
 * CANCELLED_MS before the flag counts. */
static void set_cancel(struct http *h, CURL *curl, struct http_transfer *t)
{
    if (!h->cancel && !h->rate)
        return;
    t->cancel = h->cancel;
    t->cancel_from_ms = cancel_asked(h->cancel) ? clock_now_ms() + CANCELLED_MS : 0;
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, http_on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

/* Apply the rate limit. Small buffers, so that no connection waits long for the others' bytes and neither curl nor the
 * server takes it for stalled. */
static void set_rate(struct http *h, CURL *curl, struct http_transfer *t)
{
    if (!h->rate)
        return;
    t->rate = h->rate;
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)LIMITED_BUFFER);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, (long)LIMITED_BUFFER);
}

/* Whom to trust. Among nodes the authority alone decides, and no name: nodes are addresses, which come and go. Nothing
 * else may be trusted beside it, such as the directory that libcurl was built with. */
static void set_trust(const struct http *h, CURL *curl, struct http_transfer *t)
{
    if (h->ca_bundle && *h->ca_bundle)
        curl_easy_setopt(curl, CURLOPT_CAINFO, h->ca_bundle);
    if (!h->node_key)
        return;
    curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 0L);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, h->node_certificate);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, h->node_key);
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(curl, CURLOPT_CA_CACHE_TIMEOUT, 0L); /* or a new authority counts only after a day */
#endif
    t->among_nodes = true;
}

/* Set all options of a handle for this request; the order matters only for set_rate, which lowers what stands above it.
 */
static int set_options(struct http *h, CURL *curl, struct http_transfer *t, bool http2)
{
    int rc = set_headers(t);
    if (rc)
        return rc;
    if (t->req->deadline_ms) {
        uint64_t now = clock_now_ms();
        if (now >= t->req->deadline_ms)
            return out_of_time(t);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)GR_MIN(t->req->deadline_ms - now, (uint64_t)INT_MAX));
    }
    curl_easy_setopt(curl, CURLOPT_URL, t->req->url);
    curl_easy_setopt(curl, CURLOPT_PATH_AS_IS, 1L); /* keys may contain "." components and "//" */
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, http2 ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)h->connect_timeout_ms);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, (long)STALL_BYTES_PER_S);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)h->stall_timeout_s);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, (long)BODY_BUFFER);
    curl_easy_setopt(curl, CURLOPT_UPLOAD_BUFFERSIZE, 256L << 10);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, h->user_agent);
    if (h->no_proxy)
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
    set_trust(h, curl, t);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, t->text);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, http_answer_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, http_answer_body);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    set_rate(h, curl, t);
    set_cancel(h, curl, t);
    set_method(curl, t->req);
    set_range(curl, t->req);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, t->headers);
    set_signer(curl, t);
    if (t->req->netrc) {
        curl_easy_setopt(curl, CURLOPT_NETRC, (long)CURL_NETRC_OPTIONAL);
        curl_easy_setopt(curl, CURLOPT_NETRC_FILE, t->req->netrc);
    }
    return 0;
}

/* Return the result of a transfer: a callback's failure first, then the answer, then curl's failure. */
static int conclude(struct http_transfer *t, const struct http_failure *failure)
{
    const char *remedy;
    if (t->failed)
        return t->failed;
    if (!failure->code || t->enough)
        return http_answer_end(t);
    int rc = http_failure_errno(failure, &remedy);
    if (rc == -EACCES && t->among_nodes)
        remedy = "; look at ca.crt, tls.crt and tls.key of both nodes (peer-tls)";
    return error_set(rc, "%s: %s%s", t->host, t->text[0] ? t->text : curl_easy_strerror((CURLcode)failure->code),
                     remedy);
}

/* Did the server refuse this version of HTTP? It may answer so, or end a TLS handshake that offers no other version. A
 * broken connection says nothing about versions. */
static bool version_refused(const struct http_transfer *t, const struct http_failure *failure)
{
    if (strncmp(t->req->url, "https:", 6))
        return false;
    return t->resp->status == 505 || t->resp->status == 426 ||
           (failure->code == CURLE_SSL_CONNECT_ERROR && failure->os_errno != ECONNRESET && failure->os_errno != EPIPE &&
            failure->os_errno != ETIMEDOUT);
}

static void http_perform(CURL *curl, struct http_transfer *t, struct http_failure *out)
{
    *out = (struct http_failure){.code = (int)curl_easy_perform(curl), .text = t->text};
    curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &out->os_errno);
    t->version = CURL_HTTP_VERSION_NONE;
    curl_easy_getinfo(curl, CURLINFO_HTTP_VERSION, &t->version);
}

/* One try of a request. */
struct attempt {
    bool http2;   /* offer both versions */
    bool fresh;   /* use a new connection */
    bool refused; /* result: this version of HTTP was refused */
    bool said_so; /* result: the refusal was a status, so it is certain */
    long version; /* result: of the answer, CURL_HTTP_VERSION_... */
};

/* Try a request once. */
static int do_once(struct http *h, const struct http_request *req, struct http_response *resp, struct attempt *a)
{
    struct http_transfer t = {
        .req = req, .resp = resp, .body_max = resp->body.max ? resp->body.max : HTTP_ERROR_BODY_MAX};
    bytes_clear(&resp->body);
    http_answer_begin(&t, "");
    /* sentences name "https://host:port" */
    const char *begin = strstr(req->url, "://");
    size_t len = begin ? (size_t)(begin + 3 - req->url) + strcspn(begin + 3, "/?#") : 0;
    snprintf(t.host, sizeof t.host, "%.*s", (int)GR_MIN(len, sizeof t.host - 1), req->url);
    CURL *curl = NULL;
    int rc = take_handle(h, &t, a->fresh || req->fresh, &curl);
    if (rc)
        return rc;
    rc = curl ? set_options(h, curl, &t, a->http2) : error_no_memory();
    if (!rc) {
        struct http_failure failure;
        http_perform(curl, &t, &failure);
        rc = conclude(&t, &failure);
        a->refused = version_refused(&t, &failure);
        a->said_so = a->refused && !failure.code;
        a->version = t.version;
        if (rc || a->refused) { /* do not keep a connection that failed, or that speaks the refused version */
            curl_easy_cleanup(curl);
            curl = NULL;
        }
    }
    return_handle(h, req, curl);
    curl_slist_free_all(t.headers);
    resp->body.max = t.body_max;
    return rc;
}

/* Note that HTTP/1.1 was refused and HTTP/2 accepted. A handshake may fail for other reasons, so only a status or
 * REFUSALS_TELL failures in a row make HTTP/2 the first choice. */
static void note_refusal(struct http *h, bool said_so)
{
    unsigned in_a_row = atomic_fetch_add(&h->refusals, 1) + 1;
    if (said_so || in_a_row >= REFUSALS_TELL) {
        atomic_store(&h->refusals, REFUSALS_TELL);
        atomic_store(&h->http2_until_ms, clock_now_ms() + HTTP2_MS);
    }
}

int http_do(struct http *h, const struct http_request *req, struct http_response *resp)
{
    struct attempt first = {.http2 = clock_now_ms() < atomic_load(&h->http2_until_ms)};
    int rc = do_once(h, req, resp, &first);
    if (!first.refused) {
        if (!rc && !first.http2 && atomic_load(&h->refusals))
            atomic_store(&h->refusals, 0);
        return rc;
    }
    struct attempt second = {.http2 = true, .fresh = true};
    rc = do_once(h, req, resp, &second);
    if (!rc && !second.refused && !first.http2 && second.version == CURL_HTTP_VERSION_2_0)
        note_refusal(h, first.said_so);
    return rc;
}

void http_response_release(struct http_response *resp)
{
    bytes_release(&resp->body);
    free(resp->location);
    resp->location = NULL;
}

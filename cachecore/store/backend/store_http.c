/* A store behind plain HTTP(S), read-only: any web server or cache that supports Range (RFC 9110). No credentials:
 * access is restricted by the network or a proxy. Redirects are not followed, so a store's address says where its
 * bytes come from; an error names the target instead.
 *
 * The backends for S3 and HDFS share store_http_config. Shared cache proxies (store_l2) are stores of this kind. */
#include "store/store_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/http.h"

/* How long another node may take for an answer: a time, and one that grows with its length. */
enum { NODE_MS = 15000, NODE_BYTES_A_SECOND = 64 << 10 };

/* A store behind a web server. */
struct store_http {
    struct store base; /* url has no final slash; constant after opening */
    struct http *http;
};

void store_http_config(const struct store_options *options, struct http_config *out)
{
    out->connections = options->connections;
    out->slots = options->slots;
    out->connect_timeout_ms = options->connect_ms ? options->connect_ms : options->request_s * 1000;
    out->stall_timeout_s = options->request_s;
    out->nodes = options->nodes;
    out->rate = options->rate;
    out->cancel = options->cancel;
}

/* The sentence for operations that plain HTTP does not have. */
static int read_only(struct store *s, const char *doing)
{
    return error_set(-ENOTSUP,
                     "store %s: %s is not possible over plain HTTP; use the s3:// or file:// address of the "
                     "same store",
                     s->url, doing);
}

/* The sentence for a redirect. */
static int redirected(struct store *s, const char *key, const struct http_response *resp)
{
    char text[HTTP_SHOWN_MAX];
    const char *to = resp->location ? http_shown(resp->location, text) : "nowhere";
    return error_set(-EIO,
                     "store %s: the server redirects %s to %.200s (status %d), which is not followed; give the "
                     "address it leads to",
                     s->url, key, to, resp->status);
}

/* Turn an answer outside 2xx into an error with a sentence. A passing failure hands the server's Retry-After to
 * store_retry. */
static int store_http_refusal(struct store *s, const char *key, const struct http_response *resp)
{
    int status = resp->status, rc = http_status_errno(status);
    const char *meaning = http_status_meaning(status);
    if (rc == -ENOENT)
        return error_set(rc, "store %s: %s is not there", s->url, key);
    if (rc == -EBADMSG)
        return store_shorter(s, key);
    if (rc == -EAGAIN)
        return error_retry_after(error_set(rc, "store %s: the server failed on %s (status %d)", s->url, key, status),
                                 (unsigned)GR_MAX(resp->retry_after_s, 0));
    if (*meaning)
        return error_set(rc, "store %s: %s: %s (status %d)", s->url, key, meaning, status);
    if (rc == -EACCES || rc == -ENOKEY)
        return error_set(rc, "store %s: the server refuses to show %s (status %d); check its access rules", s->url, key,
                         status);
    if (status >= 300 && status < 400)
        return redirected(s, key, resp);
    return error_set(rc, "store %s: the server answered %s with status %d", s->url, key, status);
}

/* Make one request for a key; the caller sets req's method, range and sink. Answers outside 2xx become errors. */
static int store_http_run(struct store *s, const char *key, struct http_request *req, struct http_response *resp)
{
    CLEANUP_BYTES url = BYTES_INIT(16 << 10);
    int rc = bytes_printf(&url, "%s/", s->url);
    if (!rc)
        rc = http_percent_encode(&url, key, strlen(key), true);
    req->url = rc ? NULL : bytes_string(&url);
    if (!req->url)
        return rc ? rc : -EMSGSIZE;
    rc = http_do(((struct store_http *)s)->http, req, resp);
    if (rc)
        return resp->sink_stopped ? rc : error_prefix(rc, "store %s: %s", s->url, key);
    return resp->status >= 200 && resp->status < 300 ? 0 : store_http_refusal(s, key, resp);
}

static int http_stat(struct store *s, const char *key, struct store_item *out)
{
    CLEANUP(http_response_release) struct http_response resp = {0};
    struct http_request req = {.method = "HEAD", .lookup = true};
    int rc = store_http_run(s, key, &req, &resp);
    if (rc)
        return rc;
    /* A server may leave it out, but callers need the size. */
    if (resp.content_length < 0)
        return error_set(-EIO, "store %s: the server does not say how long %s is", s->url, key);
    *out = (struct store_item){.key = key,
                               .size = (uint64_t)resp.content_length,
                               .mtime = GR_MAX(resp.last_modified, 0),
                               .now = GR_MAX(resp.date, 0)};
    return 0;
}

static int http_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    CLEANUP(http_response_release) struct http_response resp = {.node = -1};
    struct http_request req = {
        .method = "GET", .range_off = off, .range_len = len, .fresh = context->fresh, .sink = sink, .sink_arg = arg};
    if (s->l2 && context->header) { /* a node that sends slowly must not hold a reader: the rest is the store's */
        req.deadline_ms = clock_now_ms() + NODE_MS + len * 1000 / NODE_BYTES_A_SECOND;
        if (context->meanwhile) /* the store's last try waits for this */
            req.deadline_ms = GR_MIN(req.deadline_ms, context->deadline_ms);
    }
    if (s->l2) {
        req.headers[0] = context->header;
        req.headers[1] = context->proof; /* only beside a header */
    }
    store_note_try(s, context);
    int rc = store_http_run(s, key, &req, &resp);
    context->node_weight = resp.node;
    context->not_here = rc == -ENOENT && resp.node >= 0;
    if (rc == -ENOKEY && resp.node >= 0)
        return error_set(rc,
                         "node %s does not accept this node's key or certificate: give all nodes the same peer-key, or "
                         "certificates of one authority (peer-tls), and compare their clocks",
                         s->url);
    return rc;
}

static int http_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    CLEANUP(http_response_release) struct http_response resp = {0};
    /* caches in between must ask the origin */
    struct http_request req = {
        .method = "GET", .lookup = true, .headers = {"Cache-Control: no-cache"}, .sink = store_append, .sink_arg = out};
    int rc = store_http_run(s, key, &req, &resp);
    if (!rc && version)
        snprintf(version, STORE_VERSION_MAX, "%s", resp.etag);
    return rc;
}

static int http_put(struct store *s, const struct store_put *put)
{
    return read_only(s, "writing");
}

static int http_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return read_only(s, "listing");
}

static int http_remove(struct store *s, const char *key)
{
    return read_only(s, "removing");
}

static void http_close(struct store *s)
{
    http_free(((struct store_http *)s)->http);
    free((char *)s->url);
    free(s);
}

int store_http_open(const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_ops ops = {
        .get = http_get,
        .get_small = http_get_small,
        .put = http_put,
        .stat = http_stat,
        .list = http_list,
        .remove = http_remove,
        .close = http_close,
    };
    int rc = http_check_url("store", url, "restrict access by network");
    if (rc)
        return rc;
    size_t len = strlen(url);
    while (url[len - 1] == '/')
        len--;
    CLEANUP_FREE struct store_http *t = calloc(1, sizeof *t);
    CLEANUP_FREE char *copy = strndup(url, len);
    if (!t || !copy)
        return error_no_memory();
    struct http_config config = {0};
    if (options)
        store_http_config(options, &config);
    rc = http_new(&config, &t->http);
    if (rc)
        return rc;
    t->base = (struct store){.ops = &ops, .url = steal_ptr(&copy)};
    *out = &steal_ptr(&t)->base;
    return 0;
}

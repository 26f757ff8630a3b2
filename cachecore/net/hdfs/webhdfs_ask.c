/* An operation is a request to a NameNode and, for file data, a second one to the address in its answer:
 *
 *   webhdfs_perform --> webhdfs_ask:     the NameNodes in turn, beginning with the one that answered last
 *          ^  |
 *          |  +-------> webhdfs_follow:  the DataNode in the redirect's Location
 *          |                 |
 *          +--- bury it -----+ unreachable; at most DATANODES_TRIED times
 *
 * A Location is used as it is, except that bytes of 0x80 and above are escaped; a redirect from TLS to plain HTTP is
 * refused. HttpFS answers reads itself and redirects writes to itself, which tells it apart from a NameNode.
 *
 * Unreachable DataNodes are kept in `dead` for DEAD_MS and named in excludedatanodes= of every request. If the NameNode
 * then knows no other, the list is emptied, since a suspect DataNode is better than none. The mutex guards that list
 * alone and is never held across a request.
 */
#include "net/hdfs/webhdfs_internal.h"

#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"

enum { DEAD_MS = 120000, DATANODES_TRIED = 4 };

/* ------------------------------------------------------------------ dead DataNodes */

void webhdfs_host_of(const char *url, char out[WEBHDFS_HOST_MAX])
{
    const char *begin = strstr(url, "://");
    begin = begin ? begin + 3 : "";
    snprintf(out, WEBHDFS_HOST_MAX, "%.*s", (int)GR_MIN(strcspn(begin, "/?#"), (size_t)WEBHDFS_HOST_MAX - 1), begin);
}

static bool is_namenode(const struct webhdfs *w, const char *host)
{
    for (size_t i = 0; i < w->address.count; i++)
        if (!strcmp(w->address.namenodes[i], host))
            return true;
    return false;
}

/* Add the host of url to the dead DataNodes, in place of the one whose time ends first. NameNodes are never added:
 * HttpFS serves data itself. */
static void bury(struct webhdfs *w, const char *url)
{
    struct dead_datanode d = {.until_ms = clock_now_ms() + DEAD_MS};
    webhdfs_host_of(url, d.host);
    if (is_namenode(w, d.host))
        return;
    SCOPED_LOCK(&w->mutex);
    size_t oldest = 0;
    for (size_t i = 0; i < WEBHDFS_DEAD_MAX; i++) {
        if (!strcmp(w->dead[i].host, d.host)) {
            oldest = i;
            break;
        }
        if (w->dead[i].until_ms < w->dead[oldest].until_ms)
            oldest = i;
    }
    w->dead[oldest] = d;
}

/* Append "&excludedatanodes=..." if there are dead DataNodes; *out_any says so. */
static int add_dead(struct webhdfs *w, struct bytes *url, bool *out_any)
{
    uint64_t now = clock_now_ms();
    *out_any = false;
    int rc = 0;
    SCOPED_LOCK(&w->mutex);
    for (size_t i = 0; !rc && i < WEBHDFS_DEAD_MAX; i++) {
        if (w->dead[i].until_ms <= now)
            continue;
        rc = bytes_printf(url, "%s", *out_any ? "%2C" : "&excludedatanodes=");
        if (!rc)
            rc = http_percent_encode(url, w->dead[i].host, strlen(w->dead[i].host), false);
        *out_any = true;
    }
    return rc;
}

/* ------------------------------------------------------------------ requests */

/* The sink for http_do: pass the bytes on to the flow's sink, never more than `most`. */
static int pass_on(void *arg, const void *data, size_t len)
{
    struct webhdfs_flow *f = arg;
    int64_t announced = f->resp->content_length;
    /* Stop before the first byte if the file is shorter than the range: the caller wants all or none. */
    f->ends_early = !f->done && f->most != UINT64_MAX && announced >= 0 && (uint64_t)announced < f->most;
    if (f->ends_early)
        return -ECANCELED;
    if (len > f->most - f->done)
        return error_set(-EIO, "the server sent more bytes than were asked for");
    int rc = f->sink(f->arg, data, len);
    f->done += rc ? 0 : len;
    return rc;
}

/* Send one request. with_body: send the question's body, for a DataNode. */
static int webhdfs_ask_run(struct webhdfs *w, const struct webhdfs_question *q, const char *url, bool with_body,
                           struct http_response *resp)
{
    struct http_request request = {
        .method = q->method, .url = url, .fresh = q->fresh, .lookup = !q->flow && !with_body};
    if (q->flow) {
        request.sink = pass_on;
        request.sink_arg = q->flow;
    }
    if (with_body) {
        request.headers[0] = "Content-Type: application/octet-stream";
        request.headers[1] = "Expect:"; /* DataNodes do not answer Expect; curl would wait a second */
        request.body = q->body;
        request.body_len = q->body_len;
    }
    resp->body.max = q->body_max;
    return http_do(w->http, &request, resp);
}

/* Write address and path to out, for sentences. */
static void name_of(const struct webhdfs *w, const struct webhdfs_question *q, char out[ERROR_TEXT_MAX])
{
    snprintf(out, ERROR_TEXT_MAX, "%s%.*s", w->address.name, (int)GR_MIN(q->path_len, (size_t)200), q->path);
}

/* Put the path before the sentence of http_do's failure; a sink's own sentence stays as it is. */
static int transport_failure(const struct webhdfs *w, const struct webhdfs_question *q,
                             const struct http_response *resp, int rc)
{
    char what[ERROR_TEXT_MAX];
    if (!rc || resp->sink_stopped)
        return rc;
    name_of(w, q, what);
    return error_prefix(rc, "%s", what);
}

/* Return the -errno of an answer that is not 2xx, with its sentence. */
static int webhdfs_ask_refusal(const struct webhdfs *w, const struct webhdfs_question *q, const char *url,
                               const struct http_response *resp, bool *out_standby)
{
    char what[ERROR_TEXT_MAX], host[WEBHDFS_HOST_MAX];
    name_of(w, q, what);
    webhdfs_host_of(url, host);
    const struct webhdfs_refusal r = {.what = what, .host = host, .identity = w->identity, .secret = w->secret};
    return webhdfs_error(&r, resp, out_standby);
}

/* Make the URL of a question to one NameNode. */
static int question_url(struct webhdfs *w, const struct webhdfs_question *q, size_t namenode, struct bytes *url,
                        bool *out_excluding)
{
    bytes_clear(url);
    *out_excluding = false;
    int rc = bytes_printf(url, "http%s://%s/webhdfs/v1", w->address.tls ? "s" : "", w->address.namenodes[namenode]);
    if (!rc && !q->path_len)
        rc = bytes_printf(url, "/");
    if (!rc)
        rc = http_percent_encode(url, q->path, q->path_len, true);
    if (!rc)
        rc = bytes_printf(url, "?op=%s&%s%s", q->op, w->identity, q->query);
    if (!rc && q->datanode)
        rc = add_dead(w, url, out_excluding);
    if (rc == -EMSGSIZE)
        return error_set(-EINVAL, "%s: a path is too long", w->address.name);
    return rc ? rc : bytes_string(url) ? 0 : error_no_memory();
}

/* Ask one NameNode. *out_next: it is down or standby; another may answer. */
static int ask_one(struct webhdfs *w, const struct webhdfs_question *q, size_t namenode, struct bytes *url,
                   struct http_response *resp, bool *out_next)
{
    bool excluding;
    *out_next = false;
    int rc = question_url(w, q, namenode, url, &excluding);
    if (rc)
        return rc;
    rc = webhdfs_ask_run(w, q, (const char *)url->data, false, resp);
    if (rc) {
        *out_next = webhdfs_passing(rc) && !resp->sink_stopped && !(q->flow && q->flow->done);
        return transport_failure(w, q, resp, rc);
    }
    if ((resp->status >= 200 && resp->status < 300) || (q->datanode && webhdfs_redirects(resp)))
        return 0;
    rc = webhdfs_ask_refusal(w, q, (const char *)url->data, resp, out_next);
    if (webhdfs_passing(rc) && excluding) {
        SCOPED_LOCK(&w->mutex);
        memset(w->dead, 0, sizeof w->dead);
    }
    return rc;
}

int webhdfs_ask(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url, struct http_response *resp)
{
    size_t first = atomic_load(&w->current);
    int rc = 0;
    for (size_t i = 0; i < w->address.count; i++) {
        size_t namenode = (first + i) % w->address.count;
        bool next;
        rc = ask_one(w, q, namenode, url, resp, &next);
        if (!rc && i)
            atomic_store(&w->current, namenode);
        if (!next)
            return rc;
    }
    return rc;
}

/* Make the URL of a redirect's Location. Servers put paths there unescaped, perhaps in UTF-8; only the bytes that no
 * URL may contain are escaped, so that what is escaped already stays as it is. */
static int take_location(const struct webhdfs *w, const struct webhdfs_question *q, const char *location,
                         struct bytes *url)
{
    char what[ERROR_TEXT_MAX];
    int rc = 0;
    bytes_clear(url);
    for (const char *p = location ? location : ""; !rc && *p; p++)
        rc = (unsigned char)*p < 0x80 ? bytes_append(url, p, 1) : bytes_printf(url, "%%%02X", (unsigned char)*p);
    if (rc || !bytes_string(url))
        return rc ? rc : error_no_memory();
    const char *text = (const char *)url->data;
    if (!strncmp(text, "https://", 8) || (!strncmp(text, "http://", 7) && !w->address.tls))
        return 0;
    name_of(w, q, what);
    return error_set(-EACCES, "%s: the NameNode redirects %s, which is not followed", what,
                     strncmp(text, "http://", 7) ? "to no HTTP address" : "from TLS to a plain address");
}

int webhdfs_follow(struct webhdfs *w, const struct webhdfs_question *q, struct bytes *url, struct http_response *resp,
                   bool *out_again)
{
    bool standby;
    int rc = take_location(w, q, resp->location, url);
    if (rc)
        return rc;
    rc = webhdfs_ask_run(w, q, (const char *)url->data, q->body != NULL, resp);
    if (rc && webhdfs_passing(rc) && !resp->sink_stopped) {
        bury(w, (const char *)url->data);
        *out_again = !(q->flow && q->flow->done);
    }
    if (rc || (resp->status >= 200 && resp->status < 300))
        return transport_failure(w, q, resp, rc);
    rc = webhdfs_ask_refusal(w, q, (const char *)url->data, resp, &standby);
    /* The NameNode knew the file a moment ago. Only the NameNode may say that it is gone, so try again. */
    return rc == -ENOENT ? error_set(-EAGAIN, "%s", error_text()) : rc;
}

int webhdfs_perform(struct webhdfs *w, const struct webhdfs_question *q, struct http_response *resp)
{
    CLEANUP(bytes_wipe) struct bytes url = BYTES_INIT(WEBHDFS_URL_MAX); /* it may contain a token */
    bool again = true;
    int rc = 0;
    for (unsigned i = 0; again && i < DATANODES_TRIED; i++) {
        again = false;
        rc = webhdfs_ask(w, q, &url, resp);
        if (!rc && webhdfs_redirects(resp))
            rc = webhdfs_follow(w, q, &url, resp, &again);
    }
    return rc;
}

int webhdfs_named(const struct webhdfs *w, const struct webhdfs_question *q, int rc)
{
    char what[ERROR_TEXT_MAX];
    if (!rc)
        return 0;
    name_of(w, q, what);
    return error_prefix(rc, "%s", what);
}

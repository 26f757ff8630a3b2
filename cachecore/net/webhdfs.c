/* One request of ours is a question to a NameNode and, for bytes, a second one to wherever its answer points:
 *
 *   ask()      the NameNodes in turn, beginning with the one that answered last
 *   follow()   the Location as it is: bytes of 0x80 and above are escaped, nothing else; never from TLS to plain
 *
 * HttpFS answers a read itself; a write it redirects to itself, which is how it is told apart.
 *
 * DataNodes that could not be reached stand in `dead` for a while and in excludedatanodes= of every question. When the
 * NameNode then knows no other, the list is emptied: better a dead one than none. The mutex guards that list alone and
 * is never held across a request.
 */
#include "net/webhdfs.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/webhdfs_error.h"

enum { URL_MAX = 512 << 10, DEAD_MAX = 8, HOST_MAX = 272, DEAD_MS = 120000, DATANODES_TRIED = 4 };

struct dead_datanode {
    char host[HOST_MAX]; /* "HOST:PORT" */
    uint64_t until_ms;
};

struct webhdfs {
    struct hdfs_address address;
    struct http *http;
    char *identity; /* user.name=… or delegation=… */
    bool secret;    /* the latter */
    _Atomic size_t current;
    pthread_mutex_t mutex; /* guards dead */
    struct dead_datanode dead[DEAD_MAX];
};

static int out_of_memory(void)
{
    return error_set(-ENOMEM, "out of memory for HDFS");
}

int webhdfs_new(const char *url, const struct webhdfs_config *config, struct webhdfs **out)
{
    struct webhdfs *w = calloc(1, sizeof *w);
    if (!w)
        return out_of_memory();
    pthread_mutex_init(&w->mutex, NULL);
    int rc = hdfs_address_parse(url, &w->address);
    if (!rc)
        rc = hdfs_address_identity(&w->address, config->token_file, &w->identity, &w->secret);
    if (!rc)
        rc = http_new(&config->http, &w->http);
    if (rc) {
        webhdfs_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

void webhdfs_free(struct webhdfs *w)
{
    if (!w)
        return;
    http_free(w->http);
    hdfs_address_release(&w->address);
    if (w->identity)
        explicit_bzero(w->identity, strlen(w->identity));
    free(w->identity);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

const struct hdfs_address *webhdfs_address(const struct webhdfs *w)
{
    return &w->address;
}

/* ------------------------------------------------------------------ dead DataNodes */

/* "HOST:PORT" of an http(s) URL. */
static void host_of(const char *url, char out[HOST_MAX])
{
    const char *begin = strstr(url, "://");
    begin = begin ? begin + 3 : "";
    snprintf(out, HOST_MAX, "%.*s", (int)GR_MIN(strcspn(begin, "/?#"), (size_t)HOST_MAX - 1), begin);
}

static bool is_namenode(const struct webhdfs *w, const char *host)
{
    for (size_t i = 0; i < w->address.count; i++)
        if (!strcmp(w->address.namenodes[i], host))
            return true;
    return false;
}

/* Remember it in place of the one whose time ends first. */
static void bury(struct webhdfs *w, const char *url)
{
    struct dead_datanode d = {.until_ms = clock_now_ms() + DEAD_MS};
    host_of(url, d.host);
    if (is_namenode(w, d.host))
        return;
    SCOPED_LOCK(&w->mutex);
    size_t oldest = 0;
    for (size_t i = 0; i < DEAD_MAX; i++) {
        if (!strcmp(w->dead[i].host, d.host)) {
            oldest = i;
            break;
        }
        if (w->dead[i].until_ms < w->dead[oldest].until_ms)
            oldest = i;
    }
    w->dead[oldest] = d;
}

/* Append &excludedatanodes=…; *out_any: there are some. */
static int add_dead(struct webhdfs *w, struct bytes *url, bool *out_any)
{
    uint64_t now = clock_now_ms();
    *out_any = false;
    int rc = 0;
    SCOPED_LOCK(&w->mutex);
    for (size_t i = 0; !rc && i < DEAD_MAX; i++) {
        if (w->dead[i].until_ms <= now)
            continue;
        rc = bytes_printf(url, "%s", *out_any ? "%2C" : "&excludedatanodes=");
        if (!rc)
            rc = http_percent_encode(url, w->dead[i].host, strlen(w->dead[i].host), false);
        *out_any = true;
    }
    return rc;
}

static void unbury_all(struct webhdfs *w)
{
    SCOPED_LOCK(&w->mutex);
    memset(w->dead, 0, sizeof w->dead);
}

/* ------------------------------------------------------------------ requests */

/* A question. Its answer's bytes go to the flow, when there is one, else into the response. */
struct flow {
    http_sink *sink;
    void *arg;
    uint64_t done, most; /* bytes handed on; no more than so many are */
    const struct http_response *resp;
    bool ends_early; /* the file has fewer bytes, as the answer's length says: none was handed on */
};

struct question {
    const char *method, *op;
    const char *path;
    size_t path_len;
    const char *query; /* further parameters with their '&', escaped; "" */
    struct flow *flow; /* may be NULL */
    bool datanode;     /* the answer may be, or come from, a DataNode */
    size_t body_max;   /* of an answer without flow */
    const void *body;  /* for the DataNode */
    size_t body_len;
};

static int pass_on(void *arg, const void *data, size_t len)
{
    struct flow *f = arg;
    int64_t announced = f->resp->content_length;
    f->ends_early = !f->done && f->most != UINT64_MAX && announced >= 0 && (uint64_t)announced < f->most;
    if (f->ends_early)
        return -ECANCELED;
    if (len > f->most - f->done)
        return error_set(-EIO, "the server sent more bytes than were asked for");
    int rc = f->sink(f->arg, data, len);
    f->done += rc ? 0 : len;
    return rc;
}

static int run(struct webhdfs *w, const struct question *q, const char *url, bool with_body, struct http_response *resp)
{
    struct http_request request = {.method = q->method, .url = url};
    if (q->flow) {
        request.sink = pass_on;
        request.sink_arg = q->flow;
    }
    if (with_body) {
        request.headers[0] = "Content-Type: application/octet-stream";
        request.headers[1] = "Expect:"; /* DataNodes do not answer it: curl would wait a second */
        request.body = q->body;
        request.body_len = q->body_len;
    }
    resp->body.max = q->body_max;
    return http_do(w->http, &request, resp);
}

/* Address and path, for sentences. */
static void name_of(const struct webhdfs *w, const struct question *q, char out[ERROR_TEXT_MAX])
{
    snprintf(out, ERROR_TEXT_MAX, "%s%.*s", w->address.name, (int)GR_MIN(q->path_len, (size_t)200), q->path);
}

/* http_do's failure gets the path, a sink's none. */
static int transport_failure(const struct webhdfs *w, const struct question *q, const struct http_response *resp,
                             int rc)
{
    char what[ERROR_TEXT_MAX];
    if (!rc || resp->sink_stopped)
        return rc;
    name_of(w, q, what);
    return error_prefix(rc, "%s", what);
}

static int refusal(const struct webhdfs *w, const struct question *q, const char *url, const struct http_response *resp,
                   bool *out_standby)
{
    char what[ERROR_TEXT_MAX], host[HOST_MAX];
    name_of(w, q, what);
    host_of(url, host);
    const struct webhdfs_refusal r = {.what = what, .host = host, .identity = w->identity, .secret = w->secret};
    return webhdfs_error(&r, resp, out_standby);
}

static bool passing(int rc)
{
    return rc == -EAGAIN || rc == -ETIMEDOUT;
}

static int question_url(struct webhdfs *w, const struct question *q, size_t namenode, struct bytes *url,
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
    return rc ? rc : bytes_string(url) ? 0 : out_of_memory();
}

static bool redirects(const struct http_response *resp)
{
    return resp->status == 307 || resp->status == 302;
}

/* One NameNode. *out_next: another may know better. */
static int ask_one(struct webhdfs *w, const struct question *q, size_t namenode, struct bytes *url,
                   struct http_response *resp, bool *out_next)
{
    bool excluding;
    *out_next = false;
    int rc = question_url(w, q, namenode, url, &excluding);
    if (rc)
        return rc;
    rc = run(w, q, (const char *)url->data, false, resp);
    if (rc) {
        *out_next = passing(rc) && !resp->sink_stopped && !(q->flow && q->flow->done);
        return transport_failure(w, q, resp, rc);
    }
    if ((resp->status >= 200 && resp->status < 300) || (q->datanode && redirects(resp)))
        return 0;
    rc = refusal(w, q, (const char *)url->data, resp, out_next);
    if (passing(rc) && excluding)
        unbury_all(w);
    return rc;
}

/* All NameNodes in turn, until one answers. url: where the answer came from. */
static int ask(struct webhdfs *w, const struct question *q, struct bytes *url, struct http_response *resp)
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

/* A Location names a path as it is, in UTF-8 perhaps: only what no address may hold is escaped. */
static int take_location(const struct webhdfs *w, const struct question *q, const char *location, struct bytes *url)
{
    char what[ERROR_TEXT_MAX];
    int rc = 0;
    bytes_clear(url);
    for (const char *p = location ? location : ""; !rc && *p; p++)
        rc = (unsigned char)*p < 0x80 ? bytes_append(url, p, 1) : bytes_printf(url, "%%%02X", (unsigned char)*p);
    if (rc || !bytes_string(url))
        return rc ? rc : out_of_memory();
    const char *text = (const char *)url->data;
    if (!strncmp(text, "https://", 8) || (!strncmp(text, "http://", 7) && !w->address.tls))
        return 0;
    name_of(w, q, what);
    return error_set(-EACCES, "%s: the NameNode redirects %s, which is not followed", what,
                     strncmp(text, "http://", 7) ? "to no HTTP address" : "from TLS to a plain address");
}

/* The second request, to a DataNode. *out_again: it is of no use, another may be. */
static int follow(struct webhdfs *w, const struct question *q, struct bytes *url, struct http_response *resp,
                  bool *out_again)
{
    bool standby;
    int rc = take_location(w, q, resp->location, url);
    if (rc)
        return rc;
    rc = run(w, q, (const char *)url->data, q->body != NULL, resp);
    if (rc && passing(rc) && !resp->sink_stopped) {
        bury(w, (const char *)url->data);
        *out_again = !(q->flow && q->flow->done);
    }
    if (rc || (resp->status >= 200 && resp->status < 300))
        return transport_failure(w, q, resp, rc);
    rc = refusal(w, q, (const char *)url->data, resp, &standby);
    /* the NameNode knew the file a moment ago: it shall say that it is gone */
    return rc == -ENOENT ? error_set(-EAGAIN, "%s", error_text()) : rc;
}

/* A whole question with its redirect. */
static int perform(struct webhdfs *w, const struct question *q, struct http_response *resp)
{
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    bool again = true;
    int rc = 0;
    for (unsigned i = 0; again && i < DATANODES_TRIED; i++) {
        again = false;
        rc = ask(w, q, &url, resp);
        if (!rc && redirects(resp))
            rc = follow(w, q, &url, resp, &again);
    }
    if (url.data)
        explicit_bzero(url.data, url.cap); /* it may hold a token */
    return rc;
}

/* ------------------------------------------------------------------ operations */

#define CLEANUP_RESPONSE CLEANUP(http_response_release) struct http_response

static int named(const struct webhdfs *w, const struct question *q, int rc)
{
    char what[ERROR_TEXT_MAX];
    if (!rc)
        return 0;
    name_of(w, q, what);
    return error_prefix(rc, "%s", what);
}

int webhdfs_stat(struct webhdfs *w, const char *path, size_t len, struct webhdfs_page **out)
{
    CLEANUP_RESPONSE resp = {0};
    const struct question q = {.method = "GET", .op = "GETFILESTATUS", .path = path, .path_len = len, .query = ""};
    int rc = perform(w, &q, &resp);
    return rc ? rc : named(w, &q, webhdfs_status_decode(resp.body.data, resp.body.len, out));
}

int webhdfs_list(struct webhdfs *w, const char *path, size_t len, const char *start_after, struct webhdfs_page **out)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP_BYTES query = BYTES_INIT(URL_MAX);
    int rc = start_after ? bytes_printf(&query, "&startAfter=") : 0;
    if (!rc && start_after)
        rc = http_percent_encode(&query, start_after, strlen(start_after), false);
    if (rc || !bytes_string(&query))
        return out_of_memory();
    const struct question q = {.method = "GET",
                               .op = "LISTSTATUS_BATCH",
                               .path = path,
                               .path_len = len,
                               .query = (const char *)query.data,
                               .body_max = WEBHDFS_BODY_MAX};
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    rc = perform(w, &q, &resp);
    if (!rc)
        rc = named(w, &q, webhdfs_list_decode(resp.body.data, resp.body.len, &page));
    if (rc)
        return rc;
    size_t count = webhdfs_page_count(page);
    if (start_after && count && !strcmp(webhdfs_page_status(page, count - 1)->name, start_after))
        return named(w, &q, error_set(-EBADMSG, "the server's listing does not end"));
    *out = steal_ptr(&page);
    return 0;
}

/* A read that failed may have begun behind the end, which servers report in ways that look passing. */
static bool behind_end(struct webhdfs *w, const struct question *q, uint64_t off)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    struct error failed;
    error_take(&failed, -EAGAIN);
    int rc = webhdfs_stat(w, q->path, q->path_len, &page);
    (void)error_restore(&failed);
    return !rc && webhdfs_page_status(page, 0)->size <= off;
}

int webhdfs_read(struct webhdfs *w, const char *path, size_t len, uint64_t off, uint64_t n, http_sink *sink, void *arg,
                 uint64_t *out_done)
{
    CLEANUP_RESPONSE resp = {0};
    char query[96];
    struct flow flow = {.sink = sink, .arg = arg, .most = n, .resp = &resp};
    int used = snprintf(query, sizeof query, "&offset=%llu", (unsigned long long)off);
    if (n != UINT64_MAX)
        snprintf(query + used, sizeof query - (size_t)used, "&length=%llu", (unsigned long long)n);
    const struct question q = {
        .method = "GET", .op = "OPEN", .path = path, .path_len = len, .query = query, .flow = &flow, .datanode = true};
    int rc = off > INT64_MAX || (n != UINT64_MAX && n > INT64_MAX) ? 0 : perform(w, &q, &resp);
    *out_done = flow.done;
    if (flow.ends_early)
        return 0;
    if (passing(rc) && !resp.sink_stopped && !flow.done && off && behind_end(w, &q, off))
        return 0;
    return rc;
}

/* Whether a redirect leads back to the one who gave it, as HttpFS does. */
static bool is_gateway(const struct bytes *url, const struct http_response *resp)
{
    char asked[HOST_MAX], told[HOST_MAX];
    host_of((const char *)url->data, asked);
    host_of(resp->location ? resp->location : "", told);
    return !strcmp(asked, told);
}

int webhdfs_create(struct webhdfs *w, const char *path, const void *data, size_t n)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP_BYTES url = BYTES_INIT(URL_MAX);
    const struct question q = {.method = "PUT",
                               .op = "CREATE",
                               .path = path,
                               .path_len = strlen(path),
                               .query = "&overwrite=false",
                               .datanode = true,
                               .body = n ? data : "",
                               .body_len = n};
    bool again;
    int rc = ask(w, &q, &url, &resp);
    if (!rc && redirects(&resp) && is_gateway(&url, &resp))
        rc = named(w, &q,
                   error_set(-ENOTSUP, "HttpFS cannot replace a name in one step: write through the NameNode's "
                                       "own address (port 9870)"));
    else if (!rc && redirects(&resp))
        rc = follow(w, &q, &url, &resp, &again); /* the file may be there now: the caller takes another name */
    else if (!rc)
        rc = named(w, &q, error_set(-EIO, "the NameNode names no DataNode to write to"));
    if (url.data)
        explicit_bzero(url.data, url.cap);
    return rc;
}

static int change(struct webhdfs *w, const char *method, const char *op, const char *path, const char *query,
                  struct http_response *resp)
{
    const struct question q = {.method = method, .op = op, .path = path, .path_len = strlen(path), .query = query};
    return perform(w, &q, resp);
}

int webhdfs_mkdirs(struct webhdfs *w, const char *path)
{
    CLEANUP_RESPONSE resp = {0};
    return change(w, "PUT", "MKDIRS", path, "", &resp);
}

int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, bool replace)
{
    CLEANUP_RESPONSE resp = {0};
    CLEANUP_BYTES query = BYTES_INIT(URL_MAX);
    int rc = bytes_printf(&query, "&renameoptions=%s&destination=", replace ? "OVERWRITE" : "NONE");
    if (!rc)
        rc = http_percent_encode(&query, to, strlen(to), false);
    if (rc || !bytes_string(&query))
        return out_of_memory();
    rc = change(w, "PUT", "RENAME", from, (const char *)query.data, &resp);
    /* a server that knows the options answers without a body */
    if (!rc && resp.body.len)
        return error_set(-ENOTSUP, "%s%.200s: the server does not know RENAME with options", w->address.name, to);
    return rc;
}

int webhdfs_delete(struct webhdfs *w, const char *path)
{
    CLEANUP_RESPONSE resp = {0};
    int rc = change(w, "DELETE", "DELETE", path, "", &resp);
    return rc == -ENOENT ? 0 : rc;
}

/* One table maps method and path to a handler. A document is made at once, on the daemon's thread; what may take longer
 * becomes a job (control_job.c). A body is collected for the routes that expect one, and skipped for the others.
 *
 * A request's state, which libmicrohttpd keeps for us between calls, is an upload where a body is collected, and one of
 * http_daemon.c's markers elsewhere. */
#include "server/control_internal.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "format/json_name.h"
#include "server/http_daemon.h"

enum { DOCUMENT_MAX = METRICS_DOCUMENT_MAX /* some 150,000 exports in a status */ };

/* A request that has arrived completely. */
struct request {
    struct control_routes *routes;
    struct MHD_Connection *connection;
    struct bytes *body; /* NULL: the route takes none */
    const char *rest;   /* of the URL's path, after the route's path: an export's name */
    bool by_job;        /* set by the handler: a job answers */
};

/* A row of the table. */
struct route {
    const char *path, *method; /* a path that ends in '/' is a prefix */
    /* Queue the answer. -errno with a sentence when nothing was queued. */
    int (*answer)(struct request *r, const struct route *route);
    union {
        int (*document)(const struct control_routes *routes, struct bytes *out);
        enum control_bulk_operation operation;
    };
    const char *type; /* a document's content type */
    size_t body_max;  /* bytes; 0: no body is expected */
};

/* Queue the thread's error as JSON, with the HTTP status that fits rc. */
static enum MHD_Result answer_error(struct MHD_Connection *connection, int rc)
{
    unsigned status = rc == -EINVAL   ? MHD_HTTP_BAD_REQUEST
                      : rc == -ENOENT ? MHD_HTTP_NOT_FOUND
                      : rc == -EBUSY  ? MHD_HTTP_SERVICE_UNAVAILABLE
                                      : MHD_HTTP_INTERNAL_SERVER_ERROR;
    CLEANUP_JSON json_t *object = json_object();
    json_object_set_new(object, "error", json_lossy(error_text()));
    CLEANUP_FREE char *text = json_dumps(object, JSON_COMPACT);
    return text ? http_daemon_answer(connection, status, "application/json", text, strlen(text), false) : MHD_NO;
}

static int queued(enum MHD_Result result)
{
    return result == MHD_YES ? 0 : error_set(-EIO, "control: an answer cannot be queued");
}

/* ---- documents ---- */

static int metrics_document(const struct control_routes *routes, struct bytes *out)
{
    return metrics_write(routes->stack, routes->added, routes->reports, out);
}

static int status_document(const struct control_routes *routes, struct bytes *out)
{
    return control_status(routes->stack, routes->added, routes->reports, routes->history, out);
}

/* Make a document and queue it. */
static int answer_document(struct request *r, const struct route *route)
{
    CLEANUP_BYTES body = BYTES_INIT(DOCUMENT_MAX);
    if (route->document(r->routes, &body))
        return error_no_memory();
    return queued(http_daemon_answer(r->connection, MHD_HTTP_OK, route->type, body.data, body.len, false));
}

/* ---- parameters ---- */

/* A query parameter that a route knows, and where its value goes: a string of libmicrohttpd's, valid while the request
 * is answered. */
struct parameter {
    const char *key, **value;
};

/* The parsing of one request's parameters; rc is the first error. */
struct parameters {
    const struct parameter *known;
    size_t count;
    int rc;
};

/* Take one query parameter. Unknown and repeated ones are refused, so that a misspelt "pinned" is not ignored. */
static enum MHD_Result take_parameter(void *arg, enum MHD_ValueKind kind, const char *key, size_t key_len,
                                      const char *value, size_t len)
{
    struct parameters *p = arg;
    const char **at = NULL;
    for (size_t i = 0; i < p->count; i++)
        if (!strcmp(key, p->known[i].key))
            at = p->known[i].value;
    if (!at || *at || strlen(key) != key_len)
        p->rc = error_set(-EINVAL, "parameter '%.40s' is unknown or given twice", key);
    else if (!value || strlen(value) != len)
        p->rc = error_set(-EINVAL, "parameter '%.40s' has no value, or a NUL in it", key);
    else
        *at = value;
    return p->rc ? MHD_NO : MHD_YES;
}

static int take_parameters(struct MHD_Connection *connection, const struct parameter *known, size_t count)
{
    struct parameters p = {.known = known, .count = count};
    MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, take_parameter, &p);
    return p.rc;
}

/* ---- jobs ---- */

/* Answer by a job. arg is taken in any case. */
static int answer_by_job(struct request *r, struct control_jobs *jobs, const char *store, control_work *work, void *arg,
                         control_free *free_arg)
{
    int rc = control_jobs_start(jobs, r->connection, store, work, arg, free_arg);
    r->by_job = !rc;
    return rc && rc != -EBUSY ? error_set(rc, "out of memory or threads") : rc;
}

/* The cache operations share one handler; the route's row has the operation. */
static int answer_bulk_operation(struct request *r, const struct route *route)
{
    struct control_request c = {.operation = route->operation};
    const struct parameter known[] = {
        {"export", &c.export}, {"glob", &c.glob}, {"all", &c.all}, {"pinned", &c.pinned}, {"known", &c.known}};
    struct control_task *task;
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_cache_prepare(r->routes->stack, &c, &task);
    return rc ? rc : answer_by_job(r, r->routes->jobs, "", control_cache_run, task, control_cache_free);
}

static int answer_warm(struct request *r, const struct route *route)
{
    struct control_warm_request c = {0};
    const struct parameter known[] = {{"export", &c.export},  {"digest", &c.digest}, {"what", &c.what},
                                      {"since", &c.since},    {"dry", &c.dry},       {"bwlimit", &c.bwlimit},
                                      {"cluster", &c.cluster}};
    struct control_warm *warm;
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_warm_prepare(r->routes->stack, &c, r->body, &warm);
    return rc ? rc : answer_by_job(r, r->routes->jobs, "", control_warm_run, warm, control_warm_free);
}

static int answer_resident(struct request *r, const struct route *route)
{
    const char *export = NULL, *digest = NULL;
    const struct parameter known[] = {{"export", &export}, {"digest", &digest}};
    struct control_resident *resident;
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_resident_prepare(r->routes->stack, export, digest, &resident);
    return rc ? rc : answer_by_job(r, r->routes->jobs, "", control_resident_run, resident, control_resident_free);
}

static int answer_trace(struct request *r, const struct route *route)
{
    const char *export = NULL, *digest = NULL;
    const struct parameter known[] = {{"export", &export}, {"digest", &digest}};
    struct control_trace *trace;
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_trace_prepare(r->routes->stack, export, digest, &trace);
    return rc ? rc : answer_by_job(r, r->routes->jobs, "", control_trace_run, trace, control_trace_free);
}

/* Answer in the form of a job, a line of JSON, though it took no time: clients read all such answers alike. */
static int answer_done(struct request *r)
{
    static const char done[] = "{\"result\":{\"ok\":true}}\n";
    return queued(http_daemon_answer(r->connection, MHD_HTTP_OK, "application/x-ndjson", done, sizeof done - 1, false));
}

static int answer_trace_end(struct request *r, const struct route *route)
{
    const char *export = NULL, *digest = NULL;
    const struct parameter known[] = {{"export", &export}, {"digest", &digest}};
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_trace_end(r->routes->stack, export, digest);
    return rc ? rc : answer_done(r);
}

/* A number of a report. */
static int take_number(const char *name, const char *text, uint64_t *out)
{
    return text ? text_parse_uint(name, text, 0, INT64_MAX, out) : error_set(-EINVAL, "%s= is missing", name);
}

/* Take a report of that name. NULL: what it was about is gone. */
static int answer_report(struct request *r, enum report_kind kind, const char *name, const union report *report)
{
    struct reports *reports = r->routes->reports;
    if (!reports)
        return error_set(-EINVAL, "this server takes no reports");
    if (!report) {
        reports_remove(reports, kind, name);
        return answer_done(r);
    }
    int rc = reports_put(reports, kind, name, report, clock_now_ms());
    return rc ? rc : answer_done(r);
}

/* A follower reports, or its directory is gone. */
static int answer_followed(struct request *r, const struct route *route)
{
    const char *dir = NULL, *versions = NULL, *switches = NULL, *behind = NULL;
    const struct parameter known[] = {
        {"dir", &dir}, {"versions", &versions}, {"switches", &switches}, {"behind", &behind}};
    union report report = {0};
    bool put = !strcmp(route->method, MHD_HTTP_METHOD_PUT);
    int rc = take_parameters(r->connection, known, put ? GR_ARRAY_SIZE(known) : 1);
    if (!rc && (!dir || *dir != '/' || strlen(dir) >= PATH_MAX))
        rc = error_set(-EINVAL, "dir= is the absolute path of a directory");
    if (!rc && put)
        rc = take_number("versions", versions, &report.followed.versions);
    if (!rc && put)
        rc = take_number("switches", switches, &report.followed.switches);
    if (!rc && put)
        rc = take_number("behind", behind, &report.followed.behind_s);
    return rc ? rc : answer_report(r, REPORT_FOLLOWED, dir, put ? &report : NULL);
}

/* The reconnect daemon of a device reports, or the device was detached. */
static int answer_kept(struct request *r, const struct route *route)
{
    const char *device = NULL, *pid = NULL, *reconnects = NULL, *failed = NULL, *error = NULL;
    const struct parameter known[] = {
        {"device", &device}, {"pid", &pid}, {"reconnects", &reconnects}, {"failed", &failed}, {"error", &error}};
    union report report;
    bool put = !strcmp(route->method, MHD_HTTP_METHOD_PUT);
    int rc = take_parameters(r->connection, known, put ? GR_ARRAY_SIZE(known) : 1);
    if (!rc && (!device || strncmp(device, "/dev/", strlen("/dev/")) != 0 || strlen(device) >= NAME_MAX))
        rc = error_set(-EINVAL, "device= is the path of a device in /dev");
    if (!rc && put)
        rc = take_number("pid", pid, &report.kept.pid);
    if (!rc && put)
        rc = take_number("reconnects", reconnects, &report.kept.reconnects);
    if (!rc && put)
        rc = take_number("failed", failed, &report.kept.failed_s);
    snprintf(report.kept.error, sizeof report.kept.error, "%s", error ? error : "");
    return rc ? rc : answer_report(r, REPORT_KEPT, device, put ? &report : NULL);
}

/* A supervisor that is about to kill this process asks again and again until all fetched chunks are written to the
 * cache. Nothing new is kept meanwhile, or that would never end under load. */
static int answer_quiesce(struct request *r, const struct route *route)
{
    char text[64];
    struct cache *cache = stack_cache(r->routes->stack);
    cache_keep_no_more(cache);
    size_t left = cache_unwritten(cache);
    int len = snprintf(text, sizeof text, "{\"unwritten_bytes\":%zu}\n", left);
    return queued(http_daemon_answer(r->connection, left ? MHD_HTTP_ACCEPTED : MHD_HTTP_OK, "application/json", text,
                                     (size_t)len, true));
}

/* The server goes on answering other nodes from its cache, until it is stopped. */
static int answer_leave(struct request *r, const struct route *route)
{
    static const char text[] = "{\"leaving\":true}\n";
    if (!stack_is_node(r->routes->stack))
        return error_set(-EINVAL, "this server is not one of several nodes (peer-listen): stop it as it is");
    stack_leave(r->routes->stack);
    return queued(http_daemon_answer(r->connection, MHD_HTTP_OK, "application/json", text, sizeof text - 1, false));
}

/* Changes of exports have job slots separate from those of warming (control_exports.c). */
static int answer_exports(struct request *r, const struct route *route)
{
    struct control_exports_request c = {.name = r->rest, .keys = r->body};
    const struct parameter known[] = {
        {"image", &c.image}, {"mount", &c.mount}, {"fence", &c.fence}, {"quota", &c.quota}, {"warm", &c.warm}};
    struct control_exports *exports;
    int rc = take_parameters(r->connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_exports_prepare(r->routes->added, &c, !strcmp(route->method, MHD_HTTP_METHOD_PUT), &exports);
    if (rc)
        return rc;
    return answer_by_job(r, r->routes->changes, control_exports_store(exports), control_exports_run, exports,
                         control_exports_free);
}

/* ---- routes ---- */

static const struct route table[] = {
    {"/metrics", MHD_HTTP_METHOD_GET, answer_document, {.document = metrics_document}, METRICS_TYPE, 0},
    {"/status", MHD_HTTP_METHOD_GET, answer_document, {.document = status_document}, "application/json", 0},
    {"/cache", MHD_HTTP_METHOD_GET, answer_bulk_operation, {.operation = CONTROL_LS}, NULL, 0},
    {"/cache/evict", MHD_HTTP_METHOD_POST, answer_bulk_operation, {.operation = CONTROL_EVICT}, NULL, 0},
    {"/cache/pin", MHD_HTTP_METHOD_POST, answer_bulk_operation, {.operation = CONTROL_PIN}, NULL, 0},
    {"/cache/unpin", MHD_HTTP_METHOD_POST, answer_bulk_operation, {.operation = CONTROL_UNPIN}, NULL, 0},
    {"/warm", MHD_HTTP_METHOD_POST, answer_warm, {0}, NULL, CONTROL_WARM_BODY_MAX},
    {"/resident", MHD_HTTP_METHOD_POST, answer_resident, {0}, NULL, 0},
    {"/trace", MHD_HTTP_METHOD_GET, answer_trace, {0}, NULL, 0},
    {"/trace/end", MHD_HTTP_METHOD_POST, answer_trace_end, {0}, NULL, 0},
    {"/exports/", MHD_HTTP_METHOD_PUT, answer_exports, {0}, NULL, S3_KEYS_TEXT_MAX},
    {"/exports/", MHD_HTTP_METHOD_DELETE, answer_exports, {0}, NULL, 0},
    {"/followed", MHD_HTTP_METHOD_PUT, answer_followed, {0}, NULL, 0},
    {"/followed", MHD_HTTP_METHOD_DELETE, answer_followed, {0}, NULL, 0},
    {"/kept", MHD_HTTP_METHOD_PUT, answer_kept, {0}, NULL, 0},
    {"/kept", MHD_HTTP_METHOD_DELETE, answer_kept, {0}, NULL, 0},
    {"/leave", MHD_HTTP_METHOD_POST, answer_leave, {0}, NULL, 0},
    {"/quiesce", MHD_HTTP_METHOD_POST, answer_quiesce, {0}, NULL, 0},
};

/* Return the row for a URL and a method, or for a URL alone when method is NULL. */
static const struct route *find_route(const char *url, const char *method)
{
    for (const struct route *route = table; route < table + GR_ARRAY_SIZE(table); route++) {
        size_t len = strlen(route->path);
        bool fits = route->path[len - 1] == '/' ? !strncmp(url, route->path, len) : !strcmp(url, route->path);
        if (fits && (!method || !strcmp(method, route->method)))
            return route;
    }
    return NULL;
}

/* Answer 405 where the path exists with another method, else 404 with a list of the paths. */
static enum MHD_Result answer_unknown(struct MHD_Connection *connection, const char *url)
{
    CLEANUP_BYTES text = BYTES_INIT(ERROR_TEXT_MAX);
    if (find_route(url, NULL))
        return http_daemon_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "this path takes another method\n",
                                       false);
    int rc = bytes_printf(&text, "not found; there are");
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(table); i++)
        rc = bytes_printf(&text, " %s", table[i].path);
    if (!rc)
        rc = bytes_printf(&text, "\n");
    return rc ? MHD_NO : http_daemon_answer(connection, MHD_HTTP_NOT_FOUND, "text/plain", text.data, text.len, false);
}

/* ---- bodies ---- */

/* The body of a request while it arrives. */
struct upload {
    struct bytes body;
    struct error error; /* why it is skipped; the client is told when it has sent everything */
};

/* Begin a body. At most CONTROL_JOBS_MAX are kept in memory at once; further ones are skipped and answered -EBUSY. */
static struct upload *upload_new(struct control_routes *r, size_t max)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->body = (struct bytes)BYTES_INIT(max);
    uint8_t *room; /* keys: at once, since a buffer that grows leaves copies behind */
    if (max <= S3_KEYS_TEXT_MAX && bytes_reserve(&u->body, max, &room))
        error_take(&u->error, error_no_memory());
    if (r->uploads++ >= CONTROL_JOBS_MAX)
        error_take(&u->error,
                   error_set(-EBUSY, "%d such requests are being sent already; try again", CONTROL_JOBS_MAX));
    return u;
}

void control_routes_done(struct control_routes *r, void *state)
{
    struct upload *u = state;
    if (!u || http_daemon_owns(u))
        return;
    r->uploads--;
    bytes_wipe(&u->body); /* it may hold keys */
    free(u);
}

/* ---- requests ---- */

/* Take a part of the body; after a failure, skip it. Returns true at the call with which the request is complete.
 * *state NULL afterwards: out of memory. */
static bool control_routes_collect(struct control_routes *r, const struct route *route, const char *data,
                                   size_t *data_len, void **state)
{
    if (!route || !route->body_max)
        return http_daemon_whole(data_len, state);
    if (!*state) {
        *state = upload_new(r, route->body_max);
        return false;
    }
    struct upload *u = *state;
    bool whole = !*data_len;
    int rc = whole || u->error.code ? 0 : bytes_append(&u->body, data, *data_len);
    if (rc == -EMSGSIZE)
        rc = error_set(-EINVAL, "the body of this request may have at most %s",
                       text_format_size(u->body.max, (char[TEXT_SIZE_MAX]){""}));
    if (rc)
        error_take(&u->error, rc);
    *data_len = 0;
    return whole;
}

/* Nothing is answered before the request is complete: libmicrohttpd would close the connection of a client that still
 * sends its body. */
enum MHD_Result control_routes_take(struct control_routes *r, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *data, size_t *data_len, void **state,
                                    bool *out_by_job)
{
    const struct route *route = find_route(url, method);
    bool whole = control_routes_collect(r, route, data, data_len, state);
    if (!whole)
        return *state ? MHD_YES : MHD_NO;
    if (!route)
        return answer_unknown(connection, url);
    struct upload *u = route->body_max ? *state : NULL;
    struct request request = {
        .routes = r, .connection = connection, .body = u ? &u->body : NULL, .rest = url + strlen(route->path)};
    int rc = u && u->error.code ? error_restore(&u->error) : route->answer(&request, route);
    *out_by_job = request.by_job;
    enum MHD_Result result = rc ? answer_error(connection, rc) : MHD_YES;
    if (u) /* now: a job may answer for hours, and would count as a body that is being sent */
        control_routes_done(r, steal_ptr(state));
    return result;
}

/* One thread of libmicrohttpd answers all browsers. The page's files are constants of the program. The document is made
 * at most once a second or so, when somebody asks for it, and all who ask in that time get the same bytes. What takes
 * longer is an action, which a job answers as on the control socket.
 *
 * A refused request is answered at once, before its body arrives, and its connection is closed. */
#include "server/console_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "net/listen.h"
#include "server/http_daemon.h"

enum {
    CONNECTIONS_MAX = 32,
    CONNECTIONS_OF_ONE_MAX = CONNECTIONS_MAX / 2, /* of one address */
    IDLE_TIMEOUT_S = 15,
    CONNECTION_MEMORY = 16 << 10, /* bytes for a request's head; of a longer one libmicrohttpd says 431 */
    FILES_MAX = 16,
    ETAG_MAX = 24,
};

#define STATUS_PATH "/api/status"
#define ACTION_HEADER "Granary-Console"

/* The requests of the control socket that the console hands on, without their "/api". */
static const char *const actions[] = {"/api/warm", "/api/cache/evict", "/api/cache/pin", "/api/cache/unpin",
                                      "/api/quiesce"};

/* Of every answer of ours: no script, style or picture from elsewhere, no frame around it, nothing guessed. */
static const char *const headers[][2] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
     "form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

/* A file of the page, ready to be sent. */
struct page {
    char etag[ETAG_MAX];
    struct MHD_Response *whole, *unchanged; /* 200 and 304 */
};

/* Constant after console_start, except for the document, which only the daemon's thread uses. */
struct console {
    struct console_access access;
    struct http_port port;
    struct console_strips *strips;
    struct console_report *report;
    struct control_routes routes;
    struct page pages[FILES_MAX];
    struct MHD_Response *document; /* NULL: none was made yet */
    uint64_t made_ms;              /* clock_now_ms */
};
DEFINE_CLEANUP(console, struct console *, console_close)

/* ---- answers ---- */

/* Make a response with the headers that all have. The mode is libmicrohttpd's. NULL: out of memory. */
static struct MHD_Response *response_new(const char *type, const void *data, size_t len,
                                         enum MHD_ResponseMemoryMode mode, const char *caching)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, (void *)data, mode);
    if (!response)
        return NULL;
    if (type)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, caching);
    for (size_t i = 0; i < GR_ARRAY_SIZE(headers); i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    return response;
}

/* A reason not to answer: an HTTP status and a sentence. */
struct refusal {
    unsigned status; /* 0: there is none */
    const char *text;
};

/* Queue a refusal; the connection ends with it. */
static enum MHD_Result refuse(struct MHD_Connection *connection, const struct refusal *refusal)
{
    struct MHD_Response *response =
        response_new("text/plain", refusal->text, strlen(refusal->text), MHD_RESPMEM_MUST_COPY, "no-store");
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (refusal->status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    return http_daemon_queue(connection, refusal->status, response);
}

/* ---- what is asked for ---- */

static bool is_action(const char *url)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(actions); i++)
        if (!strcmp(url, actions[i]))
            return true;
    return false;
}

/* Return the index of a file of the page; console_file_count: there is none. */
static size_t find_file(const char *url)
{
    size_t i = 0;
    while (i < console_file_count && strcmp(url, console_files[i].path) != 0)
        i++;
    return i;
}

/* Why an action is not taken, if so. The header makes a browser ask before another site's page may send it. */
static struct refusal refusal_of_action(const struct console_access *a, struct MHD_Connection *connection)
{
    if (!a->acts)
        return (struct refusal){MHD_HTTP_FORBIDDEN,
                                "this console takes no actions; start the server with --console-admin-token FILE\n"};
    if (!MHD_lookup_connection_value(connection, MHD_HEADER_KIND, ACTION_HEADER))
        return (struct refusal){MHD_HTTP_FORBIDDEN, "an action needs the header " ACTION_HEADER ": 1\n"};
    if (!console_token_is(&a->admin_token,
                          MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION)))
        return (struct refusal){MHD_HTTP_UNAUTHORIZED, "an action needs the administrators' token\n"};
    return (struct refusal){0};
}

/* Does a proxy hand on what somebody else asked? Many say so; one that does not is why a console behind a proxy needs a
 * token. */
static bool was_forwarded(struct MHD_Connection *connection)
{
    static const char *const marks[] = {"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(marks); i++)
        if (MHD_lookup_connection_value(connection, MHD_HEADER_KIND, marks[i]))
            return true;
    return false;
}

/* Why a request is not answered, if so. The page itself tells nothing, and everybody gets it. */
static struct refusal refusal_of(const struct console_access *a, struct MHD_Connection *connection, const char *url,
                                 const char *method)
{
    bool action = is_action(url), status = !strcmp(url, STATUS_PATH);
    bool gets = !strcmp(method, MHD_HTTP_METHOD_GET) || !strcmp(method, MHD_HTTP_METHOD_HEAD);
    if (!a->needs_token &&
        (was_forwarded(connection) ||
         !console_host_is_own(a, MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST))))
        return (struct refusal){
            MHD_HTTP_MISDIRECTED_REQUEST,
            "this console is for its own machine; give it --console-token FILE for other names, and for proxies\n"};
    if (!action && !status && find_file(url) == console_file_count)
        return (struct refusal){MHD_HTTP_NOT_FOUND, "not found\n"};
    if (action ? strcmp(method, MHD_HTTP_METHOD_POST) != 0 : !gets)
        return (struct refusal){MHD_HTTP_METHOD_NOT_ALLOWED, "this method is not for this address\n"};
    if (action)
        return refusal_of_action(a, connection);
    if (status && a->needs_token &&
        !console_token_is(&a->token,
                          MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION)))
        return (struct refusal){MHD_HTTP_UNAUTHORIZED, "the console needs its token\n"};
    return (struct refusal){0};
}

/* ---- the page and the document ---- */

static enum MHD_Result answer_file(const struct console *c, struct MHD_Connection *connection, size_t file)
{
    const struct page *page = &c->pages[file];
    const char *known = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
    bool unchanged = known && strstr(known, page->etag);
    return MHD_queue_response(connection, unchanged ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK,
                              unchanged ? page->unchanged : page->whole);
}

/* Make the document anew if it is CONSOLE_EVERY_MS old. Those who are still being sent the old one keep it. */
static int renew_document(struct console *c)
{
    char *text;
    size_t len;
    uint64_t now_ms = clock_now_ms();
    console_strips_watch(c->strips);
    if (c->document && now_ms - c->made_ms < CONSOLE_EVERY_MS)
        return 0;
    int rc = console_report_make(c->report, &text, &len);
    if (rc)
        return rc;
    struct MHD_Response *response = response_new("application/json", text, len, MHD_RESPMEM_MUST_FREE, "no-store");
    if (!response) {
        free(text);
        return error_no_memory();
    }
    if (c->document)
        MHD_destroy_response(c->document);
    c->document = response;
    c->made_ms = now_ms;
    return 0;
}

static enum MHD_Result answer_document(struct console *c, struct MHD_Connection *connection)
{
    if (renew_document(c))
        return refuse(connection, &(struct refusal){MHD_HTTP_INTERNAL_SERVER_ERROR, error_text()});
    return MHD_queue_response(connection, MHD_HTTP_OK, c->document);
}

/* libmicrohttpd's access handler. It is called several times for a request, and decides the same each time. */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    struct console *c = arg;
    bool by_job;
    enum MHD_Result result;
    if (http_daemon_refuses(connection, *state, &result))
        return result;
    const struct refusal refusal = refusal_of(&c->access, connection, url, method);
    if (refusal.status)
        return refuse(connection, &refusal);
    if (is_action(url))
        return control_routes_take(&c->routes, connection, url + strlen("/api"), method, data, data_len, state,
                                   &by_job);
    if (!http_daemon_whole(data_len, state))
        return MHD_YES;
    if (!strcmp(url, STATUS_PATH))
        return answer_document(c, connection);
    return answer_file(c, connection, find_file(url));
}

/* A request is answered, or its client is gone. */
static void on_answered(void *arg, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode code)
{
    struct console *c = arg;
    control_routes_done(&c->routes, *state);
    *state = NULL;
}

/* ---- life ---- */

/* Make the responses of the page's files. Their names do not tell their version, so a browser asks each time whether
 * its copy is the current one. */
static int make_pages(struct console *c)
{
    assert(console_file_count <= FILES_MAX);
    for (size_t i = 0; i < console_file_count; i++) {
        const struct console_file *file = &console_files[i];
        struct page *page = &c->pages[i];
        char hex[DIGEST_HEX_SIZE];
        struct digest digest = digest_of(file->data, file->len);
        snprintf(page->etag, sizeof page->etag, "\"%.16s\"", digest_hex(&digest, hex));
        page->whole = response_new(file->type, file->data, file->len, MHD_RESPMEM_PERSISTENT, "no-cache");
        page->unchanged = response_new(NULL, "", 0, MHD_RESPMEM_PERSISTENT, "no-cache");
        if (!page->whole || !page->unchanged)
            return error_no_memory();
        MHD_add_response_header(page->whole, MHD_HTTP_HEADER_ETAG, page->etag);
        MHD_add_response_header(page->unchanged, MHD_HTTP_HEADER_ETAG, page->etag);
    }
    return 0;
}

static int read_tokens(const struct console_config *config, struct console_access *a)
{
    a->needs_token = config->token_file;
    a->acts = config->admin_token_file;
    int rc = a->needs_token ? console_token_read("console-token", config->token_file, &a->token) : 0;
    if (!rc && a->acts)
        rc = console_token_read("console-admin-token", config->admin_token_file, &a->admin_token);
    if (!rc && a->needs_token && a->acts && digest_equal(&a->token, &a->admin_token))
        rc = error_set(-EINVAL, "console-admin-token: %s has the token of those who only look; make another one",
                       config->admin_token_file);
    return rc;
}

int console_check(const struct console_config *config)
{
    struct console_access a;
    return read_tokens(config, &a);
}

/* Read the tokens, and bind. Without a token the socket must be one of this machine's own addresses, which only a bound
 * socket tells. */
static int open_socket(const struct console_config *config, struct console *c)
{
    struct console_access *a = &c->access;
    int rc = read_tokens(config, a);
    if (rc)
        return rc;
    listen_host(config->address, a->host, sizeof a->host);
    rc = http_port_open(&c->port, config->address);
    if (!rc && !a->needs_token && !listen_is_loopback(c->port.fd))
        return error_set(-EINVAL,
                         "console: %s can be reached from other machines, so it needs a token: openssl rand -hex 32 "
                         ">FILE, then --console-token FILE; or listen at 127.0.0.1",
                         config->address);
    return rc;
}

int console_open(const struct console_config *config, struct stack *stack, struct added_exports *added,
                 struct reports *reports, struct console **out)
{
    CLEANUP(cleanup_console) struct console *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->port = (struct http_port)HTTP_PORT_INIT("console");
    c->routes.stack = stack;
    c->routes.added = added;
    int rc = open_socket(config, c);
    if (!rc)
        rc = make_pages(c);
    if (!rc)
        rc = console_strips_new(stack, &c->strips);
    if (!rc)
        rc = console_report_new(stack, added, reports, c->strips, c->access.acts, &c->report);
    if (!rc)
        rc = control_jobs_new(&c->routes.jobs);
    if (!rc)
        *out = steal_ptr(&c);
    return rc;
}

unsigned console_port(const struct console *c)
{
    return c->port.number;
}

int console_start(struct console *c)
{
    struct MHD_OptionItem options[] = {{MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
                                       {MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_OF_ONE_MAX, NULL},
                                       {MHD_OPTION_CONNECTION_MEMORY_LIMIT, CONNECTION_MEMORY, NULL},
                                       {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL},
                                       {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_answered, c},
                                       {MHD_OPTION_END, 0, NULL}};
    int rc = console_strips_start(c->strips);
    if (rc)
        return error_prefix(rc, "console");
    return http_port_start(&c->port, MHD_ALLOW_SUSPEND_RESUME, on_request, c, options);
}

static void release_response(struct MHD_Response *response)
{
    if (response)
        MHD_destroy_response(response);
}

/* Jobs first: libmicrohttpd does not stop while a connection is suspended. */
void console_close(struct console *c)
{
    if (!c)
        return;
    control_jobs_stop(c->routes.jobs);
    http_port_close(&c->port);
    control_jobs_free(c->routes.jobs);
    for (size_t i = 0; i < FILES_MAX; i++) {
        release_response(c->pages[i].whole);
        release_response(c->pages[i].unchanged);
    }
    release_response(c->document);
    console_report_free(c->report);
    console_strips_free(c->strips);
    free(c);
}

/* HTTP by libcurl over a unix socket. An answer is a document, collected whole, or lines that are passed on as they
 * come. curl's write callback can only say "stop", so a line's error is kept in struct lines and restored after curl
 * has returned. The body of a status other than 200 is collected as one text: {"error": sentence}. */
#include "attach/control_client.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"

enum {
    TIMEOUT_S = 10,            /* for connecting, and for a whole document */
    TELL_S = 2,                /* for a report: its sender has other things to do */
    SILENCE_S = 60,            /* the longest pause within a stream of lines: servers send progress more often */
    BUSY = 503,                /* HTTP status of a server that has no slot for the request */
    TURN_MS = 60000,           /* how long control_turn repeats a request that met BUSY, */
    TURN_LOOK_US = 100000,     /* in steps of this */
    ANSWER_LINE_MAX = 2 << 20, /* bytes; the server's lines are shorter */
    STATUS_MAX = 64 << 20,     /* bytes; as many as the server makes at most */
};

DEFINE_CLEANUP(curl, CURL *, curl_easy_cleanup)

/* curl's write callback. */
typedef size_t collector(char *data, size_t size, size_t count, void *arg);

/* Run the request and turn curl's failures into sentences. *out_status: the HTTP status. */
static int control_client_perform(CURL *curl, const char *socket, const char *url, collector *collect, void *arg,
                                  long *out_status)
{
    char reason[CURL_ERROR_SIZE] = "";
    curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, socket);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)TIMEOUT_S);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, arg);
    CURLcode code = curl_easy_perform(curl);
    *out_status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, out_status);
    if (code == CURLE_COULDNT_CONNECT) { /* a control socket belongs to its owner alone */
        long os_errno = 0;
        curl_easy_getinfo(curl, CURLINFO_OS_ERRNO, &os_errno);
        if (os_errno == EACCES || os_errno == EPERM)
            return error_set(-EACCES,
                             "the control socket %s may not be used by this user; ask as the user that the server "
                             "runs as, or as root",
                             socket);
        return error_set(-ECONNREFUSED, "no server answers on the control socket %s", socket);
    }
    if (code == CURLE_PARTIAL_FILE || code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING)
        return error_set(-ECONNRESET, "the server on the control socket %s ended in the middle of its answer", socket);
    if (code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_WEIRD_SERVER_REPLY)
        return error_set(-EPROTO,
                         "%s is no control socket: what answers there does not speak HTTP. Give the server's control "
                         "socket, not its NBD socket; 'granary status' lists it",
                         socket);
    if (code)
        return error_set(-EIO, "the server on the control socket %s gives no answer: %s", socket,
                         *reason ? reason : curl_easy_strerror(code));
    return 0;
}

/* ---- documents ---- */

static size_t collect_document(char *data, size_t size, size_t count, void *arg)
{
    return bytes_append(arg, data, size * count) ? 0 : size * count;
}

/* A document is complete or an error: it has one time limit for everything. */
int control_get(const char *socket, const char *path, struct bytes *out)
{
    char url[256];
    long status;
    snprintf(url, sizeof url, "http://granary%s", path);
    CLEANUP(cleanup_curl) CURL *curl = curl_easy_init();
    if (!curl)
        return error_no_memory();
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, (long)TIMEOUT_S);
    int rc = control_client_perform(curl, socket, url, collect_document, out, &status);
    if (!rc && status != 200)
        rc = error_set(-EIO, "the server on the control socket %s answers %s with HTTP status %ld", socket, path,
                       status);
    return rc;
}

/* An answer that is no object comes from something other than a server of ours. */
int control_status(const char *socket, json_t **out)
{
    CLEANUP_BYTES text = BYTES_INIT(STATUS_MAX);
    int rc = control_get(socket, "/status", &text);
    if (rc)
        return rc;
    json_t *status = json_loadb((const char *)text.data, text.len, 0, NULL);
    if (!json_is_object(status)) {
        json_decref(status);
        return error_set(-EIO,
                         "the server on the control socket %s did not answer with its status; check that it is a "
                         "granary server of this "
                         "version",
                         socket);
    }
    *out = status;
    return 0;
}

/* ---- lines ---- */

/* An answer that is being received line by line. */
struct lines {
    CURL *curl;
    control_line *line;
    void *arg;
    struct bytes pending; /* the start of a line whose end has not come; the whole body of an error */
    struct error error;   /* the line callback's or our own, since curl only knows that it was stopped */
};

/* Append to the pending line. */
static int control_client_keep(struct lines *l, const char *data, size_t len)
{
    int rc = bytes_append(&l->pending, data, len);
    return rc == -EMSGSIZE ? error_set(rc, "a line of the server's answer is too long") : rc;
}

/* Pass on the complete lines of data, and keep the rest. */
static int take_lines(struct lines *l, const char *data, size_t len)
{
    long status = 0;
    curl_easy_getinfo(l->curl, CURLINFO_RESPONSE_CODE, &status);
    for (const char *end; status == 200 && (end = memchr(data, '\n', len)); data = end + 1) {
        int rc = control_client_keep(l, data, (size_t)(end - data));
        if (!rc)
            rc = l->line(l->arg, (const char *)l->pending.data, l->pending.len);
        if (rc)
            return rc;
        bytes_clear(&l->pending);
        len -= (size_t)(end - data) + 1;
    }
    return control_client_keep(l, data, len);
}

/* curl's write callback; returning less than it got ends the transfer. */
static size_t collect_lines(char *data, size_t size, size_t count, void *arg)
{
    struct lines *l = arg;
    int rc = take_lines(l, data, size * count);
    if (rc)
        error_take(&l->error, rc);
    return rc ? 0 : size * count;
}

/* Make http://granary/path?key=value&... with escaped values. */
static int control_url(CURL *curl, const char *path, const char *const *params, struct bytes *out)
{
    int rc = bytes_printf(out, "http://granary%s", path);
    bool first = true;
    for (; !rc && *params; params += 2) {
        if (!params[1])
            continue;
        char *value = curl_easy_escape(curl, params[1], (int)strlen(params[1]));
        rc = value ? bytes_printf(out, "%c%s=%s", first ? '?' : '&', params[0], value) : -ENOMEM;
        curl_free(value);
        first = false;
    }
    return rc || !bytes_string(out) ? error_set(-EINVAL, "the request is too long") : 0;
}

/* A request that is answered by lines. */
struct request {
    const char *method, *path;
    const char *const *params;
    const struct bytes *body; /* NULL: none */
    long limit_s;             /* for everything; 0: lines may come for hours */
};

/* Send the request, and pass on the lines of the answer. */
static int call(const char *socket, const struct request *r, control_line *line, void *arg)
{
    CLEANUP_BYTES url = BYTES_INIT(32 << 10);
    long status = 0;
    CLEANUP(cleanup_curl) CURL *curl = curl_easy_init();
    if (!curl)
        return error_no_memory();
    struct lines l = {.curl = curl, .line = line, .arg = arg, .pending = BYTES_INIT(ANSWER_LINE_MAX)};
    int rc = control_url(curl, r->path, r->params, &url);
    if (!rc) {
        if (r->body) {
            curl_easy_setopt(curl, CURLOPT_POSTFIELDS, r->body->len ? (const char *)r->body->data : "");
            curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->body->len);
        }
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, r->method);
        curl_easy_setopt(curl, CURLOPT_TIMEOUT, r->limit_s);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENCE_S);
        rc = control_client_perform(curl, socket, (const char *)url.data, collect_lines, &l, &status);
    }
    if (l.error.code)
        rc = error_restore(&l.error);
    else if (!rc && status != 200) { /* the body is {"error": sentence} */
        json_t *object = json_loadb((const char *)l.pending.data, l.pending.len, 0, NULL);
        const char *why = json_string_value(json_object_get(object, "error"));
        rc = why ? error_set(status == BUSY ? -EBUSY : -EINVAL, "%s", why)
                 : error_set(-EIO, "the server on the control socket %s answers with HTTP status %ld%s", socket, status,
                             status == 404 ? "; it is of an earlier version" : "");
        json_decref(object);
    }
    bytes_release(&l.pending);
    return rc;
}

int control_call(const char *socket, const char *method, const char *path, const char *const *params,
                 control_line *line, void *arg)
{
    return call(socket, &(struct request){.method = method, .path = path, .params = params}, line, arg);
}

int control_post(const char *socket, const char *path, const char *const *params, const struct bytes *body,
                 control_line *line, void *arg)
{
    return call(socket, &(struct request){.method = "POST", .path = path, .params = params, .body = body}, line, arg);
}

int control_put(const char *socket, const char *path, const char *const *params, const struct bytes *body,
                control_line *line, void *arg)
{
    return call(socket, &(struct request){.method = "PUT", .path = path, .params = params, .body = body}, line, arg);
}

int control_tell(const char *socket, const char *method, const char *path, const char *const *params)
{
    const struct request r = {.method = method, .path = path, .params = params, .limit_s = TELL_S};
    return call(socket, &r, control_check_line, NULL);
}

char *control_beside(const char *socket, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.*s.control", PATH_MAX - 16, socket);
    return out;
}

/* The first -EBUSY starts the clock. */
bool control_turn(int rc, struct control_turn *turn)
{
    if (rc != -EBUSY)
        return false;
    if (!turn->deadline_ms)
        turn->deadline_ms = clock_now_ms() + TURN_MS;
    if (clock_now_ms() > turn->deadline_ms || (turn->cancel && *turn->cancel))
        return false;
    usleep(TURN_LOOK_US);
    return true;
}

/* A line {"error": ...} is an error of the server, whatever the HTTP status was: the status is sent before the work is
 * done. */
int control_object(const char *line, size_t len, json_t **out)
{
    json_t *object = json_loadb(line, len, 0, NULL), *error = json_object_get(object, "error");
    int rc = error ? error_set(-EIO, "%s", json_string_value(error) ? json_string_value(error) : "?") : 0;
    if (rc)
        json_decref(object);
    *out = rc ? NULL : object;
    return rc;
}

int control_check_line(void *arg, const char *line, size_t len)
{
    json_t *object;
    (void)arg;
    int rc = control_object(line, len, &object);
    json_decref(object);
    return rc;
}

int control_warm_sums(const char *line, size_t len, json_t **out)
{
    json_t *object;
    int rc = control_object(line, len, &object);
    *out = rc ? NULL : json_incref(json_object_get(object, "warm"));
    if (!rc)
        json_decref(object);
    return rc;
}

uint64_t control_number(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

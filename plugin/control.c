/* libmicrohttpd on a listening socket of our own; one thread serves all connections and waits for
 * nothing: a document is counters and constants, what takes longer is a job with a thread of its own
 * (control_job.h). At most CONNECTIONS_MAX connections: when they become many, the one that has been
 * silent longest is ended, so that idle clients delay nobody.
 *
 * The socket is bound before the fork, so that whoever starts the server sees what is wrong with
 * its path; requests wait in the backlog until control_start.
 */
#include "plugin/control.h"

#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "format/json_name.h"
#include "plugin/control_cache.h"
#include "plugin/control_warm.h"
#include "plugin/http_daemon.h"
#include "plugin/metrics.h"

enum {
    CONNECTIONS_MAX = 64,
    CONNECTIONS_MANY = 48, /* from here on idle ones are ended */
    IDLE_TIMEOUT_S = 10,
    DOCUMENT_MAX = METRICS_DOCUMENT_MAX, /* some 150,000 exports in a status */
};

DEFINE_CLEANUP(json, json_t *, json_decref)

/* A connection, in the order of their coming. The daemon's thread alone uses these. */
struct client {
    struct client *prev, *next;
    int fd;
    bool working; /* a job answers it */
};

struct control {
    struct stack *stack;
    struct sockaddr_un address;
    int fd; /* -1: the daemon's */
    dev_t dev;
    ino_t ino; /* of the socket we made */
    struct MHD_Daemon *daemon;
    struct control_jobs *jobs;
    struct client *first, *last;
    unsigned clients, uploads;
};
DEFINE_CLEANUP(control, struct control *, control_close)

/* ---- answers ---- */

static const struct {
    const char *path, *type;
    int (*make)(struct stack *stack, struct bytes *out);
} documents[] = {
    {"/metrics", METRICS_TYPE, metrics_write},
    {"/status", "application/json", control_status},
};

static enum MHD_Result answer_error(struct MHD_Connection *connection, int rc)
{
    unsigned status = rc == -EINVAL   ? MHD_HTTP_BAD_REQUEST
                      : rc == -ENOENT ? MHD_HTTP_NOT_FOUND
                      : rc == -EBUSY  ? MHD_HTTP_SERVICE_UNAVAILABLE
                                      : MHD_HTTP_INTERNAL_SERVER_ERROR;
    CLEANUP(cleanup_json) json_t *object = json_object();
    json_object_set_new(object, "error", json_name(error_text(), strlen(error_text())));
    CLEANUP_FREE char *text = json_dumps(object, JSON_COMPACT);
    return text ? http_daemon_answer(connection, status, "application/json", text, strlen(text), false) : MHD_NO;
}

static enum MHD_Result answer_document(struct control *c, struct MHD_Connection *connection, size_t i)
{
    CLEANUP_BYTES body = BYTES_INIT(DOCUMENT_MAX);
    if (documents[i].make(c->stack, &body))
        return http_daemon_answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n", false);
    return http_daemon_answer(connection, MHD_HTTP_OK, documents[i].type, body.data, body.len, false);
}

/* ---- the cache ---- */

static const struct {
    const char *path, *method;
    enum control_deed deed;
} deeds[] = {
    {"/cache", MHD_HTTP_METHOD_GET, CONTROL_LS},
    {"/cache/evict", MHD_HTTP_METHOD_POST, CONTROL_EVICT},
    {"/cache/pin", MHD_HTTP_METHOD_POST, CONTROL_PIN},
    {"/cache/unpin", MHD_HTTP_METHOD_POST, CONTROL_UNPIN},
};

struct parameter {
    const char *key, **value;
};

struct parameters {
    const struct parameter *known;
    size_t count;
    int rc;
};

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

static enum MHD_Result answer_by_job(struct control *c, struct MHD_Connection *connection, control_work *work,
                                     void *arg, control_free *free_arg)
{
    int rc = control_jobs_start(c->jobs, connection, work, arg, free_arg);
    if (rc)
        return answer_error(
            connection, rc == -EBUSY
                            ? error_set(rc, "%d such requests are being answered already; try again", CONTROL_JOBS_MAX)
                            : error_set(rc, "out of memory or threads"));
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *client = info ? info->socket_context : NULL;
    if (client)
        client->working = true;
    return MHD_YES;
}

static enum MHD_Result answer_deed(struct control *c, struct MHD_Connection *connection, enum control_deed deed)
{
    struct control_request r = {.deed = deed};
    const struct parameter known[] = {
        {"export", &r.export}, {"glob", &r.glob}, {"all", &r.all}, {"pinned", &r.pinned}, {"known", &r.known}};
    struct control_task *task;
    int rc = take_parameters(connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_cache_prepare(c->stack, &r, &task);
    if (rc)
        return answer_error(connection, rc);
    return answer_by_job(c, connection, control_cache_run, task, control_cache_free);
}

/* ---- warming ---- */

static const char warm_path[] = "/warm";

/* The names that come with a request. */
struct upload {
    struct bytes names;
    struct error error; /* why they are passed over */
};

static void upload_take(struct upload *u, const char *data, size_t len)
{
    int rc = u->error.code ? 0 : bytes_append(&u->names, data, len);
    if (rc == -EMSGSIZE)
        rc = error_set(-EINVAL, "a list may have at most %d MiB; divide it", CONTROL_WARM_NAMES_MAX >> 20);
    else if (rc)
        rc = error_set(rc, "control: out of memory");
    if (rc)
        error_take(&u->error, rc);
}

static void *upload_new(struct control *c)
{
    struct upload *u = calloc(1, sizeof *u);
    if (!u)
        return NULL;
    u->names = (struct bytes)BYTES_INIT(CONTROL_WARM_NAMES_MAX);
    if (c->uploads++ >= CONTROL_JOBS_MAX)
        error_take(&u->error,
                   error_set(-EBUSY, "%d such requests are being sent already; try again", CONTROL_JOBS_MAX));
    return u;
}

static void upload_free(struct control *c, struct upload *u)
{
    c->uploads--;
    bytes_release(&u->names);
    free(u);
}

static enum MHD_Result answer_warm(struct control *c, struct MHD_Connection *connection, struct upload *u)
{
    struct control_warm_request r = {0};
    const struct parameter known[] = {{"export", &r.export}, {"digest", &r.digest}, {"what", &r.what}, {"dry", &r.dry}};
    struct control_warm *warm;
    int rc = u->error.code ? error_restore(&u->error) : take_parameters(connection, known, GR_ARRAY_SIZE(known));
    if (!rc)
        rc = control_warm_prepare(c->stack, &r, &u->names, &warm);
    if (rc)
        return answer_error(connection, rc);
    return answer_by_job(c, connection, control_warm_run, warm, control_warm_free);
}

/* ---- requests ---- */

static enum MHD_Result answer_request(struct control *c, struct MHD_Connection *connection, const char *url,
                                      const char *method)
{
    bool known = !strcmp(url, warm_path); /* by another method: on_request has those by the right one */
    for (size_t i = 0; i < GR_ARRAY_SIZE(documents); i++) {
        if (strcmp(url, documents[i].path) != 0)
            continue;
        if (!strcmp(method, MHD_HTTP_METHOD_GET))
            return answer_document(c, connection, i);
        known = true;
    }
    for (size_t i = 0; i < GR_ARRAY_SIZE(deeds); i++) {
        if (strcmp(url, deeds[i].path) != 0)
            continue;
        if (!strcmp(method, deeds[i].method))
            return answer_deed(c, connection, deeds[i].deed);
        known = true;
    }
    return known ? http_daemon_answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED,
                                           "another method is understood here\n", false)
                 : http_daemon_answer_text(connection, MHD_HTTP_NOT_FOUND,
                                           "not found; there are /metrics, /status, /cache, /cache/evict, /cache/pin, "
                                           "/cache/unpin and /warm\n",
                                           false);
}

/* Called with the header, then for each part of a body, which is passed over unless names are expected, then once more.
 */
static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    struct control *c = arg;
    if (strcmp(url, warm_path) || strcmp(method, MHD_HTTP_METHOD_POST))
        return http_daemon_whole(data_len, state) ? answer_request(c, connection, url, method) : MHD_YES;
    if (!*state) {
        *state = upload_new(c);
        return *state ? MHD_YES : MHD_NO;
    }
    if (!*data_len)
        return answer_warm(c, connection, *state);
    upload_take(*state, data, *data_len);
    *data_len = 0;
    return MHD_YES;
}

/* ---- connections ---- */

static void unlink_client(struct control *c, struct client *client)
{
    *(client->prev ? &client->prev->next : &c->first) = client->next;
    *(client->next ? &client->next->prev : &c->last) = client->prev;
    c->clients--;
}

static void link_client(struct control *c, struct client *client)
{
    client->prev = c->last;
    client->next = NULL;
    *(c->last ? &c->last->next : &c->first) = client;
    c->last = client;
    c->clients++;
}

/* End the one that came first; the daemon takes it down when it sees the end. */
static void end_an_idle_one(struct control *c)
{
    struct client *client = c->first;
    while (client && (client->working || client->fd < 0))
        client = client->next;
    if (!client)
        return;
    shutdown(client->fd, SHUT_RDWR);
    client->fd = -1;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    struct control *c = arg;
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            unlink_client(c, *context);
        free(*context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    struct client *client = info ? calloc(1, sizeof *client) : NULL;
    if (!client)
        return;
    client->fd = info->connect_fd;
    link_client(c, client);
    *context = client;
    if (c->clients > CONNECTIONS_MANY)
        end_an_idle_one(c);
}

/* After a request: the connection waits for the next one, behind the others. */
static void on_answered(void *arg, struct MHD_Connection *connection, void **state,
                        enum MHD_RequestTerminationCode code)
{
    struct control *c = arg;
    if (*state && !http_daemon_owns(*state))
        upload_free(c, *state);
    *state = NULL;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    struct client *client = info ? info->socket_context : NULL;
    if (!client)
        return;
    client->working = false;
    unlink_client(c, client);
    link_client(c, client);
}

/* ---- life ---- */

/* A socket file whose server is gone: connecting to it is refused. */
static int remove_stale(const struct sockaddr_un *address)
{
    struct stat st;
    if (lstat(address->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : error_set(-errno, "control: %s: %s", address->sun_path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(-EEXIST, "control: %s exists and is no socket; remove it or choose another path",
                         address->sun_path);
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(-errno, "control: socket: %s", strerror(errno));
    if (connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno != ECONNREFUSED)
        return error_set(-EADDRINUSE, "control: another server listens on %s; stop it or choose another path",
                         address->sun_path);
    if (unlink(address->sun_path) < 0 && errno != ENOENT)
        return error_set(-errno, "control: cannot remove the stale socket %s: %s", address->sun_path, strerror(errno));
    return 0;
}

static int listen_at(struct control *c)
{
    const char *path = c->address.sun_path;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    /* The mode of the socket is the mode its file will have: no moment when others may connect. */
    if (c->fd < 0 || fchmod(c->fd, 0600) < 0)
        return error_set(-errno, "control: socket: %s", strerror(errno));
    struct stat st;
    if (bind(c->fd, (const struct sockaddr *)&c->address, sizeof c->address) < 0 || listen(c->fd, 16) < 0 ||
        lstat(path, &st) < 0)
        return error_set(-errno, "control: cannot listen on %s: %s; its directory must be there and writable", path,
                         strerror(errno));
    c->dev = st.st_dev;
    c->ino = st.st_ino;
    return 0;
}

int control_open(const char *path, struct stack *stack, struct control **out)
{
    CLEANUP(cleanup_control) struct control *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(-ENOMEM, "control: out of memory");
    c->fd = -1;
    c->stack = stack;
    c->address.sun_family = AF_UNIX;
    if (strlen(path) >= sizeof c->address.sun_path)
        return error_set(-EINVAL, "control: the path %s is longer than a socket's may be (%zu bytes)", path,
                         sizeof c->address.sun_path - 1);
    memcpy(c->address.sun_path, path, strlen(path) + 1);
    int rc = control_jobs_new(&c->jobs);
    if (!rc)
        rc = remove_stale(&c->address);
    if (!rc)
        rc = listen_at(c);
    if (rc)
        return rc;
    *out = steal_ptr(&c);
    return 0;
}

int control_start(struct control *c)
{
    struct MHD_OptionItem options[] = {{MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX, NULL},
                                       {MHD_OPTION_CONNECTION_TIMEOUT, IDLE_TIMEOUT_S, NULL},
                                       {MHD_OPTION_NOTIFY_CONNECTION, (intptr_t)on_connection, c},
                                       {MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)on_answered, c},
                                       {MHD_OPTION_END, 0, NULL}};
    c->daemon = http_daemon_start(c->fd, MHD_ALLOW_SUSPEND_RESUME, on_request, c, options);
    if (!c->daemon)
        return error_set(-EIO, "control: cannot start the thread that serves %s", c->address.sun_path);
    c->fd = -1;
    return 0;
}

void control_close(struct control *c)
{
    if (!c)
        return;
    struct stat st;
    if (c->ino && lstat(c->address.sun_path, &st) == 0 && st.st_dev == c->dev && st.st_ino == c->ino)
        unlink(c->address.sun_path);
    if (c->jobs)
        control_jobs_stop(c->jobs); /* no connection may be suspended when the daemon stops */
    if (c->daemon)
        MHD_stop_daemon(c->daemon);
    control_jobs_free(c->jobs);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

/* libmicrohttpd on a listening socket of our own; one thread serves all connections, at most
 * CONNECTIONS_MAX, and gives up on a silent one. A request reads counters and constants alone: it
 * takes no lock that a read waits for, and does no I/O but its answer's.
 *
 * The socket is bound before the fork, so that whoever starts the server sees what is wrong with
 * its path; requests wait in the backlog until control_start.
 */
#include "plugin/control.h"

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"

enum { CONNECTIONS_MAX = 16, IDLE_TIMEOUT_S = 10, DOCUMENT_MAX = 1 << 20 };

DEFINE_CLEANUP(json, json_t *, json_decref)

struct control {
    struct stack *stack;
    struct sockaddr_un address;
    int fd; /* -1: the daemon's */
    dev_t dev;
    ino_t ino; /* of the socket we made */
    struct MHD_Daemon *daemon;
};
DEFINE_CLEANUP(control, struct control *, control_close)

/* ---- documents ---- */

struct appending {
    struct bytes *out;
    int rc;
};

static void append_metric(void *arg, const struct counter_row *row)
{
    struct appending *a = arg;
    size_t len = strlen(row->name);
    const char *type = len > 6 && !strcmp(row->name + len - 6, "_total") ? "counter" : "gauge";
    if (!a->rc)
        a->rc = bytes_printf(a->out, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", row->name, row->help, row->name, type,
                             row->name, (unsigned long long)row->value);
}

int control_metrics(struct stack *stack, struct bytes *out)
{
    struct appending a = {.out = out};
    a.rc = bytes_printf(out,
                        "# HELP granary_info Version of this server\n# TYPE granary_info gauge\n"
                        "granary_info{version=\"%s\"} 1\n",
                        GRANARY_VERSION);
    stack_counters(stack, append_metric, &a);
    return a.rc;
}

struct hit_counts {
    uint64_t hits, misses;
};

static void count_hits(void *arg, const struct counter_row *row)
{
    struct hit_counts *c = arg;
    if (!strcmp(row->name, "granary_cache_hits_total"))
        c->hits = row->value;
    else if (!strcmp(row->name, "granary_cache_misses_total"))
        c->misses = row->value;
}

double control_hit_ratio(struct stack *stack)
{
    struct hit_counts c = {0};
    stack_counters(stack, count_hits, &c);
    return c.hits ? (double)c.hits / (double)(c.hits + c.misses) : 0;
}

static json_t *digest_json(const struct digest *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return json_sprintf("sha256:%s", digest_hex(digest, hex));
}

static json_t *exports_json(struct stack *stack)
{
    json_t *exports = json_array();
    for (size_t i = 0; i < stack_image_count(stack); i++) {
        const struct image *img = stack_image_at(stack, i);
        json_array_append_new(exports, json_pack("{s:s, s:o, s:o, s:I}", "name", stack_export_name(stack, i), "digest",
                                                 digest_json(image_digest(img)), "content_root",
                                                 digest_json(&image_manifest(img)->content_root), "size",
                                                 (json_int_t)image_manifest(img)->size));
    }
    return exports;
}

static void add_counter_json(void *arg, const struct counter_row *row)
{
    json_object_set_new(arg, row->name, json_integer((json_int_t)row->value));
}

int control_status(struct stack *stack, struct bytes *out)
{
    CLEANUP(cleanup_json) json_t *root = json_object();
    json_t *counters = json_object();
    stack_counters(stack, add_counter_json, counters);
    json_object_set_new(root, "version", json_string(GRANARY_VERSION));
    json_object_set_new(root, "pid", json_integer(getpid()));
    json_object_set_new(root, "exports", exports_json(stack));
    json_object_set_new(root, "counters", counters);
    json_object_set_new(root, "hit_ratio", json_real(control_hit_ratio(stack)));
    CLEANUP_FREE char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    if (!text)
        return error_set(-ENOMEM, "control: out of memory");
    return bytes_printf(out, "%s\n", text);
}

/* ---- answers ---- */

static const struct {
    const char *path, *type;
    int (*make)(struct stack *stack, struct bytes *out);
} documents[] = {
    {"/metrics", "text/plain; version=0.0.4", control_metrics},
    {"/status", "application/json", control_status},
};

/* Sends body, which is copied. */
static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type, const void *body,
                              size_t len)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(len, (void *)body, MHD_RESPMEM_MUST_COPY);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return answer(connection, status, "text/plain", text, strlen(text));
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
                                  const char *version, const char *data, size_t *data_len, void **state)
{
    const struct control *c = arg;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET alone is understood here\n");
    for (size_t i = 0; i < GR_ARRAY_SIZE(documents); i++) {
        if (strcmp(url, documents[i].path) != 0)
            continue;
        CLEANUP_BYTES body = BYTES_INIT(DOCUMENT_MAX);
        if (documents[i].make(c->stack, &body))
            return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
        return answer(connection, MHD_HTTP_OK, documents[i].type, body.data, body.len);
    }
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "not found; there are /metrics and /status\n");
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
        return error_set(-errno, "control: cannot listen on %s: %s", path, strerror(errno));
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
    int rc = remove_stale(&c->address);
    if (!rc)
        rc = listen_at(c);
    if (rc)
        return rc;
    *out = steal_ptr(&c);
    return 0;
}

int control_start(struct control *c)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    c->daemon =
        MHD_start_daemon(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, on_request, c,
                         MHD_OPTION_LISTEN_SOCKET, c->fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_TIMEOUT_S, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
    if (c->daemon)
        MHD_stop_daemon(c->daemon);
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

#include "fake/http_fake.h"

#include <arpa/inet.h>
#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 256, BODY_MAX = 64 << 20 };

struct connection {
    struct http_fake *server;
    pthread_t thread;
    int fd;
    unsigned number;
};

struct http_fake {
    http_fake_handler *handler;
    void *arg;
    int listener;
    char url[64];
    pthread_t acceptor;
    pthread_mutex_t mutex; /* of each connection's fd */
    struct connection connections[CONNECTIONS_MAX];
    atomic_uint count, requests;
};

void http_fake_send(int fd, const void *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n <= 0)
            return;
        data = (const char *)data + n;
        len -= (size_t)n;
    }
}

void http_fake_text(int fd, const char *fmt, ...)
{
    char text[16384];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    assert(n >= 0 && (size_t)n < sizeof text);
    http_fake_send(fd, text, (size_t)n);
}

bool http_fake_header(const struct http_fake_request *r, const char *name, char *out, size_t size)
{
    size_t len = strlen(name);
    for (const char *line = strchr(r->head, '\n'); line; line = strchr(line + 1, '\n')) {
        if (strncasecmp(line + 1, name, len) || line[1 + len] != ':')
            continue;
        const char *value = line + len + 2 + strspn(line + len + 2, " ");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\r\n"), value);
        return true;
    }
    return false;
}

/* Read one request; false: the peer has gone. */
static bool read_request(int fd, struct http_fake_request *r)
{
    size_t n = 0;
    r->body_len = 0;
    do {
        if (n + 1 >= sizeof r->head || recv(fd, r->head + n, 1, 0) != 1)
            return false;
        r->head[++n] = 0;
    } while (n < 4 || memcmp(r->head + n - 4, "\r\n\r\n", 4));
    if (sscanf(r->head, "%15s %8191s", r->method, r->target) != 2)
        return false;
    char value[64];
    if (http_fake_header(r, "expect", value, sizeof value))
        http_fake_text(fd, "HTTP/1.1 100 Continue\r\n\r\n");
    if (!http_fake_header(r, "content-length", value, sizeof value))
        return true;
    r->body_len = strtoull(value, NULL, 10);
    if (r->body_len > BODY_MAX)
        return false;
    free(r->body);
    r->body = malloc(r->body_len + 1);
    /* recv of nothing waits for something */
    return r->body && (!r->body_len || recv(fd, r->body, r->body_len, MSG_WAITALL) == (ssize_t)r->body_len);
}

static void *serve(void *arg)
{
    struct connection *c = arg;
    struct http_fake *f = c->server;
    struct http_fake_request *r = calloc(1, sizeof *r);
    enum http_fake_next next = HTTP_FAKE_KEEP;
    assert(r);
    r->connection = c->number;
    while (next == HTTP_FAKE_KEEP && read_request(c->fd, r)) {
        r->number = atomic_fetch_add(&f->requests, 1);
        next = f->handler(f->arg, r, c->fd);
    }
    if (next == HTTP_FAKE_RESET)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    pthread_mutex_lock(&f->mutex);
    close(c->fd);
    c->fd = -1;
    pthread_mutex_unlock(&f->mutex);
    free(r->body);
    free(r);
    return NULL;
}

static void *accept_all(void *arg)
{
    struct http_fake *f = arg;
    int fd;
    while ((fd = accept(f->listener, NULL, NULL)) >= 0) {
        unsigned i = atomic_load(&f->count);
        assert(i < CONNECTIONS_MAX);
        f->connections[i] = (struct connection){.server = f, .fd = fd, .number = i};
        atomic_store(&f->count, i + 1); /* before an answer lets a test ask for it */
        int rc = pthread_create(&f->connections[i].thread, NULL, serve, &f->connections[i]);
        assert(rc == 0);
    }
    return NULL;
}

struct http_fake *http_fake_start(http_fake_handler *handler, void *arg)
{
    struct http_fake *f = calloc(1, sizeof *f);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    assert(f);
    f->handler = handler;
    f->arg = arg;
    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pthread_mutex_init(&f->mutex, NULL);
    if (bind(f->listener, (struct sockaddr *)&address, len) || listen(f->listener, 128) ||
        getsockname(f->listener, (struct sockaddr *)&address, &len))
        abort();
    snprintf(f->url, sizeof f->url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    if (pthread_create(&f->acceptor, NULL, accept_all, f))
        abort();
    return f;
}

const char *http_fake_url(const struct http_fake *f)
{
    return f->url;
}

unsigned http_fake_requests(struct http_fake *f)
{
    return atomic_load(&f->requests);
}

unsigned http_fake_connections(struct http_fake *f)
{
    return atomic_load(&f->count);
}

void http_fake_stop(struct http_fake *f)
{
    shutdown(f->listener, SHUT_RDWR);
    pthread_join(f->acceptor, NULL);
    for (unsigned i = 0; i < f->count; i++) {
        pthread_mutex_lock(&f->mutex);
        if (f->connections[i].fd >= 0)
            shutdown(f->connections[i].fd, SHUT_RDWR);
        pthread_mutex_unlock(&f->mutex);
        pthread_join(f->connections[i].thread, NULL);
    }
    close(f->listener);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

/* A gRPC client for tests: one connection by nghttp2's client side, and bytes that no client would send. */
#ifndef GRANARY_TESTS_UNIT_CSI_GRPC_CLIENT_H
#define GRANARY_TESTS_UNIT_CSI_GRPC_CLIENT_H

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/io.h"
#include "unit/threads.h"

enum { CLIENT_WAIT_MS = 60000, CLIENT_STREAMS = 64 };

/* What came back on a stream. */
struct answer {
    int32_t stream;
    bool ended;
    uint32_t error; /* of the stream's end: 0, or HTTP/2's number */
    char http_status[4], status[8], sentence[2048];
    uint8_t message[1 << 17];
    size_t len;
    const uint8_t *request; /* to send */
    size_t request_len, sent;
    bool no_end; /* the request stays open */
};

struct client {
    int fd;
    nghttp2_session *http;
    struct answer *answers[CLIENT_STREAMS];
    size_t count;
};

static inline int client_connect(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && !connect(fd, (struct sockaddr *)&a, sizeof a), "%s", strerror(errno));
    return fd;
}

static inline struct answer *client_answer(struct client *c, int32_t stream)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->answers[i]->stream == stream)
            return c->answers[i];
    return NULL;
}

static inline int client_on_header(nghttp2_session *http, const nghttp2_frame *frame, const uint8_t *name,
                                   size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    struct answer *a = client_answer(arg, frame->hd.stream_id);
    char *field = NULL;
    size_t size = 0;
    if (!strcmp((const char *)name, ":status"))
        field = a->http_status, size = sizeof a->http_status;
    else if (!strcmp((const char *)name, "grpc-status"))
        field = a->status, size = sizeof a->status;
    else if (!strcmp((const char *)name, "grpc-message"))
        field = a->sentence, size = sizeof a->sentence;
    if (field)
        snprintf(field, size, "%s", (const char *)value);
    return 0;
}

static inline int client_on_data(nghttp2_session *http, uint8_t flags, int32_t id, const uint8_t *data, size_t len,
                                 void *arg)
{
    struct answer *a = client_answer(arg, id);
    must(a->len + len <= sizeof a->message, "%zu", a->len + len);
    memcpy(a->message + a->len, data, len);
    a->len += len;
    return 0;
}

static inline int client_on_close(nghttp2_session *http, int32_t id, uint32_t error, void *arg)
{
    struct answer *a = client_answer(arg, id);
    a->ended = true;
    a->error = error;
    return 0;
}

static inline void client_open(struct client *c, const char *path)
{
    nghttp2_session_callbacks *callbacks;
    *c = (struct client){.fd = client_connect(path)};
    must(!nghttp2_session_callbacks_new(&callbacks), "memory");
    nghttp2_session_callbacks_set_on_header_callback(callbacks, client_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, client_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, client_on_close);
    must(!nghttp2_session_client_new(&c->http, callbacks, c), "memory");
    nghttp2_session_callbacks_del(callbacks);
    must(!nghttp2_submit_settings(c->http, 0, NULL, 0), "memory");
}

static inline void client_close(struct client *c)
{
    nghttp2_session_del(c->http);
    close(c->fd);
    for (size_t i = 0; i < c->count; i++)
        free(c->answers[i]);
}

static inline ssize_t client_read_request(nghttp2_session *http, int32_t id, uint8_t *out, size_t max, uint32_t *flags,
                                          nghttp2_data_source *source, void *arg)
{
    struct answer *a = source->ptr;
    size_t n = a->request_len - a->sent < max ? a->request_len - a->sent : max;
    if (!n && a->no_end)
        return NGHTTP2_ERR_DEFERRED;
    if (n)
        memcpy(out, a->request + a->sent, n);
    a->sent += n;
    if (a->sent == a->request_len && !a->no_end)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)n;
}

/* One header. */
struct header {
    const char *name, *value;
};

/* Begin a call with these headers, and the body as it is (it has the prefix already). */
static inline struct answer *client_begin(struct client *c, const struct header *headers, size_t count,
                                          const void *body, size_t len, bool no_end)
{
    nghttp2_nv nv[16];
    struct answer *a = calloc(1, sizeof *a);
    must(a && c->count < CLIENT_STREAMS && count <= 16, "room");
    a->request = body;
    a->request_len = len;
    a->no_end = no_end;
    for (size_t i = 0; i < count; i++)
        nv[i] = (nghttp2_nv){(uint8_t *)headers[i].name, (uint8_t *)headers[i].value, strlen(headers[i].name),
                             strlen(headers[i].value), NGHTTP2_NV_FLAG_NONE};
    nghttp2_data_provider provider = {.source.ptr = a, .read_callback = client_read_request};
    a->stream = nghttp2_submit_request(c->http, NULL, nv, count, &provider, NULL);
    must(a->stream > 0, "%d", a->stream);
    c->answers[c->count++] = a;
    return a;
}

/* The same with the usual headers; timeout may be NULL. */
static inline struct answer *client_call(struct client *c, const char *path, const char *timeout, const void *body,
                                         size_t len)
{
    struct header headers[] = {{":method", "POST"},
                               {":scheme", "http"},
                               {":path", path},
                               {":authority", "localhost"},
                               {"content-type", "application/grpc"},
                               {"te", "trailers"},
                               {"grpc-timeout", timeout}};
    return client_begin(c, headers, timeout ? 7 : 6, body, len, false);
}

/* Send and receive until the answer is whole, or for at most wait_ms. False: the connection ended. */
static inline bool client_wait(struct client *c, const struct answer *a, unsigned wait_ms)
{
    uint64_t until = clock_now_ms() + wait_ms;
    while (!a->ended && clock_now_ms() < until) {
        const uint8_t *out;
        uint8_t in[4096];
        for (ssize_t n; (n = nghttp2_session_mem_send(c->http, &out)) > 0;)
            if (send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
                return false;
        struct pollfd p = {c->fd, POLLIN, 0};
        if (poll(&p, 1, 10) <= 0)
            continue;
        ssize_t n = recv(c->fd, in, sizeof in, 0);
        if (n <= 0)
            return false;
        must(nghttp2_session_mem_recv(c->http, in, (size_t)n) == n, "the server sent what is no HTTP/2");
    }
    return true;
}

/* Prefix a message. */
static inline size_t client_message(uint8_t *out, const void *message, size_t len)
{
    out[0] = 0;
    for (int i = 0; i < 4; i++)
        out[1 + i] = (uint8_t)(len >> (24 - 8 * i));
    if (len)
        memcpy(out + 5, message, len);
    return len + 5;
}

/* ---- raw frames ---- */

#define CLIENT_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

struct raw {
    uint8_t data[1 << 20];
    size_t len;
};

static inline void raw_bytes(struct raw *r, const void *data, size_t len)
{
    must(r->len + len <= sizeof r->data, "%zu", r->len);
    memcpy(r->data + r->len, data, len);
    r->len += len;
}

static inline void raw_frame(struct raw *r, uint8_t type, uint8_t flags, uint32_t stream, const void *data, size_t len)
{
    uint8_t head[9] = {(uint8_t)(len >> 16),    (uint8_t)(len >> 8),     (uint8_t)len,           type,           flags,
                       (uint8_t)(stream >> 24), (uint8_t)(stream >> 16), (uint8_t)(stream >> 8), (uint8_t)stream};
    raw_bytes(r, head, sizeof head);
    raw_bytes(r, data, len);
}

/* A header block of literals without indexing. */
static inline size_t raw_headers(uint8_t *out, const struct header *headers, size_t count)
{
    uint8_t *at = out;
    for (size_t i = 0; i < count; i++) {
        size_t name = strlen(headers[i].name), value = strlen(headers[i].value);
        *at++ = 0;
        *at++ = (uint8_t)name;
        memcpy(at, headers[i].name, name);
        at += name;
        *at++ = (uint8_t)value;
        memcpy(at, headers[i].value, value);
        at += value;
    }
    return (size_t)(at - out);
}

static inline void raw_begin(struct raw *r)
{
    r->len = 0;
    raw_bytes(r, CLIENT_PREFACE, sizeof CLIENT_PREFACE - 1);
    raw_frame(r, NGHTTP2_SETTINGS, 0, 0, "", 0);
}

/* HEADERS of a call on a stream. */
static inline void raw_call(struct raw *r, uint32_t stream, const char *path)
{
    uint8_t block[512];
    struct header headers[] = {{":method", "POST"},
                               {":scheme", "http"},
                               {":authority", "localhost"},
                               {":path", path},
                               {"content-type", "application/grpc"}};
    raw_frame(r, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, stream, block, raw_headers(block, headers, 5));
}

#endif

/* A stream is in one of three states, and a call belongs to its thread while it runs:
 *
 *     receives   headers and data come           stream
 *     runs       the request is complete         stream <-> call
 *     answers    the reply is submitted          stream; the reply has moved into it
 *
 * The stream ends with nghttp2's; a call whose stream ended, or which was answered by its deadline, runs on with
 * `stream` NULL. nghttp2 does flow control, both ways, and limits floods of control frames.
 *
 * A reply is headers, the message and trailers; a failure is headers alone that end the stream ("trailers-only"). */
#include "csi/grpc/grpc_session.h"

#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"

struct grpc_stream {
    struct grpc_session *session;
    int32_t id;
    bool answers;
    const char *http_status; /* of the answer */
    size_t header_bytes;
    char path[GRPC_PATH_MAX], method[8], content_type[32], timeout[16]; /* cut where they are longer */
    uint64_t deadline_ms;
    struct bytes request;
    struct grpc_call *call; /* that runs; NULL: none */
    struct grpc_reply reply;
    size_t sent; /* bytes of prefix and message */
    struct grpc_stream *next;
};

struct grpc_session {
    nghttp2_session *http;
    grpc_run *run;
    void *arg;
    struct grpc_stream *streams;
    uint64_t now_ms; /* of the bytes that are being received */
    bool broken;     /* memory was short: the connection is to end */
};

enum grpc_status grpc_fail(struct grpc_reply *reply, enum grpc_status status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reply->sentence, sizeof reply->sentence, fmt, ap);
    va_end(ap);
    return reply->status = status;
}

bool grpc_timeout_parse(const char *text, uint64_t *out_ms)
{
    static const struct {
        char unit;
        uint64_t us;
    } units[] = {{'H', 3600000000}, {'M', 60000000}, {'S', 1000000}, {'m', 1000}, {'u', 1}, {'n', 0}};
    size_t digits = strspn(text, "0123456789");
    uint64_t n = 0;
    if (!digits || digits > 8 || !text[digits] || text[digits + 1])
        return false;
    for (size_t i = 0; i < digits; i++)
        n = n * 10 + (uint64_t)(text[i] - '0');
    for (size_t i = 0; i < GR_ARRAY_SIZE(units); i++)
        if (units[i].unit == text[digits]) {
            *out_ms = ((units[i].us ? n * units[i].us : (n + 999) / 1000) + 999) / 1000;
            return true;
        }
    return false;
}

/* ---- the answer ---- */

#define HEADER(name, value, len)                                                                                       \
    {                                                                                                                  \
        (uint8_t *)(name), (uint8_t *)(value), sizeof(name) - 1, (len), NGHTTP2_NV_FLAG_NONE                           \
    }

/* A sentence as grpc-message wants it: what is not printable ASCII, and '%', as %XX. Returns the length. */
static size_t percent_encode(const char *from, char *to)
{
    static const char hex[] = "0123456789ABCDEF";
    char *at = to;
    for (; *from; from++) {
        unsigned char c = (unsigned char)*from;
        if (c >= ' ' && c <= '~' && c != '%') {
            *at++ = *from;
        } else {
            *at++ = '%';
            *at++ = hex[c >> 4];
            *at++ = hex[c & 15];
        }
    }
    return (size_t)(at - to);
}

/* nghttp2 asks for the bytes of a message: its prefix, itself, then the trailers. */
static ssize_t read_message(nghttp2_session *http, int32_t id, uint8_t *out, size_t max, uint32_t *flags,
                            nghttp2_data_source *source, void *arg)
{
    struct grpc_stream *st = source->ptr;
    size_t len = st->reply.message.len, got = 0;
    uint8_t prefix[GRPC_PREFIX] = {0, (uint8_t)(len >> 24), (uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len};
    while (got < max && st->sent < GRPC_PREFIX)
        out[got++] = prefix[st->sent++];
    size_t part = GR_MIN(len + GRPC_PREFIX - st->sent, max - got);
    if (part)
        memcpy(out + got, st->reply.message.data + (st->sent - GRPC_PREFIX), part);
    st->sent += part;
    if (st->sent < len + GRPC_PREFIX)
        return (ssize_t)(got + part);
    nghttp2_nv trailers[] = {HEADER("grpc-status", "0", 1)};
    *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
    return nghttp2_submit_trailer(http, id, trailers, 1) ? NGHTTP2_ERR_CALLBACK_FAILURE : (ssize_t)(got + part);
}

/* Submit the stream's reply. */
static void answer(struct grpc_stream *st)
{
    char status[12], sentence[3 * sizeof st->reply.sentence];
    size_t status_len = (size_t)snprintf(status, sizeof status, "%u", (unsigned)st->reply.status);
    nghttp2_nv headers[] = {HEADER(":status", st->http_status, 3),
                            HEADER("content-type", "application/grpc", sizeof "application/grpc" - 1),
                            HEADER("grpc-status", status, status_len),
                            HEADER("grpc-message", sentence, percent_encode(st->reply.sentence, sentence))};
    nghttp2_data_provider message = {.source.ptr = st, .read_callback = read_message};
    bool ok = st->reply.status == GRPC_OK;
    st->answers = true;
    if (nghttp2_submit_response(st->session->http, st->id, headers, ok ? 2 : 4, ok ? &message : NULL))
        st->session->broken = true;
}

/* Answer a stream with a failure. A call that runs for it goes on, without it. */
static void refuse(struct grpc_stream *st, enum grpc_status status, const char *sentence)
{
    if (st->call)
        st->call->stream = NULL;
    st->call = NULL;
    (void)grpc_fail(&st->reply, status, "%s", sentence);
    answer(st);
}

void grpc_call_finish(struct grpc_call *call)
{
    struct grpc_stream *st = call->stream;
    if (st) {
        st->call = NULL;
        st->reply = call->reply;
        answer(st);
    } else {
        bytes_release(&call->reply.message);
    }
    bytes_wipe(&call->request); /* it may hold secrets */
    free(call);
}

/* ---- the request ---- */

/* Return a complete request's flaw, and its status; NULL: it is one message. */
static const char *flaw(const struct grpc_stream *st, enum grpc_status *out)
{
    const uint8_t *q = st->request.data;
    *out = GRPC_INVALID_ARGUMENT;
    if (st->request.len < GRPC_PREFIX)
        return "the request has no message";
    if (q[0]) {
        *out = GRPC_UNIMPLEMENTED;
        return "the message is compressed, which this server does not support";
    }
    size_t len = (size_t)q[1] << 24 | (size_t)q[2] << 16 | (size_t)q[3] << 8 | q[4];
    return len != st->request.len - GRPC_PREFIX ? "the request is not exactly one message" : NULL;
}

/* All headers are there: refuse what is no gRPC call, and begin its time. */
static void headers_complete(struct grpc_stream *st)
{
    uint64_t timeout_ms;
    if (strcmp(st->method, "POST") != 0) {
        st->http_status = "405";
        refuse(st, GRPC_UNIMPLEMENTED, "a gRPC call is a POST");
    } else if (!text_begins_with(st->content_type, "application/grpc")) {
        st->http_status = "415";
        refuse(st, GRPC_UNIMPLEMENTED, "the content-type is not application/grpc");
    } else if (*st->timeout && !grpc_timeout_parse(st->timeout, &timeout_ms)) {
        refuse(st, GRPC_INVALID_ARGUMENT, "grpc-timeout is not a number of at most 8 digits and a unit");
    } else if (*st->timeout) {
        st->deadline_ms = st->session->now_ms + timeout_ms;
    }
}

/* The peer has sent all of a request. */
static void request_complete(struct grpc_stream *st)
{
    enum grpc_status status;
    const char *wrong = flaw(st, &status);
    struct grpc_call *call = wrong ? NULL : calloc(1, sizeof *call);
    if (!call) {
        refuse(st, wrong ? status : GRPC_RESOURCE_EXHAUSTED, wrong ? wrong : "out of memory");
        return;
    }
    call->stream = st;
    memcpy(call->path, st->path, sizeof call->path);
    call->request = st->request;
    call->reply.message.max = GRPC_REPLY_MAX;
    st->request = (struct bytes)BYTES_INIT(0);
    st->call = call;
    st->session->run(st->session->arg, call);
}

/* ---- what nghttp2 says ---- */

static int on_begin_headers(nghttp2_session *http, const nghttp2_frame *frame, void *arg)
{
    struct grpc_session *s = arg;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_stream *st = calloc(1, sizeof *st);
    if (!st)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    st->session = s;
    st->id = frame->hd.stream_id;
    st->http_status = "200";
    st->deadline_ms = UINT64_MAX;
    st->request.max = GRPC_PREFIX + GRPC_REQUEST_MAX;
    st->next = s->streams;
    s->streams = st;
    return nghttp2_session_set_stream_user_data(http, st->id, st);
}

/* Copy a header's value into a field, cut to its size. */
static void keep(char *field, size_t size, const uint8_t *value, size_t len)
{
    len = GR_MIN(len, size - 1);
    memcpy(field, value, len);
    field[len] = 0;
}

static int on_header(nghttp2_session *http, const nghttp2_frame *frame, const uint8_t *name, size_t name_len,
                     const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
    struct grpc_stream *st = nghttp2_session_get_stream_user_data(http, frame->hd.stream_id);
    if (!st)
        return 0;
    st->header_bytes += name_len + value_len;
    if (st->header_bytes > GRPC_HEADERS_MAX)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) /* trailers change nothing */
        return 0;
    const struct {
        const char *name;
        char *field;
        size_t size;
    } kept[] = {{":path", st->path, sizeof st->path},
                {":method", st->method, sizeof st->method},
                {"content-type", st->content_type, sizeof st->content_type},
                {"grpc-timeout", st->timeout, sizeof st->timeout}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(kept); i++)
        if (name_len == strlen(kept[i].name) && !memcmp(name, kept[i].name, name_len))
            keep(kept[i].field, kept[i].size, value, value_len);
    return 0;
}

static int on_data(nghttp2_session *http, uint8_t flags, int32_t id, const uint8_t *data, size_t len, void *arg)
{
    struct grpc_stream *st = nghttp2_session_get_stream_user_data(http, id);
    if (!st || st->answers)
        return 0;
    uint8_t *room; /* at once: a buffer that grows leaves copies behind, and a request may hold secrets */
    int rc = st->request.len ? 0 : bytes_reserve(&st->request, st->request.max, &room);
    if (!rc)
        rc = bytes_append(&st->request, data, len);
    if (rc == -EMSGSIZE)
        refuse(st, GRPC_RESOURCE_EXHAUSTED, "the request is longer than 64 KiB");
    else if (rc)
        refuse(st, GRPC_RESOURCE_EXHAUSTED, "out of memory");
    return 0;
}

static int on_frame(nghttp2_session *http, const nghttp2_frame *frame, void *arg)
{
    struct grpc_stream *st = nghttp2_session_get_stream_user_data(http, frame->hd.stream_id);
    if (!st || (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        headers_complete(st);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM && !st->answers && !st->call)
        request_complete(st);
    return 0;
}

/* An answer that came before the end of the request: the rest is not wanted. */
static int on_sent(nghttp2_session *http, const nghttp2_frame *frame, void *arg)
{
    bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (!ends || nghttp2_session_get_stream_remote_close(http, frame->hd.stream_id))
        return 0;
    return nghttp2_submit_rst_stream(http, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_NO_ERROR);
}

static void stream_free(struct grpc_stream *st)
{
    if (st->call)
        st->call->stream = NULL;
    bytes_wipe(&st->request);
    bytes_release(&st->reply.message);
    free(st);
}

static int on_close(nghttp2_session *http, int32_t id, uint32_t error, void *arg)
{
    struct grpc_session *s = arg;
    for (struct grpc_stream **i = &s->streams, *st; (st = *i); i = &st->next)
        if (st->id == id) {
            *i = st->next;
            stream_free(st);
            break;
        }
    return 0;
}

/* ---- the session ---- */

static int make_http(struct grpc_session *s)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_settings_entry settings[] = {{NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_STREAMS_MAX},
                                         {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX}};
    if (nghttp2_session_callbacks_new(&callbacks))
        return error_no_memory();
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
    int rc = nghttp2_session_server_new(&s->http, callbacks, s);
    nghttp2_session_callbacks_del(callbacks);
    if (!rc)
        rc = nghttp2_submit_settings(s->http, NGHTTP2_FLAG_NONE, settings, GR_ARRAY_SIZE(settings));
    return rc ? error_no_memory() : 0;
}

int grpc_session_new(grpc_run *run, void *arg, struct grpc_session **out)
{
    CLEANUP(cleanup_grpc_session) struct grpc_session *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->run = run;
    s->arg = arg;
    int rc = make_http(s);
    if (!rc)
        *out = steal_ptr(&s);
    return rc;
}

void grpc_session_free(struct grpc_session *s)
{
    nghttp2_session_del(s->http); /* without on_close of its streams */
    for (struct grpc_stream *st = s->streams, *next; st; st = next) {
        next = st->next;
        stream_free(st);
    }
    free(s);
}

int grpc_session_receive(struct grpc_session *s, const uint8_t *data, size_t len, uint64_t now_ms)
{
    s->now_ms = now_ms;
    return nghttp2_session_mem_recv(s->http, data, len) == (ssize_t)len && !s->broken ? 0 : -EPROTO;
}

ssize_t grpc_session_send(struct grpc_session *s, const uint8_t **out)
{
    ssize_t n = nghttp2_session_mem_send(s->http, out);
    return n < 0 || s->broken ? -EPROTO : n;
}

bool grpc_session_over(struct grpc_session *s)
{
    return !nghttp2_session_want_read(s->http) && !nghttp2_session_want_write(s->http);
}

bool grpc_session_busy(const struct grpc_session *s)
{
    const struct grpc_stream *st = s->streams;
    while (st && !st->call)
        st = st->next;
    return st;
}

uint64_t grpc_session_deadline(const struct grpc_session *s)
{
    uint64_t first = UINT64_MAX;
    for (const struct grpc_stream *st = s->streams; st; st = st->next)
        if (!st->answers && st->deadline_ms < first)
            first = st->deadline_ms;
    return first;
}

void grpc_session_expire(struct grpc_session *s, uint64_t now_ms)
{
    for (struct grpc_stream *st = s->streams; st; st = st->next)
        if (!st->answers && st->deadline_ms <= now_ms)
            refuse(st, GRPC_DEADLINE_EXCEEDED, "the call's deadline has passed; what it began goes on");
}

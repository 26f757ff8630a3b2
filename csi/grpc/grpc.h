/* Unary gRPC calls over HTTP/2 on a unix socket: one request message, one reply message or a status with a sentence.
 *
 * One thread owns all connections; each call runs in a thread of its own, so a slow call holds up nothing else. A call
 * whose client went away or whose deadline passed runs to its end, and its reply is dropped: calls are idempotent, and
 * clients ask again. Everything that a peer can make us keep is limited below.
 */
#ifndef GRANARY_CSI_GRPC_GRPC_H
#define GRANARY_CSI_GRPC_GRPC_H

#include "base/bytes.h"
#include "base/error.h"

enum {
    GRPC_REQUEST_MAX = 64 << 10,   /* bytes of a request message; longer ones get RESOURCE_EXHAUSTED */
    GRPC_REPLY_MAX = 64 << 10,     /* bytes of a reply message */
    GRPC_HEADERS_MAX = 8 << 10,    /* bytes of a request's headers; a stream with more is reset */
    GRPC_PATH_MAX = 128,           /* bytes of a method's path, with the final NUL; longer ones are unknown methods */
    GRPC_STREAMS_MAX = 16,         /* of a connection at once; more are refused */
    GRPC_CONNECTIONS_MAX = 64,     /* at once; a new one ends the one that is idle for longest, or waits */
    GRPC_CALLS_MAX = 128,          /* that run at once; more get RESOURCE_EXHAUSTED */
    GRPC_IDLE_MS = 10 * 60 * 1000, /* a connection without a byte and without a call for this long is closed */
};

/* The status codes of gRPC, with its numbers. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_CANCELLED = 1,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_DEADLINE_EXCEEDED = 4,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_ABORTED = 10,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_INTERNAL = 13,
    GRPC_UNAVAILABLE = 14,
};

/* The answer to a call. */
struct grpc_reply {
    enum grpc_status status;
    char sentence[ERROR_TEXT_MAX]; /* what is wrong; empty for GRPC_OK */
    struct bytes message;          /* for GRPC_OK; its maximum is set */
};

/* Set status and sentence; returns status. */
enum grpc_status grpc_fail(struct grpc_reply *reply, enum grpc_status status, const char *fmt, ...) GR_PRINTF(3, 4);

/* Answer a call. path: "/csi.v1.Node/NodeStageVolume", or any other text of the client's. request: len bytes; valid
 * until it returns. *reply is GRPC_OK with an empty message at first. Any thread, several at a time. */
typedef void grpc_answer(void *arg, const char *path, const uint8_t *request, size_t len, struct grpc_reply *reply);

struct grpc_config {
    int listen_fd; /* of the caller's, who closes it after grpc_server_stop */
    grpc_answer *answer;
    void *arg;
    uint64_t idle_ms; /* 0: GRPC_IDLE_MS */
};

struct grpc_server;

/* Start to serve, in threads. -errno with a sentence. */
GR_MUST_CHECK int grpc_server_start(const struct grpc_config *config, struct grpc_server **out);

/* Close all connections, wait for the calls that run, and free the server. server may be NULL. */
void grpc_server_stop(struct grpc_server *server);

#endif

/* The bytes of one connection: HTTP/2 frames to calls, replies to frames. No I/O, no threads, no clock. Private to
 * grpc. */
#ifndef GRANARY_CSI_GRPC_GRPC_SESSION_H
#define GRANARY_CSI_GRPC_GRPC_SESSION_H

#include <stdbool.h>

#include "csi/grpc/grpc.h"

struct grpc_session;
struct grpc_stream;

/* A call that runs. Only the thread of the sessions touches `stream`; only the thread of the call touches `reply`,
 * until grpc_call_finish. */
struct grpc_call {
    struct grpc_stream *stream; /* where the reply goes; NULL: the client has gone, or has got an answer */
    char path[GRPC_PATH_MAX];
    struct bytes request; /* with the prefix of GRPC_PREFIX bytes */
    struct grpc_reply reply;
};

enum { GRPC_PREFIX = 5 }; /* bytes before a message: a flag, and the length */

/* Take over a call whose request is complete, and hand it to grpc_call_finish, now or later. */
typedef void grpc_run(void *arg, struct grpc_call *call);

GR_MUST_CHECK int grpc_session_new(grpc_run *run, void *arg, struct grpc_session **out);
/* Calls that run lose their stream. */
void grpc_session_free(struct grpc_session *s);
DEFINE_CLEANUP(grpc_session, struct grpc_session *, grpc_session_free)

/* Take bytes of the peer's. Non-zero: the connection is to end. */
GR_MUST_CHECK int grpc_session_receive(struct grpc_session *s, const uint8_t *data, size_t len, uint64_t now_ms);

/* Point *out at bytes to send, valid until the next call, and return their number. 0: nothing now; -EPROTO: the
 * connection is to end. */
GR_MUST_CHECK ssize_t grpc_session_send(struct grpc_session *s, const uint8_t **out);

/* Is there nothing more to receive or to send? */
bool grpc_session_over(struct grpc_session *s);

/* Does a call run? */
bool grpc_session_busy(const struct grpc_session *s);

/* The earliest deadline of the streams without an answer; UINT64_MAX: there is none. */
uint64_t grpc_session_deadline(const struct grpc_session *s);
/* Answer the streams whose deadline has passed. */
void grpc_session_expire(struct grpc_session *s, uint64_t now_ms);

/* Give the reply to the call's stream, if it is still there, and free the call. */
void grpc_call_finish(struct grpc_call *call);

/* Parse a grpc-timeout ("20S": at most 8 digits, then H, M, S, m, u or n) into milliseconds, rounded up. False: it is
 * not one. */
bool grpc_timeout_parse(const char *text, uint64_t *out_ms);

#endif

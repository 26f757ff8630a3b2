/* What a client of the volume driver sends: HTTP/2 with gRPC, by pieces as a socket would bring them, with replies at
 * once, later, or after the client has gone. */
#include "fuzz/fuzz.h"

#include <string.h>
#include <sys/types.h>

#include "csi/grpc/grpc_session.h"

enum { HELD_MAX = GRPC_STREAMS_MAX };

static struct {
    struct grpc_call *held[HELD_MAX];
    size_t count;
} later;

static void finish_held(void)
{
    while (later.count)
        grpc_call_finish(later.held[--later.count]);
}

/* Answers by the path: a failure, the request back, or the latter when more has come. */
static void run(void *arg, struct grpc_call *call)
{
    FUZZ_CHECK(strnlen(call->path, sizeof call->path) < sizeof call->path);
    FUZZ_CHECK(call->request.len >= GRPC_PREFIX && call->request.len <= GRPC_PREFIX + GRPC_REQUEST_MAX);
    if (call->path[0] && call->path[1] == 'f')
        (void)grpc_fail(&call->reply, GRPC_ABORTED, "%s", call->path);
    else if (bytes_append(&call->reply.message, call->request.data + GRPC_PREFIX, call->request.len - GRPC_PREFIX))
        (void)grpc_fail(&call->reply, GRPC_INTERNAL, "%s", error_text());
    if (call->path[0] && call->path[1] == 'l' && later.count < HELD_MAX)
        later.held[later.count++] = call;
    else
        grpc_call_finish(call);
}

/* The first byte says how much comes at a time, and whether the client goes before the late replies. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct grpc_session *s;
    const uint8_t *out;
    size_t piece = len ? 1 + (size_t)(data[0] >> 1) * 8 : 1;
    ssize_t n = 0;
    if (grpc_session_new(run, NULL, &s))
        return 0;
    for (size_t at = 1, now = 0; at < len && n >= 0; at += piece, now += 100) {
        if (grpc_session_receive(s, data + at, GR_MIN(piece, len - at), now))
            break;
        grpc_session_expire(s, now);
        FUZZ_CHECK(grpc_session_deadline(s) > now);
        while ((n = grpc_session_send(s, &out)) > 0)
            ;
        if (grpc_session_over(s))
            break;
    }
    if (len && data[0] & 1) {
        grpc_session_free(s);
        finish_held();
        return 0;
    }
    finish_held();
    while (grpc_session_send(s, &out) > 0)
        ;
    grpc_session_free(s);
    return 0;
}

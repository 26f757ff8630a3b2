/* What a client of NBD sends: the handshake, by pieces as a socket would bring them, then requests. */
#include "fuzz/fuzz.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "nbd/handshake.h"
#include "nbd/request.h"

enum { SIZE = 1 << 20 };

static void describe(struct handshake_export *out)
{
    *out = (struct handshake_export){
        .size = SIZE, .preferred = 4096, .request_max = REQUEST_LEN_MAX, .name = "faces", .description = "an export"};
}

static int open_export(void *arg, const char *name, struct handshake_export *out)
{
    FUZZ_CHECK(strlen(name) <= NBD_WIRE_NAME_MAX);
    if (*name && strcmp(name, "faces") != 0)
        return error_set(-ENOENT, "no export '%.100s'", name);
    describe(out);
    return 0;
}

static int list_exports(void *arg, int (*visit)(void *visit_arg, const struct handshake_export *e), void *visit_arg)
{
    struct handshake_export e;
    describe(&e);
    return visit(visit_arg, &e);
}

static void take_requests(const uint8_t *data, size_t len)
{
    struct request r;
    for (; len >= REQUEST_SIZE && !request_parse(data, SIZE, &r); data += REQUEST_SIZE, len -= REQUEST_SIZE)
        if (r.kind == REQUEST_READ || r.kind == REQUEST_CACHE)
            FUZZ_CHECK(r.len && r.offset < SIZE && r.len <= SIZE - r.offset && !r.error && !r.skip);
        else
            FUZZ_CHECK(r.skip <= REQUEST_DATA_MAX);
}

/* The first byte says how much comes at a time, and whether TLS is required: what follows STARTTLS is then what comes
 * by TLS, and nothing may have come with it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct handshake_exports exports = {.open = open_export, .list = list_exports};
    struct handshake h = {.exports = &exports,
                          .tls = len && !(data[0] & 1) ? HANDSHAKE_TLS_REQUIRED : HANDSHAKE_TLS_NONE};
    size_t piece = len ? 1 + (size_t)data[0] * 64 : 1, at = 1, there = 1;
    enum handshake_step step = HANDSHAKE_WAITS;
    int rc = 0;
    while (!rc && at < len && step != HANDSHAKE_READY && step != HANDSHAKE_OVER) {
        CLEANUP_BYTES out = BYTES_INIT(HANDSHAKE_OUT_MAX);
        size_t used;
        if (step == HANDSHAKE_WAITS && there == len)
            return 0;
        if (step == HANDSHAKE_WAITS)
            there = GR_MIN(len, there + piece);
        if (at == there) {
            step = HANDSHAKE_WAITS;
            continue;
        }
        rc = handshake_take(&h, data + at, there - at, &used, &out, &step);
        FUZZ_CHECK(rc == 0 || rc == -EPROTO);
        FUZZ_CHECK(used <= there - at && (rc || used || step == HANDSHAKE_WAITS));
        FUZZ_CHECK(rc || step != HANDSHAKE_WAITS || there - at < HANDSHAKE_OPTION_MAX + 16);
        at += used;
        FUZZ_CHECK(rc || step != HANDSHAKE_SECURES || at == there);
        FUZZ_CHECK(rc || step != HANDSHAKE_READY || h.tls != HANDSHAKE_TLS_REQUIRED);
    }
    if (!rc && step == HANDSHAKE_READY)
        take_requests(data + at, len - at);
    return 0;
}

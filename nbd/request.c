/* Decoding one request of the NBD protocol (doc/proto.md of the NetworkBlockDevice project), simple replies only. A
 * request that is refused still has a reply; only one whose end cannot be found (no magic, too much data) ends the
 * connection. */
#include "nbd/request.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"

/* EINVAL unless the range is not empty, within the export, and for a read short enough. */
static uint32_t check_range(const struct request *r, uint64_t size)
{
    bool within = r->len && r->offset <= size && r->len <= size - r->offset;
    return within && (r->kind == REQUEST_CACHE || r->len <= REQUEST_LEN_MAX) ? 0 : EINVAL;
}

/* Set the request's kind and error. Exports are read-only: writes are refused, and a flush has nothing to do. */
static void nbd_request_judge(struct request *r, unsigned command, unsigned flags, uint64_t size)
{
    switch (command) {
    case NBD_WIRE_READ:
    case NBD_WIRE_CACHE:
        r->kind = command == NBD_WIRE_READ ? REQUEST_READ : REQUEST_CACHE;
        r->error = flags ? EINVAL : check_range(r, size);
        break;
    case NBD_WIRE_DISC:
        r->kind = REQUEST_DISCONNECT;
        break;
    case NBD_WIRE_FLUSH: /* nothing is ever written */
        break;
    case NBD_WIRE_WRITE:
        r->skip = r->len;
        r->error = EPERM;
        break;
    case NBD_WIRE_TRIM:
    case NBD_WIRE_WRITE_ZEROES:
        r->error = EPERM;
        break;
    default:
        r->error = EINVAL;
    }
    if (r->error)
        r->kind = REQUEST_ANSWERED;
}

int request_parse(const uint8_t bytes[REQUEST_SIZE], uint64_t size, struct request *out)
{
    struct nbd_wire_request wire;
    memcpy(&wire, bytes, sizeof wire);
    if (be32toh(wire.magic) != NBD_WIRE_REQUEST_MAGIC)
        return error_set(-EPROTO, "the client has sent something that is no request");
    *out = (struct request){
        .kind = REQUEST_ANSWERED, .cookie = wire.cookie, .offset = be64toh(wire.offset), .len = be32toh(wire.len)};
    nbd_request_judge(out, be16toh(wire.command), be16toh(wire.flags), size);
    if (out->skip > REQUEST_DATA_MAX)
        return error_set(-EPROTO, "the client has announced a write of %u bytes", out->skip);
    return 0;
}

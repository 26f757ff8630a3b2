/* A client's request after the handshake, decoded and checked. No I/O. */
#ifndef GRANARY_NBD_REQUEST_H
#define GRANARY_NBD_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "net/nbd_wire.h"

enum {
    REQUEST_SIZE = sizeof(struct nbd_wire_request),
    REQUEST_LEN_MAX = 32 << 20,  /* the most bytes of one read */
    REQUEST_DATA_MAX = 64 << 20, /* the most bytes that may follow a write, which is refused */
};

enum request_kind {
    REQUEST_READ,       /* [offset, offset + len) is within the export, len is not 0 */
    REQUEST_CACHE,      /* likewise */
    REQUEST_ANSWERED,   /* answered at once with `error` */
    REQUEST_DISCONNECT, /* has no answer */
};

struct request {
    enum request_kind kind;
    uint64_t cookie; /* as it was sent; only ever sent back */
    uint64_t offset;
    uint32_t len;
    uint32_t error; /* NBD's number, which is also Linux's; 0: none */
    uint32_t skip;  /* bytes that follow it, to be skipped before it is answered */
};

/* Decode a request of a client of an export of `size` bytes. -EPROTO with a message: the stream cannot be followed
 * any further; disconnect. */
GR_MUST_CHECK int request_parse(const uint8_t bytes[REQUEST_SIZE], uint64_t size, struct request *out);

#endif

/* What a client asks for behind the handshake, decoded and judged. No I/O. */
#ifndef GRANARY_NBD_REQUEST_H
#define GRANARY_NBD_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "net/nbd_wire.h"

enum {
    REQUEST_SIZE = sizeof(struct nbd_wire_request),
    REQUEST_LEN_MAX = 32 << 20,  /* bytes that one read may ask for */
    REQUEST_DATA_MAX = 64 << 20, /* bytes that may follow a write, which is refused */
};

enum request_kind {
    REQUEST_READ,       /* [offset, offset + len) is within the export, len is not 0 */
    REQUEST_CACHE,      /* the same */
    REQUEST_ANSWERED,   /* error is the answer */
    REQUEST_DISCONNECT, /* there is no answer */
};

struct request {
    enum request_kind kind;
    uint64_t cookie; /* as it was sent: only ever sent back */
    uint64_t offset;
    uint32_t len;
    uint32_t error; /* NBD's number, which is Linux's too; 0: none */
    uint32_t skip;  /* bytes that follow it and are passed over before it is answered */
};

/* Decode what a client of an export of `size` bytes sent. -EPROTO with a sentence: it cannot be followed; disconnect.
 */
GR_MUST_CHECK int request_parse(const uint8_t bytes[REQUEST_SIZE], uint64_t size, struct request *out);

#endif

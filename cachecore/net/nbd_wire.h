/* NBD's fixed newstyle protocol as bytes, for both ends of a connection. All numbers are big-endian.
 * https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md
 *
 *   server:  "NBDMAGIC" "IHAVEOPT" flags:16
 *   client:  flags:32
 *   client:  "IHAVEOPT" option:32 length:32 data                 an option, then others
 *   server:  REPLY_MAGIC:64 option:32 type:32 length:32 data     until ACK, or an error
 *   client:  REQUEST_MAGIC:32 flags:16 command:16 cookie:64 offset:64 length:32 data
 *   server:  SIMPLE_MAGIC:32 error:32 cookie:64 data             in any order
 */
#ifndef GRANARY_NET_NBD_WIRE_H
#define GRANARY_NET_NBD_WIRE_H

#include <stdint.h>

#define NBD_WIRE_GREETING "NBDMAGICIHAVEOPT"
#define NBD_WIRE_OPTION_MAGIC "IHAVEOPT"
#define NBD_WIRE_REPLY_MAGIC 0x3e889045565a9ull
#define NBD_WIRE_REQUEST_MAGIC 0x25609513u
#define NBD_WIRE_SIMPLE_MAGIC 0x67446698u

enum { NBD_WIRE_NAME_MAX = 4096 }; /* bytes of an export's name */

enum nbd_wire_handshake_flag { NBD_WIRE_FIXED_NEWSTYLE = 1, NBD_WIRE_NO_ZEROES = 2 };

enum nbd_wire_option {
    NBD_WIRE_OPT_EXPORT_NAME = 1,
    NBD_WIRE_OPT_ABORT = 2,
    NBD_WIRE_OPT_LIST = 3,
    NBD_WIRE_OPT_STARTTLS = 5,
    NBD_WIRE_OPT_INFO = 6,
    NBD_WIRE_OPT_GO = 7,
};

#define NBD_WIRE_REP_ACK 1u
#define NBD_WIRE_REP_SERVER 2u
#define NBD_WIRE_REP_INFO 3u
#define NBD_WIRE_REP_ERROR 0x80000000u
#define NBD_WIRE_REP_ERR_UNSUP (NBD_WIRE_REP_ERROR + 1)
#define NBD_WIRE_REP_ERR_POLICY (NBD_WIRE_REP_ERROR + 2)
#define NBD_WIRE_REP_ERR_INVALID (NBD_WIRE_REP_ERROR + 3)
#define NBD_WIRE_REP_ERR_TLS_REQD (NBD_WIRE_REP_ERROR + 5)
#define NBD_WIRE_REP_ERR_UNKNOWN (NBD_WIRE_REP_ERROR + 6)
#define NBD_WIRE_REP_ERR_TOO_BIG (NBD_WIRE_REP_ERROR + 9)

enum nbd_wire_info {
    NBD_WIRE_INFO_EXPORT = 0,
    NBD_WIRE_INFO_NAME = 1,
    NBD_WIRE_INFO_DESCRIPTION = 2,
    NBD_WIRE_INFO_BLOCK_SIZE = 3,
};

enum nbd_wire_export_flag {
    NBD_WIRE_HAS_FLAGS = 1 << 0,
    NBD_WIRE_READ_ONLY = 1 << 1,
    NBD_WIRE_CAN_MULTI_CONN = 1 << 8,
    NBD_WIRE_SEND_CACHE = 1 << 10,
};

enum nbd_wire_command {
    NBD_WIRE_READ = 0,
    NBD_WIRE_WRITE = 1,
    NBD_WIRE_DISC = 2,
    NBD_WIRE_FLUSH = 3,
    NBD_WIRE_TRIM = 4,
    NBD_WIRE_CACHE = 5,
    NBD_WIRE_WRITE_ZEROES = 6,
};

/* The messages as they are sent. */
struct __attribute__((packed)) nbd_wire_greeting {
    char magic[16];
    uint16_t flags;
};
struct __attribute__((packed)) nbd_wire_option_head {
    char magic[8];
    uint32_t option, len;
};
struct __attribute__((packed)) nbd_wire_reply_head {
    uint64_t magic;
    uint32_t option, type, len;
};
struct __attribute__((packed)) nbd_wire_info_export {
    uint16_t type;
    uint64_t size;
    uint16_t flags;
};
struct __attribute__((packed)) nbd_wire_info_block_size {
    uint16_t type;
    uint32_t minimum, preferred, maximum;
};
struct __attribute__((packed)) nbd_wire_request {
    uint32_t magic;
    uint16_t flags, command;
    uint64_t cookie, offset;
    uint32_t len;
};
struct __attribute__((packed)) nbd_wire_simple_reply {
    uint32_t magic, error;
    uint64_t cookie;
};

#endif

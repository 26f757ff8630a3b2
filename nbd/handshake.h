/* The server's side of NBD's handshake: bytes from a client in, bytes for it out. No I/O and no threads: the caller
 * moves the bytes and bounds the time. */
#ifndef GRANARY_NBD_HANDSHAKE_H
#define GRANARY_NBD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
    HANDSHAKE_OPTION_MAX = 8000,  /* bytes of an option's data; a longer one is skipped and refused */
    HANDSHAKE_SKIP_MAX = 1 << 20, /* a client that announces a longer option is disconnected */
    HANDSHAKE_OPTIONS_MAX = 64,   /* options of one client */
    HANDSHAKE_OUT_MAX = 64 << 20, /* bytes; a list of 10,000 exports with the longest names fits */
};

/* An export as clients see it; the strings live until the next call. */
struct handshake_export {
    uint64_t size;        /* bytes */
    uint32_t preferred;   /* preferred bytes a request; a power of two */
    uint32_t request_max; /* the most bytes a request */
    const char *name, *description;
    bool single; /* another connection by the same name may have other bytes */
};

/* What a handshake needs from the server; `arg` is passed to each. */
struct handshake_exports {
    /* Open the export of that name for this client, in place of the one before. -ENOENT: there is none; another
     * error: it is refused. Both with a message, which the client gets. */
    int (*open)(void *arg, const char *name, struct handshake_export *out);
    /* Call visit for each export; its non-zero result ends the walk and is returned. */
    int (*list)(void *arg, int (*visit)(void *visit_arg, const struct handshake_export *e), void *visit_arg);
};

enum handshake_tls {
    HANDSHAKE_TLS_NONE,     /* this server does not offer TLS */
    HANDSHAKE_TLS_REQUIRED, /* required and not in use yet: nothing else is answered */
    HANDSHAKE_TLS_SECURED,  /* in use */
};

/* The state of one client's handshake. The caller sets exports, arg and tls; the rest starts as zero. */
struct handshake {
    const struct handshake_exports *exports;
    void *arg;
    enum handshake_tls tls; /* NONE or REQUIRED at the start */
    bool greeted, no_zeroes;
    unsigned options; /* options taken so far */
    uint32_t skip;    /* bytes to skip */
};

enum handshake_step {
    HANDSHAKE_WAITS,   /* more bytes are needed; none were taken */
    HANDSHAKE_GOES_ON, /* `used` bytes were taken; send `out`, then call again with the rest */
    HANDSHAKE_SECURES, /* the same, and the TLS handshake follows; except for the greeting, everything before it is
                          forgotten */
    HANDSHAKE_READY,   /* the same, and requests follow, for the export opened last */
    HANDSHAKE_OVER,    /* disconnect when `out` has been sent */
};

/* Append the greeting, which the server sends first. -ENOMEM. */
GR_MUST_CHECK int handshake_greet(struct bytes *out);

/* Take at most one option from data[0..len) and append the answer to out. A caller that offers HANDSHAKE_OPTION_MAX +
 * 16 bytes never gets HANDSHAKE_WAITS. -EPROTO: not an NBD client, or it asks for too much; -ENOMEM. Disconnect after
 * both. */
GR_MUST_CHECK int handshake_take(struct handshake *h, const uint8_t *data, size_t len, size_t *used, struct bytes *out,
                                 enum handshake_step *step);

#endif

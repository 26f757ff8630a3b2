/* The server's side of NBD's handshake: bytes of a client in, bytes for it out. No I/O and no threads: the caller moves
 * the bytes, and bounds how long a handshake may last. */
#ifndef GRANARY_NBD_HANDSHAKE_H
#define GRANARY_NBD_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum {
    HANDSHAKE_OPTION_MAX = 8000,  /* bytes of an option's data; of a longer one nothing is kept, and it is refused */
    HANDSHAKE_SKIP_MAX = 1 << 20, /* a client that announces more is disconnected */
    HANDSHAKE_OPTIONS_MAX = 64,   /* of one client */
    HANDSHAKE_OUT_MAX = 64 << 20, /* the list of 10,000 exports with the longest names fits */
};

/* An export as a client is told of it; the strings live until the next call. */
struct handshake_export {
    uint64_t size;        /* bytes */
    uint32_t preferred;   /* bytes a request, a power of two */
    uint32_t request_max; /* bytes a request */
    const char *name, *description;
};

/* What a handshake asks of its server, always with arg. */
struct handshake_exports {
    /* The export of that name, for this client; it replaces the one before. -ENOENT: there is none; another error: it
     * is refused. Both with a sentence, which the client gets. */
    int (*open)(void *arg, const char *name, struct handshake_export *out);
    /* Call visit for each; its non-zero result ends the walk and is returned. */
    int (*list)(void *arg, int (*visit)(void *visit_arg, const struct handshake_export *e), void *visit_arg);
};

enum handshake_tls {
    HANDSHAKE_TLS_NONE,     /* this server has none */
    HANDSHAKE_TLS_REQUIRED, /* the client has not got it yet: nothing else is answered */
    HANDSHAKE_TLS_SECURED,
};

struct handshake {
    const struct handshake_exports *exports;
    void *arg;
    enum handshake_tls tls; /* NONE or REQUIRED to begin with */
    bool greeted, no_zeroes;
    unsigned options; /* taken so far */
    uint32_t skip;    /* bytes to pass over */
};

enum handshake_step {
    HANDSHAKE_WAITS,   /* for more bytes: nothing was taken */
    HANDSHAKE_GOES_ON, /* *used bytes were taken; call again with the rest, once what is in out has been sent */
    HANDSHAKE_SECURES, /* the same, and TLS follows: nothing of before it counts, but that the client was greeted */
    HANDSHAKE_READY,   /* the same, and requests follow, for the export that was opened last */
    HANDSHAKE_OVER,    /* disconnect when what is in out has been sent */
};

/* What the server says first. -ENOMEM. */
GR_MUST_CHECK int handshake_greet(struct bytes *out);

/* Take at most one option of data[0..len). A caller that has HANDSHAKE_OPTION_MAX + 16 bytes is never told to wait.
 * out: what is to be sent is appended. -EPROTO: it is no NBD client, or wants too much; -ENOMEM. Then disconnect. */
GR_MUST_CHECK int handshake_take(struct handshake *h, const uint8_t *data, size_t len, size_t *used, struct bytes *out,
                                 enum handshake_step *step);

#endif

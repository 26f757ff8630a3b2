/* Having a server cache an export, or its metadata, by NBD alone: NBD_CMD_CACHE, which Granary's plugin answers when
 * the range is cached. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_WARM_H
#define GRANARY_ATTACH_DEVICE_NBD_WARM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "format/trace.h"

enum { NBD_WARM_NAMED = 10, NBD_WARM_FAILED_MAX = 1000 };

struct nbd_warm_state {
    uint64_t bytes_done, bytes_total;
    uint64_t failed_chunks, failed_bytes, failed_at[NBD_WARM_NAMED]; /* offsets of the first ones */
};

struct nbd_warm {
    const char *uri;
    bool metadata;             /* as the export's description places it, instead of all */
    uint64_t bwlimit;          /* bytes of the export a second; 0: no limit */
    const struct trace *trace; /* its chunks in its order, instead; NULL: none */
    void (*progress)(void *arg, const struct nbd_warm_state *state);
    void *arg;
};

/* 16 chunks a request, 64 requests at a time; a request that fails is repeated chunk by chunk. 0 also when chunks
 * failed (*out). -EIO: no connection, or more than NBD_WARM_FAILED_MAX failed; -ENOTSUP: the server cannot, or its
 * export does not say where the metadata is; -EINVAL: the trace is not of the export's content. */
GR_MUST_CHECK int nbd_warm(const struct nbd_warm *config, struct nbd_warm_state *out);

#endif

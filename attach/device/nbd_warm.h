/* Has a server cache an export, or its metadata, over NBD alone: by NBD_CMD_CACHE, which Granary answers once the range
 * is cached. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_WARM_H
#define GRANARY_ATTACH_DEVICE_NBD_WARM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "format/trace.h"

enum { NBD_WARM_NAMED = 10, NBD_WARM_FAILED_MAX = 1000 };

/* The progress. */
struct nbd_warm_state {
    uint64_t bytes_done, bytes_total;
    uint64_t failed_chunks, failed_bytes, failed_at[NBD_WARM_NAMED]; /* failed_at: offsets of the first failed chunks */
};

/* What to cache: everything, unless metadata or trace restrict it. */
struct nbd_warm {
    const char *uri;
    bool metadata;             /* only the metadata, as the export's description places it */
    uint64_t bwlimit;          /* bytes of the export per second; 0: no limit */
    const struct trace *trace; /* only metadata and this trace's chunks, in its order; NULL: no trace */
    void (*progress)(void *arg, const struct nbd_warm_state *state);
    void *arg;
};

/* Cache it, with 16 chunks a request and 64 requests in flight; a failed request is repeated chunk by chunk. Returns 0
 * also when chunks failed, which *out counts. -EIO: no connection, or more than NBD_WARM_FAILED_MAX chunks failed;
 * -ENOTSUP: the server cannot cache on demand, or its export does not tell where the metadata is; -EINVAL: the trace is
 * of other content. */
GR_MUST_CHECK int nbd_warm(const struct nbd_warm *config, struct nbd_warm_state *out);

#endif

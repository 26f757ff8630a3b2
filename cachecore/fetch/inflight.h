/* The fetch of one chunk, queued or running, and its result; fetch.h has its states. Reference-counted; any thread. */
#ifndef GRANARY_FETCH_INFLIGHT_H
#define GRANARY_FETCH_INFLIGHT_H

#include "base/buf.h"
#include "base/compiler.h"
#include "format/chunk.h"

struct inflight;

/* Drop a reference; frees on the last. NULL is allowed. The fetch itself continues. */
void inflight_unref(struct inflight *inflight);
/* Take another reference and return its argument. */
struct inflight *inflight_ref(struct inflight *inflight);

/* The chunk being fetched. Valid while the caller holds a reference. */
const struct chunk_ref *inflight_chunk(const struct inflight *inflight);

/* The tag passed to the fetch_start that started this fetch. */
uint32_t inflight_tag(const struct inflight *inflight);

/* Return a reference to the chunk's stored bytes, one zstd frame, or NULL: the chunk is stored uncompressed, has not
 * landed, was recovered by a refetch, or fetch_config.keep_stored is off (or memory was short). */
struct buf *inflight_stored(struct inflight *inflight);

/* Where the time of a waiter went. */
struct inflight_times {
    uint64_t queued_us, get_us; /* until the GET was sent; in the GET, retries, decoding and verification included */
    unsigned tries;             /* attempts of the GET that delivered the chunk */
    const char *from; /* URL of the server of the last attempt, valid as long as the store; NULL: none was sent */
};
/* Report the times of a landed fetch to a waiter that began to wait at since_us (clock_now_us). */
void inflight_times(struct inflight *inflight, uint64_t since_us, struct inflight_times *out);

/* Wait until the fetch lands. 0: *out is a reference to the verified uncompressed bytes. Otherwise the error of the
 * fetch with its sentence, or -ECANCELED if the client of the calling thread disconnected (base/client.h); the fetch
 * continues then. */
GR_MUST_CHECK int inflight_wait(struct inflight *inflight, struct buf **out);

#endif

/* The fetch of one chunk, queued or on its way; see fetch.h for its states. */
#ifndef GRANARY_FETCH_INFLIGHT_H
#define GRANARY_FETCH_INFLIGHT_H

#include "base/buf.h"
#include "base/compiler.h"
#include "format/chunk.h"

struct inflight;

void inflight_unref(struct inflight *inflight);
struct inflight *inflight_ref(struct inflight *inflight);

const struct chunk_ref *inflight_chunk(const struct inflight *inflight);

/* What fetch_start was given. */
uint32_t inflight_tag(const struct inflight *inflight);

/* A reference to its stored bytes, which are one zstd frame, or NULL: it is stored plain, has not
 * landed, or the fetch was not told to keep them. */
struct buf *inflight_stored(struct inflight *inflight);

/* What the time of whoever waits for it goes to. */
struct inflight_times {
    uint64_t queued_us, get_us; /* for a place among the gets in flight; for the store, its retries and the proof */
    unsigned tries;             /* of the get that landed it */
    const char *from;           /* who was asked last: a URL that lives as long as the store; NULL: nobody was */
};
/* For one that has landed and somebody who has waited since since_us (clock_now_us). */
void inflight_times(struct inflight *inflight, uint64_t since_us, struct inflight_times *out);

/* Wait until it landed. 0 and a reference to the verified plain bytes, or the fetch's error with
 * its sentence. -ECANCELED: the calling thread's client (base/client.h) has gone; the fetch goes on. */
GR_MUST_CHECK int inflight_wait(struct inflight *inflight, struct buf **out);

#endif

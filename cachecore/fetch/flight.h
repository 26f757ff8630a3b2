/* One chunk's fetch in the air; see fetch.h for its states. */
#ifndef GRANARY_FETCH_FLIGHT_H
#define GRANARY_FETCH_FLIGHT_H

#include "base/buf.h"
#include "base/compiler.h"
#include "format/chunk.h"

struct flight;

void flight_unref(struct flight *flight);
struct flight *flight_ref(struct flight *flight);

const struct chunk_ref *flight_chunk(const struct flight *flight);

/* What fetch_start was given. */
uint32_t flight_tag(const struct flight *flight);

/* A reference to its stored bytes, which are one zstd frame, or NULL: it is stored plain, has not
 * landed, or the fetch was not told to keep them. */
struct buf *flight_stored(struct flight *flight);

/* What the time of whoever waits for it goes to. */
struct flight_times {
    uint64_t queued_us, get_us; /* for a place among the gets in the air; for the store, its retries and the proof */
    unsigned tries;             /* of the get that landed it */
    const char *from;           /* who was asked last: a URL that lives as long as the store; NULL: nobody was */
};
/* For one that has landed and somebody who has waited since since_us (clock_now_us). */
void flight_times(struct flight *flight, uint64_t since_us, struct flight_times *out);

/* Wait until it landed. 0 and a reference to the verified plain bytes, or the fetch's error with
 * its sentence. -ECANCELED: the calling thread's asker (base/asker.h) has gone; the fetch goes on. */
GR_MUST_CHECK int flight_wait(struct flight *flight, struct buf **out);

#endif

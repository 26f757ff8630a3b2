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

/* Wait until it landed. 0 and a reference to the verified plain bytes, or the fetch's error with
 * its sentence. */
GR_MUST_CHECK int flight_wait(struct flight *flight, struct buf **out);

#endif

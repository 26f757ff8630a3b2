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

/* Wait until it landed. 0 and a reference to the verified plain bytes, or the fetch's error with
 * its sentence. */
GR_MUST_CHECK int flight_wait(struct flight *flight, struct buf **out);

#endif

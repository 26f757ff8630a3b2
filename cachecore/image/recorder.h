/* Record which chunks of an image are read: each once, in the order of first touch. Readers push, one thread takes.
 *
 * Readers never wait for it. When the ring is full because the taking thread is behind, the entry is dropped and
 * counted, and the next read of that chunk is a first touch again.
 */
#ifndef GRANARY_IMAGE_RECORDER_H
#define GRANARY_IMAGE_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/counter.h"
#include "base/error.h"
#include "format/trace.h"

enum { RECORDER_RING = 1 << 16 /* entries; 1.5 MiB */ };

struct recorder;

/* An image's place for its recorder. All zero: none. */
struct recorder_place {
    _Atomic(struct recorder *) current;
    _Atomic unsigned users;         /* readers that may be using `current` */
    _Atomic unsigned started, ends; /* number of recorders so far; the number of the last one asked to end */
};

/* Start recording; one recorder at a time. *out: recorder_stop, then recorder_free. -EBUSY: one is running; -ENOMEM. */
GR_MUST_CHECK int recorder_start(struct recorder_place *place, uint64_t chunk_count, struct recorder **out);
/* Stop recording; when it returns no reader pushes any more, and the ring can still be emptied. */
void recorder_stop(struct recorder_place *place, struct recorder *r);
void recorder_free(struct recorder *r); /* after recorder_stop */

/* Take the oldest entries, at most max; returns how many. One thread at a time. */
size_t recorder_take(struct recorder *r, struct trace_entry *out, size_t max);
/* Return how many entries were dropped. */
uint64_t recorder_dropped(struct recorder *r);

/* Ask the recording thread to end. false: nothing is being recorded. Any thread. */
bool recorder_end(struct recorder_place *place);
/* Has recorder_end been called since recorder_start? Call it before recorder_stop. */
bool recorder_ending(struct recorder_place *place);

/* Record a chunk if it is a first touch; call recorder_note instead. */
void recorder_push(struct recorder_place *place, uint64_t chunk, const struct digest *digest);

/* Note that a chunk is read. Costs one relaxed load while nothing is recorded. */
static inline void recorder_note(struct recorder_place *place, uint64_t chunk, const struct digest *digest)
{
    if (__builtin_expect(atomic_load_explicit(&place->current, memory_order_relaxed) != NULL, 0))
        recorder_push(place, chunk, digest);
}

#endif

/* Which chunks of an image are read, each once, in the order of first touch: pushed by readers, taken by one thread.
 *
 * Readers never wait for it. What does not fit the ring, because the thread that takes is behind, is dropped and
 * counted; the next read of such a chunk is a first touch again.
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

/* Where an image has its recorder; zero: none. */
struct recorder_place {
    _Atomic(struct recorder *) current;
    _Atomic unsigned users;         /* readers that may have found it */
    _Atomic unsigned started, ends; /* how many there were; the last that was asked to end */
};

/* One at a time. *out: recorder_stop. -EBUSY: there is one; -ENOMEM. */
GR_MUST_CHECK int recorder_start(struct recorder_place *place, uint64_t chunk_count, struct recorder **out);
/* No reader pushes any more: what is in the ring can still be taken. */
void recorder_stop(struct recorder_place *place, struct recorder *r);
void recorder_free(struct recorder *r); /* after recorder_stop */

/* The oldest entries, at most max; how many. One thread at a time. */
size_t recorder_take(struct recorder *r, struct trace_entry *out, size_t max);
uint64_t recorder_dropped(struct recorder *r);

/* Ask whoever records to end: false: nobody does. Any thread. */
bool recorder_end(struct recorder_place *place);
/* Was that asked since recorder_start? Before recorder_stop. */
bool recorder_ending(struct recorder_place *place);

void recorder_push(struct recorder_place *place, uint64_t chunk, const struct digest *digest);

/* A reader reads that chunk. One relaxed load while nobody records. */
static inline void recorder_note(struct recorder_place *place, uint64_t chunk, const struct digest *digest)
{
    if (__builtin_expect(atomic_load_explicit(&place->current, memory_order_relaxed) != NULL, 0))
        recorder_push(place, chunk, digest);
}

#endif

/* The deltas of a run of chunks, until their bases are there (chunk_read.c). */
#ifndef GRANARY_REPOSITORY_READ_CHUNK_DELTAS_H
#define GRANARY_REPOSITORY_READ_CHUNK_DELTAS_H

#include "base/vec.h"
#include "repository/read/chunk_read.h"

/* A delta whose stored bytes have arrived. */
struct chunk_delta {
    const struct chunk_ref *ref;
    size_t number; /* of the ref in the run */
    struct buf *stored;
    struct chunk_ref base;
};

/* Begins as all zero. */
struct chunk_deltas {
    VEC(struct chunk_delta) list;
};
void chunk_deltas_release(struct chunk_deltas *d);

/* Take the stored bytes of ref, the `number`th of the run; they are copied. -EBADMSG: its base is a delta; -ENOMEM. */
GR_MUST_CHECK int chunk_deltas_add(struct chunk_deltas *d, const struct chunk_ref *ref, size_t number,
                                   const void *stored);

/* Get the bases, decode all deltas, and report each to done; url: of the store, for sentences. d is empty afterwards.
 */
void chunk_deltas_finish(struct chunk_deltas *d, const char *url, chunk_read_bases *read, void *read_arg,
                         chunk_read_done *done, void *arg);

#endif

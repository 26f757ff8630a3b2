/* Every chunk of an image, read and verified by a pool of threads, handed on in address order in
 * the calling thread. What verify and export stand on. Memory: at most CHUNK_STREAM_JOB bytes for
 * each of 2 * threads + 2 runs of neighbouring chunks.
 */
#ifndef GRANARY_STORE_READ_CHUNK_STREAM_H
#define GRANARY_STORE_READ_CHUNK_STREAM_H

#include "format/manifest.h"
#include "store/store.h"

enum { CHUNK_STREAM_JOB = 4 << 20, CHUNK_STREAM_THREADS = 8, CHUNK_STREAM_THREADS_MAX = 256 };

/* One chunk, or a run of holes. */
struct chunk_item {
    uint64_t number, count;      /* first chunk number; count is above 1 only for holes */
    const struct chunk_ref *ref; /* NULL: holes */
    const uint8_t *data;         /* ref->plain_len bytes; NULL: holes, or rc is set */
    int rc;                      /* the chunk could not be read or is corrupt; the thread's sentence says why */
};

/* Non-zero ends the stream with that value. */
typedef int chunk_stream_visit(void *arg, const struct chunk_item *item);

struct chunk_stream_options {
    unsigned threads;           /* 0: CHUNK_STREAM_THREADS */
    const volatile int *cancel; /* set asynchronously: ends the stream with -ECANCELED; may be NULL */
    /* Only stored chunks for which this says yes are read and handed on, and no holes; arg is visit's. NULL: all. */
    bool (*wanted)(void *arg, uint64_t number);
};

/* Covers [0, manifest_chunk_count) once, ascending, but for what is not wanted. The index is verified on the way
 * (index_walk): its errors are the stream's, a chunk's error is given to visit. */
GR_MUST_CHECK int chunk_stream(struct store *s, const struct manifest *m, const struct chunk_stream_options *options,
                               chunk_stream_visit *visit, void *arg);

#endif

/* Reads and verifies all chunks of an image with a pool of threads, and delivers them in address order in the calling
 * thread. Used by verify and export. Memory: at most 2 * threads + 2 runs of neighbouring chunks, of CHUNK_STREAM_JOB
 * bytes each. */
#ifndef GRANARY_REPOSITORY_READ_CHUNK_STREAM_H
#define GRANARY_REPOSITORY_READ_CHUNK_STREAM_H

#include "format/manifest.h"
#include "store/store.h"

enum { CHUNK_STREAM_JOB = 4 << 20, CHUNK_STREAM_THREADS = 8, CHUNK_STREAM_THREADS_MAX = 256 };

/* One chunk, or a run of holes. */
struct chunk_item {
    uint64_t number, count;      /* first chunk number; number of chunks, above 1 only for holes */
    const struct chunk_ref *ref; /* NULL: holes */
    const uint8_t *data;         /* ref->plain_len bytes, valid during the visit; NULL: holes, or rc is set */
    int rc; /* non-zero: the chunk is corrupt or could not be read; the thread's sentence says why */
};

/* Visits an item; a non-zero result ends the stream and is returned. */
typedef int chunk_stream_visit(void *arg, const struct chunk_item *item);

/* Options of chunk_stream; all zero is valid. */
struct chunk_stream_options {
    unsigned threads;           /* 0: CHUNK_STREAM_THREADS */
    const volatile int *cancel; /* set asynchronously: ends the stream with -ECANCELED; may be NULL */
    /* If set, only stored chunks for which it returns true are read, and holes are left out. Called in the calling
     * thread with visit's arg. */
    bool (*wanted)(void *arg, uint64_t number);
};

/* Visit every chunk in [0, manifest_chunk_count) once, ascending, except those that are not wanted. The index is
 * verified on the way (index_walk). Errors of the index end the stream; a chunk's error is passed to visit. */
GR_MUST_CHECK int chunk_stream(struct store *s, const struct manifest *m, const struct chunk_stream_options *options,
                               chunk_stream_visit *visit, void *arg);

#endif

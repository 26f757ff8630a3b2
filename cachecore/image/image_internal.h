/* What the files of an image share. Only they include it. */
#ifndef GRANARY_IMAGE_IMAGE_INTERNAL_H
#define GRANARY_IMAGE_IMAGE_INTERNAL_H

#include <pthread.h>

#include "image/image.h"
#include "image/node_cache.h"
#include "image/readahead/demand.h"
#include "image/readahead/streams.h"
#include "image/recorder.h"
#include "image/warm/warm_turn.h"

/* An open image. Constant after image_open, except for counters, atomics and members that have a lock of their own. */
struct image {
    _Atomic unsigned refs;
    struct image_config config;
    struct digest digest;
    struct manifest manifest;
    struct node_cache *nodes;
    struct recorder_place recorder;
    struct demand demand;
    pthread_mutex_t streams_lock; /* guards streams; innermost; only ever tried */
    struct streams streams;
    counter reads, read_bytes, hole_bytes, prefetches, prefetch_bytes;
    counter served[CACHE_SOURCES], served_bytes[CACHE_SOURCES];
    _Atomic int next_credit; /* how many chunks after a short read may still be fetched with it (readahead.c) */
    counter readahead_bytes, completion_bytes, ahead_used_bytes;
    /* Called when a chunk of a leaf was missed, or when a chunk fetched ahead was read (ahead.h); NULL: not called. */
    void (*noted)(void *arg, struct image *img, uint64_t leaf);
    void *noted_arg;
    _Atomic uint64_t active_ms; /* clock_now_ms of the last miss, or of the last read of a chunk fetched ahead */
    counter fence_refusals;
    struct warm_turns warm_turns;
};

/* How many chunks one entry of a node at `level` covers. */
static inline uint64_t image_chunks_below(unsigned level)
{
    uint64_t n = 1;
    while (level--)
        n *= INDEX_FANOUT;
    return n;
}

/* Bytes of a chunk; the image's last chunk may be shorter. */
static inline uint64_t image_chunk_len(const struct image *img, uint64_t chunk)
{
    const struct manifest *m = &img->manifest;
    return GR_MIN(m->size - chunk * m->chunk_size, (uint64_t)m->chunk_size);
}

#endif

/* Detects sequential runs among the reads of an image, and decides how much to fetch ahead of them.
 *
 * A run is a sequence of reads, each of which begins near the end of the run. Not exactly at the end: kernels send the
 * requests of one reader out of order, and reading the files of a directory in order leaves small gaps.
 *
 *       begin                        end
 *         |######  ########  ########|          read; gaps between them
 *                             |<- STREAM_BACK ->|<- STREAM_FORWARD ->|
 *                                               a read that begins here continues the run
 *
 * The window ahead of a run grows with the bytes the run has read, so a run that ends has cost no more than it read. An
 * isolated read gets no window.
 *
 * No lock, no I/O: the caller serializes the calls.
 */
#ifndef GRANARY_IMAGE_READAHEAD_STREAMS_H
#define GRANARY_IMAGE_READAHEAD_STREAMS_H

#include <stdint.h>

enum {
    STREAMS_MAX = 64,           /* runs tracked at a time; the least recently used is replaced */
    STREAM_BACK = 512 << 10,    /* a read may begin up to this many bytes before the run's end, */
    STREAM_FORWARD = 256 << 10, /* or up to this many after it */
    STREAM_FREE = 256 << 10,    /* bytes that a run reads before anything is fetched ahead of it */
};

/* One run. Offsets and lengths in bytes. */
struct stream {
    uint64_t begin, end; /* the range it has covered, gaps included */
    uint64_t bytes;      /* read, without gaps */
    uint64_t ahead;      /* the end of what was fetched ahead of it */
    uint64_t used;       /* streams.clock of its last read; 0: unused entry */
};

/* All zero: no runs. */
struct streams {
    uint64_t clock; /* counts the reads */
    struct stream runs[STREAMS_MAX];
};

/* The bounds of what streams_read may return. */
struct stream_limits {
    uint64_t most;  /* maximum bytes ahead of a run */
    uint64_t stop;  /* nothing at or beyond this offset is returned */
    uint64_t align; /* a power of two: the window begins and ends at its multiples, or ends at stop */
};

/* Fetch [from, to) ahead now; from == to: nothing. */
struct stream_window {
    uint64_t from, to;
};

/* Account for a read of [off, off + len), and return what to fetch ahead of its run. The same bytes are never returned
 * twice for one run. */
struct stream_window streams_read(struct streams *s, uint64_t off, uint64_t len, const struct stream_limits *limits);

#endif

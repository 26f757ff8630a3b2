/* Which reads of an image follow each other, and what is worth fetching ahead of them.
 *
 * A run is a sequence of reads, each of which begins near the end of what the run has read: kernels send the requests
 * of one reader out of order, and a reader of a directory's files in order leaves small gaps. What a run is given ahead
 * grows with what it has read, so that a run that ends has cost no more than it has read; a read that follows nothing
 * is given nothing.
 *
 * No lock and no I/O: the caller's.
 */
#ifndef GRANARY_IMAGE_READAHEAD_STREAMS_H
#define GRANARY_IMAGE_READAHEAD_STREAMS_H

#include <stdint.h>

enum {
    STREAMS_MAX = 64,           /* runs known at a time; the one used longest ago goes */
    STREAM_BACK = 512 << 10,    /* a read may begin so far before the run's end, */
    STREAM_FORWARD = 256 << 10, /* or so far behind it */
    STREAM_FREE = 256 << 10,    /* read by a run before anything is fetched ahead of it */
};

struct stream {
    uint64_t begin, end; /* of what it has read, gaps included */
    uint64_t bytes;      /* read, gaps left out */
    uint64_t ahead;      /* fetched ahead up to here */
    uint64_t used;       /* when it was last read, by the clock below; 0: free */
};

/* Zeroed: no run. */
struct streams {
    uint64_t clock;
    struct stream runs[STREAMS_MAX];
};

struct stream_limits {
    uint64_t most;  /* bytes ahead of a run */
    uint64_t stop;  /* nothing from here on is given now */
    uint64_t align; /* what is given begins and ends at multiples of this power of two, or at stop */
};

/* [from, to) is to be fetched now; from == to: nothing. */
struct stream_window {
    uint64_t from, to;
};

/* Somebody reads [off, off + len). What is given once is not given again to the same run. */
struct stream_window streams_read(struct streams *s, uint64_t off, uint64_t len, const struct stream_limits *limits);

#endif

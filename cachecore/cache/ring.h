/* Reading slots: a pool of readers, each an io_uring whose files and bounce buffer are registered. A
 * read borrows one for as long as it lasts, so a server of thousands of threads holds RINGS_MAX rings
 * and buffers at most. Where the kernel or a container refuses io_uring, the same functions pread.
 */
#ifndef GRANARY_CACHE_RING_H
#define GRANARY_CACHE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/counter.h"

enum {
    RINGS_MAX = 64,          /* readers: reads of the cache that run at once */
    RING_READS_MAX = 64,     /* of one submission */
    RING_BOUNCE = 512 << 10, /* bytes of a reader's buffer */
};

struct rings;
struct ring; /* a reader */

struct ring_read {
    unsigned file; /* index into what rings_new was given */
    uint64_t off;
    uint32_t len;
    uint8_t *buf; /* alignment as O_DIRECT wants it */
    int rc;       /* out: 0 when all of len was read, else -errno (-EIO: short) */
};

struct rings_stats {
    counter rings;  /* io_urings there are now */
    counter reads;  /* by io_uring */
    counter preads; /* without */
};

/* The descriptors stay the caller's and open. no_uring: as if the kernel refused (tests). -ENOMEM. */
GR_MUST_CHECK int rings_new(const int *fds, size_t count, bool no_uring, struct rings_stats *stats, struct rings **out);
/* Every reader must be back. NULL is allowed. */
void rings_free(struct rings *rs);

/* A reader for the calling thread alone until it is returned; made when none is idle, waited for when
 * RINGS_MAX are out. NULL: out of memory. Any thread. */
struct ring *rings_borrow(struct rings *rs);
void rings_return(struct ring *r);
/* Its bounce buffer of RING_BOUNCE bytes, 4 KiB aligned. */
uint8_t *ring_bounce(struct ring *r);
/* All n <= RING_READS_MAX reads in one submission; waits for all. */
void ring_read_all(struct ring *r, struct ring_read *reads, size_t n);

#endif

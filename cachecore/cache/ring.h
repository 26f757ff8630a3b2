/* Reading slots: each thread that hits has a reader of its own, with an io_uring whose files and
 * bounce buffer are registered. At most RINGS_MAX threads have a ring; further ones, and all of them
 * where the kernel or a container refuses io_uring, read by pread through the same functions.
 */
#ifndef GRANARY_CACHE_RING_H
#define GRANARY_CACHE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/counter.h"

enum {
    RINGS_MAX = 64,
    RING_READS_MAX = 64,          /* of one submission */
    RING_BOUNCE = 512 << 10,      /* with a ring: registered */
    RING_BOUNCE_PREAD = 128 << 10 /* without */
};

struct rings;
struct ring; /* one thread's reader */

struct ring_read {
    unsigned file; /* index into what rings_new was given */
    uint64_t off;
    uint32_t len;
    uint8_t *buf; /* alignment as O_DIRECT wants it */
    int rc;       /* out: 0 when all of len was read, else -errno (-EIO: short) */
};

struct rings_stats {
    counter rings;  /* there are now */
    counter reads;  /* by io_uring */
    counter preads; /* without */
};

/* The descriptors stay the caller's and open. no_uring: as if the kernel refused (tests). -ENOMEM,
 * -EAGAIN (no thread key left). */
GR_MUST_CHECK int rings_new(const int *fds, size_t count, bool no_uring, struct rings_stats *stats, struct rings **out);
/* No thread may read, end or begin meanwhile. NULL is allowed. */
void rings_free(struct rings *rs);

/* The calling thread's reader, made at its first call, gone with the thread. NULL: out of memory. */
struct ring *rings_mine(struct rings *rs);
/* Its bounce buffer, 4 KiB aligned. */
uint8_t *ring_bounce(struct ring *r, uint32_t *out_size);
/* All n <= RING_READS_MAX reads in one submission; waits for all. */
void ring_read_all(struct ring *r, struct ring_read *reads, size_t n);

#endif

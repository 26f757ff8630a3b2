/* Read and write the cache's files with a deadline: a pool of rings, each borrowed by one thread at a time. A ring
 * reads through an io_uring of its own, whose files and bounce buffer are registered. Where the kernel, a container
 * or the file's filesystem does not allow that, a thread of the ring reads instead (io_thread.h). Direct writes take
 * the same two ways; other writes always go through the thread.
 *
 * The kernel reads into the ring's bounce buffer and nowhere else. So a caller that has waited long enough can leave:
 * the ring, its memory and its descriptors stay with the kernel as a zombie until the disk answers.
 */
#ifndef GRANARY_CACHE_DISK_RING_H
#define GRANARY_CACHE_DISK_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "cache/disk/io_thread.h"

enum {
    RING_FILES_MAX = 32,                  /* files of a pool */
    RING_READS_MAX = 128,                 /* reads of one submission */
    RING_WRITES_MAX = 4,                  /* writes or ranges of one call */
    RING_SIZE = 512 << 10,                /* bytes of a ring with its buffer: a quarter of a huge page */
    RING_BOUNCE = RING_SIZE - (16 << 10), /* bytes of its buffer; a longer read takes several submissions */
};

struct rings;
struct ring;

struct ring_read {
    unsigned file; /* index into rings_config.fds */
    uint64_t off;
    uint32_t len;
    uint8_t *buf; /* within the bounce buffer, aligned as O_DIRECT requires */
    int rc;       /* out: 0 when all of len was read, else -errno; -EIO: short; -ETIMEDOUT; -ECANCELED: not tried */
};

struct ring_write {
    unsigned file;
    uint64_t off;
    uint32_t len;
    const uint8_t *data; /* within the bounce buffer or `held` */
};

/* A range of a file, for fallocate. */
struct ring_range {
    unsigned file;
    uint64_t off;
    uint32_t len;
};

struct rings_stats {
    counter rings;  /* io_urings that exist now */
    counter reads;  /* reads by io_uring */
    counter preads; /* reads by a ring's thread */
    counter lost;   /* rings left to the kernel as zombies, ever */
};

struct rings_config {
    const int *fds; /* duplicated; the caller keeps its own */
    size_t count;
    unsigned limit;   /* rings lent at the same time; with zombies at most twice as many */
    bool huge_bounce; /* buffers in huge pages where the kernel has them, and registered: for pools that read much */
    bool async;       /* the kernel submits by threads of its own: costs more, but submitting never waits for a disk */
    bool no_uring;    /* tests: as if the kernel refused io_uring */
    struct io_calls calls; /* tests: calls by which a ring's thread reads and writes */
};

/* Make a pool. stats stays the caller's and outlives it. -ENOMEM, -EMFILE; -EINVAL: more than RING_FILES_MAX files. */
GR_MUST_CHECK int rings_new(const struct rings_config *config, struct rings_stats *stats, struct rings **out);
/* Free the pool; every ring must have been returned. Waits up to a second for zombies. The memory of those that
 * remain, and the copies of the descriptors, are left to them. NULL is allowed. */
void rings_free(struct rings *rs);

/* Borrow a ring, for the calling thread alone until it is returned. When all are lent, wait for one until the clock
 * (clock_now_ms) reads deadline_ms, but not when zombies take every place. NULL: none came free, or out of memory.
 * Any thread. */
struct ring *rings_borrow(struct rings *rs, uint64_t deadline_ms);
/* Return a ring. One that missed a deadline becomes a zombie; its bounce buffer must not be used afterwards. */
void rings_return(struct ring *r);
/* Free the zombies whose disk has answered. */
void rings_reap(struct rings *rs);
/* Free the idle rings that nobody borrowed since the last call, all but a few. */
void rings_trim(struct rings *rs);
/* Return how many zombies have reads or writes of the file. */
unsigned rings_lost(struct rings *rs, unsigned file);

/* Return the files, as bits, of reads that should have ended more than a second before now_ms and have not: the
 * kernel holds their threads, and no deadline reaches them. */
uint32_t rings_overdue(struct rings *rs, uint64_t now_ms);

/* Return its bounce buffer: RING_BOUNCE bytes, aligned to 4 KiB. */
uint8_t *ring_bounce(struct ring *r);

/* Do n <= RING_READS_MAX reads in one submission and wait for all of them, or until deadline_ms. Each read has its
 * rc; the bytes of those with 0 are good in either case. false: the deadline was missed, and the ring can only be
 * returned. */
bool ring_read_all(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms);

/* Do n <= RING_WRITES_MAX writes in their order, until one fails or deadline_ms. held: referenced until the kernel is
 * done with it; NULL is allowed. 0; -errno of the write that failed; -ETIMEDOUT: the ring can only be returned, and
 * what it began may still reach the disk. */
GR_MUST_CHECK int ring_write_all(struct ring *r, const struct ring_write *writes, size_t n, struct buf *held,
                                 uint64_t deadline_ms);

/* Call fallocate for n <= RING_WRITES_MAX ranges; results as for ring_write_all. */
GR_MUST_CHECK int ring_allocate_all(struct ring *r, int mode, const struct ring_range *ranges, size_t n,
                                    uint64_t deadline_ms);

#endif

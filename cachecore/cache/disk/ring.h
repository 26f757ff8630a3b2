/* Reading and writing the files of the cache with a deadline: a pool of rings, each borrowed by one
 * thread at a time. A ring reads by an io_uring of its own whose files and bounce buffer are
 * registered, or, where the kernel, a container or the file's filesystem has none to offer, by a thread
 * of its own (io_thread.h). So are direct writes written; others by that thread always.
 *
 * The kernel reads into the ring's bounce buffer and nowhere else. So who waited long enough can go:
 * the ring, its memory and its descriptors are left to the kernel as a zombie until the disk answers.
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
    RING_FILES_MAX = 32,                  /* descriptors of a pool */
    RING_READS_MAX = 128,                 /* of one submission */
    RING_WRITES_MAX = 4,                  /* of one call */
    RING_SIZE = 512 << 10,                /* a ring with its buffer: a quarter of a huge page */
    RING_BOUNCE = RING_SIZE - (16 << 10), /* bytes of its buffer: what is longer is read in several submissions */
};

struct rings;
struct ring;

struct ring_read {
    unsigned file; /* index into what rings_new was given */
    uint64_t off;
    uint32_t len;
    uint8_t *buf; /* within the bounce buffer; alignment as O_DIRECT wants it */
    int rc;       /* out: 0 when all of len was read, else -errno; -EIO: short; -ETIMEDOUT; -ECANCELED: not tried */
};

struct ring_write {
    unsigned file;
    uint64_t off;
    uint32_t len;
    const uint8_t *data; /* within the bounce buffer or the buf that is given along */
};

struct ring_range {
    unsigned file;
    uint64_t off;
    uint32_t len;
};

struct rings_stats {
    counter rings;  /* io_urings there are now */
    counter reads;  /* by io_uring */
    counter preads; /* without */
    counter lost;   /* rings left to the kernel, ever */
};

struct rings_config {
    const int *fds; /* copied (dup) */
    size_t count;
    unsigned limit;   /* rings out at once; rings and zombies together: twice as many */
    bool huge_bounce; /* buffers in huge pages where the kernel has them, and registered: for pools that read much */
    bool async;       /* the kernel hands reads and writes over by threads of its own: dearer, and
                         handing over does not wait for a disk */
    bool no_uring;    /* as if the kernel refused (tests) */
    struct io_calls calls; /* how a ring's thread reads and writes (tests) */
};

/* stats stays the caller's. -ENOMEM, -EMFILE; -EINVAL: more than RING_FILES_MAX. */
GR_MUST_CHECK int rings_new(const struct rings_config *config, struct rings_stats *stats, struct rings **out);
/* Every ring must be back. Waits up to a second for zombies; the memory of those that remain, and the
 * copies of the descriptors, stay theirs. NULL is allowed. */
void rings_free(struct rings *rs);

/* A ring for the calling thread alone until it is returned. When `limit` are out, one is waited for
 * until the clock (clock_now_ms) says deadline_ms; not when all there may be are zombies. NULL: none came, or out of
 * memory. Any thread. */
struct ring *rings_borrow(struct rings *rs, uint64_t deadline_ms);
/* One whose read or write missed its deadline becomes a zombie; its bounce buffer is not to be looked at
 * afterwards. */
void rings_return(struct ring *r);
/* Free the zombies whose disk has answered. */
void rings_reap(struct rings *rs);
/* Free the idle rings that nobody has borrowed since the last call, all but a few. */
void rings_trim(struct rings *rs);
/* Zombies that have to do with the file. */
unsigned rings_lost(struct rings *rs, unsigned file);

/* Bits of the files of reads that should have ended a second before now_ms and have not: the kernel holds
 * their threads where no deadline reaches. */
uint32_t rings_overdue(struct rings *rs, uint64_t now_ms);

/* Its bounce buffer of RING_BOUNCE bytes, 4 KiB aligned. */
uint8_t *ring_bounce(struct ring *r);

/* All n <= RING_READS_MAX reads in one submission; waits for all or until deadline_ms. What was read is
 * good in either case. false: the deadline was missed and this ring can do nothing more. */
bool ring_read_all(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms);

/* n <= RING_WRITES_MAX writes, each after the one before it, the first failure ends them; waits until
 * deadline_ms. held: kept until the kernel is done with it; NULL is allowed. 0, -errno of the write
 * that failed, or -ETIMEDOUT: this ring can do nothing more, what it began may still reach the disk. */
GR_MUST_CHECK int ring_write_all(struct ring *r, const struct ring_write *writes, size_t n, struct buf *held,
                                 uint64_t deadline_ms);

/* fallocate of n <= RING_WRITES_MAX ranges, as ring_write_all. */
GR_MUST_CHECK int ring_allocate_all(struct ring *r, int mode, const struct ring_range *ranges, size_t n,
                                    uint64_t deadline_ms);

#endif

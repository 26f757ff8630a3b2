/* Read and write the cache's files with a deadline: a pool of rings, each borrowed by one thread at a time. A ring
 * reads through an io_uring of its own, whose files and bounce buffer are registered. Where the kernel, a container
 * or the file's filesystem does not allow that, a thread of the ring reads instead (io_thread.c). Direct writes take
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
#include <sys/types.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/counter.h"

/* ---- io_thread.c ---- */

/* A thread that reads, writes and reserves files for a caller that waits no longer than it wants to. pread, pwrite
 * and fallocate themselves cannot be given up. */

/* The calls to use; NULL members: the kernel's own. Tests give others. */
struct io_calls {
    ssize_t (*pread)(int fd, void *out, size_t len, off_t off);
    ssize_t (*pwrite)(int fd, const void *data, size_t len, off_t off);
    int (*fallocate)(int fd, int mode, off_t off, off_t len);
};

enum io_kind { IO_READ, IO_WRITE, IO_ALLOCATE };

/* One operation. */
struct io_op {
    enum io_kind kind;
    int mode; /* for fallocate */
    int fd;
    uint64_t off;
    uint32_t len;
    uint8_t *data;
    int rc; /* out: 0 when all of len was done, else -errno (-EIO: short read); -ECANCELED: not tried */
};

struct io_thread;

/* Start a thread. -ENOMEM, -EAGAIN. No message. */
GR_MUST_CHECK int io_thread_new(const struct io_calls *calls, struct io_thread **out);

/* Do n operations in their order; the first write or allocation that fails ends them. Wait until the clock
 * (clock_now_ms) reads deadline_ms. true: every operation has its rc. false: the thread is still at ops[*out_at];
 * those before it have their rc, those after it will not be begun, and ops and the memory they point to belong to the
 * thread until io_thread_is_idle. One caller at a time; after false, no further run.
 */
GR_MUST_CHECK bool io_thread_run(struct io_thread *t, struct io_op *ops, size_t n, uint64_t deadline_ms,
                                 size_t *out_at);
/* Is it done with the last run? */
bool io_thread_is_idle(struct io_thread *t);

/* End an idle thread and free it. NULL is allowed. */
void io_thread_free(struct io_thread *t);
/* Leave a busy thread behind: when its operation returns, it calls done(arg) and frees itself. If it is idle already,
 * done(arg) is called at once. */
void io_thread_orphan(struct io_thread *t, void (*done)(void *arg), void *arg);

/* ---- rings.c, ring.c ---- */

enum {
    RING_FILES_MAX = 32,                  /* files of a pool */
    RING_READS_MAX = 128,                 /* reads of one submission */
    RING_WRITES_MAX = 32,                 /* writes or ranges of one call */
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
    const uint8_t *data; /* within the bounce buffer, or for ring_write_each within a buffer that is held */
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
/* Does a thread wait for a ring? A thread that has reads in flight all the time must then end them, and return its
 * ring. */
bool rings_wanted(const struct rings *rs);
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

/* ---- reads in flight: the ring's thread does other things meanwhile, and gives each its own deadline ---- */

/* May reads of the file be in flight, in a ring that has an io_uring? Else they block a thread: ring_read_all. Any
 * thread. */
bool rings_can_start(const struct rings *rs, unsigned file);
/* Can they, in this ring? */
bool ring_can_start(const struct ring *r, unsigned file);
/* Prepare reads[i], i < RING_READS_MAX. The array stays the same, and in place, until the ring is returned. */
void ring_start(struct ring *r, struct ring_read *reads, size_t i);
/* Submit what was prepared. deadline_ms: from then on, a thread that the kernel does not let return is overdue
 * (rings_overdue). false: the io_uring has failed; call ring_give_up. */
bool ring_submit(struct ring *r, uint64_t deadline_ms);
/* Take the reads that have ended, without waiting: each has its rc, and its number is in which[]. Returns how many. */
size_t ring_take(struct ring *r, struct ring_read *reads, uint16_t which[RING_READS_MAX]);
/* Return the descriptor that can be read when there are some. */
int ring_fd(const struct ring *r);
/* Wait no longer: the ring can only be returned, and what was in flight has no results. */
void ring_give_up(struct ring *r, struct ring_read reads[RING_READS_MAX]);

/* ---- writing ---- */

/* Do n <= RING_WRITES_MAX writes in their order, until one fails or deadline_ms. 0; -errno of the write that failed;
 * -ETIMEDOUT: the ring can only be returned, and what it began may still reach the disk. */
GR_MUST_CHECK int ring_write_all(struct ring *r, const struct ring_write *writes, size_t n, uint64_t deadline_ms);

/* Do n <= RING_WRITES_MAX writes to one file in one submission, in any order, and wait for all of them, or until
 * deadline_ms. Write i reads from held[i], which is referenced until the kernel is done with it. out_rc[i]: as the
 * result of ring_write_all; -ECANCELED: not tried, since another one failed. */
void ring_write_each(struct ring *r, const struct ring_write *writes, struct buf *const *held, size_t n, int *out_rc,
                     uint64_t deadline_ms);

/* Does ring_write_each submit the writes of this file together? Else a thread does one after the other, within one
 * deadline. Any thread. */
bool rings_write_at_once(struct rings *rs, unsigned file);

/* Call fallocate for n <= RING_WRITES_MAX ranges; results as for ring_write_all. */
GR_MUST_CHECK int ring_allocate_all(struct ring *r, int mode, const struct ring_range *ranges, size_t n,
                                    uint64_t deadline_ms);

#endif

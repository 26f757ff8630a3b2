/* A disk that answers all reads but one, or each of them late: the linker puts io_uring_submit here, and the last read
 * of a submission becomes a read of an empty pipe, or each follows a timeout. Link with WRAP io_uring_submit. */
#ifndef GRANARY_TESTS_UNIT_HUNG_READ_H
#define GRANARY_TESTS_UNIT_HUNG_READ_H

#include <liburing.h>
#include <stdatomic.h>
#include <unistd.h>

static int hung_pipe[2] = {-1, -1};
static atomic_bool hung_next;        /* the next submission's last read hangs */
static atomic_uint hung_submissions; /* so far, of any ring */
static atomic_int hung_refusal;      /* what the next submission fails with; 0: it does not */
static atomic_uint hung_delay_ms;    /* each read takes up to so much longer, one more than the other; 0: none does */

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

enum { HUNG_LATE_MAX = 32 }; /* reads of a submission that can be late */

/* Put a timeout before each read. Linux 5.17 can. Returns the reads; 0: none is late. */
static inline unsigned hung_make_late(struct io_uring *ring, struct __kernel_timespec times[HUNG_LATE_MAX])
{
    static atomic_uint turn;
    struct io_uring_sqe reads[HUNG_LATE_MAX];
    unsigned head = ring->sq.sqe_head, n = ring->sq.sqe_tail - head;
    if (!hung_delay_ms || n > HUNG_LATE_MAX || !(ring->features & IORING_FEAT_CQE_SKIP))
        return 0;
    for (unsigned i = 0; i < n; i++)
        reads[i] = ring->sq.sqes[(head + i) & *ring->sq.kring_mask];
    ring->sq.sqe_tail = head;
    for (unsigned i = 0; i < n; i++) {
        struct io_uring_sqe *timeout = io_uring_get_sqe(ring);
        times[i] = (struct __kernel_timespec){.tv_nsec = (turn++ % hung_delay_ms + 1) * 1000000LL};
        io_uring_prep_timeout(timeout, &times[i], 0, IORING_TIMEOUT_ETIME_SUCCESS);
        timeout->flags |= IOSQE_IO_LINK | IOSQE_CQE_SKIP_SUCCESS;
        *io_uring_get_sqe(ring) = reads[i];
    }
    return n;
}

int __wrap_io_uring_submit(struct io_uring *ring)
{
    struct __kernel_timespec times[HUNG_LATE_MAX]; /* the kernel copies them when it takes the timeouts */
    hung_submissions++;
    int refusal = atomic_exchange(&hung_refusal, 0);
    if (refusal)
        return refusal;
    if (atomic_exchange(&hung_next, false)) {
        struct io_uring_sqe *last = &ring->sq.sqes[(ring->sq.sqe_tail - 1) & *ring->sq.kring_mask];
        last->fd = hung_pipe[0];
        last->flags &= (uint8_t)~IOSQE_FIXED_FILE;
        last->off = UINT64_MAX; /* a pipe has no place to read from */
    }
    unsigned late = hung_make_late(ring, times);
    int rc = __real_io_uring_submit(ring);
    return late && rc > 0 ? rc / 2 : rc;
}

/* Let a read hang from now on. */
static inline void hung_read_begin(void)
{
    if (hung_pipe[0] < 0 && pipe(hung_pipe))
        fail_msg("no pipe");
    hung_next = true;
}

/* The disk answers what hangs. */
static inline void hung_read_end(void)
{
    hung_next = false;
    if (hung_pipe[1] < 0)
        return;
    close(hung_pipe[1]);
    close(hung_pipe[0]);
    hung_pipe[0] = hung_pipe[1] = -1;
}

#endif

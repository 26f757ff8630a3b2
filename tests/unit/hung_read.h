/* A disk that answers all reads but one: the linker puts io_uring_submit here, and the last read of a submission
 * becomes a read of an empty pipe. Link with WRAP io_uring_submit. */
#ifndef GRANARY_TESTS_UNIT_HUNG_READ_H
#define GRANARY_TESTS_UNIT_HUNG_READ_H

#include <liburing.h>
#include <stdatomic.h>
#include <unistd.h>

static int hung_pipe[2] = {-1, -1};
static atomic_bool hung_next;        /* the next submission's last read hangs */
static atomic_uint hung_submissions; /* so far, of any ring */
static atomic_int hung_refusal;      /* what the next submission fails with; 0: it does not */

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);

int __wrap_io_uring_submit(struct io_uring *ring)
{
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
    return __real_io_uring_submit(ring);
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

/* A thread that reads, writes and reserves files for a caller that waits no longer than it wants to. pread, pwrite
 * and fallocate themselves cannot be given up. */
#ifndef GRANARY_CACHE_DISK_IO_THREAD_H
#define GRANARY_CACHE_DISK_IO_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

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

#endif

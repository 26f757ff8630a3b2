/* A thread that reads, writes and reserves files for another, who waits no longer than it wants to: pread,
 * pwrite and fallocate themselves cannot be given up.
 */
#ifndef GRANARY_CACHE_DISK_IO_THREAD_H
#define GRANARY_CACHE_DISK_IO_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

/* How files are read, written and reserved; NULL members: by the kernel's own calls. Tests give others. */
struct io_calls {
    ssize_t (*pread)(int fd, void *out, size_t len, off_t off);
    ssize_t (*pwrite)(int fd, const void *data, size_t len, off_t off);
    int (*fallocate)(int fd, int mode, off_t off, off_t len);
};

enum io_kind { IO_READ, IO_WRITE, IO_ALLOCATE };

struct io_op {
    enum io_kind kind;
    int mode; /* of fallocate */
    int fd;
    uint64_t off;
    uint32_t len;
    uint8_t *data;
    int rc; /* out: 0 when all of len was done, else -errno (-EIO: short read); -ECANCELED: not tried */
};

struct io_thread;

/* -ENOMEM, -EAGAIN. No sentence. */
GR_MUST_CHECK int io_thread_new(const struct io_calls *calls, struct io_thread **out);

/* Do n operations in their order, the first that fails and is no read ends them; wait until the clock says deadline_ms
 * (clock_now_ms). true: all have their rc. false: it is still at ops[*out_at]; those before have their
 * rc, those behind will not be begun; ops and what they point at belong to it until io_thread_is_idle. */
GR_MUST_CHECK bool io_thread_run(struct io_thread *t, struct io_op *ops, size_t n, uint64_t deadline_ms,
                                 size_t *out_at);
bool io_thread_is_idle(struct io_thread *t);

/* Ends an idle thread. NULL is allowed. */
void io_thread_free(struct io_thread *t);
/* Let it go while it is at it: it calls done(arg) when it is through, and is gone. */
void io_thread_orphan(struct io_thread *t, void (*done)(void *arg), void *arg);

#endif

/* What one ring does, by the thread that borrowed it: one blocking submission at a time, or reads in flight.
 *
 *    read           io_uring; the thread where that is refused, or where the file cannot be read without blocking
 *    direct write   the same
 *    other write    the thread: the page cache, not the disk, takes it
 *    fallocate      the thread
 *
 * A ring that changes threads cannot use SINGLE_ISSUER and DEFER_TASKRUN. COOP_TASKRUN (Linux 5.19) saves the same
 * interrupts at the same measured cost (the table is in docs/internals/cache.md). A kernel older than 5.11 cannot
 * wait with a timeout (EXT_ARG) and counts as one that refuses. A registered buffer counts as locked memory; where
 * that is not allowed (ENOMEM), the ring works without.
 *
 * On a filesystem that cannot read without blocking (FUSE), io_uring would pass each read to a kernel thread that
 * belongs to the caller's thread, which then could not end while the disk hangs. The ring's own thread reads such
 * files.
 *
 * A direct write that hangs in io_uring blocks neither a thread nor the exit of the process; a pwrite would block both.
 *
 * One case is beyond any deadline: the thread that submits a read waits inside the kernel for the disk, for the
 * file's extents or for a place in the device's queue. rings_overdue tells the disk monitor which disks do that.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/disk/ring_internal.h"

enum { WAIT_MAX_S = 3600 }; /* longest single wait; deadlines beyond it are waited for in steps */

/* ---- its io_uring ---- */

/* Set up an io_uring; -errno when the kernel refuses, or cannot wait with a timeout. */
static int init_uring(struct io_uring *uring)
{
    int rc = io_uring_queue_init(RING_READS_MAX, uring, IORING_SETUP_COOP_TASKRUN);
    if (rc == -EINVAL)
        rc = io_uring_queue_init(RING_READS_MAX, uring, 0);
    if (rc || uring->features & IORING_FEAT_EXT_ARG)
        return rc;
    io_uring_queue_exit(uring);
    return -ENOSYS;
}

/* Remember that the kernel refuses io_uring. A shortage of memory or descriptors concerns this ring only. */
static void note_refusal(struct rings *rs, int rc)
{
    SCOPED_LOCK(&rs->lock);
    if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rs->refused)
        return; /* this ring only */
    rs->refused = true;
    log_warning("cache: io_uring is refused here (%s); reading by pread", strerror(-rc));
}

void ring_attach_uring(struct ring *r)
{
    struct rings *rs = r->owner;
    if (rs->refused)
        return;
    int rc = init_uring(&r->uring);
    if (rc) {
        note_refusal(rs, rc);
        return;
    }
    r->has_uring = true;
    counter_add(&rs->stats->rings, 1);
    r->fixed_files = io_uring_register_files(&r->uring, rs->fds, (unsigned)rs->fd_count) == 0;
    struct iovec whole = {.iov_base = r->bounce, .iov_len = RING_BOUNCE};
    r->fixed_bounce = rs->huge_bounce && io_uring_register_buffers(&r->uring, &whole, 1) == 0;
}

void ring_drop_uring(struct ring *r)
{
    if (!r->has_uring)
        return;
    io_uring_queue_exit(&r->uring);
    r->has_uring = false;
    counter_add(&r->owner->stats->rings, UINT64_MAX);
}

bool ring_is_over(struct ring *r)
{
    if (r->has_uring) {
        unsigned answered = io_uring_cq_ready(&r->uring);
        io_uring_cq_advance(&r->uring, answered);
        r->in_flight -= answered;
    }
    return r->in_flight == 0 && (!r->thread || io_thread_is_idle(r->thread));
}

/* ---- by the ring's thread ---- */

/* Start the ring's thread if it has none. */
static int need_thread(struct ring *r)
{
    return r->thread ? 0 : io_thread_new(&r->owner->calls, &r->thread);
}

/* Mark the ring as lost: a deadline was missed. */
static void ring_lose(struct ring *r)
{
    r->lost = true;
    counter_add(&r->owner->stats->lost, 1);
}

/* Is this not a final result? EAGAIN and EINTR from io_uring mean that the thread should try. */
static bool is_pending(int rc)
{
    return rc == -EINPROGRESS || rc == -EAGAIN || rc == -EINTR;
}

/* Do the reads that io_uring did not take or finish. After a missed deadline the thread is still at one of them. */
static void read_by_thread(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms)
{
    size_t which[RING_READS_MAX], count = 0;
    for (size_t i = 0; i < n; i++)
        if (is_pending(reads[i].rc)) {
            r->ops[count] = (struct io_op){
                .fd = r->owner->fds[reads[i].file], .off = reads[i].off, .len = reads[i].len, .data = reads[i].buf};
            which[count++] = i;
        }
    int rc = count ? need_thread(r) : 0;
    if (rc || !count) {
        for (size_t i = 0; i < count; i++)
            reads[which[i]].rc = -ECANCELED;
        return;
    }
    size_t at;
    bool in_time = io_thread_run(r->thread, r->ops, count, deadline_ms, &at);
    if (!in_time)
        ring_lose(r);
    for (size_t i = 0; i < count; i++)
        reads[which[i]].rc = in_time || i < at ? r->ops[i].rc : i == at ? -ETIMEDOUT : -ECANCELED;
    counter_add(&r->owner->stats->preads, in_time ? count : at);
}

/* Do the first n of r->ops in their order, until one fails. */
static int change_by_thread(struct ring *r, size_t n, uint64_t deadline_ms)
{
    int rc = need_thread(r);
    if (rc)
        return rc;
    size_t at;
    if (!io_thread_run(r->thread, r->ops, n, deadline_ms, &at)) {
        ring_lose(r);
        return -ETIMEDOUT;
    }
    for (size_t i = 0; !rc && i < n; i++)
        rc = r->ops[i].rc;
    return rc;
}

static struct io_op op_of(const struct ring *r, const struct ring_write *write)
{
    return (struct io_op){.kind = IO_WRITE,
                          .fd = r->owner->fds[write->file],
                          .off = write->off,
                          .len = write->len,
                          .data = (uint8_t *)write->data};
}

static int write_by_thread(struct ring *r, const struct ring_write *writes, size_t n, uint64_t deadline_ms)
{
    for (size_t i = 0; i < n; i++)
        r->ops[i] = op_of(r, &writes[i]);
    return change_by_thread(r, n, deadline_ms);
}

int ring_allocate_all(struct ring *r, int mode, const struct ring_range *ranges, size_t n, uint64_t deadline_ms)
{
    assert(n <= RING_WRITES_MAX && !r->lost);
    uint32_t files = 0;
    for (size_t i = 0; i < n; i++) {
        files |= UINT32_C(1) << ranges[i].file;
        r->ops[i] = (struct io_op){.kind = IO_ALLOCATE,
                                   .mode = mode,
                                   .fd = r->owner->fds[ranges[i].file],
                                   .off = ranges[i].off,
                                   .len = ranges[i].len};
    }
    atomic_store_explicit(&r->files, files, memory_order_relaxed);
    return change_by_thread(r, n, deadline_ms);
}

/* ---- by io_uring ---- */

/* Set what all submissions share. They are identified by number, not by address: the reads belong to the caller, who
 * may have left when the answer comes. */
static void fit_out(struct ring *r, struct io_uring_sqe *sqe, size_t i)
{
    if (r->fixed_files)
        sqe->flags |= IOSQE_FIXED_FILE;
    if (r->owner->async)
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(sqe, i);
}

static int file_of(const struct ring *r, unsigned file)
{
    return r->fixed_files ? (int)file : r->owner->fds[file];
}

/* Prepare a read into the bounce buffer. No read may go anywhere else: it could land after the caller has left. */
static void ring_prepare(struct ring *r, const struct ring_read *reads, size_t i)
{
    const struct ring_read *read = &reads[i];
    assert(read->buf >= r->bounce && read->buf + read->len <= r->bounce + RING_BOUNCE);
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    if (r->fixed_bounce)
        io_uring_prep_read_fixed(sqe, file_of(r, read->file), read->buf, read->len, read->off, 0);
    else
        io_uring_prep_read(sqe, file_of(r, read->file), read->buf, read->len, read->off);
    fit_out(r, sqe, i);
}

/* Give each answered operation its result, and its number to which[] unless that is NULL; return how many there were. A
 * short read is a fault: the files are never shorter than their slots. */
static size_t take_answers(struct ring *r, struct ring_read *reads, uint16_t *which)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        struct ring_read *read = &reads[cqe->user_data];
        read->rc = cqe->res < 0 ? cqe->res : (uint32_t)cqe->res == read->len ? 0 : -EIO;
        if (which)
            which[n] = (uint16_t)cqe->user_data;
        n++;
    }
    io_uring_cq_advance(&r->uring, n);
    return n;
}

/* Wait no longer for the kernel. Operations in flight may still land in the buffer, so the ring is lost; without any,
 * the ring goes on without io_uring. What was prepared and not submitted goes with the io_uring. */
static void ring_leave_uring(struct ring *r)
{
    if (r->in_flight)
        ring_lose(r);
    else
        ring_drop_uring(r);
}

/* Submit, and wait for up to `waiting` answers in one system call. false: the deadline had passed. */
static bool submit_and_wait(struct ring *r, size_t waiting, uint64_t deadline_ms, int *rc)
{
    uint64_t now = clock_now_ms();
    uint64_t left = deadline_ms > now ? GR_MIN(deadline_ms - now, (uint64_t)WAIT_MAX_S * 1000) : 0;
    struct __kernel_timespec wait = {.tv_sec = (long long)(left / 1000), .tv_nsec = (long long)(left % 1000) * 1000000};
    struct io_uring_cqe *cqe;
    *rc = io_uring_submit_and_wait_timeout(&r->uring, &cqe, (unsigned)waiting, &wait, NULL);
    return left > 0;
}

/* Submit the `taken` prepared operations and wait for their answers; return how many came. Errors other than
 * interruptions give the io_uring up. */
static size_t await_answers(struct ring *r, struct ring_read *reads, size_t taken, uint64_t deadline_ms)
{
    size_t done = 0;
    while (done < taken) {
        int rc;
        bool in_time = submit_and_wait(r, taken - done, deadline_ms, &rc);
        done += take_answers(r, reads, NULL);
        r->in_flight = taken - done - io_uring_sq_ready(&r->uring);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && rc != -ETIME) {
            log_warning("cache: an io_uring failed (%s); using pread instead", strerror(-rc));
            ring_leave_uring(r);
            break;
        }
        if (!in_time && done < taken) {
            ring_lose(r);
            break;
        }
    }
    return done;
}

static void read_by_uring(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms)
{
    size_t taken = 0;
    for (size_t i = 0; i < n; i++)
        if (!r->owner->blocking[reads[i].file]) {
            ring_prepare(r, reads, i);
            taken++;
        }
    counter_add(&r->owner->stats->reads, await_answers(r, reads, taken, deadline_ms));
}

/* io_uring goes first; the thread does what is still pending. busy_until is set around both, for rings_overdue. */
bool ring_read_all(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms)
{
    assert(n <= RING_READS_MAX && !r->lost && !r->in_flight);
    uint32_t files = 0;
    for (size_t i = 0; i < n; i++) {
        reads[i].rc = -EINPROGRESS;
        files |= UINT32_C(1) << reads[i].file;
    }
    atomic_store_explicit(&r->files, files, memory_order_relaxed);
    atomic_store_explicit(&r->busy_until, deadline_ms, memory_order_release);
    if (r->has_uring)
        read_by_uring(r, reads, n, deadline_ms);
    if (!r->lost)
        read_by_thread(r, reads, n, deadline_ms);
    atomic_store_explicit(&r->busy_until, 0, memory_order_relaxed);
    if (!r->lost)
        return true;
    for (size_t i = 0; i < n; i++)
        if (is_pending(reads[i].rc))
            reads[i].rc = clock_now_ms() < deadline_ms ? -ECANCELED : -ETIMEDOUT;
    return false;
}

/* ---- reads in flight ---- */

bool rings_can_start(const struct rings *rs, unsigned file)
{
    return !rs->refused && !rs->blocking[file];
}

bool ring_can_start(const struct ring *r, unsigned file)
{
    return r->has_uring && !r->owner->blocking[file];
}

void ring_start(struct ring *r, struct ring_read *reads, size_t i)
{
    assert(i < RING_READS_MAX && !r->lost && ring_can_start(r, reads[i].file));
    r->prepared |= UINT32_C(1) << reads[i].file;
    reads[i].rc = -EINPROGRESS;
    ring_prepare(r, reads, i);
}

bool ring_submit(struct ring *r, uint64_t deadline_ms)
{
    if (!r->has_uring || !io_uring_sq_ready(&r->uring))
        return true;
    atomic_store_explicit(&r->files, r->prepared, memory_order_relaxed);
    atomic_store_explicit(&r->busy_until, deadline_ms, memory_order_release);
    r->prepared = 0;
    int rc;
    do {
        rc = io_uring_submit(&r->uring);
        r->in_flight += rc > 0 ? (size_t)rc : 0;
    } while (rc == -EINTR || (rc > 0 && io_uring_sq_ready(&r->uring)));
    atomic_store_explicit(&r->busy_until, 0, memory_order_relaxed);
    if (rc > 0)
        return true;
    r->starved = rc == -EAGAIN || rc == -EBUSY;
    log_limited(&r->owner->complaints, LOG_LEVEL_WARNING, "cache: an io_uring failed (%s); reading otherwise",
                strerror(-rc));
    return false;
}

size_t ring_take(struct ring *r, struct ring_read *reads, uint16_t which[RING_READS_MAX])
{
    size_t n = take_answers(r, reads, which);
    r->in_flight -= n;
    for (size_t i = 0; i < n; i++)
        if (is_pending(reads[which[i]].rc))
            reads[which[i]].rc = -ECANCELED;
    counter_add(&r->owner->stats->reads, n);
    return n;
}

int ring_fd(const struct ring *r)
{
    return r->uring.ring_fd;
}

void ring_give_up(struct ring *r, struct ring_read reads[RING_READS_MAX])
{
    uint32_t files = 0;
    for (size_t i = 0; i < RING_READS_MAX; i++)
        if (reads[i].rc == -EINPROGRESS) {
            files |= UINT32_C(1) << reads[i].file;
            reads[i].rc = -ECANCELED;
        }
    atomic_store_explicit(&r->files, files, memory_order_relaxed);
    ring_leave_uring(r);
    if (r->starved && !r->lost)
        ring_attach_uring(r);
    r->starved = false;
}

/* ---- writing ---- */

/* Write by io_uring; by the thread if the io_uring is given up meanwhile. */
static int write_by_uring(struct ring *r, const struct ring_write *write, uint64_t deadline_ms)
{
    struct ring_read op = {.len = write->len, .rc = -EINPROGRESS};
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    io_uring_prep_write(sqe, file_of(r, write->file), write->data, write->len, write->off);
    fit_out(r, sqe, 0);
    await_answers(r, &op, 1, deadline_ms);
    if (r->lost)
        return -ETIMEDOUT;
    return is_pending(op.rc) ? write_by_thread(r, write, 1, deadline_ms) : op.rc;
}

bool rings_write_at_once(struct rings *rs, unsigned file)
{
    return rs->direct[file] && !rs->blocking[file] && !rs->refused;
}

static bool goes_by_uring(const struct ring *r, const struct ring_write *write)
{
    return r->has_uring && r->owner->direct[write->file] && !r->owner->blocking[write->file];
}

static void note_files(struct ring *r, const struct ring_write *writes, size_t n)
{
    uint32_t files = 0;
    for (size_t i = 0; i < n; i++)
        files |= UINT32_C(1) << writes[i].file;
    atomic_store_explicit(&r->files, files, memory_order_relaxed);
}

/* Consecutive writes that go to the thread are handed over together. */
int ring_write_all(struct ring *r, const struct ring_write *writes, size_t n, uint64_t deadline_ms)
{
    assert(n <= RING_WRITES_MAX && !r->lost);
    note_files(r, writes, n);
    int rc = 0;
    for (size_t i = 0, next; !rc && i < n; i = next) {
        next = i + 1;
        if (goes_by_uring(r, &writes[i])) {
            rc = write_by_uring(r, &writes[i], deadline_ms);
            continue;
        }
        while (next < n && !goes_by_uring(r, &writes[next]))
            next++;
        rc = write_by_thread(r, writes + i, next - i, deadline_ms);
    }
    return rc;
}

/* ---- writes of one file at once ---- */

/* Return the end of the writes from `i` on that stand side by side in the file. */
static size_t end_of_adjacent(const struct ring_write *writes, size_t i, size_t n)
{
    for (i++; i < n && writes[i].off == writes[i - 1].off + writes[i - 1].len; i++)
        ;
    return i;
}

/* Adjacent writes become one: one request and one answer for the disk. */
static void write_each_by_uring(struct ring *r, const struct ring_write *writes, size_t n, int *out_rc,
                                uint64_t deadline_ms)
{
    struct iovec pieces[RING_WRITES_MAX]; /* the kernel copies them when it takes the write */
    struct ring_read ops[RING_WRITES_MAX];
    size_t count = 0;
    for (size_t i = 0, end; i < n; i = end) {
        struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
        end = end_of_adjacent(writes, i, n);
        ops[count] = (struct ring_read){.rc = -EINPROGRESS};
        for (size_t at = i; at < end; at++) {
            pieces[at] = (struct iovec){.iov_base = (void *)writes[at].data, .iov_len = writes[at].len};
            ops[count].len += writes[at].len;
        }
        io_uring_prep_writev(sqe, file_of(r, writes[i].file), &pieces[i], (unsigned)(end - i), writes[i].off);
        fit_out(r, sqe, count++);
    }
    await_answers(r, ops, count, deadline_ms);
    for (size_t i = 0, op = 0; i < n; op++)
        for (size_t end = end_of_adjacent(writes, i, n); i < end; i++)
            out_rc[i] = ops[op].rc;
}

/* Do the writes that io_uring did not take or finish. */
static void write_pending_by_thread(struct ring *r, const struct ring_write *writes, size_t n, int *out_rc,
                                    uint64_t deadline_ms)
{
    size_t which[RING_WRITES_MAX], count = 0;
    for (size_t i = 0; i < n; i++)
        if (is_pending(out_rc[i])) {
            r->ops[count] = op_of(r, &writes[i]);
            r->ops[count].rc = -ECANCELED;
            which[count++] = i;
        }
    int rc = count ? change_by_thread(r, count, deadline_ms) : 0;
    for (size_t i = 0; i < count; i++)
        out_rc[which[i]] = r->lost ? rc : r->ops[i].rc;
}

void ring_let_go(struct ring *r)
{
    while (r->held_count)
        buf_unref(r->held[--r->held_count]);
}

void ring_write_each(struct ring *r, const struct ring_write *writes, struct buf *const *held, size_t n, int *out_rc,
                     uint64_t deadline_ms)
{
    assert(n <= RING_WRITES_MAX && !r->lost);
    note_files(r, writes, n);
    for (size_t i = 0; i < n; i++) {
        r->held[r->held_count++] = buf_ref(held[i]);
        out_rc[i] = -EINPROGRESS;
    }
    if (n && goes_by_uring(r, &writes[0]))
        write_each_by_uring(r, writes, n, out_rc, deadline_ms);
    if (!r->lost)
        write_pending_by_thread(r, writes, n, out_rc, deadline_ms);
    for (size_t i = 0; i < n; i++)
        if (is_pending(out_rc[i]))
            out_rc[i] = -ETIMEDOUT;
    if (!r->lost)
        ring_let_go(r);
}

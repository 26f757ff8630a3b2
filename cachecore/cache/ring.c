/* One blocking submission at a time by whoever borrowed the ring. Idle rings are a stack: the one used
 * last, whose memory is warm, goes out first.
 *
 *   made -> out -> idle -> out ...           freed with the pool
 *            \-> lost (deadline missed) -> zombie (returned) -> freed (the disk answered)
 *
 * Zombies are not counted among the rings that may be out, so a disk that hangs does not take them from
 * the others; but rings and zombies together are at most twice the limit. Beyond that nothing is made,
 * and who wants to read goes without.
 *
 * A ring that changes threads cannot have SINGLE_ISSUER and DEFER_TASKRUN; COOP_TASKRUN (5.19) spares
 * the interrupts that those would have spared, and costs the same in the measurement (docs/cache.md
 * has the table). A ring for each thread would reach few reads: nbdkit starts its threads anew for
 * every connection, hundreds of them. A kernel older than 5.11 cannot wait with a timeout (EXT_ARG) and
 * counts as one that refuses.
 *
 * Where a filesystem cannot read without blocking (FUSE), io_uring would hand each read to a kernel
 * thread that belongs to the caller's, and the caller's could not end while the disk hangs. Such
 * files are read by the ring's own thread.
 *
 * Direct writes go by io_uring too, one after the other: what the disk owes then holds neither a thread
 * nor the end of the process, as a pwrite would. Writes into the page cache are not the disk's and go
 * by the thread.
 *
 * What no deadline reaches is the thread that hands a read to io_uring while the kernel waits for the
 * disk first: for the extents of the file, or for a place in the device's queue. rings_overdue tells
 * whoever keeps house which disks do that.
 *
 * Ring and buffer are one mapping of their own, not memory of malloc: it can be left to the kernel. The
 * buffers of a pool that reads are huge pages: what is one piece of memory to the disk instead of a
 * page list arrives in two thirds of the time (docs/cache.md).
 * A registered buffer counts as locked memory: where that is not allowed (ENOMEM), the ring goes on
 * without.
 */
#include "cache/ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

enum {
    OVERDUE_MS = 1000,     /* a thread needs no longer to see that its deadline has passed */
    FAREWELL_MS = 1000,    /* rings_free waits so long for zombies */
    FAREWELL_STEP_MS = 10, /* looking for them so often */
    WAIT_MAX_S = 3600,
};

struct ring {
    struct rings *owner;
    struct ring *next, *prev; /* idle or zombie, or out: under the owner's lock */
    uint8_t *bounce;
    struct io_thread *thread; /* NULL: none needed so far */
    struct io_op ops[RING_READS_MAX];
    struct buf *held; /* what the thread writes from */
    bool has_uring, fixed_files, fixed_bounce;
    bool lost;                   /* a deadline was missed */
    _Atomic uint32_t files;      /* bits of those with reads or writes of the latest call */
    _Atomic uint64_t busy_until; /* the deadline of the reads under way; 0: none */
    size_t in_air;               /* reads the io_uring has taken and not answered */
    struct io_uring uring;
};

struct rings {
    pthread_mutex_t lock; /* innermost, but for a ring's thread's */
    pthread_cond_t returned;
    struct ring *idle;
    struct ring *zombies;
    struct ring *out;
    unsigned made; /* rings that are out or idle */
    _Atomic unsigned zombie_count;
    bool refused; /* io_uring is not to be had here: said once */
    unsigned limit;
    bool huge_bounce;
    int fds[RING_FILES_MAX];
    bool async;
    bool direct[RING_FILES_MAX];   /* past the page cache */
    bool blocking[RING_FILES_MAX]; /* this file cannot be read without blocking */
    size_t fd_count;
    struct io_calls calls;
    struct rings_stats *stats;
};

static void close_fds(struct rings *rs)
{
    for (size_t i = 0; i < rs->fd_count; i++)
        close(rs->fds[i]);
}

/* ---- a ring's memory ---- */

enum { HUGE_PAGE = 2 << 20, RING_SIZE = RING_BOUNCE + GR_ALIGN_UP(sizeof(struct ring), 4096) };

static struct ring *ring_map(bool huge)
{
    /* one huge page more than needed, to cut an aligned bounce buffer from; the ring stands behind it */
    uint8_t *map = mmap(NULL, RING_SIZE + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    uint8_t *bounce = (uint8_t *)GR_ALIGN_UP((uintptr_t)map, (uintptr_t)HUGE_PAGE);
    if (bounce != map)
        munmap(map, (size_t)(bounce - map));
    munmap(bounce + RING_SIZE, (size_t)(map + HUGE_PAGE - bounce));
    if (huge)
        madvise(bounce, RING_BOUNCE, MADV_HUGEPAGE); /* where there are none, small ones do */
    struct ring *r = (struct ring *)(bounce + RING_BOUNCE);
    r->bounce = bounce;
    return r;
}

static void ring_unmap(void *arg)
{
    struct ring *r = arg;
    buf_unref(r->held);
    munmap(r->bounce, RING_SIZE);
}

static void drop_uring(struct ring *r)
{
    if (!r->has_uring)
        return;
    io_uring_queue_exit(&r->uring);
    r->has_uring = false;
    counter_add(&r->owner->stats->rings, UINT64_MAX);
}

static void destroy(struct ring *r)
{
    io_thread_free(r->thread);
    drop_uring(r);
    ring_unmap(r);
}

/* ---- the pool ---- */

/* Would reading the file make the caller wait inside the kernel, whatever it asks for? */
static bool is_blocking(int fd)
{
    uint8_t byte;
    struct iovec one = {.iov_base = &byte, .iov_len = 1};
    return preadv2(fd, &one, 1, 0, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP;
}

static int copy_fds(struct rings *rs, const struct rings_config *config)
{
    for (size_t i = 0; i < config->count; i++) {
        rs->fds[i] = fcntl(config->fds[i], F_DUPFD_CLOEXEC, 0);
        if (rs->fds[i] < 0)
            return error_set(-errno, "cache: cannot copy a file descriptor: %s", strerror(errno));
        rs->fd_count++;
        rs->blocking[i] = is_blocking(rs->fds[i]);
        rs->direct[i] = fcntl(rs->fds[i], F_GETFL) & O_DIRECT;
    }
    return 0;
}

int rings_new(const struct rings_config *config, struct rings_stats *stats, struct rings **out)
{
    if (config->count > RING_FILES_MAX)
        return error_set(-EINVAL, "cache: more than %d files", RING_FILES_MAX);
    struct rings *rs = calloc(1, sizeof *rs);
    if (!rs)
        return error_set(-ENOMEM, "cache: out of memory");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&rs->lock, NULL);
    pthread_cond_init(&rs->returned, &attr);
    pthread_condattr_destroy(&attr);
    rs->limit = config->limit;
    rs->refused = config->no_uring;
    rs->huge_bounce = config->huge_bounce;
    rs->async = config->async;
    rs->calls = config->calls;
    rs->stats = stats;
    int rc = copy_fds(rs, config);
    if (rc) {
        close_fds(rs);
        free(rs);
        return rc;
    }
    *out = rs;
    return 0;
}

/* Has the disk answered all that the zombie asked? */
static bool is_over(struct ring *z)
{
    if (z->has_uring) {
        unsigned answered = io_uring_cq_ready(&z->uring);
        io_uring_cq_advance(&z->uring, answered);
        z->in_air -= answered;
    }
    return z->in_air == 0 && (!z->thread || io_thread_is_idle(z->thread));
}

static struct ring *take_answered(struct rings *rs)
{
    struct ring *over = NULL;
    SCOPED_LOCK(&rs->lock);
    for (struct ring **at = &rs->zombies; *at;) {
        struct ring *z = *at;
        if (!is_over(z)) {
            at = &z->next;
            continue;
        }
        *at = z->next;
        z->next = over;
        over = z;
        rs->zombie_count--;
        pthread_cond_signal(&rs->returned);
    }
    return over;
}

static void destroy_list(struct ring *list)
{
    while (list) {
        struct ring *r = list;
        list = r->next;
        destroy(r);
    }
}

void rings_reap(struct rings *rs)
{
    if (rs->zombie_count)
        destroy_list(take_answered(rs));
}

unsigned rings_lost(struct rings *rs, unsigned file)
{
    unsigned n = 0;
    SCOPED_LOCK(&rs->lock);
    for (const struct ring *z = rs->zombies; z; z = z->next)
        n += z->files >> file & 1;
    return n;
}

/* The thread's memory goes when it is through; what an io_uring reads into stays for good. */
static void abandon(struct ring *z)
{
    if (z->in_air) {
        io_thread_free(z->thread);
        return;
    }
    drop_uring(z);
    io_thread_orphan(z->thread, ring_unmap, z);
}

void rings_free(struct rings *rs)
{
    if (!rs)
        return;
    uint64_t until = clock_now_ms() + FAREWELL_MS;
    while (rings_reap(rs), rs->zombie_count && clock_now_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = FAREWELL_STEP_MS * 1000000}, NULL);
    for (struct ring *r = rs->idle; r; r = r->next)
        rs->made--;
    assert(!rs->made); /* one is still out */
    destroy_list(rs->idle);
    if (rs->zombie_count)
        log_warning("cache: %u reads or writes have had no answer from their disk; leaving without it",
                    rs->zombie_count);
    else
        close_fds(rs);
    while (rs->zombies) {
        struct ring *z = rs->zombies;
        rs->zombies = z->next;
        abandon(z);
    }
    pthread_cond_destroy(&rs->returned);
    pthread_mutex_destroy(&rs->lock);
    free(rs);
}

/* ---- borrowing ---- */

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

static bool is_refused(struct rings *rs)
{
    SCOPED_LOCK(&rs->lock);
    return rs->refused;
}

static void note_refusal(struct rings *rs, int rc)
{
    SCOPED_LOCK(&rs->lock);
    if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rs->refused)
        return; /* this ring only */
    rs->refused = true;
    log_warning("cache: io_uring is refused here (%s); reading by pread", strerror(-rc));
}

static void attach_uring(struct ring *r)
{
    struct rings *rs = r->owner;
    if (is_refused(rs))
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
    r->fixed_bounce = io_uring_register_buffers(&r->uring, &whole, 1) == 0;
}

static struct ring *make(struct rings *rs)
{
    struct ring *r = ring_map(rs->huge_bounce);
    if (r) {
        r->owner = rs;
        attach_uring(r);
    }
    return r;
}

static bool may_make(const struct rings *rs)
{
    return rs->made < rs->limit && rs->made + rs->zombie_count < 2 * rs->limit;
}

static void put_out_locked(struct rings *rs, struct ring *r)
{
    r->prev = NULL;
    r->next = rs->out;
    if (rs->out)
        rs->out->prev = r;
    rs->out = r;
}

static void take_back_locked(struct rings *rs, struct ring *r)
{
    if (r->next)
        r->next->prev = r->prev;
    *(r->prev ? &r->prev->next : &rs->out) = r->next;
}

uint32_t rings_overdue(struct rings *rs, uint64_t now_ms)
{
    uint32_t files = 0;
    SCOPED_LOCK(&rs->lock);
    for (const struct ring *r = rs->out; r; r = r->next) {
        uint64_t until = atomic_load(&r->busy_until);
        files |= until && now_ms > until + OVERDUE_MS ? atomic_load(&r->files) : 0;
    }
    return files;
}

/* true: an idle ring in *out, or NULL with a place for a new one. */
static bool take_place(struct rings *rs, uint64_t deadline_ms, struct ring **out)
{
    SCOPED_LOCK(&rs->lock);
    while (!rs->idle && !may_make(rs)) {
        struct timespec until = clock_at_ms(deadline_ms);
        if (pthread_cond_timedwait(&rs->returned, &rs->lock, &until) == ETIMEDOUT && !rs->idle && !may_make(rs))
            return false;
    }
    *out = rs->idle;
    if (*out) {
        rs->idle = (*out)->next;
        put_out_locked(rs, *out);
    } else {
        rs->made++;
    }
    return true;
}

struct ring *rings_borrow(struct rings *rs, uint64_t deadline_ms)
{
    struct ring *r;
    rings_reap(rs);
    if (!take_place(rs, deadline_ms, &r))
        return NULL;
    if (r)
        return r;
    r = make(rs);
    SCOPED_LOCK(&rs->lock);
    if (r) {
        put_out_locked(rs, r);
    } else {
        rs->made--;
        pthread_cond_signal(&rs->returned);
    }
    return r;
}

void rings_return(struct ring *r)
{
    struct rings *rs = r->owner;
    SCOPED_LOCK(&rs->lock);
    take_back_locked(rs, r);
    struct ring **list = r->lost ? &rs->zombies : &rs->idle;
    r->next = *list;
    *list = r;
    if (r->lost) {
        rs->made--;
        rs->zombie_count++;
    }
    pthread_cond_signal(&rs->returned);
}

uint8_t *ring_bounce(struct ring *r)
{
    return r->bounce;
}

/* ---- by the ring's thread ---- */

static int need_thread(struct ring *r)
{
    return r->thread ? 0 : io_thread_new(&r->owner->calls, &r->thread);
}

static void lose(struct ring *r)
{
    r->lost = true;
    counter_add(&r->owner->stats->lost, 1);
}

static bool is_pending(const struct ring_read *read)
{
    return read->rc == -EINPROGRESS || read->rc == -EAGAIN || read->rc == -EINTR;
}

/* Those reads that io_uring did not take or do. */
static void read_by_thread(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms)
{
    size_t which[RING_READS_MAX], count = 0;
    for (size_t i = 0; i < n; i++)
        if (is_pending(&reads[i])) {
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
        lose(r);
    for (size_t i = 0; i < count; i++)
        reads[which[i]].rc = in_time || i < at ? r->ops[i].rc : i == at ? -ETIMEDOUT : -ECANCELED;
    counter_add(&r->owner->stats->preads, in_time ? count : at);
}

static int write_by_thread(struct ring *r, const struct ring_write *writes, size_t n, uint64_t deadline_ms)
{
    for (size_t i = 0; i < n; i++)
        r->ops[i] = (struct io_op){.write = true,
                                   .fd = r->owner->fds[writes[i].file],
                                   .off = writes[i].off,
                                   .len = writes[i].len,
                                   .data = (uint8_t *)writes[i].data};
    int rc = need_thread(r);
    if (rc)
        return rc;
    size_t at;
    if (!io_thread_run(r->thread, r->ops, n, deadline_ms, &at)) {
        lose(r);
        return -ETIMEDOUT;
    }
    for (size_t i = 0; !rc && i < n; i++)
        rc = r->ops[i].rc;
    return rc;
}

/* ---- by io_uring ---- */

/* Op number i of the call. No address goes along: the reads are the caller's, who may be gone. */
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

static void prepare(struct ring *r, const struct ring_read *reads, size_t i)
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

static size_t take_answers(struct ring *r, struct ring_read *reads)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        struct ring_read *read = &reads[cqe->user_data];
        read->rc = cqe->res < 0 ? cqe->res : (uint32_t)cqe->res == read->len ? 0 : -EIO;
        n++;
    }
    io_uring_cq_advance(&r->uring, n);
    return n;
}

/* The kernel takes no more reads of this ring. */
static void give_up_uring(struct ring *r, int rc)
{
    log_warning("cache: an io_uring failed (%s); going on by pread in its place", strerror(-rc));
    if (r->in_air)
        lose(r); /* they may still land in the buffer */
    else
        drop_uring(r);
}

/* One call of the kernel for up to `waiting` answers; false when the deadline has passed. */
static bool submit_and_wait(struct ring *r, size_t waiting, uint64_t deadline_ms, int *rc)
{
    uint64_t now = clock_now_ms();
    uint64_t left = deadline_ms > now ? GR_MIN(deadline_ms - now, (uint64_t)WAIT_MAX_S * 1000) : 0;
    struct __kernel_timespec wait = {.tv_sec = (long long)(left / 1000), .tv_nsec = (long long)(left % 1000) * 1000000};
    struct io_uring_cqe *cqe;
    *rc = io_uring_submit_and_wait_timeout(&r->uring, &cqe, (unsigned)waiting, &wait, NULL);
    return left > 0;
}

/* Hand over the `taken` that are prepared, and wait for their answers; how many came. */
static size_t await_answers(struct ring *r, struct ring_read *reads, size_t taken, uint64_t deadline_ms)
{
    size_t done = 0;
    while (done < taken) {
        int rc;
        bool in_time = submit_and_wait(r, taken - done, deadline_ms, &rc);
        done += take_answers(r, reads);
        r->in_air = taken - done - io_uring_sq_ready(&r->uring);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY && rc != -ETIME) {
            give_up_uring(r, rc);
            break;
        }
        if (!in_time && done < taken) {
            lose(r);
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
            prepare(r, reads, i);
            taken++;
        }
    counter_add(&r->owner->stats->reads, await_answers(r, reads, taken, deadline_ms));
}

bool ring_read_all(struct ring *r, struct ring_read *reads, size_t n, uint64_t deadline_ms)
{
    assert(n <= RING_READS_MAX && !r->lost);
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
        if (is_pending(&reads[i]))
            reads[i].rc = clock_now_ms() < deadline_ms ? -ECANCELED : -ETIMEDOUT;
    return false;
}

static int write_by_uring(struct ring *r, const struct ring_write *write, uint64_t deadline_ms)
{
    struct ring_read op = {.len = write->len, .rc = -EINPROGRESS};
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    io_uring_prep_write(sqe, file_of(r, write->file), write->data, write->len, write->off);
    fit_out(r, sqe, 0);
    await_answers(r, &op, 1, deadline_ms);
    if (r->lost)
        return -ETIMEDOUT;
    return is_pending(&op) ? write_by_thread(r, write, 1, deadline_ms) : op.rc;
}

static bool goes_by_uring(const struct ring *r, const struct ring_write *write)
{
    return r->has_uring && r->owner->direct[write->file] && !r->owner->blocking[write->file];
}

int ring_write_all(struct ring *r, const struct ring_write *writes, size_t n, struct buf *held, uint64_t deadline_ms)
{
    assert(n <= RING_WRITES_MAX && !r->lost);
    uint32_t files = 0;
    for (size_t i = 0; i < n; i++)
        files |= UINT32_C(1) << writes[i].file;
    atomic_store_explicit(&r->files, files, memory_order_relaxed);
    r->held = held ? buf_ref(held) : NULL;
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
    if (!r->lost)
        buf_unref(steal_ptr(&r->held));
    return rc;
}

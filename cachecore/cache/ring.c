/* One blocking submission at a time by whoever borrowed the ring. Idle readers are a stack: the one
 * used last, whose memory is warm, goes out first.
 *
 * A ring that changes threads cannot have SINGLE_ISSUER and DEFER_TASKRUN; COOP_TASKRUN (5.19) spares
 * the interrupts that those would have spared, and costs the same in the measurement (docs/cache.md
 * has the table). A ring for each thread would reach few reads: nbdkit starts its threads anew for
 * every connection, hundreds of them.
 *
 * A registered buffer counts as locked memory: where that is not allowed (ENOMEM), the ring goes on
 * without.
 */
#include "cache/ring.h"

#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum { FILES_MAX = 16, ALIGN = 4096 };

struct ring {
    struct rings *owner;
    struct ring *next; /* idle: under the owner's lock */
    uint8_t *bounce;
    bool has_uring, fixed_files, fixed_bounce;
    struct io_uring uring;
};

struct rings {
    pthread_mutex_t lock; /* innermost */
    pthread_cond_t returned;
    struct ring *idle;
    unsigned made; /* readers that exist */
    bool refused;  /* io_uring is not to be had here: said once */
    int fds[FILES_MAX];
    size_t fd_count;
    struct rings_stats *stats;
};

static void destroy(struct ring *r)
{
    if (r->has_uring)
        io_uring_queue_exit(&r->uring);
    free(r->bounce);
    free(r);
}

int rings_new(const int *fds, size_t count, bool no_uring, struct rings_stats *stats, struct rings **out)
{
    if (count > FILES_MAX)
        return error_set(-EINVAL, "cache: more than %d directories", FILES_MAX);
    struct rings *rs = calloc(1, sizeof *rs);
    if (!rs)
        return error_set(-ENOMEM, "cache: out of memory");
    pthread_mutex_init(&rs->lock, NULL);
    pthread_cond_init(&rs->returned, NULL);
    if (count)
        memcpy(rs->fds, fds, count * sizeof *fds);
    rs->fd_count = count;
    rs->refused = no_uring;
    rs->stats = stats;
    *out = rs;
    return 0;
}

void rings_free(struct rings *rs)
{
    if (!rs)
        return;
    while (rs->idle) {
        struct ring *r = rs->idle;
        rs->idle = r->next;
        rs->made--;
        destroy(r);
    }
    assert(!rs->made); /* one is still out */
    pthread_cond_destroy(&rs->returned);
    pthread_mutex_destroy(&rs->lock);
    free(rs);
}

/* ---- borrowing ---- */

static int init_uring(struct io_uring *uring)
{
    int rc = io_uring_queue_init(RING_READS_MAX, uring, IORING_SETUP_COOP_TASKRUN);
    return rc == -EINVAL ? io_uring_queue_init(RING_READS_MAX, uring, 0) : rc;
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
        return; /* this reader only */
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
    struct ring *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->owner = rs;
    r->bounce = aligned_alloc(ALIGN, RING_BOUNCE);
    if (!r->bounce) {
        free(r);
        return NULL;
    }
    attach_uring(r);
    return r;
}

/* An idle reader, or NULL with a place for a new one. */
static struct ring *take_idle(struct rings *rs)
{
    SCOPED_LOCK(&rs->lock);
    while (!rs->idle && rs->made == RINGS_MAX)
        pthread_cond_wait(&rs->returned, &rs->lock);
    struct ring *r = rs->idle;
    if (r)
        rs->idle = r->next;
    else
        rs->made++;
    return r;
}

struct ring *rings_borrow(struct rings *rs)
{
    struct ring *r = take_idle(rs);
    if (r)
        return r;
    r = make(rs);
    if (!r) {
        SCOPED_LOCK(&rs->lock);
        rs->made--;
        pthread_cond_signal(&rs->returned);
    }
    return r;
}

void rings_return(struct ring *r)
{
    struct rings *rs = r->owner;
    SCOPED_LOCK(&rs->lock);
    r->next = rs->idle;
    rs->idle = r;
    pthread_cond_signal(&rs->returned);
}

uint8_t *ring_bounce(struct ring *r)
{
    return r->bounce;
}

/* ---- reading ---- */

static void read_plainly(struct ring *r, struct ring_read *read)
{
    ssize_t n = io_pread_full(r->owner->fds[read->file], read->buf, read->len, read->off);
    read->rc = n < 0 ? (int)n : n == (ssize_t)read->len ? 0 : -EIO;
    counter_add(&r->owner->stats->preads, 1);
}

static void prepare(struct ring *r, struct ring_read *read)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&r->uring);
    int fd = r->fixed_files ? (int)read->file : r->owner->fds[read->file];
    if (r->fixed_bounce && read->buf >= r->bounce && read->buf < r->bounce + RING_BOUNCE)
        io_uring_prep_read_fixed(sqe, fd, read->buf, read->len, read->off, 0);
    else
        io_uring_prep_read(sqe, fd, read->buf, read->len, read->off);
    if (r->fixed_files)
        sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, read);
    read->rc = -EINPROGRESS;
}

static size_t reap(struct ring *r)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&r->uring, head, cqe)
    {
        struct ring_read *read = io_uring_cqe_get_data(cqe);
        read->rc = cqe->res < 0 ? cqe->res : (uint32_t)cqe->res == read->len ? 0 : -EIO;
        n++;
    }
    io_uring_cq_advance(&r->uring, n);
    return n;
}

/* The ring stopped taking reads: let those in the air land, then do without it. */
static void abandon(struct ring *r, size_t in_air, int rc)
{
    struct io_uring_cqe *cqe;
    log_warning("cache: an io_uring failed (%s); going on by pread in its place", strerror(-rc));
    while (in_air && (rc = io_uring_wait_cqe(&r->uring, &cqe), rc == 0 || rc == -EINTR))
        in_air -= reap(r);
    io_uring_queue_exit(&r->uring);
    r->has_uring = false;
    counter_add(&r->owner->stats->rings, UINT64_MAX);
}

static void submit_all(struct ring *r, struct ring_read *reads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        prepare(r, &reads[i]);
    size_t submitted = 0, done = 0;
    while (done < n) {
        int rc = io_uring_submit_and_wait(&r->uring, (unsigned)(n - done));
        if (rc > 0)
            submitted += (size_t)rc;
        done += reap(r);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            abandon(r, submitted - done, rc);
            return;
        }
    }
    counter_add(&r->owner->stats->reads, n);
}

void ring_read_all(struct ring *r, struct ring_read *reads, size_t n)
{
    for (size_t i = 0; i < n; i++)
        reads[i].rc = -EINPROGRESS;
    if (r->has_uring)
        submit_all(r, reads, n);
    for (size_t i = 0; i < n; i++)
        if (reads[i].rc == -EINPROGRESS || reads[i].rc == -EAGAIN || reads[i].rc == -EINTR)
            read_plainly(r, &reads[i]);
}

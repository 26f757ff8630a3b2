/* One blocking submission at a time by the ring's own thread (facts: a ring per thread with
 * registered file and buffers costs the least CPU a read; docs/cache.md has the table), therefore
 * SINGLE_ISSUER | DEFER_TASKRUN where the kernel has them (6.1) and no flags elsewhere.
 *
 * A thread finds its reader by a pthread key, whose destructor gives it back when the thread ends
 * (nbdkit's threads come and go with connections). The list under the lock is there so that
 * rings_free reaches the readers of threads that still live.
 *
 * A registered buffer counts as locked memory: where that is not allowed (ENOMEM), the ring goes on
 * without.
 */
#include "cache/ring.h"

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
    struct ring *next, **link; /* under the owner's lock */
    uint8_t *bounce;
    uint32_t bounce_size;
    bool has_uring, fixed_files, fixed_bounce;
    struct io_uring uring;
};

struct rings {
    pthread_key_t key;
    pthread_mutex_t lock; /* innermost */
    struct ring *all;
    unsigned made; /* rings that exist */
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

/* The key's destructor: the thread ends. */
static void thread_ends(void *arg)
{
    struct ring *r = arg;
    struct rings *rs = r->owner;
    {
        SCOPED_LOCK(&rs->lock);
        *r->link = r->next;
        if (r->next)
            r->next->link = r->link;
        if (r->has_uring) {
            rs->made--;
            counter_add(&rs->stats->rings, UINT64_MAX);
        }
    }
    destroy(r);
}

int rings_new(const int *fds, size_t count, bool no_uring, struct rings_stats *stats, struct rings **out)
{
    if (count > FILES_MAX)
        return error_set(-EINVAL, "cache: more than %d directories", FILES_MAX);
    struct rings *rs = calloc(1, sizeof *rs);
    if (!rs)
        return error_set(-ENOMEM, "cache: out of memory");
    int rc = pthread_key_create(&rs->key, thread_ends);
    if (rc) {
        free(rs);
        return error_set(-rc, "cache: no thread key left");
    }
    pthread_mutex_init(&rs->lock, NULL);
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
    pthread_key_delete(rs->key);
    struct ring *next;
    for (struct ring *r = rs->all; r; r = next) {
        next = r->next;
        destroy(r);
    }
    pthread_mutex_destroy(&rs->lock);
    free(rs);
}

/* ---- a thread's first read ---- */

static int init_uring(struct io_uring *uring)
{
    int rc = io_uring_queue_init(RING_READS_MAX, uring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    return rc == -EINVAL ? io_uring_queue_init(RING_READS_MAX, uring, 0) : rc;
}

static bool take_place(struct rings *rs)
{
    SCOPED_LOCK(&rs->lock);
    if (rs->refused || rs->made == RINGS_MAX)
        return false;
    rs->made++;
    return true;
}

static void give_place_back(struct rings *rs, int rc)
{
    SCOPED_LOCK(&rs->lock);
    rs->made--;
    if (rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rs->refused)
        return; /* this thread only */
    rs->refused = true;
    log_warning("cache: io_uring is refused here (%s); reading by pread", strerror(-rc));
}

static void attach_uring(struct ring *r)
{
    struct rings *rs = r->owner;
    if (!take_place(rs))
        return;
    int rc = init_uring(&r->uring);
    if (rc) {
        give_place_back(rs, rc);
        return;
    }
    r->has_uring = true;
    r->bounce_size = RING_BOUNCE;
    counter_add(&rs->stats->rings, 1);
    r->fixed_files = io_uring_register_files(&r->uring, rs->fds, (unsigned)rs->fd_count) == 0;
}

static struct ring *make(struct rings *rs)
{
    struct ring *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->owner = rs;
    r->bounce_size = RING_BOUNCE_PREAD;
    attach_uring(r);
    r->bounce = aligned_alloc(ALIGN, r->bounce_size);
    if (r->bounce && r->has_uring) {
        struct iovec whole = {.iov_base = r->bounce, .iov_len = r->bounce_size};
        r->fixed_bounce = io_uring_register_buffers(&r->uring, &whole, 1) == 0;
    }
    SCOPED_LOCK(&rs->lock);
    r->next = rs->all;
    r->link = &rs->all;
    if (r->next)
        r->next->link = &r->next;
    rs->all = r;
    return r;
}

struct ring *rings_mine(struct rings *rs)
{
    struct ring *r = pthread_getspecific(rs->key);
    if (!r) {
        r = make(rs);
        if (r && pthread_setspecific(rs->key, r)) {
            thread_ends(r);
            r = NULL;
        }
    }
    return r && r->bounce ? r : NULL;
}

uint8_t *ring_bounce(struct ring *r, uint32_t *out_size)
{
    *out_size = r->bounce_size;
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
    if (r->fixed_bounce && read->buf >= r->bounce && read->buf < r->bounce + r->bounce_size)
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
    log_warning("cache: an io_uring failed (%s); this thread reads by pread", strerror(-rc));
    while (in_air && (rc = io_uring_wait_cqe(&r->uring, &cqe), rc == 0 || rc == -EINTR))
        in_air -= reap(r);
    io_uring_queue_exit(&r->uring);
    r->has_uring = false;
    SCOPED_LOCK(&r->owner->lock);
    r->owner->made--;
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

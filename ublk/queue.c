/* One thread and one ring for a device, as the driver demands: the thread that fetched a request commits it.
 *
 *   FETCH_REQ for each tag
 *   wait --(a request)--> reader->read --(0, -errno)--> COMMIT_AND_FETCH_REQ
 *    ^                         | UBLK_LATER                   ^
 *    |                         v                              | the queue's thread takes the list
 *    |                    another thread: ublk_queue_done: list, eventfd
 *    +--- a command ends with ENODEV: that tag is over; after the last one the thread lets go of /dev/ublkcN
 *
 * A process that is killed between START_USER_RECOVERY and here must leave a device that can be recovered again. So the
 * tags are fetched by one system call, before the descriptors are mapped: the driver gives a mapping to one process
 * only, until a recovery of a device whose tags were all fetched.
 *
 * A number is free after the last reference to /dev/ublkcN: the mapping, the ring's file and the
 * descriptor. So the thread drops all three by itself, as soon as the device is stopped. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/capability.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "ublk/abi.h"
#include "ublk/kernel.h"

enum {
    DEPTH_MAX = 4096,  /* the driver's */
    OPEN_TRIES = 2000, /* of OPEN_STEP_US: the node is made, or the old server's last reference goes */
    OPEN_STEP_US = 1000,
    WOKEN = DEPTH_MAX, /* user data of the read of the eventfd; those below are tags */
};

/* An answer that waits for the queue's thread. */
struct answer {
    unsigned tag;
    int result;
};

struct ublk_queue {
    unsigned number, depth;
    size_t bytes_max, map_len;
    struct ublk_reader reader;
    int fd;      /* /dev/ublkcN */
    int wake_fd; /* eventfd: there are answers */
    struct io_uring ring;
    struct ublk_io_desc *descs;
    char *buffers; /* depth of bytes_max */
    unsigned live, in_hand;
    uint64_t woken; /* what the eventfd is read into */

    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t up;    /* the thread has begun, or failed to */
    bool begun;
    int failed;
    struct error why;
    unsigned answer_count;
    struct answer *answers; /* room for depth */
};

/* ---- the ring ---- */

static struct io_uring_sqe *next_sqe(struct ublk_queue *q)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    if (sqe)
        return sqe;
    io_uring_submit(&q->ring);
    return io_uring_get_sqe(&q->ring);
}

/* Fetch a tag's next request; with UBLK_COMMIT_AND_FETCH_REQ, result is that of the one before. */
static void fetch(struct ublk_queue *q, uint32_t op, unsigned tag, int result)
{
    struct io_uring_sqe *sqe = next_sqe(q);
    const struct ublk_io_cmd cmd = {.q_id = 0,
                                    .tag = (uint16_t)tag,
                                    .result = result,
                                    .addr = (uint64_t)(uintptr_t)(q->buffers + tag * q->bytes_max)};
    io_uring_prep_rw(IORING_OP_URING_CMD, sqe, 0, NULL, 0, 0);
    sqe->flags = IOSQE_FIXED_FILE;
    sqe->off = op; /* cmd_op */
    sqe->user_data = tag;
    memcpy((char *)sqe + offsetof(struct io_uring_sqe, addr3), &cmd, sizeof cmd);
}

static void await_wake(struct ublk_queue *q)
{
    struct io_uring_sqe *sqe = next_sqe(q);
    io_uring_prep_read(sqe, q->wake_fd, &q->woken, sizeof q->woken, 0);
    sqe->user_data = WOKEN;
}

/* A request is answered: rc is 0 or -errno. The driver takes the bytes from the tag's buffer. */
static void commit(struct ublk_queue *q, unsigned tag, int rc)
{
    q->in_hand--;
    fetch(q, UBLK_COMMIT_AND_FETCH_REQ, tag, rc ? rc : (int)(q->descs[tag].nr_sectors * UBLK_SECTOR));
}

/* ---- requests ---- */

/* The device is read-only, so the kernel sends nothing but reads. */
static void take(struct ublk_queue *q, unsigned tag, bool alone)
{
    const struct ublk_io_desc *d = &q->descs[tag];
    const struct ublk_request r = {.tag = tag,
                                   .off = d->start_sector * UBLK_SECTOR,
                                   .len = d->nr_sectors * UBLK_SECTOR,
                                   .buffer = q->buffers + tag * q->bytes_max,
                                   .alone = alone};
    q->in_hand++;
    int rc = (d->op_flags & 0xff) != UBLK_OP_READ ? -EOPNOTSUPP : r.len > q->bytes_max ? -EIO : 0;
    if (!rc)
        rc = q->reader.read(q->reader.arg, &r);
    if (rc != UBLK_LATER)
        commit(q, tag, rc);
}

/* Commit what other threads have answered. They write the answers down under the lock; the commits need none. */
static void take_answers(struct ublk_queue *q)
{
    struct answer answers[UBLK_DEPTH];
    for (;;) {
        unsigned n;
        {
            SCOPED_LOCK(&q->lock);
            n = q->answer_count < UBLK_DEPTH ? q->answer_count : UBLK_DEPTH;
            q->answer_count -= n;
            memcpy(answers, q->answers + q->answer_count, n * sizeof *answers);
        }
        if (!n)
            return;
        for (unsigned i = 0; i < n; i++)
            commit(q, answers[i].tag, answers[i].result);
    }
}

void ublk_queue_done(struct ublk_queue *q, unsigned tag, int rc)
{
    SCOPED_LOCK(&q->lock);
    q->answers[q->answer_count++] = (struct answer){.tag = tag, .result = rc};
    if (q->answer_count == 1)
        eventfd_write(q->wake_fd, 1); /* under the lock: the queue lives until this answer is taken; never blocks */
}

/* A command ended: with a request, or since the device is stopped. */
static void handle(struct ublk_queue *q, const struct io_uring_cqe *cqe, bool alone)
{
    if (cqe->user_data == WOKEN) {
        take_answers(q);
        await_wake(q);
    } else if (cqe->res == -ENODEV) {
        q->live--;
    } else if (cqe->res) {
        log_error("ublk device %u: the driver refuses an answer: %s", q->number, strerror(-cqe->res));
        abort(); /* as below: its request would never end */
    } else {
        take(q, (unsigned)cqe->user_data, alone);
    }
}

/* Handle what has arrived. Returns how much that was. */
static unsigned handle_all(struct ublk_queue *q)
{
    struct io_uring_cqe *cqe;
    unsigned head, n = 0;
    bool alone = io_uring_cq_ready(&q->ring) == 1 && !q->in_hand;
    io_uring_for_each_cqe(&q->ring, head, cqe)
    {
        handle(q, cqe, alone);
        n++;
    }
    io_uring_cq_advance(&q->ring, n);
    return n;
}

/* Until every tag is over. A tag whose request another thread still reads is over only after its commit. */
static void serve(struct ublk_queue *q)
{
    while (q->live) {
        int rc = io_uring_submit_and_wait(&q->ring, 1);
        if (rc < 0 && rc != -EINTR && rc != -EAGAIN && rc != -EBUSY) {
            log_error("ublk device %u: its ring fails: %s", q->number, strerror(-rc));
            abort(); /* another process recovers the device; reads wait meanwhile */
        }
        handle_all(q);
    }
}

/* ---- beginning and end ---- */

/* EBUSY: the old server's descriptor is not closed yet; ENOENT, EACCES: the node is being made. */
static int open_device(unsigned number, int *out)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/ublkc%u", number);
    for (int i = 0;; i++) {
        *out = open(path, O_RDWR | O_CLOEXEC);
        if (*out >= 0)
            return 0;
        if (i == OPEN_TRIES || (errno != EBUSY && errno != ENOENT && errno != EACCES))
            return error_set(-errno, "cannot open %s: %s", path, strerror(errno));
        usleep(OPEN_STEP_US);
    }
}

/* START_DEV looks for partitions, holding the device's lock, if the thread that fetches is privileged. Its reads are
 * this server's to answer: killed then, it would leave a device that nothing can recover or remove. */
static int drop_privilege(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    int rc = (int)syscall(SYS_capget, &header, data);
    data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
    if (rc || syscall(SYS_capset, &header, data))
        return error_set(-errno, "cannot drop CAP_SYS_ADMIN in a thread: %s", strerror(errno));
    return 0;
}

/* Fetch all tags, then map their descriptors. */
static int fetch_all(struct ublk_queue *q)
{
    await_wake(q);
    for (unsigned tag = 0; tag < q->depth; tag++)
        fetch(q, UBLK_FETCH_REQ, tag, 0);
    q->live = q->depth;
    int rc = io_uring_submit(&q->ring);
    if (rc < 0)
        return error_set(rc, "cannot fetch the requests of ublk device %u: %s", q->number, strerror(-rc));
    q->descs = mmap(NULL, q->map_len, PROT_READ, MAP_SHARED | MAP_POPULATE, q->fd, 0);
    if (q->descs != MAP_FAILED)
        return 0;
    q->descs = NULL;
    return error_set(-errno, "cannot map the requests of /dev/ublkc%u: %s", q->number, strerror(errno));
}

/* In the queue's thread: the ring has one issuer. */
static int begin(struct ublk_queue *q)
{
    struct io_uring_params p = {.flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_COOP_TASKRUN |
                                         IORING_SETUP_DEFER_TASKRUN};
    int rc = drop_privilege();
    if (rc)
        return rc;
    rc = io_uring_queue_init_params(q->depth * 2, &q->ring, &p);
    if (rc)
        return error_set(rc, "cannot make the ring of ublk device %u: %s", q->number, strerror(-rc));
    rc = io_uring_register_files(&q->ring, &q->fd, 1);
    rc = rc ? error_set(rc, "cannot use /dev/ublkc%u by io_uring: %s", q->number, strerror(-rc)) : fetch_all(q);
    if (rc)
        io_uring_queue_exit(&q->ring);
    return rc;
}

static void queue_free(struct ublk_queue *q)
{
    if (q->buffers)
        munmap(q->buffers, q->depth * q->bytes_max);
    if (q->wake_fd >= 0)
        close(q->wake_fd);
    if (q->fd >= 0)
        close(q->fd);
    pthread_cond_destroy(&q->up);
    pthread_mutex_destroy(&q->lock);
    free(q->answers);
    free(q);
}

/* Tell ublk_queue_start how the beginning went. If it failed, the queue is that function's again. */
static int report(struct ublk_queue *q, int rc)
{
    SCOPED_LOCK(&q->lock);
    error_take(&q->why, rc);
    q->failed = rc;
    q->begun = true;
    pthread_cond_signal(&q->up);
    return rc;
}

static void *run(void *arg)
{
    struct ublk_queue *q = arg;
    if (report(q, begin(q)))
        return NULL;
    serve(q);
    q->reader.ended(q->reader.arg);
    munmap(q->descs, q->map_len);
    io_uring_queue_exit(&q->ring);
    queue_free(q);
    return NULL;
}

/* Start the thread and wait until it has begun. */
static int start_thread(struct ublk_queue *q)
{
    pthread_t id;
    int rc = thread_start(&id, run, q);
    if (rc)
        return rc;
    pthread_mutex_lock(&q->lock);
    while (!q->begun)
        pthread_cond_wait(&q->up, &q->lock);
    int failed = q->failed;
    pthread_mutex_unlock(&q->lock);
    if (!failed) {
        pthread_detach(id);
        return 0;
    }
    pthread_join(id, NULL);
    return error_restore(&q->why);
}

int ublk_queue_start(unsigned number, unsigned depth, size_t bytes_max, const struct ublk_reader *reader,
                     struct ublk_queue **out)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct ublk_queue *q = calloc(1, sizeof *q);
    if (!q)
        return error_no_memory();
    *q = (struct ublk_queue){.number = number,
                             .depth = depth,
                             .bytes_max = bytes_max,
                             .map_len = (depth * sizeof *q->descs + page - 1) / page * page,
                             .reader = *reader,
                             .fd = -1,
                             .wake_fd = eventfd(0, EFD_CLOEXEC)};
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->up, NULL);
    q->answers = calloc(depth, sizeof *q->answers);
    void *buffers =
        mmap(NULL, depth * bytes_max, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    q->buffers = buffers == MAP_FAILED ? NULL : buffers;
    int rc = q->wake_fd < 0 ? error_set(-errno, "eventfd: %s", strerror(errno)) : 0;
    if (!rc && (!q->answers || !q->buffers))
        rc = error_no_memory();
    if (!rc)
        rc = open_device(number, &q->fd);
    *out = q; /* before the thread: requests may come at once */
    if (!rc)
        rc = start_thread(q);
    if (rc)
        queue_free(q);
    return rc;
}

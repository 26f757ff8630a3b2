/* At most READING_MAX threads wait in read(2) for requests; the others are parked. The kernel wakes readers in turn, so
 * if all of them read, each request would meet a thread whose buffers are cold in the CPU's cache. When the last reader
 * gets a request, a parked or a new thread replaces it, up to threads_max; beyond that, requests stay with the kernel.
 *
 *     parked --(signalled)--> reading --(got a request)--> answering --(READING_MAX read already)--> parked
 *                                ^                              |
 *                                +----(fewer are reading)-------+
 *
 * All threads read the one descriptor and no clone of it. The kernel keeps a request that a dead process had taken with
 * the descriptor by which it was read. The supervisor holds ours open, so the next process gets those requests again. A
 * clone would be closed with the process, and its requests would fail with EIO.
 *
 * A session begins with INIT, which the kernel sends once. If the first request is another one, this process takes over
 * a mount whose INIT is answered. libfuse insists on an INIT, so it is given a made-up one; the kernel drops the reply,
 * since no request has that number. */
#include "fuse/session.h"

#include <errno.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "fuse/files.h"

enum { READING_MAX = 16, PATH_SIZE = 32, WAKE = SIGUSR1, WAKE_AGAIN_US = 1000 };

/* A thread; reading is under the session's lock. */
struct session_thread {
    pthread_t id;
    bool reading; /* in read(2), or about to be */
    struct session *session;
};

/* What is below lock is guarded by it; what is above does not change after session_open. */
struct session {
    struct files files;
    struct fuse_session *fuse;
    unsigned threads_max;
    int ended_fd;
    pthread_mutex_t lock;
    pthread_cond_t needed;              /* a parked thread must read, or the session ends */
    VEC(struct session_thread) threads; /* room for threads_max is reserved: they never move */
    unsigned reading, parked;           /* threads in these states */
    bool initialised; /* libfuse has seen an INIT; only the first thread writes it, before there are others */
    bool ending;
};

/* ---- requests ---- */

/* Give libfuse the INIT that the earlier process answered. Only Linux 6.9 and later gives requests back, so the flags
 * of older kernels need no thought. Whatever libfuse replies has been settled by the real INIT. */
static void pretend_init(struct session *s)
{
    struct {
        struct fuse_in_header head;
        struct fuse_init_in init;
    } request = {.head = {.len = sizeof request, .opcode = FUSE_INIT, .unique = 1ull << 62},
                 .init = {.major = FUSE_KERNEL_VERSION,
                          .minor = FUSE_KERNEL_MINOR_VERSION,
                          .max_readahead = FILES_READ_MAX,
                          .flags = FUSE_MAX_PAGES | FUSE_ASYNC_READ | FUSE_BIG_WRITES}};
    const struct fuse_buf buf = {.size = sizeof request, .mem = &request};
    fuse_session_process_buf(s->fuse, &buf);
    log_info("the mount is taken over from a process that has ended");
}

static bool is_ending(struct session *s)
{
    SCOPED_LOCK(&s->lock);
    return s->ending;
}

/* Read one request. Returns false when no more will come: the mount is gone, or the session ends. */
static bool fuse_session_receive(struct session *s, struct fuse_buf *buf)
{
    int n;
    do
        n = fuse_session_receive_buf(s->fuse, buf);
    while (n == -EAGAIN || (n == -EINTR && !is_ending(s)));
    if (n < 0 && n != -EINTR)
        log_error("reading requests of the mount: %s", strerror(-n));
    return n > 0;
}

/* ---- threads ---- */

static void *fuse_session_run(void *arg);

/* Start one more thread. */
static int add_locked(struct session *s)
{
    struct session_thread *t = &s->threads.items[s->threads.len];
    *t = (struct session_thread){.session = s};
    int rc = thread_start(&t->id, fuse_session_run, t);
    s->threads.len += !rc;
    return rc;
}

/* Have another thread read the next request. A thread that cannot be started is no error: the threads that answer now
 * come back to read. */
static void replace_locked(struct session *s)
{
    if (s->parked)
        pthread_cond_signal(&s->needed);
    else if (s->threads.len < s->threads_max && !s->ending && add_locked(s))
        log_debug("%s", error_text());
}

/* Wait until fewer than READING_MAX threads read. Returns false when the session ends. */
static bool park_locked(struct session *s)
{
    while (s->reading >= READING_MAX && !s->ending) {
        s->parked++;
        pthread_cond_wait(&s->needed, &s->lock);
        s->parked--;
    }
    return !s->ending;
}

/* Read a request and answer it. Returns false when no more will come. */
static bool answer_one(struct session_thread *t, struct fuse_buf *buf)
{
    struct session *s = t->session;
    bool got = fuse_session_receive(s, buf);
    if (got && !s->initialised) { /* the first thread, while it is the only one */
        if (((const struct fuse_in_header *)buf->mem)->opcode != FUSE_INIT)
            pretend_init(s);
        s->initialised = true;
    }
    {
        SCOPED_LOCK(&s->lock);
        t->reading = false;
        s->reading--;
        if (got && !s->reading)
            replace_locked(s);
    }
    if (got)
        fuse_session_process_buf(s->fuse, buf);
    return got;
}

/* A thread. WAKE is unblocked: it interrupts read(2) when the session ends. */
static void *fuse_session_run(void *arg)
{
    struct session_thread *t = arg;
    struct session *s = t->session;
    struct fuse_buf buf = {0};
    bool going = true;
    sigset_t wakes;
    sigemptyset(&wakes);
    sigaddset(&wakes, WAKE);
    pthread_sigmask(SIG_UNBLOCK, &wakes, NULL);
    while (going) {
        {
            SCOPED_LOCK(&s->lock);
            going = t->reading = park_locked(s);
            s->reading += going;
        }
        if (going && !answer_one(t, &buf)) {
            eventfd_write(s->ended_fd, 1);
            going = false;
        }
    }
    free(buf.mem);
    return NULL;
}

/* ---- front end ---- */

static void do_nothing(int number)
{
}

int session_open(struct serving *serving, int fd, unsigned threads_max, struct session **out)
{
    char path[PATH_SIZE];
    const struct sigaction wake = {.sa_handler = do_nothing}; /* without SA_RESTART, so read(2) returns EINTR */
    sigaction(WAKE, &wake, NULL);
    struct session *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->files = (struct files){.serving = serving};
    inode_table_init(&s->files.inode_table, serving->stack);
    read_budget_init(&s->files.budget, threads_max);
    s->threads_max = threads_max;
    s->ended_fd = eventfd(0, EFD_CLOEXEC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->needed, NULL);
    int rc = s->ended_fd < 0 ? error_set(-errno, "eventfd: %s", strerror(errno)) : 0;
    if (!rc)
        rc = vec_reserve(&s->threads, threads_max);
    if (!rc)
        rc = files_session(&s->files, &s->fuse);
    snprintf(path, sizeof path, "/dev/fd/%d", fd);
    if (!rc && fuse_session_mount(s->fuse, path))
        rc = error_set(-EINVAL, "libfuse does not take descriptor %d, which is to be /dev/fuse", fd);
    if (rc)
        session_close(s);
    else
        *out = s;
    return rc;
}

/* Report the counters of a front end. The mount counts as one connection. */
static void tell_stack(void *arg, struct stack_front_end *out)
{
    struct session *s = arg;
    SCOPED_LOCK(&s->lock);
    *out = (struct stack_front_end){.connections = 1,
                                    .connections_max = 1,
                                    .threads = s->threads.len,
                                    .threads_max = s->threads_max,
                                    .reply_bytes = read_budget_used(&s->files.budget),
                                    .reply_bytes_max = FILES_REPLIES_MAX};
}

int session_start(struct session *s)
{
    stack_set_front_end(s->files.serving->stack, tell_stack, s);
    SCOPED_LOCK(&s->lock);
    return add_locked(s);
}

int session_ended_fd(const struct session *s)
{
    return s->ended_fd;
}

/* Interrupt the threads in read(2). A signal that arrives just before read(2) has no effect on it, so the caller
 * repeats this until it returns false: no thread reads any more. */
static bool wake_readers(struct session *s)
{
    SCOPED_LOCK(&s->lock);
    s->ending = true;
    pthread_cond_broadcast(&s->needed);
    for (size_t i = 0; i < s->threads.len; i++)
        if (s->threads.items[i].reading)
            pthread_kill(s->threads.items[i].id, WAKE);
    return s->reading;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    stack_set_front_end(s->files.serving->stack, NULL, NULL);
    while (wake_readers(s))
        usleep(WAKE_AGAIN_US);
    for (size_t i = 0; i < s->threads.len; i++) /* `ending` is set: no thread is added any more */
        pthread_join(s->threads.items[i].id, NULL);
    vec_release(&s->threads);
    read_budget_release(&s->files.budget); /* its requests are the session's */
    if (s->fuse)
        fuse_session_destroy(s->fuse);
    inode_table_release(&s->files.inode_table);
    if (s->ended_fd >= 0)
        close(s->ended_fd);
    pthread_cond_destroy(&s->needed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

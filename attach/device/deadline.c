/* A system call that waits uninterruptibly cannot be cancelled, so it is made in a child process, which can be left
 * behind. The child sends its result through a pipe. It keeps no other descriptor: a stuck child must hold no lock, and
 * no pipe whose reader waits for the last writer. */
#include "attach/device/deadline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

/* What the child reports. Smaller than PIPE_BUF, so it arrives whole. */
struct answer {
    int rc;
    char text[ERROR_TEXT_MAX];
};

/* The child's part; never returns. Close everything but the pipe, work, report. */
static void work_and_tell(deadline_work *work, void *arg, int fd)
{
    enum { KEPT = 3 };
    fd = fcntl(fd, F_DUPFD, KEPT); /* it may be one of those that are replaced */
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i < KEPT; i++)
        if (null < 0 || dup2(null, i) < 0)
            _exit(1);
    if (dup2(fd, KEPT) < 0 || close_range(KEPT + 1, ~0U, 0))
        _exit(1);
    struct answer a = {.rc = work(arg)};
    if (a.rc)
        strncpy(a.text, error_text(), sizeof a.text - 1);
    _exit(io_write_full(KEPT, &a, sizeof a) != 0);
}

/* Wait for the child's report. */
static int deadline_take(int fd, uint64_t deadline_ms, struct answer *out)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (;;) {
        uint64_t now = clock_now_ms();
        int n = now < deadline_ms ? poll(&p, 1, (int)(deadline_ms - now)) : 0;
        if (n > 0)
            return io_read_full(fd, out, sizeof *out) == sizeof *out ? 0 : error_set(-EIO, "a child process ended");
        if (!n)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return error_set(-errno, "poll: %s", strerror(errno));
    }
}

/* The write end is closed in the parent, so that a child that dies without an answer ends the wait. */
int deadline_call(deadline_work *work, void *arg, uint64_t timeout_ms)
{
    int ends[2];
    struct answer a = {0};
    if (pipe2(ends, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int out = ends[0], in = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return error_set(-errno, "cannot start a child process: %s", strerror(errno));
    if (!pid)
        work_and_tell(work, arg, in);
    close(steal_fd(&in));
    int rc = deadline_take(out, clock_now_ms() + timeout_ms, &a);
    if (rc == -ETIMEDOUT) { /* the child dies when the kernel lets it; init reaps it if we have ended by then */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
        return rc;
    }
    waitpid(pid, NULL, 0);
    if (rc || !a.rc)
        return rc;
    return error_set(a.rc, "%s", a.text);
}

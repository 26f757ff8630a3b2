/* A program is started in two steps, so that no process exists that no file knows of:
 *
 *     parent                         child
 *     fork                           waits at the gate
 *     write_down(pid)
 *     opens the gate      ------>    places descriptors, execs
 *     reads the report    <------    errno, when exec failed; else the pipe closes by itself
 *
 * If the parent is killed before it opens the gate, the child reads the end of the pipe and exits.
 *
 * A process is identified by its number and start time, and ended through a pidfd, so a signal never reaches another
 * process that got the number. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

enum { FIRST_PASSED_FD = 3, KILL_WAIT_MS = 5000, EXEC_FAILED = 127, CANCEL_STEP_MS = 100 };

/* Wait until fd can be read; a pidfd can when its process has ended. -ETIMEDOUT: not before the deadline; or the errno
 * of poll. No sentences. */
static int wait_readable(int fd, uint64_t deadline_ms)
{
    for (;;) {
        uint64_t now = clock_now_ms();
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int n = poll(&p, 1, now < deadline_ms ? (int)(deadline_ms - now) : 0);
        if (n >= 0)
            return n ? 0 : -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/* The same, at most until *cancel is set: -ECANCELED. -ETIMEDOUT after the deadline, also when fd can be read. */
static int wait_cancellable(int fd, uint64_t deadline_ms, const volatile int *cancel)
{
    for (;;) {
        uint64_t now = clock_now_ms();
        if (cancel_asked(cancel))
            return -ECANCELED;
        if (now >= deadline_ms)
            return -ETIMEDOUT;
        int rc = wait_readable(fd, cancel ? GR_MIN(deadline_ms, now + CANCEL_STEP_MS) : deadline_ms);
        if (rc != -ETIMEDOUT)
            return rc;
    }
}

/* ---- in the child, between fork and exec ---- */

/* Set an environment variable to a process number. */
static void announce_number(const char *name, pid_t pid)
{
    char text[32];
    snprintf(text, sizeof text, "%d", (int)pid);
    setenv(name, text, 1);
}

/* The child's part; never returns. The parent does not open the gate when it was killed, or could not write down that
 * this process exists. report: a close-on-exec pipe that carries errno when exec fails. */
static void child(const struct process_spec *spec, pid_t parent, const int gate[2], int report)
{
    char go;
    close(gate[1]);
    if (io_read_full(gate[0], &go, 1) != 1)
        _exit(EXEC_FAILED);
    if (spec->session)
        setsid();
    if (spec->supervised) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it died before prctl */
            _exit(EXEC_FAILED);
    }
    sigset_t none; /* a program inherits ignored signals and the mask; the caller's are not meant for it */
    sigemptyset(&none);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (spec->supervised)
        announce_number("GRANARY_SUPERVISOR", parent);
    if (spec->untranslated)
        setenv("LC_ALL", "C", 1);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("NOTIFY_SOCKET"); /* READY is ours to say */
    /* descriptor 3 may be replaced below: move the pipe out of its way */
    int moved = fcntl(report, F_DUPFD_CLOEXEC, FIRST_PASSED_FD + 1);
    /* A process that outlives the command must not inherit what the command's caller has open: a file would keep its
     * filesystem mounted, and a lock would stay held. */
    if (spec->session && !spec->supervised)
        close_range(FIRST_PASSED_FD, ~0U, CLOSE_RANGE_CLOEXEC);
    /* descriptors 0 to 3; everything else that this program has opened is close-on-exec */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(spec->input ? spec->input : null, STDIN_FILENO);
    dup2(spec->output >= 0 ? spec->output : null, STDOUT_FILENO);
    dup2(spec->output >= 0 ? spec->output : null, STDERR_FILENO);
    if (spec->listen_fd == FIRST_PASSED_FD)
        fcntl(FIRST_PASSED_FD, F_SETFD, 0);
    else if (spec->listen_fd >= 0)
        dup2(spec->listen_fd, FIRST_PASSED_FD);
    if (spec->listen_fd >= 0) { /* systemd's protocol (sd_listen_fds(3)): descriptor 3, for this process only */
        announce_number("LISTEN_PID", getpid());
        setenv("LISTEN_FDS", "1", 1);
    }
    execvp(spec->argv[0], (char *const *)spec->argv);
    int code = errno;
    if (write(moved, &code, sizeof code) < 0)
        _exit(EXEC_FAILED);
    _exit(EXEC_FAILED);
}

int process_own_program(char out[PATH_MAX])
{
    static const char replaced[] = " (deleted)";
    ssize_t n = readlink("/proc/self/exe", out, PATH_MAX - 1);
    if (n < 0)
        return error_set(-errno, "cannot find this program's own path: %s", strerror(errno));
    out[n] = 0;
    size_t len = (size_t)n - GR_MIN((size_t)n, sizeof replaced - 1);
    if (!strcmp(out + len, replaced)) /* an update replaced the file; the new version is what to start */
        out[len] = 0;
    return 0;
}

/* Two pipes: the gate holds the child back until it is recorded, the report tells whether exec worked. The report's
 * write end is closed here, so that a successful exec reads as the end of the pipe. */
int process_spawn(const struct process_spec *spec, pid_t *out)
{
    int ends[2], gate[2], code = 0;
    if (pipe2(ends, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int report = ends[0], report_in = ends[1];
    if (pipe2(gate, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int gate_out = gate[0], gate_in = gate[1];
    pid_t parent = getpid(), pid = fork();
    if (!pid)
        child(spec, parent, gate, ends[1]);
    close(steal_fd(&report_in));
    if (pid < 0)
        return error_set(-errno, "cannot start %s: %s", spec->argv[0], strerror(errno));
    int rc = spec->write_down ? spec->write_down(spec->arg, pid) : 0;
    if (!rc && write(gate_in, "", 1) != 1)
        rc = error_set(-errno, "cannot start %s: %s", spec->argv[0], strerror(errno));
    close(steal_fd(&gate_in));
    if (rc) {
        waitpid(pid, NULL, 0);
        return rc;
    }
    if (io_read_full(report, &code, sizeof code) == sizeof code) {
        waitpid(pid, NULL, 0);
        if (code == ENOENT)
            return error_set(-ENOENT, "%s is not installed (not found in PATH)", spec->argv[0]);
        return error_set(-code, "cannot run %s: %s", spec->argv[0], strerror(code));
    }
    *out = pid;
    return 0;
}

/* Read a program's output until it closes it. Keep the first line that contains ": error: ", or else the last: lines
 * after an error may only tell how the program ends. -ETIMEDOUT; -ECANCELED: *cancel was set. */
static int process_drain(int fd, uint64_t deadline_ms, const volatile int *cancel, char *last, size_t size)
{
    size_t len = 0;
    bool ended = false; /* a whole line stands in last: the next byte begins a new one */
    for (;;) {
        int rc = wait_cancellable(fd, deadline_ms, cancel);
        if (rc == -ETIMEDOUT || rc == -ECANCELED)
            return rc;
        char block[512];
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        for (ssize_t i = 0; i < n; i++) {
            if (block[i] == '\n' || block[i] == '\r') {
                ended = true;
                continue;
            }
            if (ended && strstr(last, ": error: "))
                continue;
            if (ended)
                len = 0;
            ended = false;
            if (len + 1 < size)
                last[len++] = block[i];
            last[len] = 0;
        }
    }
}

/* Kill a child, with its group if it leads one, and take its end, but do not wait for one that the kernel holds: init
 * or another reaper does, once the kernel lets it go. Returns a clause that says how that went. */
static const char *kill_child(pid_t pid, bool group)
{
    CLEANUP_FD int pidfd = pidfd_open(pid, 0);
    kill(group ? -pid : pid, SIGKILL);
    bool held = pidfd >= 0 && wait_readable(pidfd, clock_now_ms() + KILL_WAIT_MS);
    while (waitpid(pid, NULL, held ? WNOHANG : 0) < 0 && errno == EINTR)
        ;
    return held ? ", nor when it was killed: the kernel holds it" : "";
}

/* Wait until a child has ended; waitpid then returns at once. Errors of wait_cancellable. */
static int process_await(pid_t pid, uint64_t deadline_ms, const volatile int *cancel)
{
    CLEANUP_FD int fd = pidfd_open(pid, 0);
    return fd < 0 ? 0 : wait_cancellable(fd, deadline_ms, cancel);
}

/* The output is read to its end before waitpid: a program that fills the pipe would never exit. One that closes its
 * output and goes on has no longer than others. spare: one that does not end in time is not killed. */
static int run_for(const char *const *argv, uint64_t timeout_ms, const volatile int *cancel, bool spare)
{
    int ends[2], status = 0;
    char last[256] = "";
    pid_t pid;
    if (pipe2(ends, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int from = ends[0];
    struct process_spec spec = {.argv = argv, .output = ends[1], .listen_fd = -1, .session = spare || cancel};
    int rc = process_spawn(&spec, &pid);
    close(ends[1]);
    if (rc)
        return rc;
    const uint64_t deadline_ms = clock_now_ms() + timeout_ms;
    rc = process_drain(from, deadline_ms, cancel, last, sizeof last);
    if (!rc)
        rc = process_await(pid, deadline_ms, cancel);
    if (rc == -ECANCELED)
        return error_set(rc, "%s did not end before this process%s", argv[0], kill_child(pid, true));
    if (rc)
        return error_set(rc, "%s did not end within %llu s%s", argv[0], (unsigned long long)timeout_ms / 1000,
                         spare ? ", and goes on" : kill_child(pid, cancel));
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        return error_set(-EIO, "%s failed: %s", argv[0], *last ? last : "it says nothing");
    return 0;
}

int process_run(const char *const *argv, uint64_t timeout_ms)
{
    return run_for(argv, timeout_ms, NULL, false);
}

int process_run_sparing(const char *const *argv, uint64_t timeout_ms)
{
    return run_for(argv, timeout_ms, NULL, true);
}

int process_run_until(const char *const *argv, uint64_t timeout_ms, const volatile int *cancel)
{
    return run_for(argv, timeout_ms, cancel, false);
}

struct process process_identify(pid_t pid)
{
    struct process p = {0};
    char path[64], state = 0;
    uint64_t started = 0;
    CLEANUP_BYTES text = BYTES_INIT(4096);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if (pid <= 0 || io_read_file(path, &text) || !bytes_string(&text))
        return p;
    /* the name in parentheses may hold anything: fields count from its end */
    const char *after = strrchr((char *)text.data, ')');
    if (after &&
        sscanf(after + 1, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %lu", &state,
               &started) == 2 &&
        state != 'Z' && state != 'X')
        p = (struct process){.pid = pid, .started = started};
    return p;
}

bool process_alive(const struct process *p)
{
    struct process now = process_identify(p->pid);
    return p->pid > 0 && now.pid == p->pid && now.started == p->started;
}

/* A pidfd refers to the process, not to its number. It is opened first and the identity checked afterwards, so the
 * check holds for the process that the signals reach. */
int process_end(const struct process *p, uint64_t grace_ms)
{
    if (!p->pid)
        return 0;
    CLEANUP_FD int pidfd = pidfd_open(p->pid, 0);
    if (pidfd < 0 || !process_alive(p)) {
        waitpid(p->pid, NULL, WNOHANG);
        return 0;
    }
    pidfd_send_signal(pidfd, SIGTERM, NULL, 0);
    if (wait_readable(pidfd, clock_now_ms() + grace_ms)) {
        pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
        if (wait_readable(pidfd, clock_now_ms() + KILL_WAIT_MS))
            return error_set(-ETIMEDOUT, "process %d does not end, not even by SIGKILL", (int)p->pid);
    }
    waitpid(p->pid, NULL, WNOHANG); /* when it is our child */
    return 0;
}

/* ---- calls with a time limit ----
 *
 * A system call that waits uninterruptibly cannot be cancelled, so it is made in a child process, which can be left
 * behind. The child sends its result through a pipe. It keeps no other descriptor: a stuck child must hold no lock, and
 * no pipe whose reader waits for the last writer. */

/* What the child reports. Smaller than PIPE_BUF, so it arrives whole. */
struct deadline_answer {
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
    struct deadline_answer a = {.rc = work(arg)};
    if (a.rc)
        strncpy(a.text, error_text(), sizeof a.text - 1);
    _exit(io_write_full(KEPT, &a, sizeof a) != 0);
}

/* The write end is closed in the parent, so that a child that dies without an answer ends the wait. */
int deadline_call(deadline_work *work, void *arg, uint64_t timeout_ms)
{
    int ends[2];
    struct deadline_answer a = {0};
    if (pipe2(ends, O_CLOEXEC))
        return error_set(-errno, "cannot make a pipe: %s", strerror(errno));
    CLEANUP_FD int out = ends[0], in = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return error_set(-errno, "cannot start a child process: %s", strerror(errno));
    if (!pid)
        work_and_tell(work, arg, in);
    close(steal_fd(&in));
    int rc = wait_readable(out, clock_now_ms() + timeout_ms);
    if (rc == -ETIMEDOUT) { /* the child dies when the kernel lets it; init reaps it if we have ended by then */
        kill(pid, SIGKILL);
        waitpid(pid, NULL, WNOHANG);
        return rc;
    }
    if (rc)
        rc = error_set(rc, "poll: %s", strerror(-rc));
    else if (io_read_full(out, &a, sizeof a) != sizeof a)
        rc = error_set(-EIO, "a child process ended");
    waitpid(pid, NULL, 0);
    return rc || !a.rc ? rc : error_set(a.rc, "%s", a.text);
}

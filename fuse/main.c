/* granary-fuse: a front end that serves a FUSE mount in place of NBD. `granary serve --fuse DIR` mounts, passes
 * /dev/fuse as descriptor FD, and starts this program again when it dies.
 *
 *   granary-fuse [-t THREADS] [-v] FD KEY=VALUE...      the keys of the plugin (granary-fuse --help)
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "fuse/session.h"
#include "server/front_end.h"

/* Wait for SIGTERM, SIGINT or the end of the mount. */
static int fuse_wait_for_end(int signal_fd, const struct session *session)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN}, {.fd = session_ended_fd(session), .events = POLLIN}};
    while (poll(fds, GR_ARRAY_SIZE(fds), -1) < 0)
        if (errno != EINTR)
            return error_set(-errno, "poll: %s", strerror(errno));
    return 0;
}

/* Block the signals before any thread exists, so that all threads inherit that and only the signalfd receives them. */
static int open_signals(int *out_fd)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    *out_fd = signalfd(-1, &set, SFD_CLOEXEC);
    return *out_fd < 0 ? error_set(-errno, "signalfd: %s", strerror(errno)) : 0;
}

static int fuse_serve(void *arg, struct serving *s, const struct front_end_arguments *w)
{
    CLEANUP_FD int signal_fd = -1;
    struct session *session = NULL;
    int rc = open_signals(&signal_fd);
    if (!rc)
        rc = serving_refuse_follow(s);
    if (!rc)
        rc = serving_open(s);
    if (!rc)
        rc = session_open(s, w->fd, w->threads, &session);
    if (!rc)
        rc = serving_start(s);
    if (!rc)
        rc = session_start(session);
    if (!rc)
        rc = fuse_wait_for_end(signal_fd, session);
    serving_stop_fetching(s);
    session_close(session);
    return rc;
}

int main(int argc, char **argv)
{
    const struct front_end front_end = {.threads = SESSION_THREADS, .own = "", .own_help = "", .serve = fuse_serve};
    return front_end_main(argc, argv, &front_end);
}

/* granary-fuse: the plugin's server behind a FUSE mount in place of NBD. `granary serve --fuse DIR` mounts, hands
 * /dev/fuse on as descriptor FD, and starts this again when it dies.
 *
 *   granary-fuse [-t THREADS] [-v] FD KEY=VALUE...      the keys are those of the plugin (granary-fuse --help)
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "fuse/session.h"

enum { EXIT_USAGE = 2, THREADS_MOST = 4096 };

struct words {
    unsigned threads;
    int fd;
};

static int usage(void)
{
    fprintf(stderr,
            "usage: granary-fuse [-t THREADS] [-v] FD KEY=VALUE...\n"
            "'granary serve --fuse DIR' starts it. The keys:\n\n%s",
            stack_options_help);
    return EXIT_USAGE;
}

static int set_parameter(struct stack_options *o, const char *word)
{
    const char *equals = strchr(word, '=');
    if (!equals)
        return error_set(-EINVAL, "'%s' is no KEY=VALUE", word);
    CLEANUP_FREE char *key = strndup(word, (size_t)(equals - word));
    return key ? stack_options_set(o, key, equals + 1) : error_set(-ENOMEM, "out of memory");
}

/* Until a signal or the end of the mount. */
static int wait_for_end(int signal_fd, const struct session *session)
{
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN}, {.fd = session_gone_fd(session), .events = POLLIN}};
    while (poll(fds, GR_ARRAY_SIZE(fds), -1) < 0)
        if (errno != EINTR)
            return error_set(-errno, "poll: %s", strerror(errno));
    return 0;
}

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

static int serve(struct serving *s, const struct words *w)
{
    CLEANUP_FD int signal_fd = -1;
    struct session *session = NULL;
    int rc = open_signals(&signal_fd);
    if (!rc)
        rc = serving_open(s);
    if (!rc)
        rc = session_open(s, w->fd, w->threads, &session);
    if (!rc)
        rc = serving_start(s);
    if (!rc)
        rc = session_start(session);
    if (!rc)
        rc = wait_for_end(signal_fd, session);
    serving_stop_fetching(s);
    session_close(session);
    return rc;
}

static int parse(int argc, char **argv, struct words *w)
{
    uint64_t threads = SESSION_THREADS, fd;
    for (int c; (c = getopt(argc, argv, "t:v")) != -1;)
        if (c == 't' && text_parse_uint("-t", optarg, 1, THREADS_MOST, &threads))
            return -EINVAL;
        else if (c == 'v')
            log_to(NULL, LOG_LEVEL_DEBUG);
        else if (c != 't')
            return -EINVAL;
    if (optind >= argc)
        return error_set(-EINVAL, "no descriptor");
    int rc = text_parse_uint("the descriptor", argv[optind], 0, INT_MAX, &fd);
    *w = (struct words){.threads = (unsigned)threads, .fd = (int)fd};
    return rc;
}

int main(int argc, char **argv)
{
    static struct serving serving;
    struct words w = {0};
    log_to(NULL, LOG_LEVEL_WARNING);
    if (parse(argc, argv, &w))
        return usage();
    serving_init(&serving);
    int rc = 0;
    for (int i = optind + 1; !rc && i < argc; i++)
        rc = set_parameter(&serving.options, argv[i]);
    if (!rc)
        rc = stack_options_complete(&serving.options);
    if (!rc)
        rc = serve(&serving, &w);
    if (rc)
        log_error("%s", error_text());
    serving_close(&serving);
    return rc ? EXIT_FAILURE : 0;
}

/* An upgrade in three steps:
 *
 *   request   a client sends "upgrade PROGRAM\n" to the supervisor's socket
 *   check     PROGRAM runs with the supervisor's command line and --check; on failure nothing is changed
 *   exec      the child is stopped, and this process becomes PROGRAM. Its descriptors stay open; their numbers and
 *             the rest of what PROGRAM must know are in the environment variable GRANARY_TAKE_OVER
 *
 * The client's connection is among these descriptors, so the new program answers when it serves. */
#include "attach/server/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "net/listen.h"

#define HERITAGE "GRANARY_TAKE_OVER" /* LISTEN_FD REQUESTS_FD CLIENT_FD STOPPED_MS VERSION WHERE */

enum {
    REQUEST_MS = 10000, /* how long a client may take to send its request */
    CHECK_MS = 90000,   /* how long the check of the new program may take */
    LINE_SIZE = PATH_MAX + 64
};

/* ---- answers ---- */

/* Send the line to the waiting client and close the connection. */
static void answer(struct upgrade *u, const char *line)
{
    if (u->client_fd < 0)
        return;
    if (send(u->client_fd, line, strlen(line), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        log_warning("upgrade: the client that asked for it is gone: %s", strerror(errno));
    close(steal_fd(&u->client_fd));
}

/* The new program answers the client of the old one: its connection was inherited. */
void upgrade_done(struct upgrade *u)
{
    char line[2 * UPGRADE_VERSION_MAX + 64];
    if (!u->stopped_ms)
        return;
    unsigned long long ms = clock_now_ms() - u->stopped_ms;
    log_info("granary " GRANARY_VERSION " serves in the place of %s, after %llu ms", u->from, ms);
    snprintf(line, sizeof line, UPGRADE_DONE "%s " GRANARY_VERSION " %llu\n", u->from, ms);
    answer(u, line);
    u->stopped_ms = 0;
}

/* The sentence is one line, as the protocol requires. */
void upgrade_failed(struct upgrade *u, const char *format, ...)
{
    char line[ERROR_TEXT_MAX + 256];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line - 1, format, args);
    va_end(args);
    if (u->client_fd < 0)
        return;
    log_warning("upgrade: %s", line);
    CLEANUP_BYTES text = BYTES_INIT(sizeof line + sizeof UPGRADE_FAILED);
    if (!bytes_printf(&text, UPGRADE_FAILED "%s\n", line) && bytes_string(&text))
        answer(u, (char *)text.data);
}

/* ---- requests ---- */

/* Failing to listen is no reason not to serve: only upgrades are impossible. */
void upgrade_listen(struct upgrade *u, const char *control)
{
    snprintf(u->path, sizeof u->path, "%s" UPGRADE_SUFFIX, control);
    if (u->requests_fd >= 0 || !listen_unix(u->path, &u->requests_fd))
        return;
    log_warning("'granary upgrade' will not reach this server: %s", error_text());
    *u->path = 0;
}

/* The path is removed only if this process listens on it. */
void upgrade_release(struct upgrade *u)
{
    upgrade_failed(u, "the server was told to end in the middle of it");
    if (u->check) {
        kill(u->check, SIGKILL);
        waitpid(u->check, NULL, 0);
    }
    child_output_end(&u->output);
    if (u->pending_fd >= 0)
        close(steal_fd(&u->pending_fd));
    if (u->requests_fd >= 0) {
        close(u->requests_fd);
        unlink(u->path);
    }
}

/* Receive the request, without its newline. It comes in one piece. -EPROTO. */
static int upgrade_take_line(int fd, char line[LINE_SIZE])
{
    ssize_t n = recv(fd, line, LINE_SIZE - 1, 0);
    if (n <= 0 || line[n - 1] != '\n')
        return -EPROTO;
    line[n - 1] = 0;
    return strlen(line) + 1 == (size_t)n ? 0 : -EPROTO;
}

/* Start the check. */
static int begin_check(struct upgrade *u, const char **again)
{
    VEC(const char *) argv = {0};
    int rc = vec_push(&argv, u->program);
    if (!rc)
        rc = vec_push(&argv, again[1]);
    if (!rc)
        rc = vec_push(&argv, "--check");
    for (size_t i = 2; !rc && again[i]; i++)
        rc = vec_push(&argv, again[i]);
    if (!rc)
        rc = vec_push(&argv, NULL);
    rc = rc ? error_set(rc, "cannot check %s: %s", u->program, strerror(-rc))
            : child_start(argv.items, -1, &u->output, &u->check);
    vec_release(&argv);
    u->check_until_ms = clock_now_ms() + CHECK_MS;
    return rc;
}

/* Accept a client, or tell whether the pending one has sent something, gone away, or been silent too long. */
static bool is_due(struct upgrade *u)
{
    struct pollfd fd = {.fd = u->pending_fd, .events = POLLIN};
    if (u->pending_fd >= 0)
        return poll(&fd, 1, 0) > 0 || clock_now_ms() >= u->pending_until_ms;
    u->pending_fd = accept4(u->requests_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    u->pending_until_ms = clock_now_ms() + REQUEST_MS;
    return false;
}

/* A second client is refused with a temporary struct, so that the running upgrade's client is not disturbed. */
void upgrade_take(struct upgrade *u, const char **again)
{
    char line[LINE_SIZE];
    if (!is_due(u))
        return;
    struct upgrade other = {.client_fd = steal_fd(&u->pending_fd)};
    const char *program = line + strlen(UPGRADE_REQUEST);
    if (upgrade_take_line(other.client_fd, line) || strncmp(line, UPGRADE_REQUEST "/", sizeof UPGRADE_REQUEST) ||
        strlen(program) >= sizeof u->program)
        upgrade_failed(&other, "the request is not understood");
    else if (u->client_fd >= 0 || u->check)
        upgrade_failed(&other, "another upgrade of this server is under way; wait for its end");
    if (other.client_fd < 0)
        return;
    u->client_fd = other.client_fd;
    memcpy(u->program, program, strlen(program) + 1);
    u->output.holds = true;
    if (begin_check(u, again)) {
        u->check = 0;
        upgrade_failed(u, "nothing is changed: %s", error_text());
    }
}

/* Called at every turn of the supervisor's loop. A check that takes too long is killed, and reaped at a later turn. */
bool upgrade_checked(struct upgrade *u)
{
    static const char own[] = "granary: serve: ";
    int status;
    if (u->check && clock_now_ms() >= u->check_until_ms)
        kill(u->check, SIGKILL);
    if (!u->check || waitpid(u->check, &status, WNOHANG) != u->check)
        return false;
    u->check = 0;
    child_output_end(&u->output);
    u->output.held = false;
    if (WIFEXITED(status) && !WEXITSTATUS(status))
        return true;
    const char *why = u->output.last;
    const char *said = strstr(why, own); /* after the time and the level */
    why = said ? said + sizeof own - 1 : why;
    upgrade_failed(u, "nothing is changed: %s cannot take over from this server: %s", u->program,
                   WIFSIGNALED(status) ? "it was killed while it was checked"
                   : *why              ? why
                                       : "it does not say why");
    return false;
}

/* ---- the change ---- */

/* Keep the descriptors open over exec, or not. */
static void pass_on(const struct upgrade *u, int listen_fd, bool on)
{
    const int fds[] = {listen_fd, u->requests_fd, u->client_fd};
    for (size_t i = 0; i < GR_ARRAY_SIZE(fds); i++)
        if (fds[i] >= 0)
            fcntl(fds[i], F_SETFD, on ? 0 : FD_CLOEXEC);
}

/* Returns only if exec failed. The descriptors are then close-on-exec again, for the next child must not inherit them.
 */
void upgrade_exec(struct upgrade *u, const char **again, int listen_fd, const char *where)
{
    char heritage[PATH_MAX + 256];
    if (!u->stopped_ms) /* set already when the program before took over and never served */
        u->stopped_ms = clock_now_ms();
    snprintf(heritage, sizeof heritage, "%d %d %d %llu %s %s", listen_fd, u->requests_fd, u->client_fd,
             (unsigned long long)u->stopped_ms, GRANARY_VERSION, where);
    if (!setenv(HERITAGE, heritage, 1)) {
        again[0] = u->program;
        pass_on(u, listen_fd, true);
        fflush(NULL);
        execv(u->program, (char *const *)again);
    }
    int code = errno;
    unsetenv(HERITAGE);
    pass_on(u, listen_fd, false);
    u->stopped_ms = 0;
    upgrade_failed(u, "cannot run %s: %s; the one before goes on", u->program, strerror(code));
}

/* The variable is removed, so that children do not take over what is ours. */
bool upgrade_inherit(struct upgrade *u, int *out_listen_fd, char out_where[PATH_MAX])
{
    const char *heritage = getenv(HERITAGE);
    unsigned long long stopped;
    int at = 0;
    if (!heritage ||
        sscanf(heritage, "%d %d %d %llu %63s %n", out_listen_fd, &u->requests_fd, &u->client_fd, &stopped, u->from,
               &at) != 5 ||
        !at)
        return false;
    u->stopped_ms = stopped;
    snprintf(out_where, PATH_MAX, "%s", heritage + at);
    pass_on(u, *out_listen_fd, false);
    unsetenv(HERITAGE);
    return true;
}

/* One loop over a signalfd, the server's output and a clock.
 *
 *   down --(start)--> starting --(control socket answers)--> up
 *   starting, for the first time --(it exits)--> failed: another try would end the same way
 *   starting, for the first time --(it is killed, GIVE_UP_AFTER times)--> failed
 *   starting, up --(it dies)--> down, to start again after a pause that doubles
 *   up --(SIGTERM, SIGINT)--> ending --(all is in the cache, END_MS, a second signal)--> killed --> done
 *   any other --(SIGTERM, SIGINT)--> killed --> done
 *   any --(granary upgrade, checked)--> as if ending --> killed --> this process becomes another program, in state down
 *
 * A server that has served once is never given up, whether it dies or cannot be started: mounts wait for it, and
 * nothing else may be there to start it.
 *
 * The server is killed and never told to end. Its clients then lose their connection, which mounts survive; an orderly
 * end would answer them with errors. The cache is made to survive a SIGKILL.
 *
 * The listening socket is opened once and passed to each child by systemd's protocol, so clients that connect meanwhile
 * wait in the backlog. For granary-fuse the mounted /dev/fuse takes the socket's place: readers wait, and requests that
 * a dead child had not answered go to the next one. The child has the kernel kill it when the supervisor ends in any
 * other way (GRANARY_SUPERVISOR). */
#include "attach/server/server_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/server/service.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "format/export_table.h"
#include "net/listen.h"

#define TRIED_ON "; it is tried again and again, mounts wait meanwhile"

enum {
    GIVE_UP_AFTER = 5,   /* failed starts before the first that serves */
    PAUSE_MIN_MS = 100,  /* before a new start, doubling */
    PAUSE_MAX_MS = 5000, /* up to this; a child that lived this long resets the pause */
    READY_EVERY_MS = 50, /* how often the control socket is tried */
    END_MS = 10000,      /* time for writing to the cache what was fetched */
    KEYS_FD_MIN = 10,    /* above the descriptors that process_spawn places */
    QUIET_EVERY_MS = 50, /* how often the server is asked whether that is done */
};

/* A supervisor and its child. */
struct server {
    const struct server_config *config;
    const char *name; /* the child's, for sentences */
    server_child_words argv;
    int listen_fd, signal_fd;
    struct child_output output; /* until the child serves, its last line waits: a failed start's sentence says it */
    char where[PATH_MAX];       /* unix path, HOST:PORT or directory */
    pid_t child;                /* 0: down */
    uint64_t started_ms, start_at_ms, kill_at_ms; /* clock_now_ms */
    unsigned deaths;                              /* in a row, each soon after the start; they set the pause */
    unsigned failed_starts;                       /* before the first start that served */
    bool ready, announced, killed;                /* this child serves; some child has served; SIGKILL was sent */
    bool ending, replacing;                       /* why the child is to be killed */
    struct upgrade upgrade;                       /* the request to be replaced */
    bool heir;                                    /* took over from another program, and has not served yet */
};

/* ---- states ---- */

/* Notice the first answer on the child's control socket, and announce it. */
static int check_ready(struct server *s)
{
    if (s->ready || s->ending || s->killed || listen_answered(s->config->control) <= 0)
        return 0;
    int rc = socket_access_apply(&s->config->control_access, s->config->control);
    if (rc) /* after the first time, the likely reason is that the child has just ended and the socket is gone */
        return s->announced ? 0 : rc;
    s->ready = true;
    s->output.holds = false;
    child_output_release(&s->output);
    if (s->announced)
        log_info("the server is up again");
    else if (s->config->ready)
        s->config->ready(s->config->arg, s->where);
    s->announced = true;
    s->heir = false;
    upgrade_done(&s->upgrade);
    notify("READY=1");
    return 0;
}

/* Start the child again after a pause; `what` tells why it is down. */
static void put_off(struct server *s, const char *what)
{
    uint64_t pause = GR_MIN((uint64_t)PAUSE_MIN_MS << GR_MIN(s->deaths, 16u), (uint64_t)PAUSE_MAX_MS);
    s->deaths++;
    s->start_at_ms = clock_now_ms() + pause;
    log_warning("%s; starting it again in %llu ms", what, (unsigned long long)pause);
}

/* Handle the child's end. 0: go on; else the error that ends the supervisor. */
static int died(struct server *s, int status)
{
    uint64_t lived = clock_now_ms() - s->started_ms;
    char how[64];
    child_output_end(&s->output);
    s->child = 0;
    if (!s->ending && !s->announced && WIFEXITED(status)) /* its configuration or the store is at fault */
        return error_set(-EIO, "%s does not start: %s", s->name, child_output_last(&s->output));
    child_output_release(&s->output);
    if (s->ending)
        return 0;
    if (s->config->fuse && WIFEXITED(status) && !WEXITSTATUS(status)) {
        log_warning("%s was unmounted", s->config->fuse);
        s->ending = true;
        return 0;
    }
    if (s->config->fuse && fuse_mount_give_back(s->listen_fd))
        return error_prefix(-EIO, "granary-fuse has ended, and with it %s", s->config->fuse);
    if (s->replacing)
        return 0;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "%s was killed by signal %d", s->name, WTERMSIG(status));
    else
        snprintf(how, sizeof how, "%s ended with exit code %d", s->name, WEXITSTATUS(status));
    if (s->heir)
        upgrade_failed(&s->upgrade, "%s before it served: %s" TRIED_ON, how, child_output_last(&s->output));
    if (!s->announced && ++s->failed_starts >= GIVE_UP_AFTER)
        return error_set(-EIO, "%s before it served, %u times in a row; its last message: %s", how, s->failed_starts,
                         child_output_last(&s->output));
    if (lived >= PAUSE_MAX_MS)
        s->deaths = 0;
    put_off(s, how);
    return 0;
}

/* Start the child. A lack of memory or processes may pass, so a failure is returned only before the first child has
 * served; later ones only delay the start. */
static int start_or_put_off(struct server *s)
{
    int rc = child_start((const char *const *)s->argv.items, s->listen_fd, &s->output, &s->child);
    if (!rc) {
        s->started_ms = clock_now_ms();
        s->ready = s->killed = false;
        return 0;
    }
    if (!s->announced)
        return rc;
    if (s->heir)
        upgrade_failed(&s->upgrade, "%s" TRIED_ON, error_text());
    put_off(s, error_text());
    return 0;
}

/* Set the time to kill the child. The first call leaves END_MS for writing the cache, the second none. */
static void stop_child(struct server *s)
{
    bool at_once = s->ending || s->replacing || !s->ready;
    s->kill_at_ms = clock_now_ms() + (at_once ? 0 : END_MS);
}

/* Kill the child once its cache is written, or it does not answer, or the time is over. */
static void kill_when_quiet(struct server *s)
{
    bool quiet = true;
    if (clock_now_ms() < s->kill_at_ms && quiesce_ask(s->config->control, &quiet))
        quiet = true; /* it cannot be asked */
    if (!quiet && clock_now_ms() < s->kill_at_ms)
        return;
    kill(s->child, SIGKILL);
    s->killed = true;
}

/* Handle SIGTERM and SIGINT, then the ends of both kinds of children: SIGCHLD may stand for several. */
static int take_signals(struct server *s)
{
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) {
            if (!s->ending)
                notify("STOPPING=1");
            stop_child(s);
            s->ending = true;
        }
    if (!s->ending && upgrade_checked(&s->upgrade)) { /* stop the child as for an end, then exec (replace) */
        stop_child(s);
        s->replacing = true;
    }
    int status;
    if (!s->child || waitpid(s->child, &status, WNOHANG) != s->child)
        return 0;
    return died(s, status);
}

/* Return the milliseconds until something is due; -1: nothing is, wait for events. */
static int next_due(const struct server *s)
{
    uint64_t now = clock_now_ms(), due, pending = s->upgrade.pending_fd >= 0 ? s->upgrade.pending_until_ms : UINT64_MAX;
    if (s->child && s->killed)
        return -1;
    if (!s->child)
        due = s->replacing ? now : s->start_at_ms;
    else if (s->ending || s->replacing)
        due = GR_MIN(s->kill_at_ms, now + QUIET_EVERY_MS);
    else if (!s->ready)
        due = now + READY_EVERY_MS;
    else if (s->upgrade.check)
        due = s->upgrade.check_until_ms;
    else
        due = UINT64_MAX;
    due = GR_MIN(due, pending);
    if (due == UINT64_MAX)
        return -1;
    return due > now ? (int)(due - now) : 0;
}

/* One turn of the loop: start what is due, wait, handle what happened. */
static int server_step(struct server *s)
{
    if (!s->child && s->replacing) {
        upgrade_exec(&s->upgrade, s->config->again, s->listen_fd, s->where);
        s->replacing = false; /* it could not be: go on, and start the child again */
        s->start_at_ms = 0;
    }
    if (!s->child && clock_now_ms() >= s->start_at_ms) {
        int rc = start_or_put_off(s);
        if (rc)
            return rc;
    }
    struct pollfd fds[] = {{.fd = s->signal_fd, .events = POLLIN},
                           {.fd = s->output.fd, .events = POLLIN},
                           {.fd = upgrade_poll_fd(&s->upgrade), .events = POLLIN},
                           {.fd = s->upgrade.output.fd, .events = POLLIN}};
    if (poll(fds, GR_ARRAY_SIZE(fds), next_due(s)) < 0 && errno != EINTR)
        return error_set(-errno, "poll: %s", strerror(errno));
    if (fds[1].revents && child_output_take(&s->output) < 0)
        close(steal_fd(&s->output.fd)); /* its exit follows by SIGCHLD */
    if (fds[2].revents || s->upgrade.pending_fd >= 0)
        upgrade_take(&s->upgrade, s->config->again);
    if (fds[3].revents && child_output_take(&s->upgrade.output) < 0)
        close(steal_fd(&s->upgrade.output.fd));
    int rc = take_signals(s);
    if (s->child && (s->ending || s->replacing) && !s->killed)
        kill_when_quiet(s);
    if (!rc && s->child)
        rc = check_ready(s);
    return rc;
}

/* Make the memory in which front ends keep the keys that exports have of their own (server/kept_keys.c): it has no
 * name, and outlives them. Every child inherits it, and so does a program that takes over. */
static void hold_keys(bool heir)
{
    const char *text = getenv("GRANARY_KEYS_FD");
    uint64_t before;
    if (heir && text && !text_parse_uint("GRANARY_KEYS_FD", text, KEYS_FD_MIN, INT_MAX, &before) &&
        !fcntl((int)before, F_GET_SEALS))
        return;
    CLEANUP_FD int fd = memfd_create("granary-keys", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int inherited = fd < 0 ? -1 : fcntl(fd, F_DUPFD, KEYS_FD_MIN);
    char number[16];
    snprintf(number, sizeof number, "%d", inherited);
    if (inherited < 0 || setenv("GRANARY_KEYS_FD", number, 1))
        log_warning("exports with keys of their own will wait for them when the server is started again: %s",
                    strerror(errno));
}

/* Block the signals, inherit from a program before or open the socket, and set what the child reads from its
 * environment. */
static int server_prepare(struct server *s)
{
    int rc = service_signals(&s->signal_fd);
    if (rc)
        return rc;
    char now[32];
    snprintf(now, sizeof now, "%lld", (long long)time(NULL));
    s->heir = s->announced = upgrade_inherit(&s->upgrade, &s->listen_fd, s->where);
    s->output.holds = !s->announced;
    if (setenv("GRANARY_RESOLVED", now, !s->heir)) /* for the child: how old the images' tags are, after restarts too */
        return error_set(-errno, "setenv: %s", strerror(errno));
    char log[PATH_MAX];
    if (setenv("GRANARY_LOG", service_log_where(log), 1)) /* for status */
        return error_set(-errno, "setenv: %s", strerror(errno));
    hold_keys(s->heir);
    rc = server_child_argv(s->config, &s->argv);
    if (!rc && listen_answered(s->config->control) > 0)
        rc = error_set(-EADDRINUSE, "another server's control socket is %s; stop it or give --control",
                       s->config->control);
    if (!rc && !s->heir)
        rc = server_socket_open(s->config, s->where, &s->listen_fd);
    if (!rc)
        upgrade_listen(&s->upgrade, s->config->control);
    return rc;
}

/* The path of the table of resolved images, which the child reads beside its control socket. */
static int handed_path(const char *control, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s" EXPORT_TABLE_HANDED, control) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* Put the entries of a table in front of those that the file has, which are of other mounts' images. The user who
 * serves at the control socket may have written it; a file that cannot be read, or is another's, counts as empty. */
static int add_to_handed(const char *control, const char *path, const struct bytes *images, struct bytes *out)
{
    struct stat st;
    uid_t server = lstat(control, &st) ? geteuid() : st.st_uid;
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    CLEANUP_EXPORT_TABLE there = {0};
    CLEANUP_EXPORT_TABLE more = {0};
    size_t kept;
    if (!safe_file_read(path, server, &text) && export_table_decode(text.data, text.len, &there))
        log_debug("%s is written anew: %s", path, error_text());
    int rc = export_table_decode(images->data, images->len, &more);
    for (size_t i = more.entries.len; !rc && i-- > 0;)
        rc = export_table_put(&there, &more.entries.items[i]);
    return rc ? rc : export_table_encode(&there, out, &kept);
}

/* Best effort: without the table the child resolves the tags itself. */
void server_hand(const char *control, const struct bytes *images)
{
    char path[PATH_MAX];
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    int rc = handed_path(control, path);
    if (!rc)
        rc = add_to_handed(control, path, images, &text);
    if (!rc)
        rc = io_write_file_atomic(path, text.data, text.len, false);
    if (rc)
        log_debug("the server asks the store again for what was resolved: %s", error_text());
}

/* Kill the child and remove everything; an exec for an upgrade never comes here. */
static void server_release(struct server *s)
{
    if (s->child) {
        kill(s->child, SIGKILL);
        waitpid(s->child, NULL, 0);
    }
    child_output_end(&s->output);
    upgrade_release(&s->upgrade);
    if (s->listen_fd >= 0) {
        if (s->config->fuse)
            fuse_mount_clear(s->config->fuse);
        close(s->listen_fd);
        if (s->config->socket)
            unlink(s->config->socket);
        unlink(s->config->control); /* the child's own, where it was killed */
        char handed[PATH_MAX];
        if (!handed_path(s->config->control, handed))
            unlink(handed);
    }
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    server_child_release(&s->argv);
}

/* The child may outlive `ending` for END_MS, so the loop ends with the child. */
int server_run(const struct server_config *config)
{
    static const char *const names[] = {
        [SERVER_NBD] = "granary-nbd", [SERVER_FUSE] = "granary-fuse", [SERVER_UBLK] = "granary-ublk"};
    struct server s = {.config = config,
                       .name = names[server_kind_of(config)],
                       .listen_fd = -1,
                       .signal_fd = -1,
                       .output = CHILD_OUTPUT_INIT,
                       .upgrade = UPGRADE_INIT};
    int rc = server_prepare(&s);
    while (!rc && (!s.ending || s.child))
        rc = server_step(&s);
    server_release(&s);
    return rc;
}

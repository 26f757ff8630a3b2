/* What a supervised server consists of: its socket, its child, its upgrades; and the directory of a server that mounts
 * share. */
#ifndef GRANARY_ATTACH_SERVER_SERVER_INTERNAL_H
#define GRANARY_ATTACH_SERVER_SERVER_INTERNAL_H

#include <limits.h>

#include "attach/server/server.h"
#include "base/process.h"
#include "base/vec.h"

/* ---- the socket, or a FUSE mount in its place (server_socket.c) ---- */

/* Open what all children get: listen on the socket, or mount FUSE. where: the unix path, HOST:PORT or directory. */
GR_MUST_CHECK int server_socket_open(const struct server_config *config, char where[PATH_MAX], int *out_fd);

/* A FUSE mount whose /dev/fuse a supervisor holds: the process that answers its requests may die and be replaced;
 * readers wait meanwhile.
 *
 * Mount on dir, which is made if it is missing, for this user only. A mount there that has lost its server is removed
 * first. *out_fd: /dev/fuse, close-on-exec; all reads fail when the last copy is closed. -ENODEV: no FUSE; -EPERM: not
 * root; -EBUSY: dir is a mount point. Each sentence has the remedy. */
GR_MUST_CHECK int fuse_mount_open(const char *dir, int *out_fd);

/* Have the kernel keep, for the next process, the requests that a dead process had taken. -EOPNOTSUPP: this kernel
 * cannot, and those reads would wait for ever. */
GR_MUST_CHECK int fuse_mount_give_back(int fd);

/* Unmount dir lazily, even if it is in use. A missing mount is no failure. */
void fuse_mount_clear(const char *dir);

/* ---- the program that the supervisor starts (server_child.c) ---- */

/* Which program a config means. */
enum server_kind server_kind_of(const struct server_config *config);

typedef VEC(char *) server_child_words;

/* Make its command line, ended by NULL. server_child_release it, also after a failure. -ENOMEM. */
GR_MUST_CHECK int server_child_argv(const struct server_config *config, server_child_words *out);
void server_child_release(server_child_words *argv);

/* The output of a child: passed on to the log line by line. The last line is remembered, since it tells why the program
 * ended. */
struct child_output {
    int fd;         /* read end of its pipe, non-blocking; -1: none */
    char line[512]; /* the line being received */
    size_t line_len;
    char last[512]; /* the complete line before it */
    bool holds;     /* keep back each last line until the next, or child_output_release: our sentence may contain it */
    bool held;      /* last is kept back now */
};
#define CHILD_OUTPUT_INIT                                                                                              \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* Start argv, ended by NULL, in a session of its own. The kernel kills it when this process ends. listen_fd: passed on;
 * -1: none. *output begins anew. */
GR_MUST_CHECK int child_start(const char *const *argv, int listen_fd, struct child_output *output, pid_t *out);
/* Read what is there. Returns 1: some was read, 0: nothing is there now, -1: the end. */
int child_output_take(struct child_output *o);
/* Read the rest after the program has ended, and close the descriptor. */
void child_output_end(struct child_output *o);
/* Log the line that is kept back. */
void child_output_release(struct child_output *o);
/* Return the sentence of the last line, or "none". */
const char *child_output_last(const struct child_output *o);

/* Tell a server to cache nothing more, and ask whether everything it fetched before is in its cache; reads go on.
 * *out_quiet: whether it is. Waits two seconds for the answer. -errno: there is no answer, or not a valid one. */
GR_MUST_CHECK int quiesce_ask(const char *control, bool *out_quiet);

/* ---- upgrades: another program replaces this one by exec, and keeps the listening socket and the process number
 * (upgrade.c) ---- */

/* The state of an upgrade; a supervisor has one at a time. */
struct upgrade {
    char path[PATH_MAX];        /* of the socket; "": none */
    int requests_fd, client_fd; /* listening socket; the client that waits for the outcome; -1: none */
    int pending_fd;             /* a client whose request has not arrived yet; -1: none */
    uint64_t pending_until_ms;
    char program[PATH_MAX];         /* the program that takes over */
    char from[UPGRADE_VERSION_MAX]; /* the version that served before */
    pid_t check;                    /* process that tries the command line with --check; 0: none */
    uint64_t check_until_ms;
    struct child_output output; /* of the check */
    uint64_t stopped_ms;        /* since when no server runs (clock_now_ms); 0: one runs */
};
#define UPGRADE_INIT                                                                                                   \
    {                                                                                                                  \
        .requests_fd = -1, .client_fd = -1, .pending_fd = -1, .output = CHILD_OUTPUT_INIT                              \
    }

/* Accept requests from now on. If the socket cannot be made, a warning is logged and the server works without upgrades.
 */
void upgrade_listen(struct upgrade *u, const char *control);
void upgrade_release(struct upgrade *u);

/* Return the descriptor to poll: the pending client's, or else the listening socket. */
static inline int upgrade_poll_fd(const struct upgrade *u)
{
    return u->pending_fd >= 0 ? u->pending_fd : u->requests_fd;
}

/* Call it when upgrade_poll_fd is readable, or pending_until_ms has passed; it never blocks. again: the supervisor's
 * own command line, with [0] left for the program and [1] the verb. Starts a check of the program with that command
 * line, whose end upgrade_checked sees. A request during another upgrade is refused. */
void upgrade_take(struct upgrade *u, const char **again);
/* Call it after SIGCHLD, and when check_until_ms has passed. Returns true when the check succeeded: the program may
 * take over now. */
bool upgrade_checked(struct upgrade *u);

/* Become the program; the child has ended already. Returns only on failure, after answering the client. */
void upgrade_exec(struct upgrade *u, const char **again, int listen_fd, const char *where);
/* Called at a program's start: did it take over from another one? If so, *u and *out_listen_fd have that program's
 * descriptors, and out_where the address. */
bool upgrade_inherit(struct upgrade *u, int *out_listen_fd, char out_where[PATH_MAX]);

/* Answer the waiting client: the server serves, or the reason why it does not. Without a client nothing is sent. */
void upgrade_done(struct upgrade *u);
void upgrade_failed(struct upgrade *u, const char *format, ...) GR_PRINTF(2, 3);

/* ---- the directory of a server that mounts share: its sockets, its log, and a record of its process and command
 * line (server_dir.c) ---- */

/* Return the server's process; pid 0 when none is alive. */
struct process server_dir_alive(const char *dir);

/* Create the directory, empty; an existing one is replaced. */
GR_MUST_CHECK int server_dir_make(const char *dir);

/* Start argv (ends with NULL) as the server of a directory that exists. The process is recorded before the program
 * begins. *out: the process. */
GR_MUST_CHECK int server_dir_start(const char *dir, const char *const *argv, struct process *out);

/* Start a server that died with the same command line, but by the program that is running now. Its files stay. -ENOENT:
 * no server was started there; -EBADMSG: the record is damaged. */
GR_MUST_CHECK int server_dir_start_again(const char *dir, struct process *out);

/* Put the server's last error into the sentence of rc; return rc. */
int server_dir_explain(const char *dir, int rc);

/* Remove the directory, after the process has ended, and the devices that it has left and nobody has mounted. */
void server_dir_remove(const char *dir);

#endif

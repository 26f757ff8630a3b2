/* The supervisor's side of `granary upgrade`: another program replaces this one by exec, and keeps the listening socket
 * and the process number.
 *
 * Requests come over a unix socket beside the control socket. It belongs to the supervisor, so it exists while the
 * server does not. A client that may connect to it (its owner, root) names the program; the answer is one line, sent
 * when the new program serves or has failed. */
#ifndef GRANARY_ATTACH_SERVER_UPGRADE_H
#define GRANARY_ATTACH_SERVER_UPGRADE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "attach/server/child_output.h"
#include "base/compiler.h"

#define UPGRADE_SUFFIX ".upgrade"  /* of the requests' socket, behind the control socket's path */
#define UPGRADE_REQUEST "upgrade " /* and the absolute path of a program, and a newline */
#define UPGRADE_DONE "done "       /* FROM TO MS, the versions and how long there was no server; and a newline */
#define UPGRADE_FAILED "failed "   /* and a sentence, and a newline */

enum { UPGRADE_VERSION_MAX = 64 };

/* The state of an upgrade; a supervisor has one at a time. */
struct upgrade {
    char path[PATH_MAX];       /* of the socket; "": none */
    int requests_fd, asker_fd; /* listening socket; the client that waits for the outcome; -1: none */
    int pending_fd;            /* a client whose request has not arrived yet; -1: none */
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
        .requests_fd = -1, .asker_fd = -1, .pending_fd = -1, .output = CHILD_OUTPUT_INIT                               \
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

#endif

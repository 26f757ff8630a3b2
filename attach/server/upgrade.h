/* The supervisor's side of `granary upgrade`: another program takes this one's place, by exec, and with it the
 * listening socket and the process's number.
 *
 * Requests come over a unix socket of the supervisor's own, beside the control socket, which is there while the server
 * is not. A client that may connect to it (its owner, root) names the program; the answer is one line, when it serves
 * or has failed.
 */
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

struct upgrade {
    char path[PATH_MAX];       /* of the socket; "": none */
    int requests_fd, asker_fd; /* -1: none; nobody waits */
    int pending_fd;            /* a client that has not said yet what it wants; -1: none */
    uint64_t pending_until_ms;
    char program[PATH_MAX];         /* the next one */
    char from[UPGRADE_VERSION_MAX]; /* what was served before */
    pid_t check;                    /* tries the command line; 0: none */
    uint64_t check_until_ms;
    struct child_output output; /* the check's */
    uint64_t stopped_ms;        /* since when there is no server; 0: there is */
};
#define UPGRADE_INIT                                                                                                   \
    {                                                                                                                  \
        .requests_fd = -1, .asker_fd = -1, .pending_fd = -1, .output = CHILD_OUTPUT_INIT                               \
    }

/* Requests are taken from now on. Without such a socket a server works all the same: that is warned of. */
void upgrade_listen(struct upgrade *u, const char *control);
void upgrade_release(struct upgrade *u);

/* What to poll for: a client, or the request of the one that is there. */
static inline int upgrade_poll_fd(const struct upgrade *u)
{
    return u->pending_fd >= 0 ? u->pending_fd : u->requests_fd;
}

/* upgrade_poll_fd is readable, or pending_until_ms is over: nobody is waited for here. again: the supervisor's own
 * words, the first of them left for the program, the second its verb; by them the program is checked: a process, whose
 * end upgrade_checked is for. One that comes while another is answered is refused. */
void upgrade_take(struct upgrade *u, const char **again);
/* After SIGCHLD, and when check_until_ms is over. true: the check has gone well, and the program's turn is now. */
bool upgrade_checked(struct upgrade *u);

/* The child is gone: become that program. Returns when that failed, after telling the waiting client. */
void upgrade_exec(struct upgrade *u, const char **again, int listen_fd, const char *where);
/* At a program's start: is it one that took another's place? Then that's descriptors are in *u and *out_listen_fd,
 * where it listened in out_where. */
bool upgrade_inherit(struct upgrade *u, int *out_listen_fd, char out_where[PATH_MAX]);

/* Tell the waiting client the outcome: the server serves, or why it does not. */
void upgrade_done(struct upgrade *u);
void upgrade_failed(struct upgrade *u, const char *format, ...) GR_PRINTF(2, 3);

#endif

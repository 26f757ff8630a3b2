/* Starts, watches and ends other programs. */
#ifndef GRANARY_BASE_PROCESS_H
#define GRANARY_BASE_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

/* A process. Its start time distinguishes it from a later one with the same number. */
struct process {
    pid_t pid;        /* 0: none */
    uint64_t started; /* clock ticks after boot */
};

#define PROCESS_PASSED_FD "3" /* the number that listen_fd has there */

/* How to start a program. */
struct process_spec {
    const char *const *argv; /* argv[0] is looked up in PATH; NULL ends */
    int input;               /* standard input; 0: /dev/null */
    int output;              /* standard output and error; -1: /dev/null */
    int listen_fd;           /* handed over by systemd's protocol (LISTEN_FDS); -1: none */
    bool session;            /* detached, in a separate session */
    bool untranslated;       /* with LC_ALL=C: its messages will be read */
    bool supervised;         /* killed when the calling thread ends; gets our pid as GRANARY_SUPERVISOR */
    int (*write_down)(void *arg, pid_t pid); /* called before the program starts; it starts only if this returns 0 */
    void *arg;
};

/* Return the path of the running program. After an update, another version may be there by now. */
GR_MUST_CHECK int process_own_program(char out[PATH_MAX]);

/* Start a program. Its signals are unblocked and have their defaults. The caller waits for the child. -ENOENT: there is
 * no such program; or write_down's error, or the errno of fork and exec. */
GR_MUST_CHECK int process_spawn(const struct process_spec *spec, pid_t *out);

/* Run a program to its end, for at most timeout_ms. Returns 0 when it exits with 0. -EIO: it failed, with the first
 * line of its output that contains ": error: ", or else the last line, in the sentence; -ENOENT: there is no such
 * program; -ETIMEDOUT: it was killed, or five seconds later the kernel still holds it. */
GR_MUST_CHECK int process_run(const char *const *argv, uint64_t timeout_ms);
/* The same for a program that must not be killed half-way: -ETIMEDOUT: it goes on. */
GR_MUST_CHECK int process_run_sparing(const char *const *argv, uint64_t timeout_ms);
/* The same, until *cancel is set: -ECANCELED, killed with its children. It inherits no descriptors from 3 on. */
GR_MUST_CHECK int process_run_until(const char *const *argv, uint64_t timeout_ms, const volatile int *cancel);

/* Return the process that has this number now; pid 0 when there is none. A zombie counts as none. */
struct process process_identify(pid_t pid);
/* Does the process still exist? A zombie does not. */
bool process_alive(const struct process *p);
/* Send SIGTERM, after grace_ms SIGKILL, and wait until the process is gone. Returns 0 when it is not alive. -ETIMEDOUT:
 * not even SIGKILL ends it. */
GR_MUST_CHECK int process_end(const struct process *p, uint64_t grace_ms);

/* ---- calls into the kernel that may never return ---- */

/* The call to make. Runs in the child process. */
typedef int deadline_work(void *arg);

/* Call work(arg) in a child process and return its result and sentence. work changes nothing in this process.
 * -ETIMEDOUT, without a sentence: it did not return in time; the kernel may or may not finish what was begun. Call it
 * from a process with one thread, since it forks. */
GR_MUST_CHECK int deadline_call(deadline_work *work, void *arg, uint64_t timeout_ms);

#endif

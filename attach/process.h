/* The programs that serving and mounting are made of: started, watched, ended. */
#ifndef GRANARY_ATTACH_PROCESS_H
#define GRANARY_ATTACH_PROCESS_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

/* A process that may have been replaced by another of the same number: the start time tells. */
struct process {
    pid_t pid;        /* 0: none */
    uint64_t started; /* clock ticks after boot */
};

#define PROCESS_PASSED_FD "3" /* the number that listen_fd has there */

struct process_spec {
    const char *const *argv; /* argv[0] is looked up in PATH; NULL ends */
    int output;              /* standard output and error; -1: /dev/null */
    int listen_fd;           /* handed over by systemd's protocol (LISTEN_FDS); -1: none */
    bool session;            /* detached: a session of its own */
    bool supervised;         /* killed when the calling thread ends; told its pid as GRANARY_SUPERVISOR */
    int (*write_down)(void *arg, pid_t pid); /* called before the program may begin, which it does only after 0 */
    void *arg;
};

/* The path of the program that is running, where another version may be by now. */
GR_MUST_CHECK int process_own_program(char out[PATH_MAX]);

/* Standard input is /dev/null; signals are unblocked and at their defaults. -ENOENT: no such
 * program. The child is the caller's to wait for. */
GR_MUST_CHECK int process_spawn(const struct process_spec *spec, pid_t *out);

/* Run a program to its end, at most timeout_ms. 0 when it exits with 0; else -EIO (or -ENOENT,
 * -ETIMEDOUT) with its last line of output in the sentence, or the first with ": error: " in it. */
GR_MUST_CHECK int process_run(const char *const *argv, uint64_t timeout_ms);

/* Who has this number now; pid 0 when nobody (a zombie counts as nobody). */
struct process process_identify(pid_t pid);
bool process_alive(const struct process *p);
/* SIGTERM, after grace_ms SIGKILL; waits until it is gone. Of a process that is not alive: 0.
 * -ETIMEDOUT: it does not even die of SIGKILL. */
GR_MUST_CHECK int process_end(const struct process *p, uint64_t grace_ms);

#endif

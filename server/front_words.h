/* The command line of a front end that `granary serve` starts: PROGRAM [-t THREADS] [-v] FD KEY=VALUE... */
#ifndef GRANARY_SERVER_FRONT_WORDS_H
#define GRANARY_SERVER_FRONT_WORDS_H

#include "server/serving.h"

struct front_words {
    unsigned threads; /* -t, or the default */
    int fd;           /* what the supervisor holds and hands on: a listening socket, /dev/fuse */
};

/* main() of a front end: parses the command line, calls serve with the options set, and closes what it opened. threads:
 * the default. Logs to standard error, warnings and worse, with -v everything. Returns the process's exit status,
 * having said why on standard error where it is not 0. */
int front_main(int argc, char **argv, unsigned threads,
               int (*serve)(struct serving *serving, const struct front_words *words));

#endif

/* The command line of a front end that `granary serve` starts: PROGRAM [-t THREADS] [-v] [OPTIONS OF ITS OWN] FD
 * KEY=VALUE... */
#ifndef GRANARY_SERVER_FRONT_END_H
#define GRANARY_SERVER_FRONT_END_H

#include "server/serving.h"

struct front_end_arguments {
    unsigned threads; /* -t, or the default */
    int fd;           /* what the supervisor holds and hands on: a listening socket, /dev/fuse */
};

/* What a front end adds. */
struct front_end {
    unsigned threads;                                       /* the default of -t */
    const char *own;                                        /* its own options, as getopt has them; not t, not v */
    const char *own_help;                                   /* how usage shows them, with a space behind; "": none */
    void (*take)(void *arg, int option, const char *value); /* one of them; value lives as long as argv */
    int (*serve)(void *arg, struct serving *serving, const struct front_end_arguments *words);
    void *arg;
};

/* main() of a front end: parses the command line, calls serve with the options set, and closes what it opened. Logs to
 * standard error, warnings and worse, with -v everything. Returns the process's exit status, having said why on
 * standard error where it is not 0. */
int front_end_main(int argc, char **argv, const struct front_end *front_end);

#endif

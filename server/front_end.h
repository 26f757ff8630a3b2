/* The main() that all front ends share. `granary serve` starts them as PROGRAM [-t THREADS] [-v] [OWN OPTIONS] FD
 * KEY=VALUE... */
#ifndef GRANARY_SERVER_FRONT_END_H
#define GRANARY_SERVER_FRONT_END_H

#include "server/serving.h"

/* The command line, as far as all front ends share it. */
struct front_end_arguments {
    unsigned threads; /* -t, or the default */
    int fd;           /* a descriptor that the supervisor holds and hands on: a listening socket, or /dev/fuse */
};

/* A front end's own part. */
struct front_end {
    unsigned threads;     /* the default of -t */
    const char *own;      /* its own options as getopt has them; 't' and 'v' are taken */
    const char *own_help; /* its own options as the usage line shows them, each followed by a space; "": none */
    void (*take)(void *arg, int option, const char *value); /* takes one own option; value lives as long as argv */
    int (*serve)(void *arg, struct serving *serving, const struct front_end_arguments *words);
    void *arg;
};

/* Parse the command line, call serve with the options set, and close what was opened. Logs warnings and errors to
 * standard error, everything with -v. Returns the exit status, after a line on standard error if it is not 0. */
int front_end_main(int argc, char **argv, const struct front_end *front_end);

#endif

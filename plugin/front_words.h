/* The command line of a front end that `granary serve` starts: PROGRAM [-t THREADS] [-v] FD KEY=VALUE... */
#ifndef GRANARY_PLUGIN_FRONT_WORDS_H
#define GRANARY_PLUGIN_FRONT_WORDS_H

#include "stack_options.h"

enum { FRONT_EXIT_USAGE = 2, FRONT_THREADS_MAX = 4096 };

struct front_words {
    unsigned threads; /* the default before, unless -t is given */
    int fd;           /* what the supervisor holds and hands on: a listening socket, /dev/fuse */
};

/* Logs to standard error, warnings and worse, with -v everything; options: initialised, complete afterwards. Returns 0,
 * or the process's exit status, having said why on standard error. */
GR_MUST_CHECK int front_words_parse(int argc, char **argv, struct front_words *words, struct stack_options *options);

#endif

/* What a supervised program says: passed on line by line, the last line remembered, since it says why the program
 * ended. */
#ifndef GRANARY_ATTACH_SERVER_CHILD_OUTPUT_H
#define GRANARY_ATTACH_SERVER_CHILD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

struct child_output {
    int fd;         /* read end of its pipe, non-blocking; -1: none */
    char line[512]; /* the one being received */
    size_t line_len;
    char last[512]; /* the one before */
    bool holds; /* the last line waits, since a sentence of ours may say it: child_output_release, or the next one */
    bool held;  /* it does */
};
#define CHILD_OUTPUT_INIT                                                                                              \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* A program begins; fd is taken. */
void child_output_begin(struct child_output *o, int fd);
/* 1: took some, 0: nothing is there now, -1: it has ended. */
int child_output_take(struct child_output *o);
/* All that is left, after the program's end; closes it. */
void child_output_end(struct child_output *o);
/* Print the line that waits. */
void child_output_release(struct child_output *o);
/* What a line says behind the prefix that errors have; the whole line without one. */
const char *child_output_sentence(const char *line);
/* Its last words, without the prefix that errors have; "none". */
const char *child_output_last(const struct child_output *o);

#endif

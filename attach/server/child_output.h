/* The output of a supervised program: passed on to the log line by line. The last line is remembered, since it tells
 * why the program ended. */
#ifndef GRANARY_ATTACH_SERVER_CHILD_OUTPUT_H
#define GRANARY_ATTACH_SERVER_CHILD_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

/* The reading end, and the last two lines. */
struct child_output {
    int fd;         /* read end of its pipe, non-blocking; -1: none */
    char line[512]; /* the line being received */
    size_t line_len;
    char last[512]; /* the complete line before it */
    bool holds; /* keep back each last line until the next one, or child_output_release: our own sentence may contain it
                 */
    bool held;  /* last is kept back now */
};
#define CHILD_OUTPUT_INIT                                                                                              \
    {                                                                                                                  \
        .fd = -1                                                                                                       \
    }

/* Begin with a new program; takes fd. */
void child_output_begin(struct child_output *o, int fd);
/* Read what is there. Returns 1: some was read, 0: nothing is there now, -1: the end. */
int child_output_take(struct child_output *o);
/* Read the rest after the program has ended, and close the descriptor. */
void child_output_end(struct child_output *o);
/* Log the line that is kept back. */
void child_output_release(struct child_output *o);
/* Return the text of a line behind the prefix of errors; the whole line without such a prefix. */
const char *child_output_sentence(const char *line);
/* Return the sentence of the last line, or "none". */
const char *child_output_last(const struct child_output *o);

#endif

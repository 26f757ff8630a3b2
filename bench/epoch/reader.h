/* What the modes of the reader share. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BLOCK = 1 << 20 };

struct file {
    uint64_t sum, size;
    char *path;
};

void die(const char *what);
double now_ms(void);

/* Seconds of CPU of the children that have ended. */
double children_cpu(void);

/* Reads the file below `dir` to its end, through `block` of BLOCK bytes, and compares its size and the sum of its bytes
 * with the list's. Counts a difference or a failure in `errors`, and prints the first ones. */
void read_and_compare(int dir, const struct file *file, unsigned char *block, size_t *errors);

/* feed LIST DIR READERS ORDER ACCELERATORS BATCH STEP_MS SECONDS [FILE_MS]: arguments from ACCELERATORS on in `argv`.
 * The files are shuffled already. Prints one JSON object; returns the exit status. */
int feed(const struct file *files, size_t count, const char *top, long readers, int argc, char **argv);

/* Progress of long work, on standard error: one line rewritten in place on a terminal, a plain line
 * every few seconds otherwise, nothing when quiet. Used from one thread.
 */
#ifndef GRANARY_CLI_PROGRESS_H
#define GRANARY_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
    const char *what; /* the verb */
    bool quiet, terminal, shown;
    uint64_t started_ms, last_ms;
    const char *phase;                           /* of the last line: a new phase is shown at once */
    uint64_t phase_ms, phase_bytes, phase_files; /* where the phase began: rate and ETA count from here */
};

/* Where the work stands. Totals of 0 are unknown. */
struct progress_state {
    const char *phase; /* a string constant */
    uint64_t bytes_done, bytes_total, files_done, files_total;
};

void progress_init(struct progress *p, const char *what, bool quiet);
/* As often as you like; draws when it is time. */
void progress_update(struct progress *p, const struct progress_state *state);
/* Before anything else is printed: ends the terminal's line. */
void progress_end(struct progress *p);

/* The line itself, without what and phase: "1.2 GiB of 3.0 GiB, 100 of 250 files, 90.1 MiB/s, 0:21 left". */
enum { PROGRESS_LINE_MAX = 160 };
char *progress_format(const struct progress_state *state, uint64_t elapsed_ms, uint64_t bytes_before,
                      uint64_t files_before, char out[PROGRESS_LINE_MAX]);

#endif

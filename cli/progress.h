/* Progress of long work, on standard error: one line rewritten in place on a terminal, a plain line
 * every few seconds otherwise, or a JSON object every second and at the end; nothing when quiet. Used from one thread.
 */
#ifndef GRANARY_CLI_PROGRESS_H
#define GRANARY_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

/* Where the work stands. Totals of 0 are unknown. */
struct progress_state {
    const char *phase; /* a string constant */
    uint64_t bytes_done, bytes_total, files_done, files_total;
    uint64_t failed, failed_bytes; /* chunks that cannot be had, which are not done and not waited for */
};

struct progress {
    const char *what; /* the verb */
    bool quiet, terminal, shown;
    bool json; /* may be set after progress_init: without a terminal, lines are objects (progress_json) */
    bool owed; /* such an object, of `last` */
    uint64_t started_ms, last_ms;
    const char *phase;                           /* of the last line: a new phase is shown at once */
    uint64_t phase_ms, phase_bytes, phase_files; /* where the phase began: rate and ETA count from here */
    struct progress_state last;
};

void progress_init(struct progress *p, const char *what, bool quiet);
/* As often as you like; draws when it is time. */
void progress_update(struct progress *p, const struct progress_state *state);
/* Before anything else is printed: ends the terminal's line, or prints the object of the last state. */
void progress_end(struct progress *p);

/* The line itself, without what and phase: "1.2 GiB of 3.0 GiB, 100 of 250 files, 2 failed, 90.1 MiB/s, 0:21 left". */
enum { PROGRESS_LINE_MAX = 160 };
char *progress_format(const struct progress_state *state, uint64_t elapsed_ms, uint64_t bytes_before,
                      uint64_t files_before, char out[PROGRESS_LINE_MAX]);
/* The same as {"progress": {phase, bytes_done, bytes_total, files_done, files_total, failed_chunks, bytes_per_s,
 * seconds_left (null: unknown)}}. */
enum { PROGRESS_JSON_MAX = 400 };
char *progress_json(const struct progress_state *state, uint64_t elapsed_ms, uint64_t bytes_before,
                    uint64_t files_before, char out[PROGRESS_JSON_MAX]);

#endif

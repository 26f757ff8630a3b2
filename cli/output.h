/* What verbs print: names, which are bytes, digests and JSON objects on standard output; progress on standard error. */
#ifndef GRANARY_CLI_OUTPUT_H
#define GRANARY_CLI_OUTPUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/digest.h"
#include "format/json_name.h"
#include "format/manifest.h"

enum { PRINT_DIGEST_MAX = DIGEST_HEX_SIZE + 7 };

/* Write "sha256:<hex>" into out; return out. */
const char *print_digest(const struct digest *d, char out[PRINT_DIGEST_MAX]);

/* Print a name. escape: print bytes that could control a terminal as \n, \t, \\ or \xHH. */
void print_name(FILE *to, const char *name, size_t len, bool escape);
/* Print a name that ends with NUL to standard output, escaped if that is a terminal. NULL: print nothing. */
void print_text(const char *name);
/* Whether names printed to this stream need escaping: it is a terminal. */
bool print_escapes(FILE *to);

/* Print a line of a result that says which Linux the image needs, if others of its filesystem need less. */
void print_needs(const struct manifest *m);

/* Make JSON values. They are NULL when memory is short, which json_object_set_new and print_json accept. */
json_t *print_json_digest(const struct digest *d);
json_t *print_json_time(int64_t seconds);
json_t *print_json_counts(const struct manifest_counts *counts);
#define INTEGER(value) json_integer((json_int_t)(value))
/* Print one object and a newline, and free it. -ENOMEM for NULL. */
GR_MUST_CHECK int print_json(json_t *object);
/* The same to a stream, whose errors the caller checks. */
GR_MUST_CHECK int print_json_to(FILE *to, json_t *object);

/* Progress of long work: a line rewritten in place on a terminal, else a plain line every few seconds or a JSON object
 * every second and at the end; nothing when quiet. Used from one thread. */

/* Where the work stands. A total of 0 is unknown. */
struct progress_state {
    const char *phase; /* a string constant: phases are compared by address */
    uint64_t bytes_done, bytes_total, files_done, files_total;
    uint64_t failed, failed_bytes; /* chunks that failed; not among those done, and no longer expected */
};

/* What is needed between two lines. */
struct progress {
    const char *what; /* the verb's name */
    bool quiet, terminal, shown;
    bool json; /* may be set after progress_init: print objects unless on a terminal */
    bool owed; /* `last` has not been printed as an object yet */
    uint64_t last_ms;
    const char *phase;                           /* of the last line: a new phase is shown at once */
    uint64_t phase_ms, phase_bytes, phase_files; /* where the phase began: the rate and the time left count from here */
    struct progress_state last;
};

void progress_init(struct progress *p, const char *what, bool quiet);
/* Take the state; draws when it is time. May be called as often as you like. */
void progress_update(struct progress *p, const struct progress_state *state);
/* Call it before anything else is printed: clears the terminal's line, or prints the last object. */
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

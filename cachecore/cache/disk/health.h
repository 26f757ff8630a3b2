/* The health of one direction (reading or writing) of one cache directory: a state machine without I/O and without a
 * clock. The caller locks.
 *
 *    state    | good            | fault             | wrong   | timeout | probe good      | probe bad
 *    normal   | -               | suspect           | suspect | down    |                 |
 *    suspect  | normal, if well | down, if the 8th  | -       | down    | normal, if well | down
 *    down     | -               | -                 | -       | -       | suspect         | probed later
 *
 * "well": the latest fault, or the return from down, is HEALTH_NORMAL_AFTER_MS ago. "the 8th": of faults in a row,
 * without a success in between. Bytes that differ from their checksum ("wrong") say that their slot is damaged, which
 * the next fill repairs; only a probe whose bytes come back wrong says that the disk is bad.
 *
 * Suspect: used as before, and probed once a second. Down: not used at all, and probed after 1 s, then at intervals
 * that double up to 30 s. The interval keeps growing when a direction goes down again before it was normal.
 */
#ifndef GRANARY_CACHE_DISK_HEALTH_H
#define GRANARY_CACHE_DISK_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    HEALTH_FAULTS_MAX = 8, /* faults in a row before it is down */
    HEALTH_NORMAL_AFTER_MS = 10000,
    HEALTH_PROBE_MIN_MS = 1000,
    HEALTH_PROBE_MAX_MS = 30000,
};

enum health_state { HEALTH_NORMAL, HEALTH_SUSPECT, HEALTH_DOWN };

enum health_event {
    HEALTH_GOOD,    /* it worked */
    HEALTH_FAULT,   /* it failed */
    HEALTH_WRONG,   /* the bytes differ from those written */
    HEALTH_TIMEOUT, /* no answer in time */
    HEALTH_PROBE_GOOD,
    HEALTH_PROBE_BAD,
};

/* All zero: normal. */
struct health {
    enum health_state state;
    unsigned faults;        /* in a row */
    uint64_t fault_ms;      /* time of the latest fault, or of the return from down */
    uint64_t probe_ms;      /* time of the next probe, unless normal */
    uint32_t probe_wait_ms; /* interval of probes while down; 0: it was normal since */
};

/* Note an event. true: the state has changed. */
bool health_note(struct health *h, enum health_event event, uint64_t now_ms);
/* Is a probe due? */
bool health_wants_probe(const struct health *h, uint64_t now_ms);
/* Return "normal", "suspect" or "down". */
const char *health_name(enum health_state state);

#endif

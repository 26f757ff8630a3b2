/* Find how many concurrent reads fill the link, by trial: the number grows while growth delivers more, and shrinks by
 * what delivers nothing. A near source starts low, because each thread that a local build does not need costs CPU.
 * Arithmetic only: the caller measures and decides when an interval ends. No locks; one thread at a time.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H
#define GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "imagebuild/source/source.h"

enum {
    READ_CONCURRENCY_FIRST = 32,       /* over a network, to begin with: a short build ends before another is found */
    READ_CONCURRENCY_LEAST = 8,        /* over a network, never fewer */
    READ_CONCURRENCY_NEAR_PER_CPU = 2, /* near source (source.h): to begin with, */
    READ_CONCURRENCY_NEAR_LEAST = 2,   /* and never fewer than this in all */
    READ_CONCURRENCY_MOST = SOURCE_JOBS_MAX,
    READ_CONCURRENCY_REQUEST_UNITS = 64 << 10, /* bytes that a request counts for, as its fixed cost */
    READ_CONCURRENCY_INTERVAL_MS = 250,        /* an interval lasts this long at least, */
    READ_CONCURRENCY_INTERVAL_MAX_MS = 3000,   /* and at most, unless two requests per read are done before */
};

/* What the current interval tries (read_concurrency.c). */
enum read_concurrency_phase {
    READ_CONCURRENCY_RISE,
    READ_CONCURRENCY_REST,
    READ_CONCURRENCY_UP,
    READ_CONCURRENCY_DOWN
};

/* Lives in the caller's memory; there is nothing to release. */
struct read_concurrency { /* concurrent reads now */
    unsigned limit;       /* reads at a time, now */
    unsigned least;       /* never fewer */
    enum read_concurrency_phase phase;
    bool skip;       /* ignore the next interval: reads begun under the old limit end in it */
    unsigned former; /* the limit before the attempt */
    double rate;     /* delivered under `former`, in units per millisecond */
    double sum;      /* of the rates of this phase's `n` intervals */
    unsigned n;
    bool down_next; /* the next attempt is DOWN */
};

/* For a source over a network. */
void read_concurrency_init(struct read_concurrency *j);
/* For a near source; cpus: of this machine. */
void read_concurrency_init_near(struct read_concurrency *j, unsigned cpus);
/* Return whether an interval of `ms` milliseconds with `requests` answered requests is long enough to judge. */
bool read_concurrency_interval_over(const struct read_concurrency *j, uint64_t ms, uint64_t requests);
/* An interval is over: bytes and requests were delivered in ms milliseconds. held_up: the readers waited for
 * something other than the source (the writer was behind), so the interval says nothing about it. Sets j->limit. */
void read_concurrency_interval(struct read_concurrency *j, uint64_t bytes, uint64_t requests, uint64_t ms,
                               bool held_up);

#endif

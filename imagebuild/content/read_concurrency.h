/* Find by trial how many concurrent reads fill the link. The number grows as long as more reads deliver more bytes, and
 * shrinks as long as fewer deliver as much. A near source starts low, because each thread that a local build does not
 * need costs CPU. Arithmetic only: the caller measures, and decides when an interval ends. No locks; one thread at a
 * time.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H
#define GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "imagebuild/source/source.h"

enum {
    READ_CONCURRENCY_FIRST = 32,       /* initial number over a network; a short build never finds a better one */
    READ_CONCURRENCY_LEAST = 8,        /* lowest number over a network */
    READ_CONCURRENCY_NEAR_PER_CPU = 2, /* initial number for a near source (source.h), per CPU */
    READ_CONCURRENCY_NEAR_LEAST = 2,   /* lowest number for a near source, in all */
    READ_CONCURRENCY_MOST = SOURCE_JOBS_MAX,
    READ_CONCURRENCY_REQUEST_UNITS = 64 << 10, /* a request counts as these bytes, for its fixed cost */
    READ_CONCURRENCY_INTERVAL_MS = 250,        /* least length of an interval; it ends then if each of the concurrent */
    READ_CONCURRENCY_INTERVAL_MAX_MS = 3000,   /* reads has had two requests answered, otherwise at this length */
};

/* What the current interval tries (read_concurrency.c). */
enum read_concurrency_phase {
    READ_CONCURRENCY_RISE,
    READ_CONCURRENCY_REST,
    READ_CONCURRENCY_UP,
    READ_CONCURRENCY_DOWN
};

/* Lives in the caller's memory; there is nothing to release. */
struct read_concurrency {
    unsigned limit; /* concurrent reads now */
    unsigned least; /* lowest limit */
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

/* How many reads at a time fill the link, found by trying: it grows while more is delivered for it, and gives back what
 * brings nothing. Where it begins depends on how far the source is: every thread that a local build does not need costs
 * it CPU. Arithmetic only: the caller measures and says when an interval is over.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H
#define GRANARY_IMAGEBUILD_CONTENT_READ_CONCURRENCY_H

#include <stdbool.h>
#include <stdint.h>

#include "imagebuild/source/source.h"

enum {
    READ_CONCURRENCY_FIRST = 32,             /* over a network: a short build is over before another number is found */
    READ_CONCURRENCY_LEAST = 8,              /* over a network never fewer */
    READ_CONCURRENCY_NEAR_PER_CPU = 2,       /* for a source that is near (source.h): to begin with, */
    READ_CONCURRENCY_NEAR_LEAST = 2,         /* and never fewer in all */
    READ_CONCURRENCY_MOST = SOURCE_JOBS_MAX, /* never more */
    READ_CONCURRENCY_REQUEST_UNITS = 64 << 10, /* a request counts as so many bytes */
    READ_CONCURRENCY_INTERVAL_MS = 250,        /* at least, */
    READ_CONCURRENCY_INTERVAL_MAX_MS = 3000,   /* and at most, unless two requests for each job were answered before */
};

enum read_concurrency_phase {
    READ_CONCURRENCY_RISE,
    READ_CONCURRENCY_REST,
    READ_CONCURRENCY_UP,
    READ_CONCURRENCY_DOWN
};

/* In the caller's memory; there is nothing to release. */
struct read_concurrency {
    unsigned limit; /* reads at a time, now */
    unsigned least; /* never fewer */
    enum read_concurrency_phase phase;
    bool skip;       /* the next interval shows what was begun under the former limit too */
    unsigned former; /* limit before the attempt */
    double rate;     /* what `former` delivered, in units a millisecond */
    double sum;      /* of the rates of `n` intervals of this phase */
    unsigned n;
    bool down_next;
};

void read_concurrency_init(struct read_concurrency *j);
/* For a source that is near; cpus: this machine's. */
void read_concurrency_init_near(struct read_concurrency *j, unsigned cpus);
/* Is an interval of so many milliseconds and answered requests long enough to judge? */
bool read_concurrency_interval_over(const struct read_concurrency *j, uint64_t ms, uint64_t requests);
/* One is over: so many bytes and requests were delivered in ms milliseconds. held_up: the readers waited for something
 * else than the source (the writer was behind), so it says nothing about it. Sets j->limit. */
void read_concurrency_interval(struct read_concurrency *j, uint64_t bytes, uint64_t requests, uint64_t ms,
                               bool held_up);

#endif

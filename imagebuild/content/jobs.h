/* How many reads at a time fill the link, found by trying: it grows while more is delivered for it, and gives back what
 * brings nothing. Where it begins depends on how far the source is: every thread that a local build does not need costs
 * it CPU. Arithmetic only: the caller measures and says when an interval is over.
 */
#ifndef GRANARY_IMAGEBUILD_CONTENT_JOBS_H
#define GRANARY_IMAGEBUILD_CONTENT_JOBS_H

#include <stdbool.h>
#include <stdint.h>

#include "imagebuild/source/source.h"

enum {
    JOBS_FIRST = 32,               /* over a network: a short build is over before another number is found */
    JOBS_LEAST = 8,                /* over a network never fewer */
    JOBS_NEAR_PER_CPU = 2,         /* for a source that is near (source.h): to begin with, */
    JOBS_NEAR_LEAST = 2,           /* and never fewer in all */
    JOBS_MOST = SOURCE_JOBS_MAX,   /* never more */
    JOBS_REQUEST_UNITS = 64 << 10, /* a request counts as so many bytes */
    JOBS_INTERVAL_MS = 250,        /* at least, */
    JOBS_INTERVAL_MAX_MS = 3000,   /* and at most, unless two requests for each job were answered before */
};

enum jobs_phase { JOBS_RISE, JOBS_REST, JOBS_UP, JOBS_DOWN };

/* In the caller's memory; there is nothing to release. */
struct jobs {
    unsigned limit; /* reads at a time, now */
    unsigned least; /* never fewer */
    enum jobs_phase phase;
    bool skip;       /* the next interval shows what was begun under the former limit too */
    unsigned former; /* limit before the attempt */
    double rate;     /* what `former` delivered, in units a millisecond */
    double sum;      /* of the rates of `n` intervals of this phase */
    unsigned n;
    bool down_next;
};

void jobs_init(struct jobs *j);
/* For a source that is near; cpus: this machine's. */
void jobs_init_near(struct jobs *j, unsigned cpus);
/* Is an interval of so many milliseconds and answered requests long enough to judge? */
bool jobs_interval_over(const struct jobs *j, uint64_t ms, uint64_t requests);
/* One is over: so many bytes and requests were delivered in ms milliseconds. held_up: the readers waited for something
 * else than the source (the writer was behind), so it says nothing about it. Sets j->limit. */
void jobs_interval(struct jobs *j, uint64_t bytes, uint64_t requests, uint64_t ms, bool held_up);

#endif

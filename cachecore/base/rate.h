/* So many bytes a second, shared by any number of threads: a bucket that fills at that rate and holds what comes in
 * RATE_BURST_MS. Who takes more than there is waits until the bucket is even again, in the order of taking.
 */
#ifndef GRANARY_BASE_RATE_H
#define GRANARY_BASE_RATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum { RATE_BURST_MS = 100, RATE_MIN = 64 << 10 };

/* Members are its own. */
struct rate {
    pthread_mutex_t lock;
    uint64_t bytes_per_s;
    uint64_t paid_ns; /* the moment up to which the bytes taken use up the rate */
};

/* bytes_per_s: at least 1. */
void rate_init(struct rate *r, uint64_t bytes_per_s);
void rate_release(struct rate *r);

/* n bytes are passing: wait until they may. Returns false when *cancel (may be NULL; set by a thread or a signal
 * handler) ended the waiting. r may be NULL: no limit. */
bool rate_take(struct rate *r, uint64_t n, const volatile int *cancel);

/* What rate_take does without waiting: the moment, on the clock of now_ns, at which n bytes taken now are paid for. */
uint64_t rate_charge(struct rate *r, uint64_t n, uint64_t now_ns);

/* "100M", "100M/s": a size (text_parse_size) a second, of RATE_MIN at least. -EINVAL with a sentence naming what. */
GR_MUST_CHECK int rate_parse(const char *what, const char *text, uint64_t *out_bytes_per_s);

#endif

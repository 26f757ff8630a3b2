/* A limit in bytes a second, shared by any number of threads: a token bucket that fills at that rate and holds
 * RATE_BURST_MS worth of bytes. A thread may overdraw the bucket, and then waits until the debt is paid. Threads wait
 * in the order in which they took.
 */
#ifndef GRANARY_BASE_RATE_H
#define GRANARY_BASE_RATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum { RATE_BURST_MS = 100, RATE_MIN = 64 << 10 /* bytes a second */ };

/* Private to rate.c. */
struct rate {
    pthread_mutex_t lock; /* guards paid_ns */
    uint64_t bytes_per_s;
    uint64_t paid_ns; /* the time until which the bytes taken so far use up the rate */
};

/* bytes_per_s: at least 1. */
void rate_init(struct rate *r, uint64_t bytes_per_s);
void rate_release(struct rate *r);

/* Take n bytes and wait until they may pass. Returns false when *cancel (base/cancel.h; may be NULL) ended the wait. r
 * may be NULL: no limit. Any thread. */
bool rate_take(struct rate *r, uint64_t n, const volatile int *cancel);

/* Take n bytes without waiting. Returns the time, on the clock of now_ns, at which they may pass. Any thread. */
uint64_t rate_charge(struct rate *r, uint64_t n, uint64_t now_ns);

/* Parse "100M" or "100M/s": a size (text_parse_size) a second, at least RATE_MIN. -EINVAL with a sentence that names
 * what; -ENOMEM. */
GR_MUST_CHECK int rate_parse(const char *what, const char *text, uint64_t *out_bytes_per_s);

#endif

/* Limits the log lines of an error storm: LOG_LIMIT_BURST at once, then one a second. Lines that are not logged are
 * counted, and the next line that passes reports how many there were.
 */
#ifndef GRANARY_BASE_LOG_LIMIT_H
#define GRANARY_BASE_LOG_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_BURST = 100 };

/* A token bucket. Declare one with LOG_LIMIT_INIT. */
struct log_limit {
    pthread_mutex_t lock; /* guards the rest */
    unsigned left;        /* lines that may be logged at once */
    uint64_t refilled_ms; /* the time up to which `left` is counted; 0: never used */
    uint64_t passed_over; /* lines not logged since the last one that was */
};

#define LOG_LIMIT_INIT                                                                                                 \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .left = LOG_LIMIT_BURST                                                     \
    }

/* May a line be logged at now_ms (clock_now_ms)? If so, *out_passed_over is the number of lines not logged since the
 * last one. Any thread. */
bool log_limit_pass(struct log_limit *l, uint64_t now_ms, uint64_t *out_passed_over);

#endif

/* Lines that a storm of errors may write: LOG_LIMIT_BURST at once, then one a second. What is passed over is counted,
 * and the next line that passes says how many there were. */
#ifndef GRANARY_BASE_LOG_LIMIT_H
#define GRANARY_BASE_LOG_LIMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { LOG_LIMIT_BURST = 100 };

struct log_limit {
    pthread_mutex_t lock;
    unsigned left;        /* lines that may be written at once */
    uint64_t refilled_ms; /* up to when left was counted */
    uint64_t passed_over;
};

#define LOG_LIMIT_INIT                                                                                                 \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .left = LOG_LIMIT_BURST                                                     \
    }

/* May a line be written now (clock_now_ms)? *out_passed_over: how many were not since the last that was. Any thread. */
bool log_limit_pass(struct log_limit *l, uint64_t now_ms, uint64_t *out_passed_over);

#endif

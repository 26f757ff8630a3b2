/* Log lines. Where they go is set once for the whole process: a front end chooses (the plugin sends them to nbdkit). By
 * default each goes to standard error as one line, "granary: LEVEL: text".
 */
#ifndef GRANARY_BASE_LOG_H
#define GRANARY_BASE_LOG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Write one line, without a newline. Called by any thread, several at a time. */
typedef void log_sink(enum log_level level, const char *line);

/* Send lines to sink (NULL: standard error). max: less severe levels are dropped; the default is LOG_LEVEL_INFO. Call
 * it before other threads start. */
void log_to(log_sink *sink, enum log_level max);

/* Log a line of at most 1,023 bytes; the rest is cut. Control bytes become '?'. Never pass a secret. Any thread. */
void log_line(enum log_level level, const char *fmt, ...) GR_PRINTF(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* ---- limits ----
 *
 * Limits the log lines of an error storm: LOG_LIMIT_BURST at once, then one a second. Lines that are not logged are
 * counted, and the next line that passes reports how many there were. */

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

/* Log a line if the limit allows it. The line also says how many were dropped since the last one. Any thread. */
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...) GR_PRINTF(3, 4);

#endif

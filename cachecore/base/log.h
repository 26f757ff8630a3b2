/* Log lines. Where they go is set once for the whole process: a front end chooses (the plugin sends them to nbdkit). By
 * default each goes to standard error as one line, "granary: LEVEL: text".
 */
#ifndef GRANARY_BASE_LOG_H
#define GRANARY_BASE_LOG_H

#include "base/compiler.h"
#include "base/log_limit.h"

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

/* Log a line if the limit allows it. The line also says how many were dropped since the last one. Any thread. */
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...) GR_PRINTF(3, 4);

#endif

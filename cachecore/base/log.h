/* Log lines. The one process-wide setting: where they go. Front doors choose (the plugin sends them
 * to nbdkit); the default is standard error, one line each, "granary: LEVEL: text".
 */
#ifndef GRANARY_BASE_LOG_H
#define GRANARY_BASE_LOG_H

#include "base/compiler.h"
#include "base/log_limit.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

typedef void log_sink(enum log_level level, const char *line);

/* Set before threads start. max: lines above it are dropped (default LOG_LEVEL_INFO). sink NULL:
 * standard error. */
void log_to(log_sink *sink, enum log_level max);

/* Control bytes are shown as '?'; never pass a secret. Any thread. */
void log_line(enum log_level level, const char *fmt, ...) GR_PRINTF(2, 3);

#define log_error(...) log_line(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_line(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_line(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_line(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* Write a line if the limit lets it pass, and in it how many it did not let. */
void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...) GR_PRINTF(3, 4);

#endif

/* The sink and the level are plain globals: they are set before threads start and only read afterwards. Lines are built
 * on the stack, so that logging works when memory is short.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/cleanup.h"
#include "base/clock.h"

enum { LINE_MAX_BYTES = 1024 };

static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* The default sink. One fprintf per line, since stdio locks the stream for a call: lines do not mix. */
static void to_stderr(enum log_level level, const char *line)
{
    fprintf(stderr, "granary: %s: %s\n", level_names[level], line);
}

static log_sink *current_sink = to_stderr;
static enum log_level current_max = LOG_LEVEL_INFO;

void log_to(log_sink *sink, enum log_level max)
{
    current_sink = sink ? sink : to_stderr;
    current_max = max;
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > current_max)
        return;
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    for (char *p = line; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
    current_sink(level, line);
}

/* A token bucket that gains one token a second. Only whole seconds are added, and refilled_ms moves on by just those,
 * so the fraction is not lost between calls. */
bool log_limit_pass(struct log_limit *l, uint64_t now_ms, uint64_t *out_passed_over)
{
    SCOPED_LOCK(&l->lock);
    if (!l->refilled_ms)
        l->refilled_ms = now_ms;
    uint64_t seconds = now_ms > l->refilled_ms ? (now_ms - l->refilled_ms) / 1000 : 0;
    l->left = (unsigned)GR_MIN(l->left + seconds, (uint64_t)LOG_LIMIT_BURST);
    l->refilled_ms += seconds * 1000;
    if (!l->left) {
        l->passed_over++;
        return false;
    }
    l->left--;
    *out_passed_over = l->passed_over;
    l->passed_over = 0;
    return true;
}

void log_limited(struct log_limit *limit, enum log_level level, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    uint64_t passed_over;
    if (!log_limit_pass(limit, clock_now_ms(), &passed_over))
        return;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (passed_over)
        log_line(level, "%s (%llu more were not logged)", line, (unsigned long long)passed_over);
    else
        log_line(level, "%s", line);
}

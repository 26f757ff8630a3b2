/* The sentence is thread-local, so setting it needs neither a lock nor memory, and "out of memory" can always be
 * reported. When the work of one thread fails for another, the error is carried over:
 *
 *   worker: error_set, error_take(&e, rc)  --e-->  waiter: return error_restore(&e)
 *
 * Function names are in parentheses where error.h may define a macro of the same name.
 */
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[ERROR_TEXT_MAX] = "unknown error";

static _Thread_local unsigned retry_after, count; /* seconds; sentences set */

/* Replace control bytes: a sentence must stay one line in a log, and must not control a terminal. */
static void sanitize(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

int(error_set)(int code, const char *fmt, ...)
{
    int saved = errno;          /* vsnprintf may change it, and callers use it after this call */
    char fresh[ERROR_TEXT_MAX]; /* an argument may point into text itself */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    sanitize(fresh);
    memcpy(text, fresh, sizeof text);
    retry_after = 0;
    count++;
    errno = saved;
    return code;
}

int(error_no_memory)(void)
{
    return (error_set)(-ENOMEM, "out of memory");
}

int(error_prefix)(int code, const char *fmt, ...)
{
    char prefix[ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    unsigned kept = retry_after; /* error_set clears it */
    (void)error_set(code, "%s: %s", prefix, text);
    return error_retry_after(code, kept);
}

int error_retry_after(int code, unsigned seconds)
{
    retry_after = seconds;
    return code;
}

unsigned error_retry_after_s(void)
{
    return retry_after;
}

unsigned error_count(void)
{
    return count;
}

const char *error_text(void)
{
    return text;
}

void error_take(struct error *out, int code)
{
    out->code = code;
    out->retry_after_s = retry_after;
    memcpy(out->text, text, sizeof out->text);
}

int error_restore(const struct error *e)
{
    memcpy(text, e->text, sizeof text);
    retry_after = e->retry_after_s;
    count++;
    return e->code;
}

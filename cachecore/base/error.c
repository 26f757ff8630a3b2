#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char text[ERROR_TEXT_MAX] = "unknown error";

static void sanitize(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = '?';
}

int error_set(int code, const char *fmt, ...)
{
    int saved = errno;
    char fresh[ERROR_TEXT_MAX]; /* an argument may point into text itself */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(fresh, sizeof fresh, fmt, ap);
    va_end(ap);
    sanitize(fresh);
    memcpy(text, fresh, sizeof text);
    errno = saved;
    return code;
}

int error_prefix(int code, const char *fmt, ...)
{
    char prefix[ERROR_TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(prefix, sizeof prefix, fmt, ap);
    va_end(ap);
    return error_set(code, "%s: %s", prefix, text);
}

const char *error_text(void)
{
    return text;
}

void error_take(struct error *out, int code)
{
    out->code = code;
    memcpy(out->text, text, sizeof out->text);
}

int error_restore(const struct error *e)
{
    memcpy(text, e->text, sizeof text);
    return e->code;
}

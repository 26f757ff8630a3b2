/* DIR:SIZE or DIR:PERCENT%, then :ssd, :hdd or nothing, read from the end: a path may hold anything. */
#include "format/cache_spec.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

enum { QUOTA_MIN = 16 << 20 };

static int parse_percent(const char *text, size_t len, unsigned *out)
{
    char number[8];
    uint64_t n;
    snprintf(number, sizeof number, "%.*s", (int)len, text);
    int rc = text_parse_uint("cache size in percent", number, 1, 99, &n);
    if (!rc)
        *out = (unsigned)n;
    return rc;
}

static int parse_plain(const char *what, const char *text, struct cache_spec *out)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return error_set(-EINVAL, "%s%s: write %sDIR:SIZE, e.g. %s/var/cache/granary:200G or :90%%", what, text, what,
                         what);
    *out = (struct cache_spec){.dir_len = (size_t)(colon - text)};
    size_t len = strlen(colon + 1);
    if (colon[len] == '%')
        return parse_percent(colon + 1, len - 1, &out->percent);
    return text_parse_size("cache size", colon + 1, &out->size);
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    return len > strlen(end) && !strcmp(text + len - strlen(end), end);
}

int cache_spec_parse(const char *what, const char *text, struct cache_spec *out)
{
    static const char hdd[] = ":hdd", ssd[] = ":ssd";
    size_t len = strlen(text);
    bool slow = ends_with(text, len, hdd), named = slow || ends_with(text, len, ssd);
    CLEANUP_FREE char *plain = strndup(text, named ? len - strlen(hdd) : len);
    int rc = plain ? parse_plain(what, plain, out) : error_set(-ENOMEM, "out of memory");
    if (!rc)
        out->hdd = slow;
    return rc;
}

int quota_spec_parse(const char *what, const char *text, size_t *name_len, uint64_t *size)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return error_set(-EINVAL, "%s%s: write %sNAME:SIZE with the name of an image, e.g. %sfaces:200G", what, text,
                         what, what);
    *name_len = (size_t)(colon - text);
    int rc = text_parse_size("quota", colon + 1, size);
    if (!rc && *size < QUOTA_MIN)
        rc = error_set(-EINVAL, "%s%s: at least 16M", what, text);
    return rc;
}

/* Texts are parsed from the end, since a directory's path may contain any byte, colons included. */
#include "format/cache_spec.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

enum { SIZE_LEAST = 16 << 20 }; /* bytes, of a cache and of a quota */

/* Parse "DIR:SIZE" or "DIR:PERCENT%". */
static int parse_plain(const char *what, const char *text, struct cache_spec *out)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return error_set(-EINVAL, "%s%s: write %sDIR:SIZE, e.g. %s/var/cache/granary:200G or :90%%", what, text, what,
                         what);
    *out = (struct cache_spec){.dir_len = (size_t)(colon - text)};
    size_t len = strlen(colon + 1);
    if (colon[len] == '%')
        return text_parse_percent("cache size", colon + 1, 1, 99, &out->percent);
    int rc = text_parse_size("cache size", colon + 1, &out->size);
    if (!rc && out->size < SIZE_LEAST)
        rc = error_set(-EINVAL, "%s%s: at least 16M", what, text);
    return rc;
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    return len > strlen(end) && !strcmp(text + len - strlen(end), end);
}

int cache_spec_parse(const char *what, const char *text, struct cache_spec *out)
{
    static const char hdd[] = ":hdd", ssd[] = ":ssd";
    size_t len = strlen(text);
    /* ":hdd" and ":ssd" have the same length, so one cut serves both */
    bool slow = ends_with(text, len, hdd), named = slow || ends_with(text, len, ssd);
    CLEANUP_FREE char *plain = strndup(text, named ? len - strlen(hdd) : len);
    int rc = plain ? parse_plain(what, plain, out) : error_no_memory();
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
    if (!rc && *size < SIZE_LEAST)
        rc = error_set(-EINVAL, "%s%s: at least 16M", what, text);
    return rc;
}

/* Parse "HIGH:LOW". The sentences of text_parse_uint are replaced by the caller's. */
static bool parse_watermark(const char *text, uint64_t *high, uint64_t *low)
{
    const char *colon = strchr(text, ':');
    CLEANUP_FREE char *before = colon ? strndup(text, (size_t)(colon - text)) : NULL;
    return before && !text_parse_uint("", before, 2, 99, high) && !text_parse_uint("", colon + 1, 1, *high - 1, low);
}

int watermark_spec_parse(const char *what, const char *text, unsigned *high, unsigned *low)
{
    uint64_t more, less;
    if (!parse_watermark(text, &more, &less))
        return error_set(-EINVAL, "%s%s: write %sHIGH:LOW in percent, e.g. %s95:90", what, text, what, what);
    *high = (unsigned)more;
    *low = (unsigned)less;
    return 0;
}

int tier_spec_check(const char *what, const char *text)
{
    if (!strncmp(text, "http://", 7) || !strncmp(text, "https://", 8))
        return 0;
    return error_set(-EINVAL,
                     "%s...: write the http:// or https:// address of a proxy in front of the store, e.g. "
                     "%shttp://cache1:8080/faces",
                     what, what);
}
